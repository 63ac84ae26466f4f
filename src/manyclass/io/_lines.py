"""From blocks of ``labels index:value ...`` lines to a CSR matrix and targets: what svmlight and XMC share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from ._found import Found
from ._growing import GrowingArray
from ._parse import NO_BOUND, TOO_LARGE, Counts, Rules, Scratch, parse_lines
from ._sinks import LabelSink
from .errors import DataFormatError, counted
from .labels import Targets, Task
from .streams import Block, StrPath

__all__ = ["Scan", "Spill", "overflow", "scan"]

_INT32_MAX = np.iinfo(np.int32).max


def overflow(dtype: np.dtype[Any]) -> float:
    """The smallest double that becomes infinite in ``dtype``."""
    info = np.finfo(dtype)
    if info.bits == 64:
        return float("inf")
    largest = float(info.max)
    return largest + (largest - float(np.nextafter(info.max, dtype.type(0)))) / 2


class Spill(Protocol):
    """Takes rows as they are read, so that they need not be in memory together."""

    def start(self, first: int | None, rows: int | None = None, width: int | None = None) -> None:
        """Reading begins, perhaps once more.

        Features count from ``first`` (None: to be seen), only the first ``rows`` rows count, and features beyond the
        first ``width`` are to be left out.
        """

    def take(self, values: npt.NDArray[Any], indices: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """The next rows; the arrays belong to the caller."""

    def settle(self, first: int) -> None:
        """All rows have come; features count from ``first``."""


class Scan(NamedTuple):
    """A file, read."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    targets: Targets
    smallest: int  # the smallest and the largest index kept; -1 if there is none
    largest: int
    dropped: int
    notes: list[str]
    spilled: bool = False  # the values are elsewhere

    def matrix(self, n_features: int) -> csr_matrix:
        """The rows as a CSR matrix made of these very arrays; one of the same shape without values if they are gone."""
        shape = self.indptr.size - 1, n_features
        if self.spilled:
            return csr_matrix(shape, dtype=self.data.dtype)
        X = csr_matrix((self.data, self.indices, self.indptr), shape=shape, copy=False)
        # Known here, and costly to find out.
        X.has_sorted_indices = True
        X.has_canonical_format = True
        return X


class _Rows:
    """The rows of a file as they come."""

    def __init__(self, dtype: np.dtype[Any], task: Task, spill: Spill | None) -> None:
        self._task = task
        self._spill = spill
        self._labels_per_row: int | None = None  # what a task that has the same number in each row expects
        self._values = GrowingArray(dtype)
        self._indices = GrowingArray(np.int32)
        self._lengths = GrowingArray(np.int32)
        self._labels = GrowingArray(np.int32)
        self._smallest, self._largest = NO_BOUND, -1
        self._dropped = self._queries = self._unsorted = 0
        self._repeated = self._first_repeat = 0

    def add(self, found: Found) -> None:
        """Take the rows of a block."""
        if self._task in ("classification", "regression"):
            self._check_label_counts(found)
        counts, scratch, fraction = found.counts, found.scratch, found.block.fraction
        values, indices = scratch.values[: counts.features], scratch.indices[: counts.features]
        lengths = scratch.row_features[: counts.rows]
        if counts.unsorted_rows:
            values, indices, lengths = self._sort(found, values, indices, lengths)
        self._smallest = min(self._smallest, counts.smallest)
        self._largest = max(self._largest, counts.largest)
        if self._spill is not None:
            wide = self._largest > _INT32_MAX
            self._spill.take(values.astype(self._values.dtype), indices.astype(np.int64 if wide else np.int32), lengths)
        else:
            expected = (len(self._values) + values.size) / fraction
            if self._indices.dtype == np.int32 and max(self._largest, expected) > _INT32_MAX:
                self._indices = self._indices.astype(np.int64)
            self._values.extend(values, fraction)
            self._indices.extend(indices, fraction)
        self._lengths.extend(lengths, fraction)
        self._labels.extend(scratch.row_labels[: counts.rows], fraction)
        self._dropped += counts.dropped
        self._queries += counts.queries

    def _check_label_counts(self, found: Found) -> None:
        """Refuse a row with another number of labels than the rows before."""
        counts = found.scratch.row_labels[: found.counts.rows]
        if self._labels_per_row is None and counts.size:
            self._labels_per_row = int(counts[0]) if self._task == "regression" else min(int(counts[0]), 1)
        wrong = np.flatnonzero(counts != self._labels_per_row)
        if wrong.size:
            row = int(wrong[0])
            has = counted(int(counts[row]), "label")
            what = f"{has}; expected {self._labels_per_row}, as task={self._task!r} has the same number in each row"
            found.fail(what, found.line_of(row))

    def _sort(
        self,
        found: Found,
        values: npt.NDArray[np.float64],
        indices: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int32],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Bring the rows that are out of order into order, and add up what a row says twice of a feature."""
        wrong = np.zeros(lengths.size, dtype=bool)
        wrong[found.scratch.unsorted_rows[: found.counts.unsorted_rows]] = True
        places = np.flatnonzero(np.repeat(wrong, lengths))
        row_of = np.repeat(np.flatnonzero(wrong), lengths[wrong])
        order = np.lexsort((indices[places], row_of))
        indices[places] = indices[places][order]
        values[places] = values[places][order]
        self._unsorted += int(wrong.sum())
        begins = np.ones(places.size, dtype=bool)
        begins[1:] = (np.diff(row_of) != 0) | (np.diff(indices[places]) != 0)
        repeats = np.flatnonzero(~begins)
        if not repeats.size:
            return values, indices, lengths
        if not self._repeated:
            self._first_repeat = found.line_of(int(row_of[repeats[0]]))
        self._repeated += repeats.size
        with np.errstate(over="ignore"):
            sums = np.add.reduceat(values[places], np.flatnonzero(begins))
        infinite = ~(np.abs(sums) < found.rules.limit)
        if infinite.any():
            row = row_of[begins][int(np.argmax(infinite))]
            found.fail("the values of a repeated feature add up to infinity", found.line_of(int(row)))
        values[places[begins]] = sums
        keep = np.ones(values.size, dtype=bool)
        keep[places[repeats]] = False
        lost = np.bincount(row_of[repeats], minlength=lengths.size).astype(np.int32)
        return values[keep], indices[keep], lengths - lost

    def finish(self, labels: LabelSink) -> Scan:
        """All rows."""
        targets = labels.targets(self._labels.finish())
        lengths = self._lengths.finish()
        wide = self._indices.dtype == np.int64 or len(self._values) > _INT32_MAX or self._spill is not None
        indptr = np.zeros(lengths.size + 1, dtype=np.int64 if wide else np.int32)
        np.cumsum(lengths, out=indptr[1:], dtype=indptr.dtype)
        # SciPy wants one type for both.
        indices = self._indices.finish().astype(indptr.dtype, copy=False)
        smallest = self._smallest if self._largest >= 0 else -1
        data = self._values.finish()
        return Scan(
            data,
            indices,
            indptr,
            targets,
            smallest,
            self._largest,
            self._dropped,
            self._notes(),
            self._spill is not None,
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._unsorted:
            notes.append(f"features out of order were sorted in {counted(self._unsorted, 'row')}")
        if self._repeated:
            notes.append(
                f"features repeated in a row were added up: {counted(self._repeated, 'value')}, "
                f"first on line {self._first_repeat}"
            )
        if self._queries:
            notes.append(f"{counted(self._queries, 'qid field')} ignored")
        return notes


def _settle(found: Found) -> None:
    """Let Python's float tell the numbers that the kernel could not."""
    n = found.counts.undecided
    places, offsets = found.scratch.undecided[:n].tolist(), found.scratch.undecided_at[:n].tolist()
    for place, offset in zip(places, offsets):
        value = float(found.text(offset))
        if not abs(value) < found.rules.limit:
            found._replace(counts=found.counts._replace(error=TOO_LARGE, at=offset)).check()
        found.scratch.values[place] = value


def _take(found: Found, rows: _Rows, labels: LabelSink) -> None:
    """Take what was found in a block, and then raise the error that the kernel stopped at, if it did."""
    _settle(found)
    rows.add(found)
    labels.add(found)
    found.check()


def scan(
    path: StrPath,
    blocks: Iterable[Block],
    rules: Rules,
    dtype: np.dtype[Any],
    labels: LabelSink,
    task: Task,
    line: int = 1,
    spill: Spill | None = None,
) -> Scan:
    """Read all blocks, the first of which starts with line `line`; `spill` takes the values, if there is one.

    Raises
    ------
    DataFormatError
        Where a line is wrong.
    TextsNeeded
        If `labels` asks for another reading.
    """
    rows = _Rows(dtype, task, spill)
    scratch: Scratch | None = None
    room = 0
    for block in blocks:
        if len(block.data) > room:
            if len(block.data) > _INT32_MAX:
                raise DataFormatError(path, "a line has more than 2 GiB", line)
            scratch = None  # freed before the next one is made
            room = len(block.data) + len(block.data) // 8
        if scratch is None:
            scratch = Scratch.for_block(room)
        text = np.frombuffer(block.data, dtype=np.uint8)
        counts = Counts(*map(int, parse_lines(text, rules, scratch)))
        _take(Found(path, block, line, rules, counts, scratch), rows, labels)
        line += counts.lines
    return rows.finish(labels)

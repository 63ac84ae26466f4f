"""Reads lines ``labels index:value ...`` into a CSR matrix and targets, for the formats svmlight and XMC."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from manyclass.runtime.memory import available, human

from . import _parse
from ._csr import row_pointers
from ._joined import Joined
from ._parse import NO_BOUND, Counts, Rules, Scratch, parse_lines
from ._together import PartOfLines
from .errors import DataFormatError, counted
from .labels import Targets, Task
from .streams import ROOM, Block, StrPath

__all__ = ["Found", "GrowingArray", "LabelSink", "Scan", "Spill", "overflow", "scan", "scan_part"]

_INT32_MAX = np.iinfo(np.int32).max

_TOKEN = re.compile(rb"[^\s#]*")
_DATA_LINE = re.compile(rb"^[ \t\r\v\f]*[^\s#]", re.MULTILINE)

_EXPECTED = "expected INDEX:VALUE such as 7:0.25"
#: Error of the kernel -> message.
_MESSAGES = {
    _parse.NOT_A_PAIR: f"{{token!r}} is not a feature; {_EXPECTED}",
    _parse.NEGATIVE_INDEX: f"the feature index in {{token!r}} is negative; {_EXPECTED}",
    _parse.HUGE_INDEX: f"the feature index in {{token!r}} has more than 18 digits; {_EXPECTED}",
    _parse.BAD_VALUE: f"the value in {{token!r}} is not a finite number; {_EXPECTED}",
    _parse.BELOW_FIRST: "the feature index in {token!r} is below {rules.lowest}: pass zero_based=True to allow 0",
    _parse.BEYOND_LAST: "the feature index in {token!r} is beyond {rules.highest}, the limit of n_features or header",
    _parse.TOO_LARGE: "the value in {token!r} is infinite{advice}",
    _parse.NO_LABEL: "the line begins with the feature {token!r}; expected a label before it, or a blank for none",
    _parse.EMPTY_LABEL: "a label is empty; expected LABEL or LABEL,LABEL,... without blanks",
}

#: Fraction of a file from which on the part read is taken as typical of the rest.
_TRUSTED = 1 / 16


def overflow(dtype: np.dtype[Any]) -> float:
    """Return the smallest double that is rounded to infinity in ``dtype``."""
    info = np.finfo(dtype)
    if info.bits == 64:
        return float("inf")
    largest = float(info.max)
    return largest + (largest - float(np.nextafter(info.max, dtype.type(0)))) / 2


class GrowingArray:
    """An array to which blocks of values are appended while its final length is not known.

    Allocations follow the length estimated from the fraction of the file that has been read, but grow at most fourfold
    before a 16th is read, because the first lines may be unlike the rest. Where NumPy's ``resize`` copies (from 2.5),
    both buffers are in memory for a moment; the array then mostly has its final size while it is still short, and a
    little unused space is kept.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._buffer: npt.NDArray[Any] = np.empty(0, dtype=dtype)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._buffer.dtype

    def extend(self, values: npt.NDArray[Any], fraction: float = 1.0) -> None:
        """Append values; after them, about ``fraction`` of the final length is reached."""
        used = self._used + values.size
        if used > self._buffer.size:
            size = max(used + self._used // 8, int(1.02 * used / fraction))
            size = size if fraction >= _TRUSTED else min(size, 4 * used)
            self._plan(size)
            if self._used:
                # Safe: nobody has a reference to the buffer before `finish`.
                self._buffer.resize(size, refcheck=False)
            else:
                self._buffer = np.empty(size, dtype=self.dtype)
        self._buffer[self._used : used] = values
        self._used = used

    def _plan(self, size: int) -> None:
        """Raise a MemoryError if what is still to be allocated is more than there is, rather than fill the memory."""
        more = (size - self._buffer.size) * self.dtype.itemsize
        there = available() if more > ROOM else None
        if there is not None and more > there:
            raise MemoryError(
                f"the rows of the file take another {human(more)}, and {human(there)} are available: convert it to a "
                "row store (manyclass convert FILE -o NAME.store), which is fitted from disk"
            )

    def astype(self, dtype: npt.DTypeLike) -> GrowingArray:
        """Return a copy in another type."""
        other = GrowingArray(dtype)
        other.extend(self._buffer[: self._used])
        return other

    def finish(self) -> npt.NDArray[Any]:
        """Return the array, at most a 32nd of its buffer unused. Nothing can be appended afterwards."""
        buffer, self._buffer = self._buffer, np.empty(0, dtype=self.dtype)
        if buffer.size - self._used > self._used // 32:
            buffer.resize(self._used, refcheck=False)
        return buffer[: self._used]


class Found(NamedTuple):
    """What the kernel parsed from a block."""

    path: StrPath
    block: Block
    first_line: int  # the number, from 1, of the first line of the block
    rules: Rules
    counts: Counts
    scratch: Scratch

    def line_at(self, offset: int) -> int:
        """Return the number of the line that contains a byte."""
        return self.first_line + self.block.data.count(b"\n", 0, offset)

    def line_of(self, row: int) -> int:
        """Return the number of the line of a row of the block."""
        if self.rules.blank_rows:
            return self.first_line + row
        for place, match in enumerate(_DATA_LINE.finditer(self.block.data)):
            if place == row:
                return self.line_at(match.start())
        raise IndexError(f"row {row} is not in this block")

    def place_of(self, row: int) -> str:
        """Return the line of a row of the block, for a note."""
        line = self.line_of(row)
        if not isinstance(self.path, Joined):
            return f"line {line}"
        file, own = self.path.located(line)
        return f"line {own} of {file}"

    def text(self, offset: int) -> bytes:
        """Return the token that starts at an offset."""
        match = _TOKEN.match(self.block.data, offset)
        return b"" if match is None else match.group()

    def label(self, place: int) -> tuple[str, int]:
        """Return the text of a label, for a message, and its line."""
        start, stop = int(self.scratch.label_start[place]), int(self.scratch.label_stop[place])
        return self.block.data[start:stop].decode("utf-8", "replace"), self.line_at(start)

    def fail(self, what: str, line: int) -> NoReturn:
        """Raise a DataFormatError."""
        raise DataFormatError(self.path, what, line)

    def check(self) -> None:
        """Raise a DataFormatError if the kernel stopped at an error."""
        error, at = self.counts.error, self.counts.at
        if error != _parse.FINE:
            token = self.text(at)[:40].decode("utf-8", "replace")
            advice = "" if self.rules.limit == float("inf") else " as float32: pass dtype=float64"
            self.fail(_MESSAGES[error].format(token=token, rules=self.rules, advice=advice), self.line_at(at))

    def settle(self) -> None:
        """Parse the numbers that the kernel could not decide with Python's float."""
        n = self.counts.undecided
        places, offsets = self.scratch.undecided[:n].tolist(), self.scratch.undecided_at[:n].tolist()
        for place, offset in zip(places, offsets):
            value = float(self.text(offset))
            if not abs(value) < self.rules.limit:
                self._replace(counts=self.counts._replace(error=_parse.TOO_LARGE, at=offset)).check()
            self.scratch.values[place] = value


class LabelSink(Protocol):
    """Collects the labels of a file."""

    def add(self, found: Found) -> None:
        """Add the labels of a block."""

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        """Return the targets, given the number of labels of each row."""


class Spill(Protocol):
    """Receives rows as they are read, so that they need not all be in memory."""

    def start(self, first: int | None, rows: int | None = None, width: int | None = None) -> None:
        """Prepare for the first row; called again if the file has to be read again.

        ``first`` is the index of the first feature (None: not known yet). Rows after the first ``rows`` and features
        beyond the first ``width`` are to be left out.
        """

    def take(self, values: npt.NDArray[Any], indices: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Add rows; the caller may overwrite the arrays afterwards."""

    def settle(self, first: int) -> None:
        """All rows have been added; ``first`` is the index of the first feature."""


class Scan(NamedTuple):
    """The content of a file."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    targets: Targets
    smallest: int  # the smallest and the largest index kept; -1 if there is none
    largest: int
    dropped: int
    notes: list[str]
    spilled: bool = False  # the values went to the spill

    def matrix(self, n_features: int) -> csr_matrix:
        """Return the rows as a CSR matrix, without a copy; after a spill, one of the same shape without values."""
        shape = self.indptr.size - 1, n_features
        if self.spilled:
            return csr_matrix(shape, dtype=self.data.dtype)
        X = csr_matrix((self.data, self.indices, self.indptr), shape=shape, copy=False)
        # Known here; SciPy would have to scan the indices.
        X.has_sorted_indices = True
        X.has_canonical_format = True
        return X


class _Rows:
    """Collects the rows of a file."""

    def __init__(self, dtype: np.dtype[Any], task: Task, spill: Spill | None) -> None:
        self._task = task
        self._spill = spill
        self._labels_per_row: int | None = None  # for tasks with the same number in each row
        self._values = GrowingArray(dtype)
        self._indices = GrowingArray(np.int32)
        self._lengths = GrowingArray(np.int32)
        self._labels = GrowingArray(np.int32)
        self._smallest, self._largest = NO_BOUND, -1
        self._dropped = self._queries = self._unsorted = 0
        self._repeated, self._first_repeat = 0, ""

    def add(self, found: Found) -> None:
        """Add the rows of a block."""
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
        """Raise a DataFormatError for a row with another number of labels than the rows before."""
        counts = found.scratch.row_labels[: found.counts.rows]
        if self._labels_per_row is None and counts.size:
            self._labels_per_row = int(counts[0]) if self._task == "regression" else min(int(counts[0]), 1)
        wrong = np.flatnonzero(counts != self._labels_per_row)
        if wrong.size:
            row = int(wrong[0])
            has = counted(int(counts[row]), "label")
            what = (
                f"{has}; expected {self._labels_per_row}, since task={self._task!r} needs the same number in each row"
            )
            found.fail(what, found.line_of(row))

    def _sort(
        self, found: Found, values: npt.NDArray[Any], indices: npt.NDArray[Any], lengths: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Sort the features of each row, and add up the values of repeated ones."""
        shape = lengths.size, found.counts.largest + 1
        rows = csr_matrix((values, indices, row_pointers(lengths)), shape=shape, copy=False)
        rows.sum_duplicates()
        self._unsorted += found.counts.unsorted_rows
        repeated = lengths - np.diff(rows.indptr)
        if repeated.any():
            if not self._repeated:
                self._first_repeat = found.place_of(int(np.argmax(repeated > 0)))
            self._repeated += int(repeated.sum())
            infinite = ~(np.abs(rows.data) < found.rules.limit)
            if infinite.any():
                row = int(np.searchsorted(rows.indptr, np.argmax(infinite), side="right")) - 1
                found.fail(
                    "the values of a repeated feature add up to infinity; expected a finite sum", found.line_of(row)
                )
        return rows.data, rows.indices, lengths - repeated

    def finish(self, labels: LabelSink) -> Scan:
        """Return all rows."""
        targets = labels.targets(self._labels.finish())
        lengths = self._lengths.finish()
        wide = self._indices.dtype == np.int64 or len(self._values) > _INT32_MAX or self._spill is not None
        indptr = row_pointers(lengths, np.int64 if wide else np.int32)
        # SciPy expects the same type for both index arrays.
        indices = self._indices.finish().astype(indptr.dtype, copy=False)
        smallest = self._smallest if self._largest >= 0 else -1
        data = self._values.finish()
        facts = (targets, smallest, self._largest, self._dropped, self._notes(), self._spill is not None)
        return Scan(data, indices, indptr, *facts)

    def _notes(self) -> list[str]:
        notes = []
        if self._unsorted:
            notes.append(f"features out of order were sorted in {counted(self._unsorted, 'row')}")
        if self._repeated:
            notes.append(
                f"features repeated in a row were added up: {counted(self._repeated, 'value')}, "
                f"first on {self._first_repeat}"
            )
        if self._queries:
            notes.append(f"{counted(self._queries, 'qid field')} ignored")
        return notes


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
    """Read all blocks, the first of which starts with line ``line``; ``spill``, if given, receives the values.

    Raises
    ------
    DataFormatError
        If a line is invalid.
    """
    rows = _Rows(dtype, task, spill)
    for found in _parsed(path, blocks, rules, line):
        found.settle()
        rows.add(found)
        labels.add(found)
        found.check()  # last, because a label before this error may be invalid too
        del found  # frees the scratch arrays before the result is assembled
    return rows.finish(labels)


def scan_part(
    part: PartOfLines,
    path: StrPath,
    rules: Rules,
    dtype: np.dtype[Any],
    labels: LabelSink,
    task: Task,
    block_bytes: int,
    line: int = 1,
) -> Scan:
    """Read the lines of this process, as `scan`; ``line`` is the number of the first line of the file."""
    try:
        with closing(part.blocks(block_bytes)) as blocks:
            return scan(path, blocks, rules, dtype, labels, task, line)
    except DataFormatError as error:
        if error.line is None:
            raise
        raise DataFormatError(path, error.what, error.line + part.lines_before()) from error


def _parsed(path: StrPath, blocks: Iterable[Block], rules: Rules, line: int) -> Iterator[Found]:
    """Yield what the kernel parses from each block; the arrays are overwritten by the next block."""
    scratch: Scratch | None = None
    room = 0
    for block in blocks:
        if len(block.data) > room:
            if len(block.data) > _INT32_MAX:
                raise DataFormatError(path, "a line has more than 2 GiB; expected one row on each line", line)
            scratch = None  # freed before the next one is made
            room = len(block.data) + len(block.data) // 8
        if scratch is None:
            scratch = Scratch.for_block(room)
        counts = Counts(*map(int, parse_lines(np.frombuffer(block.data, dtype=np.uint8), rules, scratch)))
        yield Found(path, block, line, rules, counts, scratch)
        line += counts.lines

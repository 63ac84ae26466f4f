"""Reads the svmlight / LIBSVM text format: ``label[,label...] [qid:n] index:value ... [# comment]``."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Literal

import numpy as np
import numpy.typing as npt

from ._lines import Found, GrowingArray, LabelSink, Scan, Spill, overflow, scan, scan_part
from ._parse import INTEGER, NO_BOUND, OTHER, REAL, Rules
from ._together import PartOfLines, Together, any_of, counts_of, largest
from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import Targets, Task, TextLabels, checked_dtype, number_targets, real_label, real_targets
from .streams import BLOCK_BYTES, StrPath, line_blocks

__all__ = ["read_svmlight"]


class _TextsNeeded(Exception):
    """Labels that seemed to be numbers are names: the file must be read again, with their texts."""


class _NumberLabels:
    """Collects labels that are numbers: as integers, or as doubles once one is not an integer."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._values = GrowingArray(np.int64)
        self._largest = 0

    def add(self, found: Found) -> None:
        n = found.counts.labels
        kinds = found.scratch.label_kind[:n]
        integers = found.scratch.label_integer[:n]
        worst = kinds.max(initial=INTEGER)
        if worst == OTHER:
            raise _TextsNeeded
        magnitudes = np.abs(integers)
        self._largest = max(self._largest, int(magnitudes.max(initial=0, where=kinds == INTEGER)))
        if worst == REAL and self._values.dtype.kind == "i":
            self._values = self._values.astype(np.float64)
        if self._values.dtype.kind == "i":
            self._values.extend(integers, found.block.fraction)
        elif self._largest <= 2**53:
            self._values.extend(found.scratch.label_real[:n], found.block.fraction)
        else:
            raise _TextsNeeded  # two such integers may be the same double

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        targets = number_targets(self._values.finish(), counts, self._task)
        if targets is None:
            raise _TextsNeeded
        return targets


class _RealLabels:
    """Collects the targets of a regression."""

    def __init__(self) -> None:
        self._values = GrowingArray(np.float64)

    def add(self, found: Found) -> None:
        n = found.counts.labels
        values = found.scratch.label_real[:n]
        for place in np.flatnonzero(found.scratch.label_kind[:n] == OTHER).tolist():
            text, line = found.label(place)
            values[place] = real_label(found.path, text, line)
        self._values.extend(values, found.block.fraction)

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        return real_targets(self._values.finish(), counts)


class _NameLabels:
    """Collects labels that are names."""

    def __init__(self, path: StrPath, task: Task, comm: Together | None = None) -> None:
        self._texts = TextLabels(path, task, comm)
        self.targets = self._texts.targets

    def add(self, found: Found) -> None:
        n, data = found.counts.labels, found.block.data
        starts, stops = found.scratch.label_start[:n].tolist(), found.scratch.label_stop[:n].tolist()
        texts = []
        for start, stop in zip(starts, stops):
            try:
                texts.append(data[start:stop].decode())
            except UnicodeDecodeError as error:
                found.fail(
                    f"the label is not UTF-8 text ({error.reason}): convert the file to UTF-8", found.line_at(start)
                )
        self._texts.extend(texts, lambda place: found.line_at(starts[place]))


def read_svmlight(
    path: StrPath,
    *,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    extra_features: Literal["error", "ignore"] = "error",
    task: Task = "auto",
    block_bytes: int = BLOCK_BYTES,
    spill: Spill | None = None,
    comm: Together | None = None,
) -> Dataset:
    """Read a file in svmlight format, plain or compressed.

    A line is a row: its label, or several labels separated by commas, then its features. A row without a label begins
    with a blank. Empty lines and comments, which start with ``#``, are skipped. Feature indices may come in any order;
    values of a repeated index are added up. Besides the result, only a few blocks are in memory.

    Parameters
    ----------
    path : str or path
        The file. Compression (gzip, Zstandard) is detected from the content.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the values. Each is rounded from the double that is nearest to the decimal text.
    n_features : int >= 0, default=None
        The number of columns of `X`; by default the largest index decides.
    zero_based : bool or "auto", default="auto"
        Whether feature indices start at 0. With "auto" they do if the index 0 occurs; else they start at 1.
    extra_features : {"error", "ignore"}, default="error"
        Whether features beyond the first `n_features` raise an error or are left out.
    task : {"auto", "classification", "multilabel", "regression"}, default="auto"
        The kind of targets. With "auto", data with a row of no label or of several are multilabel; otherwise integers
        are classes, other numbers are the targets of a regression, and other texts are names of classes. Digits with a
        leading zero, such as ``0042``, are names.
    block_bytes : int, default=2**19
        Bytes of text that are parsed at a time.
    spill : Spill, default=None
        Receives the rows as they are read (see `manyclass.io.convert`); the result then has no stored values.
    comm : Communicator, default=None
        The processes that read the file together, each some consecutive lines.

    Returns
    -------
    Dataset

    Raises
    ------
    DataFormatError
        If a line is invalid, which includes values that are infinite or NaN; the message names the line.
    ValueError
        If an argument is invalid, or the package zstandard is needed and missing.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.svm")
    ...     _ = path.write_text("ham 1:0.5 3:2\\nspam 1:2.5e-1\\n")
    ...     data = read_svmlight(path)
    >>> data.X.toarray().tolist(), data.y.tolist()
    ([[0.5, 0.0, 2.0], [0.25, 0.0, 0.0]], ['ham', 'spam'])
    >>> data.notes
    ('feature indices are one-based (the smallest is 1)',)
    """
    kind = checked_dtype(dtype, n_features, extra_features, task)
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based is {zero_based!r}; expected True, False or 'auto'")
    base = None if isinstance(zero_based, str) else int(not zero_based)  # the index of the first feature
    lowest = base or 0
    # While the base is not known: the largest index that either base allows.
    highest = NO_BOUND if n_features is None else int(n_features) - (base == 0)
    rules = Rules(lowest, highest, extra_features == "ignore", overflow(kind), blank_rows=False)

    def attempt(labels: LabelSink) -> Scan:
        if comm is not None:
            return scan_part(PartOfLines(path, comm), path, rules, kind, labels, task, block_bytes)
        with closing(line_blocks(path, block_bytes)) as blocks:
            if spill is not None:
                spill.start(base)
            return scan(path, blocks, rules, kind, labels, task, spill=spill)

    found: Scan | None = None
    try:
        found = attempt(_RealLabels() if task == "regression" else _NumberLabels(task))
    except _TextsNeeded:
        pass
    if any_of(comm, found is None) or found is None:
        found = attempt(_NameLabels(path, task, comm))
    if not counts_of(comm, found.indptr.size - 1)[1]:
        raise DataFormatError(path, "it has no rows; expected lines such as  3 1:0.5 7:2")

    none = NO_BOUND if found.smallest < 0 else found.smallest
    smallest, found = -largest(comm, -none), found._replace(largest=largest(comm, found.largest))
    found = found._replace(smallest=-1 if smallest == NO_BOUND else smallest)
    first = min(max(found.smallest, 0), 1) if base is None else base
    if n_features is not None and found.largest - first >= n_features:
        # The base was not known, and index 0 came: reading again with that base finds the wrong line.
        return read_svmlight(
            path,
            dtype=kind,
            n_features=n_features,
            zero_based=True,
            extra_features=extra_features,
            task=task,
            block_bytes=block_bytes,
            spill=spill,
            comm=comm,
        )
    if spill is not None:
        spill.settle(first)
    elif first:
        found.indices[...] -= 1
    notes = list(found.notes)
    if base is None and found.largest >= 0:
        which = "one-based" if first else "zero-based"
        notes.insert(0, f"feature indices are {which} (the smallest is {found.smallest})")
    if found.dropped:
        notes.append(f"features beyond the first {n_features} ignored: {counted(found.dropped, 'value')}")
    return Dataset(
        X=found.matrix(found.largest + 1 - first if n_features is None else int(n_features)),
        y=found.targets.y,
        label_names=found.targets.names,
        source=os.path.basename(path),
        format="svmlight",
        notes=tuple(notes),
        zero_based=not first,
    )

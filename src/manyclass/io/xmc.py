"""Reads the format of the extreme classification repository: a header ``n d K``, then ``labels index:value ...``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

import numpy as np
import numpy.typing as npt

from ._lines import Found, GrowingArray, Spill, overflow, scan, scan_part
from ._parse import INTEGER, Rules
from ._together import PartOfLines, Together, counts_of, largest
from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import Targets, check_width, checked_dtype, indicator
from .streams import BLOCK_BYTES, Block, StrPath, line_blocks

__all__ = ["XMC_HEADER", "read_xmc"]

#: Rows, features, labels.
XMC_HEADER = re.compile(rb"[ \t]*([0-9]{1,15})[ \t]+([0-9]{1,15})[ \t]+([0-9]{1,15})[ \t\r]*\n")


class _LabelIds:
    """Collects labels that are column indices of the indicator matrix, from 0."""

    def __init__(self, n_labels: int) -> None:
        self._n_labels = n_labels
        self._ids = GrowingArray(np.int64)

    def add(self, found: Found) -> None:
        n = found.counts.labels
        ids = found.scratch.label_integer[:n]
        wrong = (found.scratch.label_kind[:n] != INTEGER) | (ids < 0) | (ids >= self._n_labels)
        if wrong.any():
            text, line = found.label(int(np.argmax(wrong)))
            found.fail(
                f"the label {text!r} is not an integer from 0 to {self._n_labels - 1}, as the header announces", line
            )
        self._ids.extend(ids, found.block.fraction)

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        return Targets(indicator(self._ids.finish(), counts, self._n_labels), np.arange(self._n_labels))


def read_xmc(
    path: StrPath,
    *,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    extra_features: Literal["error", "ignore"] = "error",
    block_bytes: int = BLOCK_BYTES,
    spill: Spill | None = None,
    comm: Together | None = None,
) -> Dataset:
    """Read a file in the format of the extreme classification repository, plain or compressed.

    The first line has the numbers of rows, features and labels. Every other line is a row: its labels, separated by
    commas (a row without labels begins with a blank), then its features. All indices start at 0.

    Parameters
    ----------
    path, dtype, n_features, extra_features, block_bytes, spill, comm
        As for `read_svmlight`; the default of `n_features` is the number in the header.

    Returns
    -------
    Dataset
        Its `y` is an indicator matrix with a column for each label of the header, used or not.

    Raises
    ------
    DataFormatError
        If a line is invalid or contradicts the header; the message names the line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     _ = path.write_text("2 3 4\\n0,3 0:1 2:0.5\\n 1:2\\n")
    ...     data = read_xmc(path)
    >>> data.X.toarray().tolist(), data.y.toarray().tolist()
    ([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]], [[1, 0, 0, 1], [0, 0, 0, 0]])
    """
    kind = checked_dtype(dtype, n_features, extra_features, "multilabel")
    with closing(line_blocks(path, block_bytes)) as blocks:
        first = next(blocks, Block(b"", 1.0))
        header = XMC_HEADER.match(first.data)
        if header is None:
            start = first.data[:40].split(b"\n")[0].decode("utf-8", "replace")
            raise DataFormatError(path, f"expected a header of three numbers, ROWS FEATURES LABELS; got {start!r}", 1)
        rows, features, labels = map(int, header.groups())
        if not rows:
            raise DataFormatError(path, "the header announces 0 rows; expected at least 1", 1)
        check_width(path, labels, 1)
        ignore = extra_features == "ignore" and n_features is not None
        width = features if n_features is None else int(n_features)
        # Features beyond those of the header are wrong even if extra ones are ignored.
        rules = Rules(0, (features if ignore else min(width, features)) - 1, False, overflow(kind), blank_rows=True)

        def body() -> Iterator[Block]:
            yield first._replace(data=first.data[header.end() :])
            yield from blocks

        if spill is not None:
            spill.start(0, rows, width)
        sink = _LabelIds(labels)
        if comm is None:
            found = scan(path, body(), rules, kind, sink, "multilabel", line=2, spill=spill)
        else:
            part = PartOfLines(path, comm, header.end())
            found = scan_part(part, path, rules, kind, sink, "multilabel", block_bytes, line=2)
    y, names = found.targets
    before, lines = counts_of(comm, found.indptr.size - 1)
    if lines < rows:
        raise DataFormatError(
            path, f"the file ends after {counted(lines, 'row')}; expected {rows}, as in its header", lines + 1
        )
    own = max(0, min(rows - before, found.indptr.size - 1))
    if own < found.indptr.size - 1:  # empty lines at the end are allowed
        surplus = np.flatnonzero(np.diff(found.indptr[own:]) + np.diff(y.indptr[own:]))
        if surplus.size:
            line = before + own + 2 + int(surplus[0])
            raise DataFormatError(path, f"a row too many; expected {rows}, as in the header", line)
        found, y = found._replace(indptr=found.indptr[: own + 1]), y[:own]
    if spill is not None:
        spill.settle(0)
    notes = list(found.notes)
    X = found.matrix(max(width, largest(comm, found.largest) + 1))
    if X.shape[1] > width:
        non_zeros = X.nnz
        X = X[:, :width]
        dropped = "" if found.spilled else f": {counted(non_zeros - X.nnz, 'value')}"
        notes.append(f"features beyond the first {width} ignored{dropped}")
    return Dataset(X, y, names, os.path.basename(path), "xmc", tuple(notes), zero_based=True)

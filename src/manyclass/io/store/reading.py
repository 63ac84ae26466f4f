"""Converts data sets to row stores, and row stores to data sets."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import issparse

from manyclass.io._together import Together
from manyclass.io.dataset import Dataset
from manyclass.io.errors import DataFormatError, counted
from manyclass.io.labels import Targets
from manyclass.io.streams import StrPath

from .rows import RowStore
from .writer import RowStoreWriter

__all__ = ["StoreSpill", "read_store", "store_dataset"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class StoreSpill:
    """Writes rows to a store as they are read, before the index of the first feature (0 or 1) is known.

    Parameters
    ----------
    writer : RowStoreWriter
        The writer of the store.
    narrow : bool, default=False
        Whether to store the float64 values of a shard as float32 if float32 represents all of them exactly.
    """

    def __init__(self, writer: RowStoreWriter, *, narrow: bool = False) -> None:
        self._writer = writer
        self._narrow = narrow
        self.used = False

    def start(self, first: int | None, rows: int | None = None, width: int | None = None) -> None:
        """See `manyclass.io._lines.Spill`."""
        self._writer.reset()
        self.used = True
        self._open = first is None
        # Most files count from 1; the first index 0 reverts the subtraction.
        self._first = 1 if first is None else first
        self._left = rows
        self._width = width

    def take(self, values: Array, indices: Array, lengths: Array) -> None:
        """See `manyclass.io._lines.Spill`."""
        if self._left is not None:
            # Rows after those of the header must be empty; the reader checks that.
            lengths = lengths[: self._left]
            self._left -= len(lengths)
            kept = int(lengths.sum(dtype=np.int64))
            values, indices = values[:kept], indices[:kept]
        if self._width is not None and len(indices) and indices.max() >= self._width:
            keep = indices < self._width
            ends = np.concatenate([[0], np.cumsum(keep)])
            bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            lengths, values, indices = np.diff(ends[bounds]), values[keep], indices[keep]
        if self._open and self._first and len(indices) and indices.min() == 0:
            self._shift(1)
        if self._first:
            indices = indices - indices.dtype.type(1)
        if self._narrow and values.dtype == np.float64:
            with np.errstate(over="ignore"):
                short = values.astype(np.float32)
            values = short if np.array_equal(short, values) else values
        self._writer.add_csr(values, indices, np.array(lengths, np.int64))

    def settle(self, first: int) -> None:
        """See `manyclass.io._lines.Spill`."""
        if first != self._first:
            self._shift(self._first - first)

    def _shift(self, by: int) -> None:
        def change(arrays: dict[str, Array]) -> None:
            arrays["indices"] += by

        self._writer.rewrite(change)
        self._first -= by

    def finish(self, data: Dataset) -> None:
        """Write what is known only at the end of the file, and the rows, unless they were added as they were read."""
        if not self.used:
            for X in _pieces(data.X):
                self._writer.add(X)
        self._writer.set_width(data.n_features)
        self._writer.set_targets(Targets(data.y, data.label_names))
        self._writer.describe(data)


def _pieces(X: Any) -> list[Any] | Any:
    """Return pieces of the rows as float32 or float64."""
    if X.dtype in (np.float32, np.float64):
        return [X]
    if issparse(X):
        return [X.astype(np.float64)]
    step = max(1, (1 << 22) // max(1, X.shape[1]))
    return (np.asarray(X[begin : begin + step], np.float32) for begin in range(0, X.shape[0], step))


def store_dataset(path: StrPath, data: Dataset, **limits: Any) -> None:
    """Write a data set as a row store; ``limits`` are the parameters of `RowStoreWriter` for the size of shards."""
    with RowStoreWriter(path, **limits) as writer:
        StoreSpill(writer).finish(data)


def read_store(
    path: StrPath,
    *,
    n_features: int | None = None,
    extra_features: str = "error",
    task: str = "auto",
    comm: Together | None = None,
) -> Dataset:
    """Read a row store as a data set; a DataFormatError if its features or targets do not fit the parameters.

    With ``comm``, the rows of this process, which are whole shards if there are enough (see `RowStore.parts`).
    """
    store = RowStore(path)
    kinds = {"classification": ("classes",), "multilabel": ("labels",), "regression": ("numbers",)}
    if task in kinds and store.kind not in (*kinds[task], "none"):
        raise DataFormatError(
            path, f"has targets of kind {store.kind!r}; expected {kinds[task][0]!r}, as task={task!r} needs"
        )
    store.fit_width(n_features, ignore=extra_features == "ignore")
    data = store.dataset() if comm is None else store.dataset(rows=store.parts(comm.rank, comm.size))
    if n_features is not None and data.n_features > n_features:
        note = f"features beyond the first {n_features} ignored: {counted(data.n_features - n_features, 'column')}"
        data = replace(data, X=data.X[:, :n_features], notes=(*data.notes, note))
    return replace(data, source=os.path.basename(os.path.normpath(path)))

"""Views of ranges of rows of a store: mapped windows, slices and targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, vstack

from manyclass.io._csr import make_csr, row_ranges
from manyclass.runtime.threads import ranges

__all__ = ["WINDOW_BYTES", "RowView", "Window"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Default size in bytes of a window.
WINDOW_BYTES = 1 << 26


class Window(NamedTuple):
    """Rows ``begin`` to ``end - 1`` of a store, mapped read-only.

    Attributes
    ----------
    begin, end : int
        The range of rows.
    X : csr_matrix or ndarray of shape (end - begin, n_features)
        The features.
    y : ndarray, csr_matrix or None
        Indices of classes (int32), a 0/1 indicator matrix (int8 CSR) or numbers of a regression (float64).
    weights : ndarray of shape (end - begin,) or None
        Sample weights, float64.
    """

    begin: int
    end: int
    X: Any
    y: Any
    weights: Array | None


class RowView:
    """A range of rows of a store. A slice of it is mapped if it is in one shard, else copied into memory.

    Attributes
    ----------
    store : RowStore
        The store.
    begin, end : int
        The range of rows.
    """

    ndim = 2

    def __init__(self, store: Any, begin: int, end: int) -> None:
        self.store = store
        self.begin, self.end = begin, end

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return self.end - self.begin, self.store.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        dtype: np.dtype[Any] = self.store.dtype
        return dtype

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, rows: slice) -> Any:
        """Return the features of a range of rows, relative to the first row of this view."""
        pieces = [self.store.rows_of(*piece) for piece in self._pieces(*self._range(rows))]
        if len(pieces) == 1:
            return pieces[0]
        if self.store.layout == "dense":
            return np.concatenate(pieces)
        return _stacked(pieces, self.store)

    def targets(self, rows: slice = slice(None)) -> Any:
        """Return the targets of a range of rows, as in `Window.y`."""
        found = [self.store.targets_of(*piece)[0] for piece in self._pieces(*self._range(rows))]
        if self.store.kind == "none" or len(found) == 1:
            return found[0]
        return csr_matrix(vstack(found, format="csr")) if self.store.kind == "labels" else np.concatenate(found)

    def take(self, rows: Array) -> Any:
        """Return the features of rows of the store with these numbers, which must be in this view, as a copy."""
        begins = np.asarray(self.store.shard_bounds)
        pieces = [self.store.rows_of(0, 0, 0)]
        for number, row in zip(np.searchsorted(begins, rows, side="right") - 1, rows):
            at = int(row - begins[number])
            pieces.append(self.store.rows_of(int(number), at, at + 1))
        return np.concatenate(pieces) if self.store.layout == "dense" else _stacked(pieces, self.store)

    def cuts(self, nbytes: int = WINDOW_BYTES) -> list[tuple[int, int]]:
        """Return consecutive ranges of rows of the store, each within a shard, of about ``nbytes`` bytes or one row."""
        return [
            (begin + self.store.shard_bounds[number], end + self.store.shard_bounds[number])
            for number, first, last in self._pieces(self.begin, self.end)
            for begin, end in self._cuts(number, first, last, nbytes)
        ]

    def window(self, begin: int, end: int) -> Window:
        """Map rows ``begin`` to ``end - 1`` of the store, which must be rows of this view and of one shard."""
        number = self.store.shard_of(begin)
        low = self.store.shard_bounds[number]
        if not self.begin <= begin < end <= min(self.end, self.store.shard_bounds[number + 1]):
            raise ValueError(
                f"begin, end are {begin}, {end}; expected rows of one shard in {self.begin} to {self.end}: see cuts()"
            )
        X = self.store.rows_of(number, begin - low, end - low)
        return Window(begin, end, X, *self.store.targets_of(number, begin - low, end - low))

    def windows(self, nbytes: int = WINDOW_BYTES, order: Iterable[int] | None = None) -> Iterator[Window]:
        """Yield the rows in windows; at most two are mapped at a time.

        The next window is mapped, so that the system reads it ahead, before the caller gets the current one.

        Parameters
        ----------
        nbytes : int, default=2**26
            Approximate size of a window in bytes.
        order : iterable of int, default=None
            Indices of the ranges of `cuts`, in the order to use; by default all.
        """
        cuts = self.cuts(nbytes)
        ahead: Window | None = None
        for place in range(len(cuts)) if order is None else order:
            window = self.window(*cuts[place])
            if ahead is not None:
                yield ahead
            ahead = window
            del window
        if ahead is not None:
            yield ahead

    def _cuts(self, number: int, first: int, last: int, nbytes: int) -> Iterator[tuple[int, int]]:
        """Return ranges of rows of a shard of about ``nbytes`` bytes, or one row."""
        store = self.store
        if store.layout == "dense":
            cuts: Iterable[tuple[int, int]] = ranges(
                last - first, max(1, nbytes // max(1, store.shape[1] * store.dtype.itemsize))
            )
        else:
            size = max(1, nbytes // (store.dtype.itemsize + store.index_dtype.itemsize))
            cuts = row_ranges(store.row_ends(number)[first : last + 1], size)
        return ((first + begin, first + end) for begin, end in cuts)

    def _range(self, rows: slice) -> tuple[int, int]:
        if not isinstance(rows, slice):
            raise TypeError(f"a view must be indexed by a slice, view[begin:end], got {rows!r}")
        begin, end, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of a view must have step 1, got step {step}")
        return self.begin + begin, self.begin + max(begin, end)

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the numbers of the shards of a range of rows, with the range within each shard."""
        if begin == end:
            yield 0, 0, 0  # no rows, but of the right type and width
        bounds = self.store.shard_bounds
        while begin < end:
            number = self.store.shard_of(begin)
            stop = min(end, bounds[number + 1])
            yield number, begin - bounds[number], stop - bounds[number]
            begin = stop


def _stacked(pieces: list[Any], store: Any) -> Any:
    """Stack CSR matrices vertically, with one copy."""
    nnz = sum(len(piece.data) for piece in pieces)
    data, indices = np.empty(nnz, store.dtype), np.empty(nnz, store.index_dtype)
    wide = store.index_dtype if nnz <= np.iinfo(store.index_dtype).max else np.dtype(np.int64)
    indptr = np.zeros(sum(piece.shape[0] for piece in pieces) + 1, wide)
    row = at = 0
    for piece in pieces:
        indptr[row + 1 : row + 1 + piece.shape[0]] = piece.indptr[1:].astype(wide) + at
        data[at : at + len(piece.data)] = piece.data
        indices[at : at + len(piece.data)] = piece.indices
        row += piece.shape[0]
        at += len(piece.data)
    return make_csr(data, indices.astype(wide, copy=False), indptr, store.shape[1], store.canonical)

"""A range of the rows of a store: windows that are mapped, slices, targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, vstack

from manyclass.io._csr import make_csr, row_ranges
from manyclass.runtime.threads import ranges

__all__ = ["WINDOW_BYTES", "RowView", "Window"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Bytes of rows that are mapped at a time, where nobody says otherwise.
WINDOW_BYTES = 1 << 26


class Window(NamedTuple):
    """Some rows of a store, mapped.

    Attributes
    ----------
    begin, end : int
        Their numbers in the store.
    X : csr_matrix or ndarray of shape (end - begin, n_features)
        Read-only.
    y : ndarray or csr_matrix or None
        Numbers of classes (int32), a 0/1 indicator (int8 CSR) or numbers to predict (float64).
    weights : ndarray of shape (end - begin,) or None
        float64.
    """

    begin: int
    end: int
    X: Any
    y: Any
    weights: Array | None


class RowView:
    """A range of the rows of a store. Slicing gives rows: mapped within a shard, joined in memory across shards.

    Attributes
    ----------
    store : RowStore
    begin, end : int
    shape : tuple of int
    dtype : dtype
    """

    ndim = 2

    def __init__(self, store: Any, begin: int, end: int) -> None:
        self.store = store
        self.begin, self.end = begin, end

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.end - self.begin, self.store.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        dtype: np.dtype[Any] = self.store.dtype
        return dtype

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, rows: slice) -> Any:
        """The features of a range of rows, counted from the first of this view."""
        pieces = [self.store.rows_of(*piece) for piece in self._pieces(*self._range(rows))]
        if len(pieces) == 1:
            return pieces[0]
        if self.store.layout == "dense":
            return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *pieces])
        return _stacked(pieces, self.store)

    def targets(self, rows: slice = slice(None)) -> Any:
        """The targets of a range of rows, as in `Window.y`."""
        found = [self.store.targets_of(*piece)[0] for piece in self._pieces(*self._range(rows))]
        if self.store.kind == "none" or len(found) == 1:
            return found[0] if found else None
        if self.store.kind != "labels":
            return np.concatenate(found) if found else np.empty(0)
        return (
            csr_matrix(vstack(found, format="csr")) if found else csr_matrix((0, self.store.n_outputs), dtype=np.int8)
        )

    def cuts(self, nbytes: int = WINDOW_BYTES) -> list[tuple[int, int]]:
        """Ranges of rows of the store, in order, of about ``nbytes`` bytes each and of one shard, one row at least."""
        return [
            (begin + self.store.shard_bounds[number], end + self.store.shard_bounds[number])
            for number, first, last in self._pieces(self.begin, self.end)
            for begin, end in self._cuts(number, first, last, nbytes)
        ]

    def window(self, begin: int, end: int) -> Window:
        """The rows ``begin`` to ``end - 1`` of the store, of one shard, mapped.

        Raises
        ------
        ValueError
            If they are not in this view, or not of one shard.
        """
        number = self.store.shard_of(begin)
        low = self.store.shard_bounds[number]
        if not self.begin <= begin < end <= min(self.end, self.store.shard_bounds[number + 1]):
            raise ValueError(f"rows {begin} to {end} are not a range of one shard within {self.begin} to {self.end}")
        X = self.store.rows_of(number, begin - low, end - low)
        return Window(begin, end, X, *self.store.targets_of(number, begin - low, end - low))

    def windows(self, nbytes: int = WINDOW_BYTES, order: Iterable[int] | None = None) -> Iterator[Window]:
        """The rows in windows of about ``nbytes`` bytes of one shard each; at most two are mapped at a time.

        The next window is mapped, and the system told to read it, before the caller works on this one.

        Parameters
        ----------
        nbytes : int
            Bytes of a window.
        order : iterable of int, optional
            Which of the `cuts` to take, and in which order; by default all as they come.
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
        """Ranges of rows of a shard, of about so many bytes; one row at least."""
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
            raise TypeError(f"rows of a store are taken by ranges, view[begin:end], got {rows!r}")
        begin, end, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows of a store are taken one after the other, got steps of {step}")
        return self.begin + begin, self.begin + max(begin, end)

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Number of a shard, and the range of its rows."""
        bounds = self.store.shard_bounds
        while begin < end:
            number = self.store.shard_of(begin)
            stop = min(end, bounds[number + 1])
            yield number, begin - bounds[number], stop - bounds[number]
            begin = stop


def _stacked(pieces: list[Any], store: Any) -> Any:
    """CSR matrices, one below the other, copied once."""
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

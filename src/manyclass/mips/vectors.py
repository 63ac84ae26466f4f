"""Class vectors stored by class, for the indexes that score candidates one by one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import read_only
from manyclass.kernels.search import DenseVectors, SparseVectors, Vectors

__all__ = ["ClassVectors"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class ClassVectors:
    """A vector for each class number, dense or sparse, that can be changed.

    Sparse vectors lie behind each other in two arrays; a changed vector goes to the end, and when more than half of the
    arrays is left behind, they are packed. Arrays that are mapped from a file are copied at the first change.
    """

    def __init__(self, d: int, arrays: dict[str, Array]) -> None:
        self.d = d
        self._arrays = arrays
        self._check()
        self._used = len(arrays["data"]) if self.sparse else 0

    @classmethod
    def of_columns(cls, weights: Any) -> ClassVectors:
        """Those of the columns of valid weights; copied."""
        if not sp.issparse(weights):
            return cls(weights.shape[0], {"x": np.array(weights.T, order="C")})
        rows = sp.csr_matrix(weights.T)
        rows.sort_indices()
        pointers = rows.indptr.astype(np.int64)
        return cls(
            weights.shape[0],
            {"data": rows.data, "indices": rows.indices, "begin": pointers[:-1].copy(), "end": pointers[1:].copy()},
        )

    @property
    def sparse(self) -> bool:
        """Whether the vectors are sparse."""
        return "x" not in self._arrays

    @property
    def capacity(self) -> int:
        """The largest class number with a place, plus 1."""
        return len(self._arrays["begin" if self.sparse else "x"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return np.dtype(self._arrays["data" if self.sparse else "x"].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(array.nbytes) for array in self._arrays.values())

    def view(self) -> Vectors:
        """For kernels."""
        if self.sparse:
            return SparseVectors(*(read_only(self._arrays[name]) for name in ("data", "indices", "begin", "end")))
        return DenseVectors(read_only(self._arrays["x"]))

    def arrays(self) -> dict[str, Array]:
        """What a file holds; sparse vectors packed."""
        if self.sparse and int((self._arrays["end"] - self._arrays["begin"]).sum()) != len(self._arrays["data"]):
            self._pack(0)
        return self._arrays

    def put(self, ids: Array, vectors: Any) -> None:
        """Set the vectors of the classes ``ids`` to the rows of an array or a CSR matrix."""
        self._own(int(ids.max(initial=-1)) + 1)
        if not self.sparse:
            self._arrays["x"][ids] = vectors.toarray() if sp.issparse(vectors) else vectors
            return
        rows = sp.csr_matrix(vectors, dtype=self.dtype, copy=sp.issparse(vectors))
        rows.sum_duplicates()
        rows.eliminate_zeros()
        self._arrays["begin"][ids] = self._arrays["end"][ids] = 0
        if self._used + rows.nnz > len(self._arrays["data"]):
            self._pack(rows.nnz)
        at = slice(self._used, self._used + rows.nnz)
        self._arrays["data"][at] = rows.data
        self._arrays["indices"][at] = rows.indices
        self._arrays["begin"][ids] = rows.indptr[:-1].astype(np.int64) + self._used
        self._arrays["end"][ids] = rows.indptr[1:].astype(np.int64) + self._used
        self._used += rows.nnz

    def clear(self, ids: Array) -> None:
        """Set the vectors of the classes to zero."""
        self.put(ids, sp.csr_matrix((len(ids), self.d), dtype=self.dtype))

    def rows(self, ids: Array | None = None) -> Any:
        """The vectors of the classes (all, by number) as rows: an array or a CSR matrix."""
        ids = np.arange(self.capacity) if ids is None else ids
        if not self.sparse:
            return self._arrays["x"][ids]
        begin, end = self._arrays["begin"][ids], self._arrays["end"][ids]
        where = _positions(begin, end)
        pointers = np.concatenate([[0], np.cumsum(end - begin)])
        parts = (self._arrays["data"][where], self._arrays["indices"][where], pointers)
        return sp.csr_matrix(parts, shape=(len(ids), self.d))

    def norms(self, ids: Array) -> Array:
        """Euclidean norms, in float64."""
        rows = self.rows(ids)
        squares = rows.multiply(rows).sum(axis=1, dtype=np.float64) if self.sparse else None
        if squares is None:
            squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        return np.sqrt(np.asarray(squares, np.float64).ravel())

    def _own(self, capacity: int) -> None:
        """Writable arrays with room for that many classes."""
        more = max(0, capacity - self.capacity)
        for name, array in self._arrays.items():
            if name in ("x", "begin", "end") and more:
                # Half as many again, or a thousand insertions would be a thousand copies: but places are classes to
                # all who ask, so only the arrays of numbers, which are small, grow by what is needed.
                self._arrays[name] = np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])
            elif not array.flags.writeable:
                self._arrays[name] = np.array(array)

    def _pack(self, room: int) -> None:
        """The vectors without gaps, and behind them at least ``room`` and as much as they take."""
        begin, end = self._arrays["begin"], self._arrays["end"]
        where = _positions(begin, end)
        length = end - begin
        spare = max(room, len(where)) if room else 0
        for name in ("data", "indices"):
            array = self._arrays[name]
            self._arrays[name] = np.concatenate([array[where], np.zeros(spare, array.dtype)])
        self._arrays["end"] = np.cumsum(length)
        self._arrays["begin"] = self._arrays["end"] - length
        self._used = len(where)

    def _check(self) -> None:
        arrays = self._arrays
        if not self.sparse:
            if arrays["x"].ndim != 2 or arrays["x"].shape[1] != self.d:
                raise ValueError(f"vectors of shape {arrays['x'].shape} for {self.d} features")
            return
        data, indices, begin, end = (arrays[name] for name in ("data", "indices", "begin", "end"))
        if data.ndim != 1 or data.shape != indices.shape or begin.ndim != 1 or begin.shape != end.shape:
            raise ValueError("the arrays of the vectors do not fit each other")
        if len(begin) and (begin.min() < 0 or end.max() > len(data) or np.any(end < begin)):
            raise ValueError("the pointers of the vectors leave their arrays")
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.d):
            raise ValueError(f"the features of the vectors leave 0 .. {self.d - 1}")


def _positions(begin: Array, end: Array) -> Array:
    """All positions begin[k] .. end[k] - 1, class by class."""
    length = end - begin
    starts = np.cumsum(length) - length
    return np.asarray(np.arange(int(length.sum())) + np.repeat(begin - starts, length))

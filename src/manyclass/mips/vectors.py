"""Class vectors stored by class, for the indexes that score candidates individually."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import read_only
from manyclass.kernels.search import DenseVectors, SparseVectors, Vectors

__all__ = ["ClassVectors"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class ClassVectors:
    """A vector for each class number, dense or sparse, with updates.

    Sparse vectors are stored one after the other in two arrays; a changed vector is appended at the end, and when more
    than half of the arrays is unused, they are compacted. Memory-mapped arrays are copied at the first change.
    """

    def __init__(self, d: int, arrays: dict[str, Array]) -> None:
        self.d = d
        self._arrays = arrays
        self._check()
        self._used = len(arrays["data"]) if self.sparse else 0

    @classmethod
    def of_columns(cls, weights: Any) -> ClassVectors:
        """The vectors of the columns of valid weights, copied."""
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
        """The largest class number for which memory is allocated, plus 1."""
        return len(self._arrays["begin" if self.sparse else "x"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(self._arrays["data" if self.sparse else "x"].dtype)

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(int(array.nbytes) for array in self._arrays.values())

    def view(self) -> Vectors:
        """The view that kernels take."""
        if self.sparse:
            return SparseVectors(*(read_only(self._arrays[name]) for name in ("data", "indices", "begin", "end")))
        return DenseVectors(read_only(self._arrays["x"]))

    def arrays(self) -> dict[str, Array]:
        """The arrays to save; sparse vectors compacted."""
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
        """The vectors of the classes ``ids`` (default: all, ascending) as rows of an array or a CSR matrix."""
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
        """Make the arrays writable and large enough for ``capacity`` classes."""
        more = max(0, capacity - self.capacity)
        for name, array in self._arrays.items():
            if name in ("x", "begin", "end") and more:
                # The length of these arrays is the capacity, so that they grow to exactly the capacity needed.
                self._arrays[name] = np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])
            elif not array.flags.writeable:
                self._arrays[name] = np.array(array)

    def _pack(self, room: int) -> None:
        """Compact the vectors, and reserve at least ``room`` entries after them, or as many as they have."""
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
                raise ValueError(f"vectors must have {self.d} features, got shape {arrays['x'].shape}")
            return
        data, indices, begin, end = (arrays[name] for name in ("data", "indices", "begin", "end"))
        if data.ndim != 1 or data.shape != indices.shape or begin.ndim != 1 or begin.shape != end.shape:
            raise ValueError("the arrays of the vectors have inconsistent shapes")
        if len(begin) and (begin.min() < 0 or end.max() > len(data) or np.any(end < begin)):
            raise ValueError("the pointers of the vectors are out of range")
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.d):
            raise ValueError(f"the features of the vectors must be from 0 to {self.d - 1}")


def _positions(begin: Array, end: Array) -> Array:
    """All positions begin[k] .. end[k] - 1, class by class."""
    length = end - begin
    starts = np.cumsum(length) - length
    return np.asarray(np.arange(int(length.sum())) + np.repeat(begin - starts, length))

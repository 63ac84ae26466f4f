"""Helpers for rows in CSR form: row pointers, ranges of rows of bounded size, matrices without checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack, issparse

__all__ = ["beside", "make_csr", "one_of", "row_pointers", "row_ranges"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


#: Rows whose parts are put beside each other at a time.
_ROWS = 1 << 12


def beside(parts: Sequence[Any], dtype: npt.DTypeLike) -> Any:
    """The columns of arrays and CSR matrices beside each other, as a CSR matrix; zeros of arrays are not stored.

    Some rows at a time: SciPy's ``hstack`` has, beside the result, all rows once more, and those of an array in
    coordinates, 20 bytes a number.
    """
    n, width = parts[0].shape[0], sum(part.shape[1] for part in parts)
    size = sum(part.nnz if issparse(part) else int(np.count_nonzero(part)) for part in parts)
    index = np.int32 if max(size, width) <= np.iinfo(np.int32).max else np.int64
    data, indices, lengths, at = np.empty(size, dtype), np.empty(size, index), np.empty(n, index), 0
    for begin in range(0, n, _ROWS):
        rows = slice(begin, begin + _ROWS)
        block = hstack([csr_matrix(part[rows]) for part in parts], format="csr", dtype=dtype)
        data[at : at + block.nnz], indices[at : at + block.nnz] = block.data, block.indices
        lengths[rows] = np.diff(block.indptr)
        at += block.nnz
    return csr_matrix((data, indices, row_pointers(lengths, index)), shape=(n, width))


def one_of(codes: Array, width: int, dtype: npt.DTypeLike) -> Any:
    """A CSR matrix with a 1 in the column of each code; nothing where it is negative."""
    there = codes >= 0
    ones = np.ones(np.count_nonzero(there), dtype)
    return csr_matrix((ones, codes[there], row_pointers(there)), shape=(codes.size, width))


def row_pointers(lengths: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> Array:
    """The row pointers (``indptr``) of CSR rows that store ``lengths`` values."""
    counts = np.asarray(lengths)
    indptr = np.zeros(counts.size + 1, dtype)
    np.cumsum(counts, out=indptr[1:], dtype=dtype)
    return indptr


def row_ranges(indptr: Array, size: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows, each of at most ``size`` rows and ``size`` stored values, or of one longer row."""
    begin, n = 0, len(indptr) - 1
    while begin < n:
        # In the type of indptr: any other would have searchsorted convert all of it. The sum may not fit in that type.
        limit = indptr.dtype.type(min(int(indptr[begin]) + size, int(indptr[-1])))
        end = int(np.searchsorted(indptr, limit, side="right")) - 1
        end = min(max(end, begin + 1), n, begin + size)
        yield begin, end
        begin = end


def make_csr(data: Array, indices: Array, indptr: Array, width: int, canonical: bool) -> Any:
    """A CSR matrix of these arrays; SciPy's constructor would scan the indices and may convert them."""
    matrix = csr_matrix((len(indptr) - 1, width), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    if canonical:
        matrix.has_sorted_indices = True
        matrix.has_canonical_format = True
    return matrix

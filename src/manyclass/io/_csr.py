"""Helpers for rows in CSR form: row pointers, ranges of rows of bounded size, matrices without checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

__all__ = ["make_csr", "row_pointers", "row_ranges"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


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

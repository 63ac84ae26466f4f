"""Row views: the interface between kernels and data.

A row view is a NamedTuple of arrays. Kernels call the functions below, and Numba selects the implementation by the type
of the view: compressed sparse rows with 32- or 64-bit indices, or dense rows in memory or memory-mapped. Every array in
a view is marked read-only, so that writable, read-only and memory-mapped inputs share one specialization and no kernel
can write to a user's data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.jit import implements, is_a, jit

__all__ = [
    "CSRRows",
    "DenseRows",
    "Rows",
    "check_largest",
    "check_sparse",
    "csr_fault",
    "csr_form_fault",
    "has_duplicates",
    "longest_row",
    "make_rows",
    "n_rows",
    "n_stored",
    "read_only",
    "row_dot",
    "row_span",
    "row_split",
    "scan_indices",
    "squared_norm",
]


#: Indices for which one int32 counts.
_BLOCK = 4096


class CSRRows(NamedTuple):
    """Compressed sparse rows."""

    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]


class DenseRows(NamedTuple):
    """Dense rows, an n x d array."""

    x: np.ndarray[Any, Any]


Rows = CSRRows | DenseRows


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A read-only base-class view of ``array``; never a copy."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def make_rows(X: Any) -> Rows:
    """The row view of a CSR matrix or of a 2-D array, without a copy."""
    if sp.issparse(X):
        return CSRRows(read_only(X.data), read_only(X.indices), read_only(X.indptr))
    return DenseRows(read_only(X))


def csr_fault(
    data: np.ndarray[Any, Any],
    indices: np.ndarray[Any, Any],
    indptr: np.ndarray[Any, Any],
    shape: tuple[int, ...],
    *,
    spare: bool = False,
) -> str | None:
    """What is wrong with the three arrays of a compressed sparse row matrix; None if they are consistent.

    Compiled code does not check indices: one out of range would read or write other memory. With ``spare``, ``data``
    and ``indices`` may be longer than ``indptr`` requires, as SciPy allows.
    """
    # Without compiled code, which the first call has to load: for files and single rows.
    return _fault_and_order(data, indices, indptr, shape, spare, lambda used, indptr: (used.max(), False))[0]


def _fault_and_order(
    data: np.ndarray[Any, Any],
    indices: np.ndarray[Any, Any],
    indptr: np.ndarray[Any, Any],
    shape: tuple[int, ...],
    spare: bool,
    scan: Callable[..., tuple[Any, Any]],
) -> tuple[str | None, bool]:
    """See `csr_fault`, and whether the columns of each row ascend. ``scan`` tells this and the largest index."""
    fault = csr_form_fault(data, indices, indptr, shape[0])
    if fault:
        return fault, False
    stored = int(indptr[-1])
    fits = stored <= len(indices) if spare else stored == len(indices)
    if indptr[0] != 0 or not fits or np.any(indptr[1:] < indptr[:-1]):
        return f"indptr must not decrease, from 0 to the number of stored values, {len(indices)}", False
    if not stored:
        return None, True
    used = np.ascontiguousarray(indices[:stored])
    # As an unsigned integer, a negative index is very large.
    largest, ordered = scan(read_only(used.view(f"u{used.itemsize}")), read_only(indptr))
    if int(largest) >= shape[1]:
        return f"indices run from {used.min()} to {used.max()}, expected 0 to {shape[1] - 1}", False
    return None, bool(ordered)


def csr_form_fault(
    data: np.ndarray[Any, Any], indices: np.ndarray[Any, Any], indptr: np.ndarray[Any, Any], n_rows: int
) -> str | None:
    """What is wrong with the shapes and types of the three arrays, whose contents are not read."""
    if indptr.shape != (n_rows + 1,):
        return f"indptr has shape {indptr.shape}, expected {(n_rows + 1,)}"
    if indices.ndim != 1 or data.shape[:1] != indices.shape:
        return f"data has shape {data.shape} and indices {indices.shape}, expected two vectors of one length"
    for name, array in (("indices", indices), ("indptr", indptr)):
        if array.dtype not in (np.int32, np.int64):
            return f"{name} has type {array.dtype}, expected int32 or int64"
    if data.dtype.kind not in "biufc":
        return f"data has type {data.dtype}, expected numbers"
    return None


def check_sparse(X: Any, name: str = "X") -> bool:
    """Raise an error if the arrays of a compressed sparse matrix are inconsistent, before compiled code reads them.

    SciPy checks the range of the indices only on request, and accepts a ``shape=`` that is too narrow. Other sparse
    formats and dense arrays are accepted unchecked.

    Returns
    -------
    bool
        True for a CSR matrix with the columns of each row in ascending order, so that none is stored twice.

    Raises
    ------
    ValueError
        Naming the inconsistent array.
    """
    if not sp.issparse(X) or X.format not in ("csr", "csc", "bsr"):
        return False
    height, width = X.blocksize if X.format == "bsr" else (1, 1)
    shape = (X.shape[0] // height, X.shape[1] // width)
    if X.format == "csc":
        shape = shape[::-1]
    fault, ordered = _fault_and_order(X.data, X.indices, X.indptr, shape, True, scan_indices)
    if fault:
        raise ValueError(
            f"{name} is a damaged sparse matrix of shape {X.shape}: {fault}. Pass the shape that the indices need, or "
            "build the matrix again from its rows"
        )
    return ordered and X.format == "csr"


def check_largest(largest: float, n: int, dtype: np.dtype[Any], name: str = "X") -> None:
    """Raise a ValueError if sums of n squares of the largest value overflow ``dtype``, or its square vanishes."""
    limits = np.finfo(dtype)
    if largest > math.sqrt(float(limits.max) / n):
        raise ValueError(
            f"{name} has values of size {largest:.1e}, whose squares overflow {dtype.name}: scale the features"
        )
    if 0 < largest < math.sqrt(float(limits.tiny)):
        raise ValueError(
            f"the largest value of {name} is {largest:.1e}, whose square underflows {dtype.name}: scale the features"
        )


@jit
def has_duplicates(indices, indptr, last_row):
    """Whether a row contains a column twice. ``last_row`` is scratch: one negative integer per column."""
    for i in range(indptr.shape[0] - 1):
        disorder = 0
        for t in range(indptr[i] + 1, indptr[i + 1]):
            disorder += indices[t] <= indices[t - 1]
        if disorder == 0:
            continue
        for t in range(indptr[i], indptr[i + 1]):
            if last_row[indices[t]] == i:
                return True
            last_row[indices[t]] = i
    return False


@jit
def scan_indices(indices, indptr):
    """The largest index, and whether the columns of each row ascend.

    They do if all places where an index is not above the one before it are places where a row begins. ``indptr`` must
    not decrease, from 0 to the number of indices.
    """
    stored, last = indices.shape[0], indptr.shape[0] - 1
    largest, falls, i = np.uint64(0), 0, 1
    for begin in range(0, stored, _BLOCK):
        end = min(stored, begin + _BLOCK)
        # Slices of one start and a narrow counter, so that the loop is vectorized.
        here, after = indices[begin:end], indices[begin + 1 : min(stored, end + 1)]
        top, count = here[-1], np.uint32(0)
        for t in range(after.shape[0]):
            top = max(top, here[t])
            count = np.uint32(count + np.uint32(after[t] <= here[t]))
        largest = max(largest, np.uint64(top))
        falls += int(count)
        while i < last and indptr[i] <= end:  # while these indices are in the processor's cache
            t = indptr[i]
            if indptr[i - 1] < t < stored:  # of empty rows the first alone
                falls -= indices[t] <= indices[t - 1]
            i += 1
    return largest, falls == 0


def n_stored(rows: Rows) -> int:
    """Number of stored values, which one pass over the data reads."""
    return int(rows.indptr[-1] - rows.indptr[0]) if isinstance(rows, CSRRows) else int(rows.x.size)


def n_rows(rows: Any) -> Any:
    """Number of rows."""
    raise TypeError("compiled: call it from a kernel")


def longest_row(rows: Any) -> Any:
    """Largest number of stored values of a row."""
    raise TypeError("compiled: call it from a kernel")


def row_span(rows: Any, i: Any) -> Any:
    """Where x_i begins and ends: positions in the stored values of sparse rows, features of dense ones."""
    raise TypeError("compiled: call it from a kernel")


def row_dot(rows: Any, i: Any, k: Any) -> Any:
    """``x_i^T x_k`` in float64; sparse rows must be sorted."""
    raise TypeError("compiled: call it from a kernel")


def row_split(rows: Any, i: Any, begin: Any, feature: Any) -> Any:
    """The first position of x_i from ``begin`` on with this feature or a larger one; sparse rows must be sorted."""
    raise TypeError("compiled: call it from a kernel")


def squared_norm(rows: Any, i: Any) -> Any:
    """``||x_i||^2`` in float64."""
    raise TypeError("compiled: call it from a kernel")


@implements(n_rows)
def _n_rows(rows: Any) -> Any:
    if is_a(rows, CSRRows):
        return lambda rows: rows.indptr.shape[0] - 1
    if is_a(rows, DenseRows):
        return lambda rows: rows.x.shape[0]
    return None


@implements(longest_row)
def _longest_row(rows: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows):
            longest = np.int64(0)
            for i in range(rows.indptr.shape[0] - 1):
                longest = max(longest, np.int64(rows.indptr[i + 1] - rows.indptr[i]))
            return longest

        return csr
    if is_a(rows, DenseRows):
        return lambda rows: np.int64(rows.x.shape[1])
    return None


@implements(row_span)
def _row_span(rows: Any, i: Any) -> Any:
    if is_a(rows, CSRRows):
        return lambda rows, i: (np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1]))
    if is_a(rows, DenseRows):
        return lambda rows, i: (np.int64(0), np.int64(rows.x.shape[1]))
    return None


@implements(row_dot)
def _row_dot(rows: Any, i: Any, k: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, k):
            total = 0.0
            t, u = np.int64(rows.indptr[i]), np.int64(rows.indptr[k])
            end_t, end_u = np.int64(rows.indptr[i + 1]), np.int64(rows.indptr[k + 1])
            while t < end_t and u < end_u:
                if rows.indices[t] == rows.indices[u]:
                    total += np.float64(rows.data[t]) * np.float64(rows.data[u])
                    t += 1
                    u += 1
                elif rows.indices[t] < rows.indices[u]:
                    t += 1
                else:
                    u += 1
            return total

        return csr
    if is_a(rows, DenseRows):

        def dense(rows, i, k):
            total = 0.0
            for j in range(rows.x.shape[1]):
                total += np.float64(rows.x[i, j]) * np.float64(rows.x[k, j])
            return total

        return dense
    return None


@implements(row_split)
def _row_split(rows: Any, i: Any, begin: Any, feature: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, begin, feature):
            low, high = np.int64(begin), np.int64(rows.indptr[i + 1])
            while low < high:
                middle = (low + high) // 2
                if rows.indices[middle] < feature:
                    low = middle + 1
                else:
                    high = middle
            return low

        return csr
    if is_a(rows, DenseRows):
        return lambda rows, i, begin, feature: max(np.int64(begin), np.int64(feature))
    return None


@implements(squared_norm)
def _squared_norm(rows: Any, i: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i):
            total = 0.0
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                total += np.float64(rows.data[t]) * rows.data[t]
            return total

        return csr
    if is_a(rows, DenseRows):

        def dense(rows, i):
            total = 0.0
            for j in range(rows.x.shape[1]):
                total += np.float64(rows.x[i, j]) * rows.x[i, j]
            return total

        return dense
    return None

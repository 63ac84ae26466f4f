"""Kernels of prediction: scores of rows, and the k best classes of each row without an n x K array.

A weights view is a NamedTuple of arrays, as a row view is (`manyclass.kernels.rows`): dense, or compressed sparse rows.
Numba selects the implementation by its type, and kernels are written once for all pairs of views.

Scores are computed in tiles, a few rows by a block of classes, so that weights in the cache are used for several rows.
The stored values of a row are summed in the same order for all tile shapes: results depend neither on the tiles nor on
the number of threads, and scores and rankings agree to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.jit import implements, inline, is_a, jit
from manyclass.kernels.rows import CSRRows, DenseRows, read_only

__all__ = [
    "DenseWeights",
    "SparseWeights",
    "Weights",
    "add_row",
    "add_rows",
    "add_tile",
    "fill_tile",
    "keep_best",
    "make_weights",
    "sink",
    "sort_heap",
    "tile_shape",
    "worse",
]

# mypy: disable-error-code="no-untyped-def"

#: Largest number of rows, classes and scores of a tile: large against the cost of a call from Python, and half of a
#: second-level cache.
_ROWS, _CLASSES, _TILE = 1024, 2048, 2**17
#: Features of dense rows that are used for all rows of a tile before the next features are read.
_FEATURES = 64


class DenseWeights(NamedTuple):
    """Weights d x K, the K weights of a feature contiguous."""

    w: np.ndarray[Any, Any]


class SparseWeights(NamedTuple):
    """Weights d x K as compressed sparse rows, one row per feature."""

    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]


Weights = DenseWeights | SparseWeights


def make_weights(weights: Any) -> Weights:
    """The view of a d x K array or CSR matrix, without a copy. Row pointers are trusted, column indices are checked."""
    if sp.issparse(weights):
        return SparseWeights(read_only(weights.data), read_only(weights.indices), read_only(weights.indptr))
    return DenseWeights(read_only(weights))


def tile_shape(weights: Weights, n_outputs: int) -> tuple[int, int]:
    """Rows and classes of a tile. With sparse weights a tile has all classes, so that each row is read only once."""
    width = min(n_outputs, _CLASSES) if isinstance(weights, DenseWeights) else n_outputs
    return min(_ROWS, max(1, _TILE // width)), width


def add_row(weights: Any, j: Any, x: Any, lo: Any, hi: Any, s: Any) -> Any:
    """``s[k - lo] += x * W[j, k]`` for lo <= k < hi."""
    raise TypeError("compiled: call it from a kernel")


def add_rows(weights: Any, j: Any, x: Any, lo: Any, hi: Any, s: Any) -> Any:
    """``s[k - lo] += sum_m x[m] * W[j[m], k]`` for lo <= k < hi and the four numbers of the tuples ``j`` and ``x``."""
    raise TypeError("compiled: call it from a kernel")


def add_tile(rows: Any, begin: Any, end: Any, weights: Any, lo: Any, hi: Any, S: Any) -> Any:
    """``S[i - begin, k - lo] += sum_j x_ij W[j, k]`` for begin <= i < end, lo <= k < hi."""
    raise TypeError("compiled: call it from a kernel")


@implements(add_row)
def _add_row(weights: Any, j: Any, x: Any, lo: Any, hi: Any, s: Any) -> Any:
    if is_a(weights, DenseWeights):

        def dense(weights, j, x, lo, hi, s):
            w = weights.w[j, lo:hi]
            for k in range(hi - lo):
                s[k] += x * w[k]

        return dense
    if is_a(weights, SparseWeights):

        def sparse(weights, j, x, lo, hi, s):
            for t in range(weights.indptr[j], weights.indptr[j + 1]):
                k = weights.indices[t]
                if lo <= k < hi:
                    s[k - lo] += x * weights.data[t]

        return sparse
    return None


@implements(add_rows)
def _add_rows(weights: Any, j: Any, x: Any, lo: Any, hi: Any, s: Any) -> Any:
    if is_a(weights, DenseWeights):

        def dense(weights, j, x, lo, hi, s):
            w0 = weights.w[j[0], lo:hi]
            w1 = weights.w[j[1], lo:hi]
            w2 = weights.w[j[2], lo:hi]
            w3 = weights.w[j[3], lo:hi]
            for k in range(hi - lo):
                s[k] += x[0] * w0[k] + x[1] * w1[k] + x[2] * w2[k] + x[3] * w3[k]

        return dense
    if is_a(weights, SparseWeights):

        def sparse(weights, j, x, lo, hi, s):
            for m in range(4):
                add_row(weights, j[m], x[m], lo, hi, s)

        return sparse
    return None


@implements(add_tile)
def _add_tile(rows: Any, begin: Any, end: Any, weights: Any, lo: Any, hi: Any, S: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, begin, end, weights, lo, hi, S):
            real = S.dtype.type
            for i in range(begin, end):
                s = S[i - begin]
                t = rows.indptr[i]
                end_t = rows.indptr[i + 1]
                while t + 4 <= end_t:
                    j = (rows.indices[t], rows.indices[t + 1], rows.indices[t + 2], rows.indices[t + 3])
                    x = (real(rows.data[t]), real(rows.data[t + 1]), real(rows.data[t + 2]), real(rows.data[t + 3]))
                    add_rows(weights, j, x, lo, hi, s)
                    t += 4
                while t < end_t:
                    add_row(weights, rows.indices[t], real(rows.data[t]), lo, hi, s)
                    t += 1

        return csr
    if is_a(rows, DenseRows):

        def dense(rows, begin, end, weights, lo, hi, S):
            real = S.dtype.type
            for first in range(0, rows.x.shape[1], _FEATURES):
                last = min(first + _FEATURES, rows.x.shape[1])
                for i in range(begin, end):
                    s = S[i - begin]
                    j = first
                    while j + 4 <= last:
                        x = (real(rows.x[i, j]), real(rows.x[i, j + 1]), real(rows.x[i, j + 2]), real(rows.x[i, j + 3]))
                        if x[0] != 0 or x[1] != 0 or x[2] != 0 or x[3] != 0:
                            add_rows(weights, (j, j + 1, j + 2, j + 3), x, lo, hi, s)
                        j += 4
                    while j < last:
                        add_row(weights, j, real(rows.x[i, j]), lo, hi, s)
                        j += 1

        return dense
    return None


@jit
def fill_tile(rows, weights, intercept, begin, end, lo, hi, S):
    """``S[i - begin, k - lo] = (W^T x_i + b)_k`` for begin <= i < end, lo <= k < hi.

    The rows must be valid, with column numbers below that of the rows of W.
    """
    for r in range(end - begin):
        # Not a slice assignment: Numba takes three times as long to compile it, for its error message.
        for k in range(lo, hi):
            S[r, k - lo] = intercept[k]
    add_tile(rows, begin, end, weights, lo, hi, S)


@inline
def worse(a, ka, b, kb):
    # Whether score a of class ka ranks after score b of class kb: NaN after all numbers, ties by class number.
    if a < b:
        return True
    if a > b:
        return False
    if (a != a) != (b != b):
        return a != a
    return ka > kb


@inline
def sink(value, number, size, v, c):
    # Replace the root of the heap, its worst entry, by (v, c).
    p = 0
    child = 1
    while child < size:
        if child + 1 < size and worse(value[child + 1], number[child + 1], value[child], number[child]):
            child += 1
        if not worse(value[child], number[child], v, c):
            break
        value[p] = value[child]
        number[p] = number[child]
        p = child
        child = 2 * p + 1
    value[p] = v
    number[p] = c


@inline
def sort_heap(value, number, size):
    # Heap sort: remove the worst entry repeatedly; the result is sorted, best first.
    for last in range(size - 1, 0, -1):
        v = value[last]
        c = number[last]
        value[last] = value[0]
        number[last] = number[0]
        sink(value, number, last, v, c)


@jit
def keep_best(S, lo, hi, outputs, values, numbers):
    """Update the k best classes of each row i with the classes lo <= k < hi, scores ``S[i, k - lo]``.

    To be called for all blocks of classes, in ascending order. Between calls a row of ``values`` (scores) and
    ``numbers`` (classes) is a heap with the worst at its root; after the last call it is sorted, best first.
    """
    size = values.shape[1]
    for i in range(values.shape[0]):
        s = S[i]
        value = values[i]
        number = numbers[i]
        if lo == 0:
            # Worse than any class.
            value[:] = np.nan
            number[:] = outputs
        for k in range(lo, hi):
            # Negated, so that NaN reaches `worse`, which handles it.
            if not (s[k - lo] <= value[0]) and worse(value[0], number[0], s[k - lo], k):
                sink(value, number, size, s[k - lo], k)
        if hi == outputs:
            sort_heap(value, number, size)

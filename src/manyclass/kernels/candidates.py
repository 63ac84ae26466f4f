"""The k best of given classes for each row: only their scores are computed, and no n x K array is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.kernels.jit import implements, is_a, jit
from manyclass.kernels.predict import DenseWeights, SparseWeights, sort_heap
from manyclass.kernels.rows import CSRRows, DenseRows
from manyclass.kernels.search import offer, start

__all__ = ["best_candidates"]

# mypy: disable-error-code="no-untyped-def"

#: A list of weights that is this many times as long as that of the candidates is searched by bisection, not read.
_LONG = 16


def add_listed(weights: Any, j: Any, x: Any, columns: Any, s: Any) -> Any:
    """``s[c] += x * W[j, columns[c]]`` for ascending columns."""
    raise TypeError("compiled: call it from a kernel")


def add_listed_row(rows: Any, i: Any, weights: Any, columns: Any, s: Any) -> Any:
    """``s[c] += sum_j x_ij W[j, columns[c]]`` for ascending columns."""
    raise TypeError("compiled: call it from a kernel")


@implements(add_listed)
def _add_listed(weights: Any, j: Any, x: Any, columns: Any, s: Any) -> Any:
    if is_a(weights, DenseWeights):

        def dense(weights, j, x, columns, s):
            w = weights.w[j]
            for c in range(columns.shape[0]):
                s[c] += x * w[columns[c]]

        return dense
    if is_a(weights, SparseWeights):

        def sparse(weights, j, x, columns, s):
            t = np.int64(weights.indptr[j])
            end = np.int64(weights.indptr[j + 1])
            long = end - t > _LONG * columns.shape[0]
            for c in range(columns.shape[0]):
                k = columns[c]
                if long:
                    last = end
                    while t < last:
                        middle = (t + last) // 2
                        if weights.indices[middle] < k:
                            t = middle + 1
                        else:
                            last = middle
                else:
                    while t < end and weights.indices[t] < k:
                        t += 1
                if t < end and weights.indices[t] == k:
                    s[c] += x * weights.data[t]

        return sparse
    return None


@implements(add_listed_row)
def _add_listed_row(rows: Any, i: Any, weights: Any, columns: Any, s: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, weights, columns, s):
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                add_listed(weights, rows.indices[t], s.dtype.type(rows.data[t]), columns, s)

        return csr
    if is_a(rows, DenseRows):

        def dense(rows, i, weights, columns, s):
            for j in range(rows.x.shape[1]):
                if rows.x[i, j] != 0:
                    add_listed(weights, j, s.dtype.type(rows.x[i, j]), columns, s)

        return dense
    return None


@jit
def best_candidates(rows, weights, intercept, begin, end, step, indptr, columns, values, numbers):
    """The k best candidates of the rows begin .. end - 1, best first, into ``values[i]`` and ``numbers[i]``.

    The candidates of row i are ``columns[indptr[step * i] : indptr[step * i + 1]]``, ascending: step is 0 for one list
    for all rows, else 1. A row with fewer than k has NaN and the largest integer behind them. The rows must be valid;
    sparse weights must be sorted, no class twice.
    """
    size = values.shape[1]
    longest = 0
    for i in range(begin, end):
        longest = max(longest, indptr[step * i + 1] - indptr[step * i])
    scores = np.empty(longest, values.dtype)
    for i in range(begin, end):
        own = columns[indptr[step * i] : indptr[step * i + 1]]
        s = scores[: own.shape[0]]
        for c in range(own.shape[0]):
            s[c] = intercept[own[c]]
        add_listed_row(rows, i, weights, own, s)
        value = values[i]
        number = numbers[i]
        start(value, number, size)
        for c in range(own.shape[0]):
            offer(value, number, size, s[c], own[c])
        sort_heap(value, number, size)

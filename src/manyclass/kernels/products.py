"""Products of one row with weights: scores, and the outer products that updates are made of.

Kernels call the functions below; Numba selects the implementation by the type of the row view and by the order of the
weights V: feature by feature, or, for dense rows, output by output (`manyclass.objective.Problem.columns_first`).

Loops leave out an entry by ``continue``: LLVM does not vectorize an inner loop that stands in an ``if``, which made
rows of 64 outputs three times slower.
"""

from __future__ import annotations

from typing import Any

import numba

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import primal
from manyclass.kernels.rows import CSRRows, DenseRows
from manyclass.kernels.vectors import MOST, add_row, add_to_row, suits

__all__ = [
    "add_outer",
    "add_outers",
    "add_scores",
    "add_sparse_outer",
    "add_sparse_outer_within",
    "add_sparse_scores",
    "add_squares",
]


def add_scores(rows: Any, i: Any, V: Any, lo: Any, hi: Any, reg: Any, s: Any) -> Any:
    """``s[k - lo] += sum_j x_ij primal(reg, V[j, k])`` for lo <= k < hi."""
    raise TypeError("compiled: call it from a kernel")


def add_sparse_outer_within(rows: Any, i: Any, coef: Any, classes: Any, m: Any, first: Any, last: Any, V: Any) -> Any:
    """`add_sparse_outer` for the features first <= j < last."""
    raise TypeError("compiled: call it from a kernel")


def add_sparse_scores(rows: Any, i: Any, begin: Any, end: Any, V: Any, classes: Any, m: Any, reg: Any, s: Any) -> Any:
    """``s[a] += sum_j x_ij primal(reg, V[j, classes[a]])`` for a < m; x_i from ``begin`` to ``end`` (`row_span`)."""
    raise TypeError("compiled: call it from a kernel")


def add_outer(rows: Any, i: Any, coef: Any, lo: Any, hi: Any, V: Any) -> Any:
    """``V[j, k] += x_ij coef[k - lo]`` for lo <= k < hi."""
    raise TypeError("compiled: call it from a kernel")


def add_squares(rows: Any, i: Any, coef: Any, V: Any) -> Any:
    """``V[j] += x_ij^2 coef``."""
    raise TypeError("compiled: call it from a kernel")


def add_outers(rows: Any, i: Any, m: Any, coef: Any, lo: Any, hi: Any, first: Any, last: Any, V: Any) -> Any:
    """``V[j, k] += sum_{r < m} x_{i + r, j} coef[r, k - lo]`` for lo <= k < hi and the features first <= j < last."""
    raise TypeError("compiled: call it from a kernel")


def add_sparse_outer(rows: Any, i: Any, begin: Any, end: Any, coef: Any, classes: Any, m: Any, V: Any) -> Any:
    """``V[j, classes[a]] += x_ij coef[a]`` for a < m; x_i from ``begin`` to ``end`` (`row_span`)."""
    raise TypeError("compiled: call it from a kernel")


def _columns_first(V: Any) -> bool:
    """Whether V is stored column by column (`Problem.columns_first`): loops then run over the features of an output."""
    return bool(V.layout == "F")


def _suits_vectors(rows: Any, V: Any, s: Any) -> bool:
    """Whether the types of sparse rows, of weights, and of the numbers of their outputs suit `kernels.vectors`."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return False
    return suits(rows[rows.fields.index("indices")], rows[rows.fields.index("data")], V, s)


@implements(add_scores)
def _add_scores(rows: Any, i: Any, V: Any, lo: Any, hi: Any, reg: Any, s: Any) -> Any:
    if is_a(rows, CSRRows):
        in_vectors = "plain" in reg.instance_class.provides and _suits_vectors(rows, V, s)

        def csr(rows, i, V, lo, hi, reg, s):
            if V.shape[1] == 1:
                total = s[0]
                for t in range(rows.indptr[i], rows.indptr[i + 1]):
                    total += s.dtype.type(rows.data[t]) * primal(reg, V[rows.indices[t], 0])
                s[0] = total
                return
            if in_vectors and hi - lo <= MOST:
                add_row(rows.indices, rows.data, rows.indptr[i], rows.indptr[i + 1], V, lo, s, hi - lo)
                return
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                x = s.dtype.type(rows.data[t])
                v = V[rows.indices[t], lo:hi]
                for k in range(hi - lo):
                    s[k] += x * primal(reg, v[k])

        return csr
    if is_a(rows, DenseRows) and _columns_first(V):

        def columns(rows, i, V, lo, hi, reg, s):
            real = s.dtype.type
            x = rows.x[i]
            k = lo
            while k + 4 <= hi:  # four outputs for each time x is read
                v0, v1, v2, v3 = V[:, k], V[:, k + 1], V[:, k + 2], V[:, k + 3]
                s0, s1, s2, s3 = real(0), real(0), real(0), real(0)
                for j in range(x.shape[0]):
                    z = real(x[j])
                    s0 += z * primal(reg, v0[j])
                    s1 += z * primal(reg, v1[j])
                    s2 += z * primal(reg, v2[j])
                    s3 += z * primal(reg, v3[j])
                s[k - lo] += s0
                s[k - lo + 1] += s1
                s[k - lo + 2] += s2
                s[k - lo + 3] += s3
                k += 4
            while k < hi:
                v = V[:, k]
                total = real(0)
                for j in range(x.shape[0]):
                    total += real(x[j]) * primal(reg, v[j])
                s[k - lo] += total
                k += 1

        return columns
    if is_a(rows, DenseRows):

        def dense(rows, i, V, lo, hi, reg, s):
            if V.shape[1] == 1:
                x, v = rows.x[i], V.reshape(V.size)
                total = s.dtype.type(0)
                for j in range(x.shape[0]):
                    total += s.dtype.type(x[j]) * primal(reg, v[j])
                s[0] += total
                return
            for j in range(rows.x.shape[1]):
                x = s.dtype.type(rows.x[i, j])
                if x == 0:
                    continue
                v = V[j, lo:hi]
                for k in range(hi - lo):
                    s[k] += x * primal(reg, v[k])

        return dense
    return None


@implements(add_sparse_scores)
def _add_sparse_scores(rows: Any, i: Any, begin: Any, end: Any, V: Any, classes: Any, m: Any, reg: Any, s: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, begin, end, V, classes, m, reg, s):
            for t in range(begin, end):
                x = s.dtype.type(rows.data[t])
                v = V[rows.indices[t]]
                for a in range(m):
                    s[a] += x * primal(reg, v[classes[a]])

        return csr
    if is_a(rows, DenseRows) and _columns_first(V):

        def columns(rows, i, begin, end, V, classes, m, reg, s):
            real = s.dtype.type
            x = rows.x[i, begin:end]
            for a in range(m):
                v = V[begin:end, classes[a]]
                total = real(0)
                for j in range(x.shape[0]):
                    total += real(x[j]) * primal(reg, v[j])
                s[a] += total

        return columns
    if is_a(rows, DenseRows):

        def dense(rows, i, begin, end, V, classes, m, reg, s):
            for j in range(begin, end):
                x = s.dtype.type(rows.x[i, j])
                if x == 0:
                    continue
                v = V[j]
                for a in range(m):
                    s[a] += x * primal(reg, v[classes[a]])

        return dense
    return None


@implements(add_outer)
def _add_outer(rows: Any, i: Any, coef: Any, lo: Any, hi: Any, V: Any) -> Any:
    if is_a(rows, CSRRows):
        in_vectors = _suits_vectors(rows, V, coef)

        def csr(rows, i, coef, lo, hi, V):
            if V.shape[1] == 1:
                for t in range(rows.indptr[i], rows.indptr[i + 1]):
                    V[rows.indices[t], 0] += coef.dtype.type(rows.data[t]) * coef[0]
                return
            if in_vectors and hi - lo <= MOST:
                add_to_row(rows.indices, rows.data, rows.indptr[i], rows.indptr[i + 1], V, lo, coef, hi - lo)
                return
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                x = coef.dtype.type(rows.data[t])
                v = V[rows.indices[t], lo:hi]
                for k in range(hi - lo):
                    v[k] += x * coef[k]

        return csr
    if is_a(rows, DenseRows) and _columns_first(V):

        def columns(rows, i, coef, lo, hi, V):
            x = rows.x[i]
            for k in range(lo, hi):
                z = coef[k - lo]
                if z == 0:
                    continue
                v = V[:, k]
                for j in range(x.shape[0]):
                    v[j] += coef.dtype.type(x[j]) * z

        return columns
    if is_a(rows, DenseRows):

        def dense(rows, i, coef, lo, hi, V):
            if V.shape[1] == 1:
                x, v, z = rows.x[i], V.reshape(V.size), coef[0]
                for j in range(x.shape[0]):
                    v[j] += coef.dtype.type(x[j]) * z
                return
            for j in range(rows.x.shape[1]):
                x = coef.dtype.type(rows.x[i, j])
                if x == 0:
                    continue
                v = V[j, lo:hi]
                for k in range(hi - lo):
                    v[k] += x * coef[k]

        return dense
    return None


@implements(add_squares)
def _add_squares(rows: Any, i: Any, coef: Any, V: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, coef, V):
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                x = coef.dtype.type(rows.data[t])
                v = V[rows.indices[t]]
                for k in range(coef.shape[0]):
                    v[k] += x * x * coef[k]

        return csr
    if is_a(rows, DenseRows):

        def dense(rows, i, coef, V):
            for j in range(rows.x.shape[1]):
                x = coef.dtype.type(rows.x[i, j])
                if x == 0:
                    continue
                v = V[j]
                for k in range(coef.shape[0]):
                    v[k] += x * x * coef[k]

        return dense
    return None


@implements(add_outers)
def _add_outers(rows: Any, i: Any, m: Any, coef: Any, lo: Any, hi: Any, first: Any, last: Any, V: Any) -> Any:
    if is_a(rows, CSRRows):
        in_vectors = _suits_vectors(rows, V, coef)

        def csr(rows, i, m, coef, lo, hi, first, last, V):
            for r in range(m):
                c = coef[r]
                largest = abs(c[0])
                for k in range(1, hi - lo):
                    largest = max(largest, abs(c[k]))
                if not largest > 0:
                    continue
                t, end = rows.indptr[i + r], rows.indptr[i + r + 1]
                while in_vectors and hi - lo <= MOST and t < end:
                    # Values whose features lie in the range, one after the other: one run of them in a sorted row.
                    while t < end and (rows.indices[t] < first or rows.indices[t] >= last):
                        t += 1
                    begin = t
                    while t < end and first <= rows.indices[t] < last:
                        t += 1
                    add_to_row(rows.indices, rows.data, begin, t, V, lo, c, hi - lo)
                for at in range(t, end):
                    j = rows.indices[at]
                    if j < first or j >= last:
                        continue
                    x = coef.dtype.type(rows.data[at])
                    v = V[j, lo:hi]
                    for k in range(hi - lo):
                        v[k] += x * c[k]

        return csr
    if is_a(rows, DenseRows) and _columns_first(V):

        def columns(rows, i, m, coef, lo, hi, first, last, V):
            real = coef.dtype.type
            r = 0
            while r + 4 <= m:  # four rows for each time V is read and written
                x0, x1 = rows.x[i + r, first:last], rows.x[i + r + 1, first:last]
                x2, x3 = rows.x[i + r + 2, first:last], rows.x[i + r + 3, first:last]
                for k in range(hi - lo):
                    c0, c1, c2, c3 = coef[r, k], coef[r + 1, k], coef[r + 2, k], coef[r + 3, k]
                    v = V[first:last, lo + k]
                    for j in range(last - first):
                        v[j] += (c0 * real(x0[j]) + c1 * real(x1[j])) + (c2 * real(x2[j]) + c3 * real(x3[j]))
                r += 4
            while r < m:
                x = rows.x[i + r, first:last]
                for k in range(hi - lo):
                    c = coef[r, k]
                    v = V[first:last, lo + k]
                    for j in range(last - first):
                        v[j] += c * real(x[j])
                r += 1

        return columns
    if is_a(rows, DenseRows):

        def dense(rows, i, m, coef, lo, hi, first, last, V):
            for r in range(m):
                c = coef[r]
                for j in range(first, last):
                    x = coef.dtype.type(rows.x[i + r, j])
                    if x == 0:
                        continue
                    v = V[j, lo:hi]
                    for k in range(hi - lo):
                        v[k] += x * c[k]

        return dense
    return None


@implements(add_sparse_outer)
def _add_sparse_outer(rows: Any, i: Any, begin: Any, end: Any, coef: Any, classes: Any, m: Any, V: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, begin, end, coef, classes, m, V):
            for t in range(begin, end):
                x = coef.dtype.type(rows.data[t])
                v = V[rows.indices[t]]
                for a in range(m):
                    v[classes[a]] += x * coef[a]

        return csr
    if is_a(rows, DenseRows) and _columns_first(V):

        def columns(rows, i, begin, end, coef, classes, m, V):
            x = rows.x[i, begin:end]
            for a in range(m):
                v, z = V[begin:end, classes[a]], coef[a]
                for j in range(x.shape[0]):
                    v[j] += coef.dtype.type(x[j]) * z

        return columns
    if is_a(rows, DenseRows):

        def dense(rows, i, begin, end, coef, classes, m, V):
            for j in range(begin, end):
                x = coef.dtype.type(rows.x[i, j])
                if x == 0:
                    continue
                v = V[j]
                for a in range(m):
                    v[classes[a]] += x * coef[a]

        return dense
    return None


@implements(add_sparse_outer_within)
def _add_sparse_outer_within(rows: Any, i: Any, coef: Any, classes: Any, m: Any, first: Any, last: Any, V: Any) -> Any:
    if is_a(rows, CSRRows):

        def csr(rows, i, coef, classes, m, first, last, V):
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                j = rows.indices[t]
                if j < first or j >= last:
                    continue
                x = coef.dtype.type(rows.data[t])
                v = V[j]
                for a in range(m):
                    v[classes[a]] += x * coef[a]

        return csr
    if is_a(rows, DenseRows) and _columns_first(V):

        def columns(rows, i, coef, classes, m, first, last, V):
            x = rows.x[i, first:last]
            for a in range(m):
                v, z = V[first:last, classes[a]], coef[a]
                for j in range(x.shape[0]):
                    v[j] += coef.dtype.type(x[j]) * z

        return columns
    if is_a(rows, DenseRows):

        def dense(rows, i, coef, classes, m, first, last, V):
            for j in range(first, last):
                x = coef.dtype.type(rows.x[i, j])
                if x == 0:
                    continue
                v = V[j]
                for a in range(m):
                    v[classes[a]] += x * coef[a]

        return dense
    return None

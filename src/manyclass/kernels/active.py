"""Kernels of the active-set Crammer-Singer solver: sparse duals.

A rival of row i is a class j != y_i. Row i stores the active rivals ``rivals[indptr[i]:indptr[i+1]]`` (no class twice)
with their dual variables ``b >= 0``, sum b <= 1; the dual variable of every other rival is zero. In the notation of
`CrammerSingerLoss`, a_j = -b_j for the rivals and a_y = sum b.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.meeting import APART, meet
from manyclass.kernels.operations import rival_cost
from manyclass.kernels.products import add_sparse_outer_within
from manyclass.kernels.rows import longest_row, n_rows, row_dot, row_span, row_split
from manyclass.kernels.simplex import project_rivals
from manyclass.kernels.table import (
    add_to_image,
    clear_row,
    has_room,
    image_scores,
    slots_free,
    slots_needed,
    soften,
)

__all__ = [
    "active_epoch",
    "class_excess",
    "known_dual_image",
    "merge_rivals",
    "plan_moves",
    "sparse_conjugates",
    "sparse_dual_image",
    "table_dual_image",
]


@jit
def active_epoch(
    rows,
    y,
    weights,
    norms,
    excess,
    order,
    first_position,
    size,
    loss,
    reg,
    V,
    bias,
    indptr,
    rivals,
    b,
    idle,
    inv_lam_n,
    bias_step,
    bias_excess,
    edges,
    scores,
    steps,
    needed,
    every,
    crossed,
    arrived,
    me,
    threads,
):
    """What thread ``me`` of ``threads`` does of an epoch: dual ascent steps, each exact over a row's active rivals.

    The steps of ``size`` rows of ``order`` are computed at the same weights, with ``norms`` that allow for what they
    have in common; of one row, with ||x_i||^2. Scores and updates are divided by features, at the inner ``edges`` of
    the shards, steps by rows. ``V`` is an array or a `WeightTable`. ``idle``: see
    `manyclass.kernels.sdca.sdca_epoch`. Shared: ``scores``, shards x size x (1 + most rivals of a row), ``steps``,
    size x the same, ``needed``, an int per thread, and ``arrived``, zero.

    ``crossed``, a row for each ``every``-th round, receives ||sum_i x_i d_i^T||^2 - sum_i ||x_i||^2 ||d_i||^2 for the
    steps d_i of the round, and the bound on its mean, sum_i (v_i - ||x_i||^2) ||d_i||^2 with v_i - ||x_i||^2 in
    ``excess`` (`manyclass.kernels.rounds`); ``bias_excess`` is by how much ``bias_step`` is raised likewise.

    Begins at ``first_position`` of ``order``; returns the first one that was not processed: not the end if the table
    has no free slots for a round.
    """
    real = b.dtype.type
    shards, most = scores.shape[0], scores.shape[2]
    first, last = me * shards // threads, (me + 1) * shards // threads
    spans = np.empty((size, shards + 1), np.int64)
    classes = np.empty((size, most), np.int64)
    slots = np.empty((size, most * longest_row(rows)), np.int64)
    new = np.empty(most, b.dtype)
    total = np.empty(most, b.dtype)
    meetings = 0
    for start in range(first_position, order.shape[0], size):
        end = min(start + size, order.shape[0])
        rivals_of_all = 0
        for r in range(end - start):
            rivals_of_all += indptr[order[start + r] + 1] - indptr[order[start + r]] + 1
        need = np.int64(0)
        for r in range(end - start):
            i = order[start + r]
            m = indptr[i + 1] - indptr[i]
            if m == 0 or weights[i] <= 0:
                continue
            for a in range(m):
                classes[r, a] = rivals[indptr[i] + a]
            classes[r, m] = y[i]
            begin, whole = row_span(rows, i)
            if first > 0:
                begin = row_split(rows, i, begin, edges[first - 1])
            spans[r, first] = begin
            at = 0
            for f in range(first, last):
                until = row_split(rows, i, begin, edges[f]) if f + 1 < shards else whole
                s = scores[f, r]
                for a in range(m + 1):
                    s[a] = 0
                image_scores(V, rows, i, begin, until, classes[r], m + 1, reg, s, slots[r, at:])
                at += (m + 1) * (until - begin)
                begin = until
                spans[r, f + 1] = until
            need += slots_needed(V, rows, spans[r, first], spans[r, last], rivals_of_all)
        needed[me * APART] = need
        meetings += 1
        if not meet(arrived, me, threads, meetings):
            return start
        need = np.int64(0)
        for other in range(threads):
            need += needed[other * APART]
        if need > slots_free(V):
            return start
        for position in range(start + me, end, threads):
            i = order[position]
            r = position - start
            m = indptr[i + 1] - indptr[i]
            step = steps[r]
            step[m] = np.nan  # nothing to add
            c = real(weights[i])
            if m == 0 or c <= 0:
                continue
            dual = b[indptr[i] : indptr[i + 1]]
            for a in range(m):
                k = rivals[indptr[i] + a]
                total[a] = bias[k] + (real(rival_cost(loss, y[i], k)) - real(1))
            total[m] = bias[y[i]]
            for f in range(shards):
                s = scores[f, r]
                for a in range(m + 1):
                    total[a] += s[a]
            q = c * (real(norms[i]) * real(inv_lam_n) + real(bias_step) + real(bias_excess))
            old = real(0)
            for a in range(m):
                old += dual[a]
            mass = _exact_step(loss.gamma, q, total, dual, m, old, new)
            change = real(0)
            for a in range(m):
                delta = new[a] - dual[a]
                step[a] = -c * delta
                change = max(change, abs(delta))
                dual[a] = new[a]
            if change > 0:
                step[m] = c * (mass - old)
                idle[i] = 0
            else:
                idle[i] = min(idle[i] + 1, 100)
        meetings += 1
        if not meet(arrived, me, threads, meetings):
            return start
        number = start // size
        if size > 1 and number % every == 0 and number // every % threads == me:
            constant = np.float64(bias_step) / np.float64(inv_lam_n)
            for r in range(end - start):
                i = order[start + r]
                m = indptr[i + 1] - indptr[i]
                if np.isnan(steps[r, m]):
                    continue
                length = 0.0
                for a in range(m + 1):
                    length += np.float64(steps[r, a]) ** 2
                crossed[number // every, 1] += (np.float64(excess[i]) + (size - 1.0) * constant) * length
                for r2 in range(r):
                    i2 = order[start + r2]
                    m2 = indptr[i2 + 1] - indptr[i2]
                    if np.isnan(steps[r2, m2]):
                        continue
                    same = 0.0
                    for a in range(m + 1):
                        for a2 in range(m2 + 1):
                            if classes[r, a] == classes[r2, a2]:
                                same += np.float64(steps[r, a]) * np.float64(steps[r2, a2])
                    if same != 0:
                        crossed[number // every, 0] += 2.0 * same * (row_dot(rows, i, i2) + constant)
        for r in range(end - start):
            i = order[start + r]
            m = indptr[i + 1] - indptr[i]
            if np.isnan(steps[r, m]):
                continue
            if bias_step > 0 and me == 0:
                for a in range(m + 1):
                    bias[classes[r, a]] += real(bias_step) * steps[r, a]
            for a in range(m + 1):
                total[a] = steps[r, a] * real(inv_lam_n)
            add_to_image(V, rows, i, spans[r, first], spans[r, last], total, classes[r], m + 1, slots[r])
    return order.shape[0]


@inline
def _exact_step(gamma, q, s, b, m, old, new):
    """The dual variables ``new`` of m rivals that maximize the dual; their sum.

    ``s`` are the scores, with costs, of the rivals and then of the row's own class, ``old`` is the sum of ``b``.
    """
    real = b.dtype.type
    curvature = gamma + q
    if curvature > 0:
        for a in range(m):
            new[a] = real(1) + s[a] - s[m] + q * b[a] + q * old
        return project_rivals(new[:m], curvature, q / curvature)
    best = 0
    for a in range(m):
        if s[a] > s[best]:
            best = a
    mass = real(1) if real(1) + s[best] - s[m] > 0 else real(0)
    new[:m] = 0
    new[best] = mass
    return mass


@jit
def merge_rivals(indptr, rivals, b, found, new_indptr, new_rivals, new_b, write):
    """Merge the active rivals (those with a positive dual variable) with the proposals ``found``, row by row.

    Call it twice: with ``write`` false it sets only ``new_indptr``, with ``write`` true it fills the arrays.
    """
    total = 0
    new_indptr[0] = 0
    for i in range(indptr.shape[0] - 1):
        for entry in range(indptr[i], indptr[i + 1]):
            if b[entry] > 0:
                if write:
                    new_rivals[total] = rivals[entry]
                    new_b[total] = b[entry]
                total += 1
        for a in range(found.shape[1]):
            if found[i, a] >= 0:
                if write:
                    new_rivals[total] = found[i, a]
                    new_b[total] = 0
                total += 1
        new_indptr[i + 1] = total


@jit
def sparse_conjugates(y, weights, loss, indptr, rivals, b):
    """``sum_i c_i phi*(-a_i)`` in float64."""
    total = 0.0
    for i in range(indptr.shape[0] - 1):
        c = np.float64(weights[i])
        for entry in range(indptr[i], indptr[i + 1]):
            p = np.float64(b[entry])
            total += c * (0.5 * np.float64(loss.gamma) * p * p - np.float64(rival_cost(loss, y[i], rivals[entry])) * p)
    return total


@inline
def _coefficients(i, y, scale, indptr, rivals, b, classes, coef):
    """The classes to which row i contributes, and ``scale`` times its dual variables; returns their number."""
    real = b.dtype.type
    m = 0
    total = 0.0
    for entry in range(indptr[i], indptr[i + 1]):
        if b[entry] > 0:
            classes[m] = rivals[entry]
            coef[m] = -scale * b[entry]
            total += b[entry]
            m += 1
    if m == 0 or not scale > 0:
        return 0
    classes[m] = y[i]
    coef[m] = scale * real(total)
    return m + 1


@inline
def _most_rivals(indptr):
    most = 0
    for i in range(indptr.shape[0] - 1):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


@jit
def sparse_dual_image(rows, y, weights, indptr, rivals, b, inv_lam_n, V, first, last):
    """Recompute ``V = X^T (c * a) / (lam n)`` from the sparse dual variables, for the features first <= j < last."""
    real = V.dtype.type
    V[first:last] = 0
    most = _most_rivals(indptr) + 1
    classes, coef = np.empty(most, np.int64), np.empty(most, V.dtype)
    for i in range(n_rows(rows)):
        m = _coefficients(i, y, real(weights[i]) * real(inv_lam_n), indptr, rivals, b, classes, coef)
        if m > 0:
            add_sparse_outer_within(rows, i, coef, classes, m, first, last, V)


@jit
def table_dual_image(rows, y, weights, indptr, rivals, b, inv_lam_n, reg, table, start):
    """Add `sparse_dual_image` to a table, for the examples from ``start`` on.

    Returns the first example for which the table has no free slots, or the number of examples.
    """
    real = b.dtype.type
    most = _most_rivals(indptr) + 1
    classes, coef, unused = np.empty(most, np.int64), np.empty(most, b.dtype), np.zeros(most, b.dtype)
    slots = np.empty(most * longest_row(rows), np.int64)
    for i in range(start, n_rows(rows)):
        m = _coefficients(i, y, real(weights[i]) * real(inv_lam_n), indptr, rivals, b, classes, coef)
        if m > 0:
            if not has_room(table, rows, i, m):
                return i
            begin, end = row_span(rows, i)
            image_scores(table, rows, i, begin, end, classes, m, reg, unused, slots)
            add_to_image(table, rows, i, begin, end, coef, classes, m, slots)
    return n_rows(rows)


@jit
def known_dual_image(rows, y, weights, indptr, rivals, b, inv_lam_n, reg, table, first, last):
    """`sparse_dual_image` in a table that has all its entries; the rows must be sorted.

    Returns whether it has them: if not, the values for these features are not the image.
    """
    real = b.dtype.type
    d = table.start.shape[0]
    most = _most_rivals(indptr) + 1
    classes, coef, unused = np.empty(most, np.int64), np.empty(most, b.dtype), np.zeros(most, b.dtype)
    slots = np.empty(most * longest_row(rows), np.int64)
    widest = 0
    for j in range(first, last):
        clear_row(table, j)
        widest = max(widest, table.held[j])
    for i in range(n_rows(rows)):
        m = _coefficients(i, y, real(weights[i]) * real(inv_lam_n), indptr, rivals, b, classes, coef)
        if m == 0:
            continue
        begin, end = row_span(rows, i)
        if first > 0:
            begin = row_split(rows, i, begin, first)
        if last < d:
            end = row_split(rows, i, begin, last)
        image_scores(table, rows, i, begin, end, classes, m, reg, unused, slots)
        for t in range(m * (end - begin)):
            if slots[t] < 0:
                return False
        add_to_image(table, rows, i, begin, end, coef, classes, m, slots)
    keys, values = np.empty(widest, np.int64), np.empty(widest, b.dtype)
    for j in range(first, last):
        soften(table, j, real(0), keys, values)
    return True


@jit
def class_excess(y, weights, indptr, rivals, b, excess):
    """``excess_k = -sum_i c_i a_ik``: the mass of class k beyond that of its own examples; a deficit if negative."""
    excess[:] = 0.0
    for i in range(indptr.shape[0] - 1):
        c = np.float64(weights[i])
        for entry in range(indptr[i], indptr[i + 1]):
            excess[rivals[entry]] += c * b[entry]
            excess[y[i]] -= c * b[entry]


@jit
def plan_moves(y, weights, indptr, rivals, b, excess, cap, move_row, move_class, move_mass):
    """Move mass from classes with an excess to classes with a deficit, at most ``cap`` of the mass of one example.

    This makes sum_i c_i a_i = 0, as the dual with an unpenalized intercept requires. An example of class k has the mass
    1 - sum b at its own class: part of it becomes the dual variable of a rival l with a deficit. An example with the
    rival k moves part of b_k to such an l. Changes ``b`` and ``excess``, writes what the classes l gain to ``move_*``
    and returns the number of these gains.
    """
    tiny = 1e-12
    lacking = 0
    outputs = excess.shape[0]
    moves = 0
    for i in range(indptr.shape[0] - 1):
        c = np.float64(weights[i])
        if c <= 0:
            continue
        t = y[i]
        own = 1.0
        for entry in range(indptr[i], indptr[i + 1]):
            own -= b[entry]
        # entry -1 stands for the example's own class.
        for entry in range(indptr[i] - 1, indptr[i + 1]):
            first = entry == indptr[i] - 1
            k = t if first else rivals[entry]
            if excess[k] <= tiny:
                continue
            mass = max(own, 0.0) if first else np.float64(b[entry])
            give = min(excess[k], c * min(mass, cap))
            while give > tiny:
                while lacking < outputs and excess[lacking] >= -tiny:
                    lacking += 1
                if lacking == outputs or moves == move_row.shape[0]:
                    return moves
                part = min(give, -excess[lacking])
                excess[k] -= part
                excess[lacking] += part
                give -= part
                if not first:
                    b[entry] -= part / c
                if lacking != t:
                    move_row[moves] = i
                    move_class[moves] = lacking
                    move_mass[moves] = part / c
                    moves += 1
    return moves

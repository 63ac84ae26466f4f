"""Kernels of the active-set Crammer-Singer solver: sparse duals, exact proposals.

Row i holds the rivals ``rivals[indptr[i]:indptr[i+1]]`` (never y_i, no class twice) with their duals ``b >= 0``,
sum b <= 1; every other rival has dual zero. In the terms of `manyclass.losses.CrammerSinger`, a_j = -b_j for the
rivals and a_y = sum b.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.rows import add_scores, add_sparse_outer, add_sparse_outer_within, add_sparse_scores, n_rows
from manyclass.losses.crammer_singer import project_rivals

__all__ = [
    "active_epoch",
    "centroid_rivals",
    "class_excess",
    "merge_rivals",
    "plan_moves",
    "propose",
    "sparse_conjugates",
    "sparse_dual_image",
]


@jit
def active_epoch(rows, y, weights, norms, order, gamma, reg, V, bias, indptr, rivals, b, idle, inv_lam_n, bias_step):
    """One dual ascent step on each example of ``order``, exact over its active rivals.

    ``idle``: see `manyclass.kernels.sdca.sdca_epoch`.
    """
    real = V.dtype.type
    longest = 0
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    classes = np.empty(longest + 1, np.int64)
    s = np.empty(longest + 1, V.dtype)
    new = np.empty(longest, V.dtype)
    for position in range(order.shape[0]):
        i = order[position]
        begin = indptr[i]
        m = indptr[i + 1] - begin
        c = real(weights[i])
        if m == 0 or c <= 0:
            continue
        q = c * (real(norms[i]) * real(inv_lam_n) + real(bias_step))
        curvature = gamma + q
        for a in range(m):
            classes[a] = rivals[begin + a]
        classes[m] = y[i]
        for a in range(m + 1):
            s[a] = bias[classes[a]]
        add_sparse_scores(rows, i, V, classes, m + 1, reg, s)
        old = real(0)
        for a in range(m):
            old += b[begin + a]
        if curvature > 0:
            for a in range(m):
                new[a] = real(1) + s[a] - s[m] + q * b[begin + a] + q * old
            total = project_rivals(new[:m], curvature, q / curvature)
        else:
            best = 0
            for a in range(m):
                if s[a] > s[best]:
                    best = a
            total = real(1) if real(1) + s[best] - s[m] > 0 else real(0)
            new[:m] = 0
            new[best] = total
        change = real(0)
        for a in range(m):
            delta = new[a] - b[begin + a]
            b[begin + a] = new[a]
            s[a] = -c * delta
            change = max(change, abs(delta))
        if change > 0:
            idle[i] = 0
            s[m] = c * (total - old)
            if bias_step > 0:
                for a in range(m + 1):
                    bias[classes[a]] += real(bias_step) * s[a]
            for a in range(m + 1):
                s[a] *= real(inv_lam_n)
            add_sparse_outer(rows, i, s, classes, m + 1, V)
        else:
            idle[i] = min(idle[i] + 1, 100)


@inline
def _insert(best, best_class, size, value, k):
    """Put (value, k) into the descending list; equal values keep the order of arrival. Returns the new size."""
    limit = best.shape[0]
    if size == limit and not value > best[size - 1]:
        return size
    place = size if size < limit else limit - 1
    while place > 0 and best[place - 1] < value:
        if place < limit:
            best[place] = best[place - 1]
            best_class[place] = best_class[place - 1]
        place -= 1
    best[place] = value
    best_class[place] = k
    return min(size + 1, limit)


@jit
def propose(rows, y, weights, gamma, reg, V, bias, indptr, rivals, b, slack, found, begin, end):
    """Score every class for the rows begin .. end - 1 at fixed weights.

    ``found`` (n x m) receives the worst violators that are not yet active, best first, -1 behind them: rivals whose
    margin violation 1 + s_j - s_y is positive and within ``slack`` of the row's largest. Returns the sum of the exact
    losses, all classes considered.
    """
    outputs = V.shape[1]
    real = V.dtype.type
    s = np.empty(outputs, V.dtype)
    near = np.empty(outputs, V.dtype)
    active = np.zeros(outputs, np.bool_)
    m = found.shape[1]
    best = np.empty(m, V.dtype)
    best_class = np.empty(m, np.int64)
    losses = 0.0
    for i in range(begin, end):
        c = np.float64(weights[i])
        found[i, :] = -1
        if c <= 0:
            continue
        t = y[i]
        for k in range(outputs):  # a slice assignment would compile 1.5 s longer, for its error message
            s[k] = bias[k]
        add_scores(rows, i, V, 0, outputs, reg, s)
        level = s[t] - real(1)
        s[t] = level - real(1)
        top = s[0]
        for k in range(outputs):
            top = max(top, s[k])
        top -= level
        if top <= 0:
            continue
        if gamma > 0:
            # Only violations within gamma of the largest can have a positive dual in the smoothed maximum.
            count = 0
            for k in range(outputs):
                violation = s[k] - level
                if violation > 0 and violation >= top - gamma:
                    near[count] = violation
                    count += 1
            project_rivals(near[:count], gamma, real(0))
            count = 0
            for k in range(outputs):
                violation = s[k] - level
                if violation > 0 and violation >= top - gamma:
                    p = np.float64(near[count])
                    losses += c * (p * violation - 0.5 * gamma * p * p)
                    count += 1
        else:
            losses += c * top
        for entry in range(indptr[i], indptr[i + 1]):
            active[rivals[entry]] = True
        size = 0
        least = max(level, level + top - real(slack))
        for k in range(outputs):
            if s[k] > least and not active[k]:
                size = _insert(best, best_class, size, s[k], k)
                if size == m:
                    least = best[m - 1]
        for a in range(size):
            found[i, a] = best_class[a]
        for entry in range(indptr[i], indptr[i + 1]):
            active[rivals[entry]] = False
    return losses


@jit
def centroid_rivals(
    data, indices, indptr, y, scores_ptr, scores_class, scores_value, limit, outputs, found, begin, end
):
    """First proposals: the classes whose centroids are most alike, from an inverted index over the centroids.

    ``scores_*`` is the d x K matrix of class centroids in CSR; a feature that more than ``limit`` classes have is
    passed over: it tells little and costs much.
    """
    m = found.shape[1]
    score = np.zeros(outputs, np.float32)
    seen = np.zeros(outputs, np.bool_)
    touched = np.empty(outputs, np.int64)
    best = np.empty(m, np.float32)
    best_class = np.empty(m, np.int64)
    for i in range(begin, end):
        count = 0
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            if scores_ptr[j + 1] - scores_ptr[j] > limit:
                continue
            x = np.float32(data[t])
            for entry in range(scores_ptr[j], scores_ptr[j + 1]):
                k = scores_class[entry]
                if not seen[k]:
                    seen[k] = True
                    touched[count] = k
                    count += 1
                score[k] += x * np.float32(scores_value[entry])
        size = 0
        for a in range(count):
            k = touched[a]
            if k != y[i] and score[k] > 0:
                size = _insert(best, best_class, size, score[k], k)
            score[k] = 0
            seen[k] = False
        found[i, :] = -1
        for a in range(size):
            found[i, a] = best_class[a]


@jit
def merge_rivals(indptr, rivals, b, found, new_indptr, new_rivals, new_b, write):
    """Active rivals (those with a positive dual) and proposals, row by row.

    Two sweeps: with ``write`` false only ``new_indptr`` is set, from the lengths; then the arrays are filled.
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
def sparse_conjugates(weights, gamma, indptr, b):
    """``sum_i c_i phi*(-a_i)`` in float64."""
    total = 0.0
    for i in range(indptr.shape[0] - 1):
        c = np.float64(weights[i])
        for entry in range(indptr[i], indptr[i + 1]):
            p = np.float64(b[entry])
            total += c * (0.5 * np.float64(gamma) * p * p - p)
    return total


@jit
def sparse_dual_image(rows, y, weights, indptr, rivals, b, inv_lam_n, V, first, last):
    """``V = X^T (c * a) / (lam n)``, afresh, from the sparse duals, for the features first <= j < last."""
    real = V.dtype.type
    V[first:last] = 0
    longest = 0
    for i in range(n_rows(rows)):
        longest = max(longest, indptr[i + 1] - indptr[i])
    classes = np.empty(longest + 1, np.int64)
    coef = np.empty(longest + 1, V.dtype)
    for i in range(n_rows(rows)):
        scale = real(weights[i]) * real(inv_lam_n)
        m = 0
        total = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            if b[entry] > 0:
                classes[m] = rivals[entry]
                coef[m] = -scale * b[entry]
                total += b[entry]
                m += 1
        if m > 0 and scale > 0:
            classes[m] = y[i]
            coef[m] = scale * real(total)
            add_sparse_outer_within(rows, i, coef, classes, m + 1, first, last, V)


@jit
def class_excess(y, weights, indptr, rivals, b, excess):
    """``excess_k = -sum_i c_i a_ik``: the mass class k holds beyond that of its own examples."""
    excess[:] = 0.0
    for i in range(indptr.shape[0] - 1):
        c = np.float64(weights[i])
        for entry in range(indptr[i], indptr[i + 1]):
            excess[rivals[entry]] += c * b[entry]
            excess[y[i]] -= c * b[entry]


@jit
def plan_moves(y, weights, indptr, rivals, b, excess, cap, move_row, move_class, move_mass):
    """Move mass from classes in excess to classes that lack it, at most ``cap`` of any one example's.

    An example of class k keeps 1 - sum b of its own mass: some of it becomes a dual of a rival l that lacks mass.
    An example that holds k as a rival passes some of b_k on to such an l. Changes ``b`` and ``excess``, writes the
    gains to ``move_*`` and returns their number.
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

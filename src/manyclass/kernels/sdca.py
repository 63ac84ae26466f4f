"""Kernels of Prox-SDCA: one epoch, primal and dual objective, the dual image, balancing for an intercept.

Each is written once, for every row view, target, loss and penalty. Arrays: ``V`` d x K is the dual image
X^T (c * dual) / (lam n); it may have more than K columns, the others zero (`Problem.n_columns`). ``dual`` n x K holds
the dual vectors a_i, ``weights`` the sample weights c_i of mean 1, ``norms`` the squared row norms. Objectives are
accumulated in float64.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.operations import conjugate_term, dual_step, loss_conjugate, loss_value, primal, value_term
from manyclass.kernels.products import add_outer, add_outers, add_scores
from manyclass.kernels.rows import n_rows, squared_norm
from manyclass.kernels.targets import target_row

__all__ = [
    "balance_classes",
    "balance_distributions",
    "class_masses",
    "distribution_masses",
    "dual_image",
    "evaluate_rows",
    "primal_weights",
    "penalty_sums",
    "row_norms",
    "sdca_epoch",
    "weighted_sums",
]

#: Rows that are added to the dual image together.
_TOGETHER = 16


@jit
def row_norms(rows, out):
    """``out_i = ||x_i||^2``."""
    for i in range(n_rows(rows)):
        out[i] = squared_norm(rows, i)


@jit
def sdca_epoch(rows, targets, weights, norms, order, loss, reg, V, bias, dual, idle, inv_lam_n, bias_step, lo, hi):
    """One dual ascent step (Option I) on each example of ``order``, for the output columns lo .. hi - 1.

    ``bias`` is the current intercept, b_0 + bias_step * sum_i c_i a_i, where b_0 is the center of the proximal term
    that takes the place of a penalty on it. ``idle`` counts, up to 100, the consecutive visits at which the dual vector
    of an example did not change. Returns the number of examples whose dual vector changed.
    """
    real = V.dtype.type
    # The last range of outputs includes the zero columns after it: whole SIMD vectors are faster than a remainder loop.
    end = V.shape[1] if hi == dual.shape[1] else hi
    s = np.zeros(end - lo, V.dtype)
    new = np.zeros(end - lo, V.dtype)
    buffer = np.empty(hi - lo, V.dtype)
    moved = 0
    for position in range(order.shape[0]):
        i = order[position]
        c = real(weights[i])
        if c <= 0:
            continue
        q = c * (real(norms[i]) * real(inv_lam_n) + real(bias_step))
        for k in range(hi - lo):  # a slice assignment would compile 1.5 s longer, for its error message
            s[k] = bias[lo + k]
        add_scores(rows, i, V, lo, end, reg, s)
        a = dual[i, lo:hi]
        dual_step(loss, s[: hi - lo], a, target_row(targets, i, lo, hi, buffer), q, new[: hi - lo])
        change = real(0)
        for k in range(hi - lo):
            delta = new[k] - a[k]
            a[k] = new[k]
            change = max(change, abs(delta))
            new[k] = c * delta
        if change > 0:
            idle[i] = 0
            moved += 1
            if bias_step > 0:
                for k in range(hi - lo):
                    bias[lo + k] += real(bias_step) * new[k]
            for k in range(hi - lo):
                new[k] *= real(inv_lam_n)
            add_outer(rows, i, new, lo, end, V)
        else:
            idle[i] = min(idle[i] + 1, 100)
    return moved


@jit
def evaluate_rows(rows, targets, weights, loss, reg, V, bias, dual, begin, end):
    """``(sum_i c_i phi(s_i; y_i), sum_i c_i phi*(-a_i))`` over begin <= i < end, at fixed weights."""
    outputs = dual.shape[1]
    s = np.zeros(V.shape[1], V.dtype)
    work = np.empty(outputs, V.dtype)
    buffer = np.empty(outputs, V.dtype)
    losses = 0.0
    conjugates = 0.0
    for i in range(begin, end):
        c = np.float64(weights[i])
        if c <= 0:
            continue
        for k in range(outputs):  # a slice assignment would compile 1.5 s longer, for its error message
            s[k] = bias[k]
        add_scores(rows, i, V, 0, V.shape[1], reg, s)
        t = target_row(targets, i, 0, outputs, buffer)
        losses += c * loss_value(loss, s[:outputs], t, work)
        conjugates += c * loss_conjugate(loss, dual[i], t)
    return losses, conjugates


@jit
def penalty_sums(V, reg, begin, end):
    """``(g(W), g*(v))`` over the features begin <= j < end."""
    value = 0.0
    conjugate = 0.0
    for j in range(begin, end):
        for k in range(V.shape[1]):
            value += value_term(reg, primal(reg, V[j, k]))
            conjugate += conjugate_term(reg, V[j, k])
    return value, conjugate


@jit
def primal_weights(V, reg, W):
    """``W = grad g*(V)``."""
    for j in range(V.shape[0]):
        for k in range(V.shape[1]):
            W[j, k] = primal(reg, V[j, k])


@jit
def dual_image(rows, weights, dual, inv_lam_n, V, lo, hi, first, last):
    """Recompute ``V = X^T (c * dual) / (lam n)`` for the outputs lo <= k < hi and the features first <= j < last.

    The result is the same to the last bit, whatever ranges it is made in.
    """
    real = V.dtype.type
    n = n_rows(rows)
    for j in range(first, last):  # loops: slices and sums of slices compile twice as long
        for k in range(lo, hi):
            V[j, k] = 0
    coef = np.empty((_TOGETHER, hi - lo), V.dtype)
    i = 0
    while i < n:
        m = 0
        while m < _TOGETHER and i + m < n:
            scale = real(weights[i + m]) * real(inv_lam_n)
            for k in range(hi - lo):
                coef[m, k] = scale * dual[i + m, lo + k]
            m += 1
        add_outers(rows, i, m, coef, lo, hi, first, last, V)
        i += m


@jit
def weighted_sums(weights, dual):
    """``sum_i c_i a_i`` in float64, zero at a dual-feasible point of a problem with an unpenalized intercept."""
    total = np.zeros(dual.shape[1])
    for i in range(dual.shape[0]):
        c = np.float64(weights[i])
        for k in range(dual.shape[1]):
            total[k] += c * dual[i, k]
    return total


@jit
def class_masses(y, weights, dual, wanted, present):
    """``wanted_k = sum_{y_i = k} c_i``, ``present_k = sum_i c_i p_ik`` for the simplex points p_i = e_{y_i} - a_i."""
    wanted[:] = 0.0
    present[:] = 0.0
    for i in range(dual.shape[0]):
        c = np.float64(weights[i])
        wanted[y[i]] += c
        rivals = 0.0
        for k in range(dual.shape[1]):
            if k != y[i]:
                p = -np.float64(dual[i, k])
                present[k] += c * p
                rivals += p
        present[y[i]] += c * (1.0 - rivals)


@jit
def distribution_masses(targets, weights, dual, wanted, present):
    """As `class_masses` for distributions t_i over the classes: sums of c_i t_ik, and of c_i p_ik, p_i = t_i - a_i."""
    wanted[:] = 0.0
    present[:] = 0.0
    buffer = np.empty(dual.shape[1], dual.dtype)
    for i in range(dual.shape[0]):
        c = np.float64(weights[i])
        t = target_row(targets, i, 0, dual.shape[1], buffer)
        for k in range(dual.shape[1]):
            wanted[k] += c * np.float64(t[k])
            present[k] += c * max(np.float64(t[k]) - np.float64(dual[i, k]), 0.0)


@jit
def balance_distributions(targets, dual, remove, share):
    """As `balance_classes` for distributions over the classes."""
    real = dual.dtype.type
    buffer = np.empty(dual.shape[1], dual.dtype)
    for i in range(dual.shape[0]):
        t = target_row(targets, i, 0, dual.shape[1], buffer)
        taken = 0.0
        for k in range(dual.shape[1]):
            taken += remove[k] * max(np.float64(t[k]) - np.float64(dual[i, k]), 0.0)
        if taken <= 0.0:
            continue
        for k in range(dual.shape[1]):
            p = max(np.float64(t[k]) - np.float64(dual[i, k]), 0.0) * (1.0 - remove[k]) + taken * share[k]
            dual[i, k] = real(np.float64(t[k]) - p)


@jit
def balance_classes(y, weights, dual, remove, share):
    """Move mass between classes within each p_i: remove ``remove_k p_ik``, distribute the total by ``share``.

    With ``remove_k = max(0, 1 - wanted_k / present_k)`` and ``share`` proportional to max(0, wanted - present) the
    class masses become exactly ``wanted``, because the removed mass equals the deficit. Each p_i stays on the simplex.
    """
    real = dual.dtype.type
    for i in range(dual.shape[0]):
        t = y[i]
        rivals = 0.0
        for k in range(dual.shape[1]):
            if k != t:
                rivals -= dual[i, k]
        own = max(1.0 - rivals, 0.0)
        taken = remove[t] * own
        for k in range(dual.shape[1]):
            if k != t:
                taken -= remove[k] * dual[i, k]
        if taken <= 0.0:
            continue
        rivals = 0.0
        for k in range(dual.shape[1]):
            if k != t:
                p = -np.float64(dual[i, k]) * (1.0 - remove[k]) + taken * share[k]
                dual[i, k] = real(-p)
                rivals += p
        dual[i, t] = real(min(rivals, 1.0))

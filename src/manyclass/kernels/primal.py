"""Kernels of the full-gradient solvers: scores, losses and their gradients, the proximal step.

A point is an array of d + 1 rows: the weights W (d x K), and last the weights of a constant feature, not penalized,
which represent the intercept. Sums are accumulated in float64, over ranges of rows that do not depend on the threads.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.operations import loss_gradient, loss_value, prox
from manyclass.kernels.products import add_scores
from manyclass.kernels.targets import target_row

__all__ = ["losses_at", "proximal_step", "respond_at", "scores", "step_sums"]


@jit
def scores(rows, W, bias, plain, S, begin, end):
    """``s_i = W^T x_i + b`` for begin <= i < end. ``plain`` is the `L2` penalty: W holds the weights themselves."""
    for i in range(begin, end):
        s = S[i]
        for k in range(W.shape[1]):
            s[k] = bias[k]
        add_scores(rows, i, W, 0, W.shape[1], plain, s)


@jit
def losses_at(targets, weights, loss, S, begin, end):
    """``sum_i c_i phi(s_i)`` over begin <= i < end."""
    outputs = S.shape[1]
    work = np.empty(outputs, S.dtype)
    buffer = np.empty(outputs, S.dtype)
    total = 0.0
    for i in range(begin, end):
        total += np.float64(weights[i]) * loss_value(loss, S[i], target_row(targets, i, 0, outputs, buffer), work)
    return total


@jit
def respond_at(targets, weights, loss, S, begin, end):
    """``s_i`` becomes ``-grad phi(s_i)`` for begin <= i < end; returns ``sum_i c_i phi(s_i)``."""
    outputs = S.shape[1]
    work = np.empty(outputs, S.dtype)
    buffer = np.empty(outputs, S.dtype)
    total = 0.0
    for i in range(begin, end):
        t = target_row(targets, i, 0, outputs, buffer)
        total += np.float64(weights[i]) * loss_value(loss, S[i], t, work)
        loss_gradient(loss, S[i], t, work)
        for k in range(outputs):
            S[i, k] = -work[k]
    return total


@jit
def proximal_step(start, slope, reg, step, penalty, out, begin, end):
    """``out = argmin_u penalty g(u) + ||u - (start - step slope)||^2 / 2``; the last row is not penalized."""
    real = out.dtype.type
    for j in range(begin, end):
        if j + 1 < out.shape[0]:
            for k in range(out.shape[1]):
                out[j, k] = prox(reg, start[j, k] - real(step) * slope[j, k], real(penalty))
        else:
            for k in range(out.shape[1]):
                out[j, k] = start[j, k] - real(step) * slope[j, k]


@jit
def step_sums(start, slope, new, old, begin, end):
    """``<slope, new - start>``, ``||new - start||^2`` and ``<start - new, new - old>`` over begin <= j < end."""
    linear = 0.0
    square = 0.0
    uphill = 0.0
    for j in range(begin, end):
        for k in range(new.shape[1]):
            moved = np.float64(new[j, k]) - np.float64(start[j, k])
            linear += np.float64(slope[j, k]) * moved
            square += moved * moved
            uphill -= moved * (np.float64(new[j, k]) - np.float64(old[j, k]))
    return linear, square, uphill

"""Kernels of Newton's method: Hessian-vector products of the losses, and the losses along a direction."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.operations import loss_gradient, loss_hessian, loss_value
from manyclass.kernels.targets import target_row

__all__ = ["bend_at", "slope_at"]


@jit
def bend_at(targets, loss, S, moves, out, begin, end):
    """``out_i = H(s_i) u_i`` for begin <= i < end: Hessian-vector products of phi with the rows u_i of ``moves``."""
    outputs = S.shape[1]
    buffer = np.empty(outputs, S.dtype)
    for i in range(begin, end):
        loss_hessian(loss, S[i], target_row(targets, i, 0, outputs, buffer), moves[i], out[i])


@jit
def slope_at(targets, weights, loss, S, moves, step, begin, end):
    """``sum_i c_i phi(s_i + step u_i)`` over begin <= i < end, and its derivative with respect to ``step``."""
    outputs = S.shape[1]
    s = np.empty(outputs, S.dtype)
    work = np.empty(outputs, S.dtype)
    buffer = np.empty(outputs, S.dtype)
    losses = 0.0
    slope = 0.0
    for i in range(begin, end):
        for k in range(outputs):
            s[k] = S[i, k] + S.dtype.type(step) * moves[i, k]
        t = target_row(targets, i, 0, outputs, buffer)
        losses += np.float64(weights[i]) * loss_value(loss, s, t, work)
        loss_gradient(loss, s, t, work)
        along = 0.0
        for k in range(outputs):
            along += np.float64(work[k]) * np.float64(moves[i, k])
        slope += np.float64(weights[i]) * along
    return losses, slope

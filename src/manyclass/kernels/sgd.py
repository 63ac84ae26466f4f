"""Kernel of stochastic gradient descent: a step costs as much as its row has stored values.

The shrinkage of all weights at each step is kept as a factor, W = scale U. The average of the weights, all of which
change at each step as well, is mean = p A + q U (the representation of Bottou and of Xu).
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.operations import loss_gradient
from manyclass.kernels.products import add_outer, add_scores
from manyclass.kernels.targets import target_row

__all__ = ["sgd_epoch"]

#: A factor below this is multiplied into its array, long before it underflows, also in float32.
_FOLD = 1e-10


@inline
def _fold(U, A, scale, p, q, averaging, lo, hi):
    """``A = p A + q U`` and ``U = scale U``."""
    real = U.dtype.type
    for j in range(U.shape[0]):
        if averaging:
            for k in range(lo, hi):
                A[j, k] = real(p) * A[j, k] + real(q) * U[j, k]
        for k in range(lo, hi):
            U[j, k] *= real(scale)


@jit
def sgd_epoch(
    rows,
    targets,
    weights,
    order,
    loss,
    plain,
    U,
    bias,
    A,
    mean_bias,
    lam,
    rate,
    decay,
    power,
    batch,
    bias_gain,
    first,
    averaged,
    lo,
    hi,
):
    """One step on each ``batch`` of successive examples of ``order``, for the output columns lo .. hi - 1.

    Step t = first, first + 1, ... has the size ``eta_t = rate (1 + decay t)^-power`` and takes the gradients of all m
    examples of its batch (the last may have fewer) at the same weights:

        W = (1 - eta m lam) W - eta sum_i c_i x_i grad phi(s_i)^T,      b = b - eta bias_gain sum_i c_i grad phi(s_i)

    and, where ``averaged`` > 0 (the number of points in the mean so far), ``mean += (W - mean) / (count + 1)``. On
    return U holds W and A the mean. ``plain`` is the `L2` penalty, whose primal map is the identity.
    """
    real = U.dtype.type
    width = hi - lo
    s = np.empty(width, U.dtype)
    moves = np.empty((batch, width), U.dtype)
    buffer = np.empty(width, U.dtype)
    averaging = averaged > 0
    scale = 1.0
    p = 1.0
    q = 0.0
    steps = -(-order.shape[0] // batch)
    for step in range(steps):
        eta = rate * (1.0 + decay * (first + step)) ** -power
        begin = step * batch
        count = min(batch, order.shape[0] - begin)
        for m in range(count):
            i = order[begin + m]
            if weights[i] > 0:
                for k in range(width):
                    s[k] = 0
                add_scores(rows, i, U, lo, hi, plain, s)
                for k in range(width):
                    s[k] = real(scale) * s[k] + bias[lo + k]
                loss_gradient(loss, s, target_row(targets, i, lo, hi, buffer), moves[m])
        scale *= 1.0 - eta * count * lam
        if scale < _FOLD or p < _FOLD:
            _fold(U, A, scale, p, q, averaging, lo, hi)
            scale = 1.0
            p = 1.0
            q = 0.0
        for m in range(count):
            i = order[begin + m]
            c = np.float64(weights[i])
            if c > 0:
                move = moves[m]
                for k in range(width):
                    bias[lo + k] -= real(eta * bias_gain * c) * move[k]
                for k in range(width):
                    move[k] *= real(-eta * c / scale)
                add_outer(rows, i, move, lo, hi, U)
                if averaging:
                    # mean = p A + q U must not change when U does: A changes by -q / p times the change of U.
                    for k in range(width):
                        move[k] *= real(-q / p)
                    add_outer(rows, i, move, lo, hi, A)
        if averaging:
            share = 1.0 / (averaged + step + 1.0)
            p *= 1.0 - share
            q = q * (1.0 - share) + share * scale
            for k in range(lo, hi):
                mean_bias[k] += real(share) * (bias[k] - mean_bias[k])
    _fold(U, A, scale, p, q, averaging, lo, hi)

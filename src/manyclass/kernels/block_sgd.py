"""Kernel of stochastic gradient descent for softmax regression on one block of classes.

For row i let z_i be the log-sum-exp of its scores in the other blocks. The probability of a class k of this block is
then ``exp(s_k - log(exp(z_i) + sum_block exp(s)))``: at most one for every step size, with up-to-date scores of this
block. As in `manyclass.kernels.sgd`, the shrinkage of the weights is kept as a factor, W = scale U, and so is the
average of the weights, mean = p A + q U; the factors are kept between calls, and `fold` multiplies them in at the end.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.products import add_outer, add_scores
from manyclass.kernels.vmath import exp, log

__all__ = ["FOLD", "add_outers", "block_steps", "fold"]

#: A factor below this is multiplied into its array, long before it underflows, also in float32.
FOLD = 1e-10


@jit
def fold(U, A, scale, p, q, averaging):
    """``A = p A + q U`` and ``U = scale U``."""
    real = U.dtype.type
    for j in range(U.shape[0]):
        if averaging:
            for k in range(U.shape[1]):
                A[j, k] = real(p) * A[j, k] + real(q) * U[j, k]
        for k in range(U.shape[1]):
            U[j, k] *= real(scale)


@jit
def add_outers(rows, begin, end, R, V):
    """``V += sum_i x_i r_i^T`` over begin <= i < end, where ``r_i`` is row i - begin of R."""
    for i in range(begin, end):
        add_outer(rows, i, R[i - begin], 0, V.shape[1], V)


@jit
def block_steps(
    rows, y, lo, weights, order, others, plain, U, bias, A, mean_bias, lam, sizes, gain, averaged, carry, own
):
    """A step of size ``sizes[m]`` on each row ``order[m]``, until a factor has to be multiplied in by `fold`.

    Parameters
    ----------
    rows : row view
    y : int32 (n,)
        Classes; those of this block are lo .. lo + width - 1.
    weights : float64 (n,)
    others : float64 (n,)
        z_i, -inf if there is no other block.
    plain
        The `L2` penalty, whose primal map is the identity.
    U, bias, A, mean_bias
        The weights, the intercept and the means of both, of this block.
    gain : float
        Step size of the intercept, as a multiple of that of the weights.
    averaged : float
        Number of points in the mean so far; 0 if no mean is computed.
    carry : float64 (3,)
        scale, p and q.
    own : float64 (n,)
        Receives the log-sum-exp of each row's scores in this block, before its step.

    Returns
    -------
    int
        Number of steps taken.
    """
    real = U.dtype.type
    width = U.shape[1]
    s = np.empty(width, U.dtype)
    move = np.empty(width, U.dtype)
    scale = carry[0]
    p = carry[1]
    q = carry[2]
    done = 0
    for m in range(order.shape[0]):
        if scale < FOLD or p < FOLD:
            break
        i = order[m]
        eta = sizes[m]
        for k in range(width):
            s[k] = 0
        add_scores(rows, i, U, 0, width, plain, s)
        for k in range(width):
            s[k] = real(scale) * s[k] + bias[k]
        top = s[0]
        for k in range(width):
            top = max(top, s[k])
        # The sums are in separate loops from the stores, so that their order is fixed: see losses/multinomial.py.
        for k in range(width):
            move[k] = exp(s[k] - top)
        total = 0.0
        for k in range(width):
            total += np.float64(move[k])
        z = np.float64(top) + log(total)
        own[i] = z
        c = weights[i]
        scale *= 1.0 - eta * lam
        if c > 0:
            high = max(z, others[i])
            rest = exp(others[i] - high) if others[i] > -np.inf else 0.0
            mass = exp(z - high) + rest
            share = real(exp(z - high) / (mass * total))
            for k in range(width):
                move[k] *= share
            t = y[i] - lo
            if 0 <= t < width:
                # 1 - p_t as the sum of the other probabilities: no cancellation where p_t is close to 1.
                rivals = rest / mass
                for k in range(width):
                    if k != t:
                        rivals += np.float64(move[k])
                move[t] = real(-rivals)
            for k in range(width):
                bias[k] -= real(eta * gain * c) * move[k]
            factor = real(-eta * c / scale)
            for k in range(width):
                move[k] *= factor
            add_outer(rows, i, move, 0, width, U)
            if averaged > 0:
                # mean = p A + q U must not change when U does: A changes by -q / p times the change of U.
                back = real(-q / p)
                for k in range(width):
                    move[k] *= back
                add_outer(rows, i, move, 0, width, A)
        if averaged > 0:
            part = 1.0 / (averaged + m + 1.0)
            p *= 1.0 - part
            q = q * (1.0 - part) + part * scale
            for k in range(width):
                mean_bias[k] += real(part) * (bias[k] - mean_bias[k])
        done += 1
    carry[0] = scale
    carry[1] = p
    carry[2] = q
    return done

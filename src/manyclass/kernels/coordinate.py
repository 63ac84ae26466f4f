"""Kernels of primal coordinate descent: the loss of one output's column of scores, and descent on a Gram matrix.

Everything is float64, also for float32 data: these arrays have n or d entries, and the certificates are computed from
them. ``share`` is c_i / n, so that sums over the examples are means; ``u`` is the gradient of the mean loss with
respect to the scores, ``share_i phi'(s_i)``.
"""

from __future__ import annotations

from manyclass.kernels.jit import jit
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_value

__all__ = ["conjugate", "curvatures", "gram_epochs", "slopes", "value"]

#: Half the width of the central difference that approximates phi''; nine correct digits for a logistic loss.
_NEAR = 1e-4


@jit
def value(loss, s, y, share):
    """``sum_i share_i phi(s_i; y_i)``."""
    total = 0.0
    for i in range(s.shape[0]):
        total += share[i] * unit_value(loss, s[i], y[i])
    return total


@jit
def slopes(loss, s, y, share, u):
    """``u_i = share_i phi'(s_i; y_i)``."""
    for i in range(s.shape[0]):
        u[i] = share[i] * unit_gradient(loss, s[i], y[i])


@jit
def curvatures(loss, s, y, share, floor, h):
    """``h_i = share_i max(phi''(s_i; y_i), floor)``, by a central difference of phi'."""
    for i in range(s.shape[0]):
        rise = unit_gradient(loss, s[i] + _NEAR, y[i]) - unit_gradient(loss, s[i] - _NEAR, y[i])
        h[i] = share[i] * max(rise / (2.0 * _NEAR), floor)


@jit
def conjugate(loss, u, y, share, scale):
    """``sum_i share_i phi*(-a_i)`` at the dual point ``a_i = -scale u_i / share_i``."""
    total = 0.0
    for i in range(u.shape[0]):
        if share[i] > 0.0:
            total += share[i] * unit_conjugate(loss, -scale * u[i] / share[i], y[i])
    return total


@jit
def gram_epochs(G, slope, w, l1, positions, epochs):
    """Cyclic exact steps on ``w'Gw/2 - q'w + l1 ||w||_1`` over the coordinates ``positions``.

    Updates ``slope = Gw - q`` with w. Returns the largest violation of optimality in the last epoch.
    """
    worst = 0.0
    for _ in range(epochs):
        worst = 0.0
        for p in positions:
            old = w[p]
            rise = slope[p]
            curvature = G[p, p]
            if old > 0.0:
                violation = abs(rise + l1)
            elif old < 0.0:
                violation = abs(rise - l1)
            else:
                violation = abs(rise) - l1
            worst = max(worst, violation)
            new = 0.0
            if curvature > 0.0:
                z = old - rise / curvature
                new = max(z - l1 / curvature, 0.0) + min(z + l1 / curvature, 0.0)
            change = new - old
            if change == 0.0:
                continue
            w[p] = new
            row = G[p]
            for r in range(slope.shape[0]):
                slope[r] += change * row[r]
    return worst

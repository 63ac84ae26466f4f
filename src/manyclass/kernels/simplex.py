"""Projection on {a >= 0, sum a <= 1}, the domain of the dual variables of Crammer and Singer's loss."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline

__all__ = ["project_rivals", "smooth_largest"]


@inline
def _above(raw, theta):
    """Sum of the parts of ``raw`` above theta. One sum per loop: then it is vectorized."""
    zero = theta - theta
    total = zero
    for k in range(raw.shape[0]):
        total += max(raw[k] - theta, zero)
    return total


@inline
def _count_above(raw, theta):
    zero = theta - theta
    one = zero + np.float32(1)
    count = zero
    for k in range(raw.shape[0]):
        count += one if raw[k] > theta else zero
    return count


@inline
def _threshold(raw, theta, mass, spread):
    """The root theta of sum max(0, raw - theta) = mass + spread theta, a convex piecewise linear function.

    Newton's method from the left, where the start must be (Michelot's method): it ends when the entries above theta
    remain the same, usually after three to six sweeps. The step after that removes the rounding errors of the others,
    whose sums were larger.
    """
    before = theta - theta
    while True:
        count = _count_above(raw, theta)
        if count + spread <= 0:
            return theta
        nearer = theta + (_above(raw, theta) - mass - spread * theta) / (count + spread)
        if count == before or not nearer > theta:
            return nearer
        before, theta = count, nearer


@inline
def project_rivals(raw, curvature, coupling):
    """Minimize ||a - mu||^2 / 2 + (coupling/2) (sum a)^2 over a >= 0, sum a <= 1, in place; mu = raw / curvature.

    a_k = max(0, mu_k - theta), with theta = coupling * sum a, or the simplex threshold where sum a = 1 binds. Returns
    the sum of a. Requires coupling <= 1.
    """
    zero = coupling - coupling
    one = zero + np.float32(1)
    top = zero
    for k in range(raw.shape[0]):
        top = max(top, raw[k])
    # If sum a = 1 does not bind, mu_k = a_k + coupling * sum a <= 2. Where a small curvature makes mu larger, sum a = 1
    # binds and a depends on differences alone: they are taken before the division, which would round them away.
    bound = top > curvature + curvature
    base = top if bound else zero
    for k in range(raw.shape[0]):
        raw[k] = (raw[k] - base) / curvature
    theta = zero
    if not bound:
        if coupling > zero:
            theta = _threshold(raw, zero, zero, one / coupling)
        if _above(raw, theta) > one:
            # Relative to the largest entry here too: in a sum of thousands of equal entries the -1 would be lost.
            bound = True
            for k in range(raw.shape[0]):
                raw[k] -= top / curvature
    if bound:
        theta = _threshold(raw, -one, one, zero)
    exact = 0.0  # float64: the sum of a hundred thousand equal float32 numbers is off in the fifth digit
    for k in range(raw.shape[0]):
        raw[k] = max(raw[k] - theta, zero)
        exact += np.float64(raw[k])
    if not bound:
        return raw.dtype.type(exact)
    scale = raw.dtype.type(1.0 / exact)
    for k in range(raw.shape[0]):
        raw[k] *= scale
    return one


@inline
def smooth_largest(v, top, gamma):
    """``max p^T v - gamma ||p||^2 / 2`` over p >= 0, sum p <= 1: the largest entry of v, or 0, smoothed. gamma > 0.

    ``v`` is relative to ``top``, its largest entry: v_k + top are the entries. p = max(0, v - theta) / gamma.
    """
    zero = gamma - gamma
    theta = -top
    if _above(v, theta) > gamma:
        theta = _threshold(v, max(theta, -gamma), gamma, zero)
    total = 0.0
    for k in range(v.shape[0]):
        high = np.float64(max(v[k], theta))
        total += (high - np.float64(theta)) * (high + np.float64(theta) + 2.0 * np.float64(top))
    return total / (2.0 * np.float64(gamma))

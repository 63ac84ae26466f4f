"""Projections on the domains of dual variables: {a >= 0, sum a <= 1} of Crammer and Singer's loss, and, with the
entropy, the simplex of softmax regression.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline
from manyclass.kernels.vmath import exp, highest, log, wright_omega, wright_omega_below

__all__ = ["entropic_step", "log_sum_exp", "project_rivals", "smooth_largest"]

#: Entries that share the choice between two formulas of omega: LLVM's loops take 64 numbers in float32 at a time.
_TOGETHER = 64


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


@inline
def log_sum_exp(s, out):
    """``(logsumexp(s), sum of out)`` with ``out = exp(s - max s)``."""
    top = highest(s)
    # The sum is in a separate loop: in one loop with the stores, it would be vectorized or not depending on a test at
    # run time whether the two arrays overlap, and the order of its terms would vary from call to call.
    for k in range(s.shape[0]):
        out[k] = exp(s[k] - top)
    total = top - top
    for k in range(s.shape[0]):
        total += out[k]
    return top + log(total), total


@inline
def entropic_step(z, q, theta):
    """``z = omega(z - theta)`` with the theta at which the sum of these is q, nearly; returns the sum. q > 0.

    With z = s + q offset + log q the result is q p, p = argmax of s.p - sum p log p - (q/2) ||p - offset||^2 over the
    simplex, as log p + q p = s + q offset - theta there. The argument ``theta`` is where the search begins.
    """
    real = z.dtype.type
    size = z.shape[0]
    wanted = np.float64(q)
    single = z.itemsize == 4
    exact, rounding = (1e-6, 5e-7 * wanted) if single else (1e-13, 1e-15 * wanted)
    for _ in range(60):
        mass, slope, curve = 0.0, 0.0, 0.0
        for first in range(0, size, _TOGETHER):
            a, b, c = _omega_sums(z[first : first + _TOGETHER], theta)
            mass += np.float64(a)
            slope += np.float64(b)
            curve += np.float64(c)
        excess = mass - wanted
        bend = excess * curve / slope**2
        if abs(bend) < 0.5 and abs(excess) < 0.1 * wanted:
            step = excess / slope * 2.0 / (2.0 - bend)  # Halley's method
            theta += real(step)
            # After it the sum is off by about the step to the third power: the third derivative is at most the second.
            if (abs(step) < 0.5 and curve * abs(step) ** 3 <= exact * wanted) or abs(excess) <= rounding:
                break
        elif excess > 0.0:
            theta += real(excess / slope)  # Newton's method: the sum is convex in theta
        else:
            # Newton's method for its logarithm: log p is nearly linear in theta where p is small.
            theta += real(mass * np.log(max(mass / wanted, 1e-30)) / slope)
    total = 0.0
    for first in range(0, size, _TOGETHER):
        total += np.float64(_omega(z[first : first + _TOGETHER], theta))
    return total


@inline
def _any_above(z, theta):
    zero = theta - theta
    one = zero + np.float32(1)
    count = zero
    for k in range(z.shape[0]):
        count += one if z[k] > theta else zero
    return count > zero


@inline
def _omega_sums(z, theta):
    """Sums of w = omega(z - theta), and of its first and second derivative, w / (1 + w) and w / (1 + w)^3."""
    zero = theta - theta
    one = zero + np.float32(1)
    mass, slope, curve = zero, zero, zero
    if _any_above(z, theta):
        for k in range(z.shape[0]):
            w = wright_omega(z[k] - theta)
            share = one / (one + w)
            mass += w
            slope += w * share
            curve += w * share * share * share
    else:
        for k in range(z.shape[0]):
            w = wright_omega_below(z[k] - theta)
            share = one / (one + w)
            mass += w
            slope += w * share
            curve += w * share * share * share
    return mass, slope, curve


@inline
def _omega(z, theta):
    """``z = omega(z - theta)``; returns the sum."""
    if _any_above(z, theta):
        for k in range(z.shape[0]):
            z[k] = wright_omega(z[k] - theta)
    else:
        for k in range(z.shape[0]):
            z[k] = wright_omega_below(z[k] - theta)
    total = theta - theta
    for k in range(z.shape[0]):
        total += z[k]
    return total

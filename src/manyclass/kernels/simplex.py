"""Projection on {a >= 0, sum a <= 1}, the domain of the dual variables of Crammer and Singer's loss."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline

__all__ = ["project_rivals"]


@inline
def project_rivals(raw, curvature, coupling):
    """Minimize ||a - mu||^2 / 2 + (coupling/2) (sum a)^2 over a >= 0, sum a <= 1, in place; mu = raw / curvature.

    a_k = max(0, mu_k - theta), with theta = coupling * sum a, or the simplex threshold where sum a = 1 binds. theta is
    the root of a convex piecewise linear function: Newton's method from the left (Michelot's method) ends after
    finitely many sweeps, usually three to six. Returns the sum of a. Requires coupling <= 1.
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
    theta = -one if bound else zero
    if coupling > zero and not bound:
        while True:
            above = zero
            count = zero
            for k in range(raw.shape[0]):
                if raw[k] > theta:
                    above += raw[k]
                    count += one
            nearer = above / (count + one / coupling)
            if not nearer > theta:
                break
            theta = nearer
    total = zero
    for k in range(raw.shape[0]):
        total += max(raw[k] - theta, zero)
    if total > one and not bound:
        # Relative to the largest entry here too: in a sum of thousands of equal entries the -1 below would be lost.
        bound = True
        theta = -one
        for k in range(raw.shape[0]):
            raw[k] -= top / curvature
    if bound:
        while True:
            above = zero
            count = zero
            for k in range(raw.shape[0]):
                if raw[k] > theta:
                    above += raw[k]
                    count += one
            nearer = (above - one) / count
            if not nearer > theta:
                break
            theta = nearer
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

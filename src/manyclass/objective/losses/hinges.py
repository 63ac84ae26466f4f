"""The hinge family, one score at a time: hinge, smooth hinge, squared hinge.

With y in {-1, +1} the dual number is a = y b; ``b`` lies in [0, 1] (or [0, infinity) for the squared hinge).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_hessian, unit_step, unit_value
from manyclass.objective.losses.base import describe

__all__ = ["SmoothHinge", "SquaredHinge"]


@describe(targets="sign")
class SmoothHinge(NamedTuple):
    """phi(s; y) = 0 if ys >= 1; 1 - ys - gamma/2 if ys <= 1 - gamma; (1 - ys)^2 / (2 gamma) between.

    ``gamma = 0`` is the plain hinge max(0, 1 - ys). phi*(-a) = -b + gamma b^2 / 2 on 0 <= b <= 1
    (Shalev-Shwartz & Zhang 2014, section 5.1).
    """

    gamma: float


@describe(targets="sign", smoothness=0.5)
class SquaredHinge(NamedTuple):
    """phi(s; y) = max(0, 1 - ys)^2; 2-smooth; phi*(-a) = -b + b^2 / 4 on b >= 0."""


@implements(unit_value)
def _value(loss: Any, s: Any, y: Any) -> Any:
    if is_a(loss, SmoothHinge):

        def smooth(loss, s, y):
            short = 1.0 - np.float64(y) * np.float64(s)
            if short <= 0.0:
                return 0.0
            if short >= loss.gamma:
                return short - 0.5 * loss.gamma
            return short * short / (2.0 * loss.gamma)

        return smooth
    if is_a(loss, SquaredHinge):

        def squared(loss, s, y):
            short = max(1.0 - np.float64(y) * np.float64(s), 0.0)
            return short * short

        return squared
    return None


@implements(unit_gradient)
def _gradient(loss: Any, s: Any, y: Any) -> Any:
    if is_a(loss, SmoothHinge):

        def smooth(loss, s, y):
            short = y - y + np.float32(1) - y * s
            if short <= 0:
                return y - y
            if short >= loss.gamma:
                return -y
            return -y * short / loss.gamma

        return smooth
    if is_a(loss, SquaredHinge):

        def squared(loss, s, y):
            zero = y - y
            return -y * np.float32(2) * max(zero + np.float32(1) - y * s, zero)

        return squared
    return None


@implements(unit_hessian)
def _hessian(loss: Any, s: Any, y: Any) -> Any:
    if is_a(loss, SmoothHinge):

        def inside(loss, s, y):
            zero = y - y
            short = zero + np.float32(1) - y * s
            if short <= 0 or short >= loss.gamma:
                return zero
            return (zero + np.float32(1)) / loss.gamma

        return inside
    if is_a(loss, SquaredHinge):

        def below(loss, s, y):
            zero = y - y
            return zero + np.float32(2) if zero + np.float32(1) - y * s > 0 else zero

        return below
    return None


@implements(unit_conjugate)
def _conjugate(loss: Any, a: Any, y: Any) -> Any:
    if is_a(loss, SmoothHinge):
        return lambda loss, a, y: 0.5 * np.float64(loss.gamma) * a * a - a * y
    if is_a(loss, SquaredHinge):
        return lambda loss, a, y: 0.25 * a * a - a * y
    return None


@implements(unit_step)
def _step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    if is_a(loss, SmoothHinge):

        def clip(loss, s, a, y, q):
            zero = a - a
            one = zero + np.float32(1)
            b = y * a
            rise = one - y * s - loss.gamma * b
            curvature = loss.gamma + q
            if curvature > zero:
                b = min(max(b + rise / curvature, zero), one)
            elif rise > zero:
                b = one
            elif rise < zero:
                b = zero
            return y * b

        return clip
    if is_a(loss, SquaredHinge):

        def clip_below(loss, s, a, y, q):
            zero = a - a
            half = zero + np.float32(0.5)
            b = y * a
            return y * max(b + (half + half - y * s - half * b) / (half + q), zero)

        return clip_below
    return None

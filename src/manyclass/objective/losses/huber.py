"""Huber's loss, one output at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_hessian, unit_step, unit_value
from manyclass.objective.losses.base import describe

__all__ = ["Huber"]


@describe(targets="real", smoothness=1.0)
class Huber(NamedTuple):
    """phi(s; y) = r^2 / 2 where |r| <= delta, delta |r| - delta^2 / 2 beyond, with r = s - y.

    1-smooth; phi*(-a) = a^2 / 2 - a y on |a| <= delta.
    """

    delta: float


@implements(unit_value)
def _value(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, Huber):
        return None

    def value(loss, s, y):
        r = abs(np.float64(s) - np.float64(y))
        near = min(r, np.float64(loss.delta))
        return near * (r - 0.5 * near)

    return value


@implements(unit_gradient)
def _gradient(loss: Any, s: Any, y: Any) -> Any:
    return (lambda loss, s, y: min(max(s - y, -loss.delta), loss.delta)) if is_a(loss, Huber) else None


@implements(unit_hessian)
def _hessian(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, Huber):
        return None

    def near(loss, s, y):
        zero = y - y
        return zero + np.float32(1) if abs(s - y) < loss.delta else zero

    return near


@implements(unit_conjugate)
def _conjugate(loss: Any, a: Any, y: Any) -> Any:
    return (lambda loss, a, y: 0.5 * a * a - a * y) if is_a(loss, Huber) else None


@implements(unit_step)
def _step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    if not is_a(loss, Huber):
        return None

    def clip(loss, s, a, y, q):
        free = a + (y - s - a) / (a - a + np.float32(1) + q)
        return min(max(free, -loss.delta), loss.delta)

    return clip

"""Huber's loss, one output at a time."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_hessian, unit_step, unit_value
from manyclass.objective.losses.base import RegressionLoss, describe

__all__ = ["Huber", "HuberLoss"]


@describe(name="huber", targets="real", smoothness=1.0)
class HuberLoss(NamedTuple):
    """phi(s; y) = r^2 / 2 where |r| <= delta, delta |r| - delta^2 / 2 beyond, with r = s - y.

    1-smooth; phi*(-a) = a^2 / 2 - a y on |a| <= delta.
    """

    delta: float


@implements(unit_value)
def _value(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, HuberLoss):
        return None

    def value(loss, s, y):
        r = abs(np.float64(s) - np.float64(y))
        near = min(r, np.float64(loss.delta))
        return near * (r - 0.5 * near)

    return value


@implements(unit_gradient)
def _gradient(loss: Any, s: Any, y: Any) -> Any:
    return (lambda loss, s, y: min(max(s - y, -loss.delta), loss.delta)) if is_a(loss, HuberLoss) else None


@implements(unit_hessian)
def _hessian(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, HuberLoss):
        return None

    def near(loss, s, y):
        zero = y - y
        return zero + np.float32(1) if abs(s - y) < loss.delta else zero

    return near


@implements(unit_conjugate)
def _conjugate(loss: Any, a: Any, y: Any) -> Any:
    return (lambda loss, a, y: 0.5 * a * a - a * y) if is_a(loss, HuberLoss) else None


@implements(unit_step)
def _step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    if not is_a(loss, HuberLoss):
        return None

    def clip(loss, s, a, y, q):
        free = a + (y - s - a) / (a - a + np.float32(1) + q)
        return min(max(free, -loss.delta), loss.delta)

    return clip


class Huber(RegressionLoss):
    """Huber's loss: with r = s - y, r^2 / 2 where abs(r) <= epsilon, epsilon abs(r) - epsilon^2 / 2 beyond.

    Parameters
    ----------
    epsilon : float, default=1.35
        Absolute residual, in units of y, above which the loss is linear; > 0.

    Examples
    --------
    >>> from manyclass import Huber, LinearRegressor
    >>> model = LinearRegressor(loss=Huber(epsilon=1.2)).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 30.0])
    >>> model.get_params()["loss__epsilon"]
    1.2
    """

    name = "huber"
    summary = "squared up to residual epsilon, linear beyond: robust to outliers"
    synonyms = ("robust",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"epsilon": [Interval(Real, 0, None, closed="neither")]}

    def __init__(self, epsilon: float = 1.35) -> None:
        self.epsilon = epsilon

    def compiled(self, binary: bool = False) -> HuberLoss:
        return HuberLoss(float(self.epsilon))

"""Squared loss, one output at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_hessian, unit_step, unit_value
from manyclass.objective.losses.base import RegressionLoss, describe

__all__ = ["Squared", "SquaredLoss"]


@describe(name="squared", targets="real", free_dual=True, smoothness=1.0)
class SquaredLoss(NamedTuple):
    """phi(s; y) = (s - y)^2 / 2; 1-smooth; phi*(-a) = a^2 / 2 - a y."""


@implements(unit_value)
def _value(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, SquaredLoss):
        return None
    return lambda loss, s, y: 0.5 * (np.float64(s) - np.float64(y)) ** 2


@implements(unit_gradient)
def _gradient(loss: Any, s: Any, y: Any) -> Any:
    return (lambda loss, s, y: s - y) if is_a(loss, SquaredLoss) else None


@implements(unit_hessian)
def _hessian(loss: Any, s: Any, y: Any) -> Any:
    return (lambda loss, s, y: y - y + np.float32(1)) if is_a(loss, SquaredLoss) else None


@implements(unit_conjugate)
def _conjugate(loss: Any, a: Any, y: Any) -> Any:
    return (lambda loss, a, y: 0.5 * a * a - a * y) if is_a(loss, SquaredLoss) else None


@implements(unit_step)
def _step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    if not is_a(loss, SquaredLoss):
        return None
    return lambda loss, s, a, y, q: a + (y - s - a) / (a - a + np.float32(1) + q)


class Squared(RegressionLoss):
    """Squared loss: phi(s; y) = (s - y)^2 / 2; ridge regression, elastic net or Lasso, depending on ``l1_ratio``."""

    name = "squared"
    summary = "least squares: ridge, elastic net, Lasso"
    synonyms = ("squared_error", "mse", "l2", "least_squares", "ls")

    def compiled(self, binary: bool = False) -> SquaredLoss:
        return SquaredLoss()

"""Binary logistic loss, one score at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_hessian, unit_step, unit_value
from manyclass.kernels.vmath import exp
from manyclass.objective.losses.base import ClassificationLoss, describe
from manyclass.objective.losses.soft import SoftLogisticLoss

__all__ = ["LogLoss", "LogisticLoss"]


@describe(
    name=lambda loss: "softmax_hinge" if loss.margin else "log_loss",
    targets="sign",
    probability="sigmoid",
    smoothness=4.0,
)
class LogisticLoss(NamedTuple):
    """phi(s; y) = log(1 + exp(margin - ys)), y in {-1, +1}; 1/4-smooth. ``margin = 0`` is logistic regression.

    With a = y b, 0 <= b <= 1: phi*(-a) = b log b + (1 - b) log(1 - b) - margin b.
    """

    margin: float = 0.0


@implements(unit_value)
def _value(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, LogisticLoss):
        return None

    def softplus(loss, s, y):
        z = np.float64(y) * np.float64(s) - np.float64(loss.margin)
        return math.log1p(math.exp(-abs(z))) + max(-z, 0.0)

    return softplus


@implements(unit_gradient)
def _gradient(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, LogisticLoss):
        return None

    def sigmoid(loss, s, y):
        one = y - y + np.float32(1)
        return -y / (one + exp(y * s - loss.margin))

    return sigmoid


@implements(unit_hessian)
def _hessian(loss: Any, s: Any, y: Any) -> Any:
    if not is_a(loss, LogisticLoss):
        return None

    def variance(loss, s, y):
        one = y - y + np.float32(1)
        small = exp(-abs(y * s - loss.margin))
        return small / ((one + small) * (one + small))

    return variance


@implements(unit_conjugate)
def _conjugate(loss: Any, a: Any, y: Any) -> Any:
    if not is_a(loss, LogisticLoss):
        return None

    def negative_entropy(loss, a, y):
        b = min(max(a * y, 0.0), 1.0)
        value = 0.0
        if 0.0 < b < 1.0:
            value = b * math.log(b) + (1.0 - b) * math.log1p(-b)
        return value - np.float64(loss.margin) * b

    return negative_entropy


@implements(unit_step)
def _step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    if not is_a(loss, LogisticLoss):
        return None
    tolerance = 1e-4 if s == types.float32 else 1e-8

    def newton(loss, s, a, y, q):
        # With b = 1 / (1 + exp(-z)), stationarity is f(z) = z + q b(z) - (q b_old - y s + margin) = 0. f is increasing,
        # convex left of 0 and concave right of it, so that Newton's method from 0 converges monotonically.
        one = a - a + np.float32(1)
        b = y * a
        goal = q * b - y * s + loss.margin
        z = one - one
        for _ in range(100):
            b = one / (one + exp(-z))
            step = (goal - z - q * b) / (one + q * b * (one - b))
            z += step
            if abs(step) < tolerance:
                break
        return y / (one + exp(-z))

    return newton


class LogLoss(ClassificationLoss):
    """One-vs-rest logistic loss: phi(s; y) = sum_k log(1 + exp(-y_k s_k)), y_k in {-1, +1}."""

    name = "log_loss"
    summary = "logistic regression, one-vs-rest or multi-label"
    synonyms = ("logistic", "logit", "binary_cross_entropy", "binomial", "sigmoid")
    joint = False
    probabilities = True

    def compiled(self, binary: bool = False) -> LogisticLoss:
        return LogisticLoss()

    def compiled_soft(self) -> Any:
        return SoftLogisticLoss()

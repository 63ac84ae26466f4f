"""The hinge family, one score at a time: hinge, smooth hinge, squared hinge.

With y in {-1, +1} the dual variable is a = y b, with b in [0, 1] (in [0, infinity) for the squared hinge).
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import unit_conjugate, unit_gradient, unit_hessian, unit_step, unit_value
from manyclass.objective.losses.base import ClassificationLoss, describe

__all__ = ["Hinge", "SmoothHinge", "SmoothHingeLoss", "SquaredHinge", "SquaredHingeLoss"]


@describe(name=lambda loss: "smooth_hinge" if loss.gamma else "hinge", targets="sign")
class SmoothHingeLoss(NamedTuple):
    """phi(s; y) = 0 if ys >= 1; 1 - ys - gamma/2 if ys <= 1 - gamma; (1 - ys)^2 / (2 gamma) between.

    ``gamma = 0`` gives the hinge loss max(0, 1 - ys). phi*(-a) = -b + gamma b^2 / 2 on 0 <= b <= 1
    (Shalev-Shwartz & Zhang 2014, section 5.1).
    """

    gamma: float


@describe(name="squared_hinge", targets="sign", smoothness=0.5)
class SquaredHingeLoss(NamedTuple):
    """phi(s; y) = max(0, 1 - ys)^2; 2-smooth; phi*(-a) = -b + b^2 / 4 on b >= 0."""


@implements(unit_value)
def _value(loss: Any, s: Any, y: Any) -> Any:
    if is_a(loss, SmoothHingeLoss):

        def smooth(loss, s, y):
            short = 1.0 - np.float64(y) * np.float64(s)
            if short <= 0.0:
                return 0.0
            if short >= loss.gamma:
                return short - 0.5 * loss.gamma
            return short * short / (2.0 * loss.gamma)

        return smooth
    if is_a(loss, SquaredHingeLoss):

        def squared(loss, s, y):
            short = max(1.0 - np.float64(y) * np.float64(s), 0.0)
            return short * short

        return squared
    return None


@implements(unit_gradient)
def _gradient(loss: Any, s: Any, y: Any) -> Any:
    if is_a(loss, SmoothHingeLoss):

        def smooth(loss, s, y):
            short = y - y + np.float32(1) - y * s
            if short <= 0:
                return y - y
            if short >= loss.gamma:
                return -y
            return -y * short / loss.gamma

        return smooth
    if is_a(loss, SquaredHingeLoss):

        def squared(loss, s, y):
            zero = y - y
            return -y * np.float32(2) * max(zero + np.float32(1) - y * s, zero)

        return squared
    return None


@implements(unit_hessian)
def _hessian(loss: Any, s: Any, y: Any) -> Any:
    if is_a(loss, SmoothHingeLoss):

        def inside(loss, s, y):
            zero = y - y
            short = zero + np.float32(1) - y * s
            if short <= 0 or short >= loss.gamma:
                return zero
            return (zero + np.float32(1)) / loss.gamma

        return inside
    if is_a(loss, SquaredHingeLoss):

        def below(loss, s, y):
            zero = y - y
            return zero + np.float32(2) if zero + np.float32(1) - y * s > 0 else zero

        return below
    return None


@implements(unit_conjugate)
def _conjugate(loss: Any, a: Any, y: Any) -> Any:
    if is_a(loss, SmoothHingeLoss):
        return lambda loss, a, y: 0.5 * np.float64(loss.gamma) * a * a - a * y
    if is_a(loss, SquaredHingeLoss):
        return lambda loss, a, y: 0.25 * a * a - a * y
    return None


@implements(unit_step)
def _step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    if is_a(loss, SmoothHingeLoss):

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
    if is_a(loss, SquaredHingeLoss):

        def clip_below(loss, s, a, y, q):
            zero = a - a
            half = zero + np.float32(0.5)
            b = y * a
            return y * max(b + (half + half - y * s - half * b) / (half + q), zero)

        return clip_below
    return None


class Hinge(ClassificationLoss):
    """One-vs-rest hinge loss: phi(s; y) = sum_k max(0, 1 - y_k s_k), the linear support vector machine."""

    name = "hinge"
    summary = "linear SVM, one-vs-rest or multi-label"
    synonyms = ("svm", "l1_hinge")
    joint = False
    probabilities = False

    def compiled(self, binary: bool = False) -> SmoothHingeLoss:
        return SmoothHingeLoss(0.0)


class SmoothHinge(ClassificationLoss):
    """One-vs-rest hinge loss with a quadratic piece of width gamma; it lies below the hinge by at most gamma / 2.

    Parameters
    ----------
    gamma : float, default=0.1
        Amount of smoothing, >= 0; 0 gives the hinge loss.
    """

    name = "smooth_hinge"
    summary = "hinge with a quadratic piece, one-vs-rest or multi-label"
    synonyms = ("smoothed_hinge",)
    joint = False
    probabilities = False
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"gamma": [Interval(Real, 0, None, closed="left")]}

    def __init__(self, gamma: float = 0.1) -> None:
        self.gamma = gamma

    def compiled(self, binary: bool = False) -> SmoothHingeLoss:
        return SmoothHingeLoss(float(self.gamma))


class SquaredHinge(ClassificationLoss):
    """One-vs-rest squared hinge: phi(s; y) = sum_k max(0, 1 - y_k s_k)^2, the loss of LIBLINEAR and `LinearSVC`."""

    name = "squared_hinge"
    summary = "squared hinge (LinearSVC's default), one-vs-rest or multi-label"
    synonyms = ("l2_hinge", "l2svm", "linear_svc")
    joint = False
    probabilities = False

    def compiled(self, binary: bool = False) -> SquaredHingeLoss:
        return SquaredHingeLoss()

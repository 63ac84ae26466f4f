"""Cross-entropy with soft targets: a distribution over the classes, and a probability of each label."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from manyclass.kernels.jit import implements, is_a, jit
from manyclass.kernels.operations import (
    dual_step,
    loss_conjugate,
    loss_gradient,
    loss_hessian,
    loss_value,
    unit_conjugate,
    unit_gradient,
    unit_hessian,
    unit_step,
    unit_value,
)
from manyclass.kernels.simplex import entropic_step, log_sum_exp
from manyclass.kernels.vmath import exp, highest, log
from manyclass.objective.losses.base import describe

__all__ = ["SoftLogisticLoss", "SoftMultinomialLoss", "largest"]


@describe(
    name="multinomial of distributions", targets="distribution", joint=True, probability="softmax", smoothness=2.0
)
class SoftMultinomialLoss(NamedTuple):
    """phi(s; t) = logsumexp(s) - t.s for t on the simplex: the mean of `MultinomialLoss` over classes drawn from t.

    The dual vector is ``a = t - p`` with p on the simplex, phi*(-a) = sum p log p, and the Hessian is at most I/2. The
    entry of a class with the largest t_k is recovered from the others, so that a dual vector sums to 0 up to rounding.
    """


@jit
def largest(t):
    """The place of the largest number, the first of equal ones."""
    best = 0
    for k in range(t.shape[0]):
        if t[k] > t[best]:
            best = k
    return best


@implements(loss_value)
def _value(loss: Any, s: Any, t: Any, work: Any) -> Any:
    if not is_a(loss, SoftMultinomialLoss):
        return None

    def logsumexp_minus_mean(loss, s, t, work):
        top = highest(s)
        total = 0.0
        below = 0.0
        for k in range(s.shape[0]):
            total += np.float64(exp(s[k] - top))
            below += np.float64(t[k]) * (np.float64(top) - np.float64(s[k]))
        return math.log(total) + below

    return logsumexp_minus_mean


@implements(loss_gradient)
def _gradient(loss: Any, s: Any, t: Any, out: Any) -> Any:
    if not is_a(loss, SoftMultinomialLoss):
        return None

    def softmax_minus_target(loss, s, t, out):
        _, total = log_sum_exp(s, out)
        for k in range(s.shape[0]):
            out[k] = out[k] / total - t[k]
        best = largest(t)
        others = total - total
        for k in range(s.shape[0]):
            if k != best:
                others += out[k]
        out[best] = -others

    return softmax_minus_target


@implements(loss_hessian)
def _hessian(loss: Any, s: Any, t: Any, u: Any, out: Any) -> Any:
    if not is_a(loss, SoftMultinomialLoss):
        return None

    def covariance(loss, s, t, u, out):
        # Relative to the likeliest class, whose probability may be all but 1: see `MultinomialLoss`.
        best = 0
        for k in range(s.shape[0]):
            if s[k] > s[best]:
                best = k
        total = 0.0
        rivals = 0.0
        mean = 0.0
        for k in range(s.shape[0]):
            out[k] = exp(s[k] - s[best])
            total += np.float64(out[k])
            if k != best:
                rivals += np.float64(out[k])
                mean += np.float64(out[k]) * (np.float64(u[k]) - np.float64(u[best]))
        mean /= total
        for k in range(s.shape[0]):
            out[k] *= s.dtype.type((np.float64(u[k]) - np.float64(u[best]) - mean) / total)
        out[best] = s.dtype.type((rivals / total - 1.0) * mean)

    return covariance


@implements(loss_conjugate)
def _conjugate(loss: Any, a: Any, t: Any) -> Any:
    if not is_a(loss, SoftMultinomialLoss):
        return None

    def negative_entropy(loss, a, t):
        best = largest(t)
        value = 0.0
        others = 0.0
        for k in range(a.shape[0]):
            p = np.float64(t[k]) - np.float64(a[k])
            if k != best and p > 0.0:
                value += p * log(max(p, 1e-300))
                others += p
        if others < 1.0:
            value += (1.0 - others) * math.log1p(-others)
        return value

    return negative_entropy


@implements(dual_step)
def _dual_step(loss: Any, s: Any, a: Any, t: Any, q: Any, new: Any) -> Any:
    if not is_a(loss, SoftMultinomialLoss):
        return None

    def on_simplex(loss, s, a, t, q, new):
        # As for `MultinomialLoss`, with p_old = t - a.
        n = s.shape[0]
        one = s.dtype.type(1)
        theta, total = log_sum_exp(s, new)
        scale = one / total
        if q > s.dtype.type(1e-12):
            shift = log(q)
            for k in range(n):
                new[k] = s[k] + shift + q * (t[k] - a[k])
            scale = s.dtype.type(1.0 / entropic_step(new, q, theta))
        best = largest(t)
        others = one - one
        for k in range(n):
            new[k] = t[k] - scale * new[k]
        for k in range(n):
            if k != best:
                others += new[k]
        new[best] = min(-others, t[best])

    return on_simplex


@describe(name="log_loss of probabilities", targets="probabilities", probability="sigmoid", smoothness=4.0)
class SoftLogisticLoss(NamedTuple):
    """phi(s; t) = log(1 + exp(s)) - t s for t in [0, 1]: the mean of `LogisticLoss` over a label of probability t.

    With a = t - p, 0 <= p <= 1: phi*(-a) = p log p + (1 - p) log(1 - p).
    """


@implements(unit_value)
def _unit_value(loss: Any, s: Any, t: Any) -> Any:
    if not is_a(loss, SoftLogisticLoss):
        return None

    def softplus(loss, s, t):
        z = np.float64(s)
        return math.log1p(math.exp(-abs(z))) + max(z, 0.0) - np.float64(t) * z

    return softplus


@implements(unit_gradient)
def _unit_gradient(loss: Any, s: Any, t: Any) -> Any:
    if not is_a(loss, SoftLogisticLoss):
        return None

    def sigmoid(loss, s, t):
        one = t - t + np.float32(1)
        # Both parts are small where s is right: 1/(1 + exp(-s)) - t would lose their digits.
        return (one - t) / (one + exp(-s)) - t / (one + exp(s))

    return sigmoid


@implements(unit_hessian)
def _unit_hessian(loss: Any, s: Any, t: Any) -> Any:
    if not is_a(loss, SoftLogisticLoss):
        return None

    def variance(loss, s, t):
        one = t - t + np.float32(1)
        small = exp(-abs(s))
        return small / ((one + small) * (one + small))

    return variance


@implements(unit_conjugate)
def _unit_conjugate(loss: Any, a: Any, t: Any) -> Any:
    if not is_a(loss, SoftLogisticLoss):
        return None

    def negative_entropy(loss, a, t):
        p = min(max(t - a, 0.0), 1.0)
        value = 0.0
        if 0.0 < p < 1.0:
            value = p * math.log(p) + (1.0 - p) * math.log1p(-p)
        return value

    return negative_entropy


@implements(unit_step)
def _unit_step(loss: Any, s: Any, a: Any, t: Any, q: Any) -> Any:
    if not is_a(loss, SoftLogisticLoss):
        return None
    tolerance = 1e-4 if s == types.float32 else 1e-8

    def newton(loss, s, a, t, q):
        # As for `LogisticLoss`: with p = 1 / (1 + exp(-z)), stationarity is z + q p(z) - (q p_old + s) = 0.
        one = a - a + np.float32(1)
        goal = q * (t - a) + s
        z = one - one
        for _ in range(100):
            p = one / (one + exp(-z))
            step = (goal - z - q * p) / (one + q * p * (one - p))
            z += step
            if abs(step) < tolerance:
                break
        # t - p, with the digits of the smaller part.
        return t / (one + exp(z)) - (one - t) / (one + exp(-z))

    return newton

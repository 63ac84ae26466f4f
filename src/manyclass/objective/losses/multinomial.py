"""Multinomial logistic loss (softmax regression), and the soft-max-of-hinge."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import dual_step, loss_conjugate, loss_gradient, loss_hessian, loss_value
from manyclass.kernels.simplex import entropic_step, log_sum_exp
from manyclass.kernels.vmath import exp, highest, log
from manyclass.objective.losses.base import ClassificationLoss, describe
from manyclass.objective.losses.log_loss import LogisticLoss
from manyclass.objective.losses.soft import SoftMultinomialLoss

__all__ = ["Multinomial", "MultinomialLoss", "SoftmaxHinge"]


@describe(
    name=lambda loss: "softmax_hinge" if loss.margin else "multinomial",
    targets="class",
    joint=True,
    probability="softmax",
    smoothness=2.0,
)
class MultinomialLoss(NamedTuple):
    """phi(s; y) = log(1 + sum_{j != y} exp(margin + s_j - s_y)).

    ``margin = 0`` is softmax regression, logsumexp(s) - s_y; ``margin = 1`` the soft-max-of-hinge, a smooth upper bound
    of Crammer and Singer's loss. The dual vector is ``a = e_y - p`` with p on the simplex, phi*(-a) = sum p log p -
    margin (1 - p_y), and the Hessian is at most I/2, so that gamma = 2. p is always recovered from the entries of the
    classes k != y (the rivals), p_k = -a_k and p_y = 1 - sum of these: small probabilities are then exact in float32.
    """

    margin: float = 0.0


@implements(loss_value)
def _value(loss: Any, s: Any, t: Any, work: Any) -> Any:
    if not is_a(loss, MultinomialLoss):
        return None

    def logsumexp_minus_target(loss, s, t, work):
        kept = s[t]
        s[t] = kept - loss.margin
        top = highest(s)
        total = 0.0
        for k in range(s.shape[0]):
            total += np.float64(exp(s[k] - top))
        above = np.float64(top) - np.float64(s[t])
        s[t] = kept
        return math.log(total) + above

    return logsumexp_minus_target


@implements(loss_gradient)
def _gradient(loss: Any, s: Any, t: Any, out: Any) -> Any:
    if not is_a(loss, MultinomialLoss):
        return None

    def softmax_minus_target(loss, s, t, out):
        kept = s[t]
        s[t] = kept - loss.margin
        _, total = log_sum_exp(s, out)
        s[t] = kept
        for k in range(s.shape[0]):
            out[k] /= total
        rivals = total - total
        for k in range(s.shape[0]):
            if k != t:
                rivals += out[k]
        out[t] = -rivals

    return softmax_minus_target


@implements(loss_hessian)
def _hessian(loss: Any, s: Any, t: Any, u: Any, out: Any) -> Any:
    if not is_a(loss, MultinomialLoss):
        return None

    def covariance(loss, s, t, u, out):
        # (diag p - p p^T) u does not change with a constant added to u: relative to u_t, p_t, which may be all but 1,
        # is never needed in full.
        loss_gradient(loss, s, t, out)
        mean = 0.0
        rivals = 0.0
        for k in range(s.shape[0]):
            if k != t:
                mean += np.float64(out[k]) * (np.float64(u[k]) - np.float64(u[t]))
                rivals += np.float64(out[k])
        for k in range(s.shape[0]):
            out[k] *= s.dtype.type(np.float64(u[k]) - np.float64(u[t]) - mean)
        out[t] = s.dtype.type((rivals - 1.0) * mean)

    return covariance


@implements(loss_conjugate)
def _conjugate(loss: Any, a: Any, t: Any) -> Any:
    if not is_a(loss, MultinomialLoss):
        return None

    def negative_entropy(loss, a, t):
        value = 0.0
        rivals = 0.0
        for k in range(a.shape[0]):
            p = max(-np.float64(a[k]), 0.0)
            if k != t and p > 0.0:
                value += p * log(max(p, 1e-300))
                rivals += p
        if rivals < 1.0:
            value += (1.0 - rivals) * math.log1p(-rivals)
        return value - np.float64(loss.margin) * rivals

    return negative_entropy


@implements(dual_step)
def _dual_step(loss: Any, s: Any, a: Any, t: Any, q: Any, new: Any) -> Any:
    if not is_a(loss, MultinomialLoss):
        return None

    def on_simplex(loss, s, a, t, q, new):
        n = s.shape[0]
        one = s.dtype.type(1)
        kept = s[t]
        s[t] = kept - loss.margin
        theta, total = log_sum_exp(s, new)
        scale = one / total
        if q > s.dtype.type(1e-12):
            shift = log(q)
            for k in range(n):
                new[k] = s[k] + shift - q * a[k]
            new[t] += q
            scale = s.dtype.type(1.0 / entropic_step(new, q, theta))
        s[t] = kept
        new[t] = one - one
        rivals = one - one
        for k in range(n):
            new[k] *= -scale
        for k in range(n):
            rivals -= new[k]
        new[t] = min(rivals, one)

    return on_simplex


class Multinomial(ClassificationLoss):
    """Softmax regression: phi(s; y) = log sum_j exp(s_j - s_y). With two classes, logistic regression."""

    name = "multinomial"
    summary = "softmax regression; gives probabilities"
    synonyms = ("softmax", "cross_entropy", "categorical_crossentropy", "maxent")
    joint = True
    probabilities = True

    def compiled(self, binary: bool = False) -> Any:
        return LogisticLoss() if binary else MultinomialLoss()

    def compiled_soft(self) -> Any:
        return SoftMultinomialLoss()


class SoftmaxHinge(ClassificationLoss):
    """Soft-max-of-hinge: phi(s; y) = log(1 + sum_{j != y} exp(1 + s_j - s_y)), a smooth upper bound of Crammer-Singer.

    Shalev-Shwartz and Zhang 2014, section 5.1. With two classes log(1 + exp(1 - m)) of the margin m.
    """

    name = "softmax_hinge"
    summary = "smooth upper bound of the multiclass SVM"
    synonyms = ("soft_max_of_hinge",)
    joint = True
    probabilities = False

    def compiled(self, binary: bool = False) -> Any:
        return LogisticLoss(1.0) if binary else MultinomialLoss(1.0)

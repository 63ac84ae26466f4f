"""The intercept that minimizes the objective where all weights are zero, from which fits start.

With K classes of very different sizes this start matters: an intercept of zero is far from log(share of the class), and
steps that suit the large classes take hundreds of epochs to get there with the small ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.kernels.targets import ClassTargets, RealTargets, SoftTargets
from manyclass.objective.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SmoothHingeLoss,
    SoftLogisticLoss,
    SoftMultinomialLoss,
    SquaredHingeLoss,
    SquaredLoss,
)
from manyclass.objective.problem import Array, Problem

__all__ = ["first_intercept", "lone_intercept", "null_loss"]

#: The largest magnitude of an optimal intercept: of a class that no row has, or all have, it is infinite.
_FAR = 64.0


def first_intercept(problem: Problem) -> Array:
    """The intercept from which a fit starts: `lone_intercept`, but zero for Crammer-Singer with more than two classes.

    That of the multinomial loss has mean zero, and takes a class that no row has for one with half a row.
    """
    if not problem.loss.joint:
        return lone_intercept(problem)
    if not (problem.intercept and isinstance(problem.loss, MultinomialLoss | SoftMultinomialLoss)):
        return np.zeros(problem.n_outputs, problem.dtype)
    found = np.maximum(lone_intercept(problem), -np.log(2.0 * problem.n_samples))
    return np.asarray(found - found.mean(), problem.dtype)


def lone_intercept(problem: Problem) -> Array:
    """The intercept that minimizes the mean loss where W = 0; zero in a problem without one.

    The loss must be separable or multinomial (for the soft-max-of-hinge this is near the minimum).
    """
    if not problem.intercept:
        return np.zeros(problem.n_outputs, problem.dtype)
    loss: Any = problem.loss
    weights = np.asarray(problem.sample_weight, np.float64)
    targets = problem.targets
    if isinstance(targets, RealTargets):
        found = np.average(targets.y, axis=0, weights=weights)
        if isinstance(loss, HuberLoss):
            found = _huber_center(np.asarray(targets.y, np.float64), weights, float(loss.delta))
    else:
        found = _from_shares(loss, _shares(problem))
    return np.asarray(found, problem.dtype)


def null_loss(problem: Problem) -> float:
    """The mean loss where W = 0, with the best intercept: half of the null deviance of a row.

    NaN for a loss that is no negative log-likelihood: only squared, multinomial and log_loss are.
    """
    loss: Any = problem.loss
    squared, soft = isinstance(loss, SquaredLoss), isinstance(problem.targets, SoftTargets)
    if not squared and (loss.probability is None or (not soft and loss.margin)):
        return float("nan")
    bias = np.asarray(lone_intercept(problem), np.float64)
    if squared:
        residuals = np.asarray(problem.targets.y, np.float64) - bias  # type: ignore[union-attr]
        return 0.5 * float(np.average(np.sum(residuals**2, axis=1), weights=problem.sample_weight))
    share = _shares(problem)
    if loss.joint:
        return float(np.logaddexp.reduce(bias) - share @ bias)
    return float(share @ np.logaddexp(0.0, -bias) + (1.0 - share) @ np.logaddexp(0.0, bias))


def _shares(problem: Problem) -> Array:
    """The shares of the weighted rows that each class, or label, has."""
    weights, targets = np.asarray(problem.sample_weight, np.float64), problem.targets
    assert not isinstance(targets, RealTargets)
    indices = targets.y if isinstance(targets, ClassTargets) else targets.indices
    repeated = weights if isinstance(targets, ClassTargets) else np.repeat(weights, np.diff(targets.indptr))
    if isinstance(targets, SoftTargets):
        repeated = repeated * targets.data
    share = np.bincount(indices, repeated, minlength=problem.n_outputs) / weights.sum()
    return np.asarray(np.clip(share, 0.0, 1.0))


def _from_shares(loss: Any, share: Array) -> Array:
    """The minimizer for classes, or labels, that such shares of the rows have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if isinstance(loss, MultinomialLoss | SoftMultinomialLoss):
            found = np.log(share)
        elif isinstance(loss, LogisticLoss):
            # share / (1 + exp(b - m)) = (1 - share) / (1 + exp(-b - m)), a quadratic equation for exp(b).
            c = np.exp(-float(loss.margin))
            difference = 2.0 * share - 1.0
            root = np.sqrt(difference**2 + 4.0 * share * (1.0 - share) * c * c)
            # The two forms are equal; each is free of cancellation on its side.
            above = np.log((difference + root) / (2.0 * (1.0 - share) * c))
            below = np.log(2.0 * share * c / (root - difference))
            found = np.where(difference > 0, above, below)
        elif isinstance(loss, SoftLogisticLoss):
            found = np.log(share) - np.log1p(-share)
        elif isinstance(loss, SquaredHingeLoss):
            found = 2.0 * share - 1.0
        else:
            assert isinstance(loss, SmoothHingeLoss)
            rare = np.minimum(share, 1.0 - share)
            gamma = float(loss.gamma)
            # The rarer sign is on its linear piece, or, with a large gamma, both are on their quadratic pieces.
            found = np.where(1.0 - rare >= 0.5 * gamma, 1.0 - gamma * rare / (1.0 - rare), 1.0 - 2.0 * rare)
            found = np.where(share == 0.5, 0.0, found * np.sign(share - 0.5))
    return np.clip(found, -_FAR, _FAR)


def _huber_center(y: Array, weights: Array, delta: float) -> Array:
    """The b of each column that minimizes the weighted Huber losses of y - b, by bisection on the derivative."""
    low, high = y.min(axis=0), y.max(axis=0)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not np.any((low < middle) & (middle < high)):
            break
        slope = weights @ np.clip(middle - y, -delta, delta)
        low, high = np.where(slope <= 0, middle, low), np.where(slope >= 0, middle, high)
    return np.asarray(0.5 * (low + high))

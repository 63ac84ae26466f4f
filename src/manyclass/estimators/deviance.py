"""The fraction of the deviance that a fit explains."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.objective.intercept import null_loss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges

__all__ = ["deviance_explained", "norms"]

#: Weights that are summed up at a time, in float64.
_PIECE = 1 << 20
#: Relative rounding errors of the two deviances.
_ROUNDING = 1e-12


def norms(weights: Any) -> tuple[float, float]:
    """Return ``||W||^2`` and ``||W||_1`` of an array or a sparse matrix, summed in float64.

    Examples
    --------
    >>> norms(np.array([[3.0, -4.0]]))
    (25.0, 7.0)
    """
    stored: Array = weights.reshape(-1, order="A") if isinstance(weights, np.ndarray) else weights.data
    squares = magnitudes = 0.0
    for begin, end in ranges(stored.size, _PIECE):
        part = stored[begin:end].astype(np.float64)
        squares += float(part @ part)
        magnitudes += float(np.abs(part).sum())
    return squares, magnitudes


def deviance_explained(estimator: Any, problem: Problem) -> float:
    """Return 1 - D / D0, D being the deviance of a fitted estimator and D0 that of the intercept alone.

    The deviance is twice the negative log-likelihood, without that of a model that fits each row by itself: the mean
    loss, times 2 n. This is glmnet's ``%dev``, as a fraction, and R squared for the squared loss. The mean loss is that
    of the rows of the fit: the objective without the penalty.

    Parameters
    ----------
    estimator : LinearClassifier or LinearRegressor
        A fitted one, with its objective.
    problem : Problem
        The problem of its data, with any alpha.

    Returns
    -------
    float
        At most 1; NaN if the loss is no negative log-likelihood, or the targets are all the same.
    """
    null = null_loss(problem)
    if not null > 0:
        return float("nan")
    weights: Any = estimator.model_.weights
    if problem.standard is not None:
        dense = weights if isinstance(weights, np.ndarray) else weights.toarray()
        weights, _ = problem.of_model(dense, np.asarray(estimator.model_.intercept))
    squares, magnitudes = norms(weights)
    ratio = float(getattr(estimator, "l1_ratio_", estimator.l1_ratio))
    penalty = float(estimator.alpha_) * (0.5 * (1.0 - ratio) * squares + ratio * magnitudes)
    found = 1.0 - (float(estimator.objective_) - penalty) / null
    return found if abs(found) > _ROUNDING else 0.0  # weights of zero: no "-0.00"

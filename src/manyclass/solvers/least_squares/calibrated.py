"""Calibrated least squares (Algorithm 2): alternates least squares on the residuals and on functions of predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyclass.objective.links.calibrated import Basis, Calibration, expand
from manyclass.runtime.arrays import Array
from manyclass.runtime.threads import ranges
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.systems import Factor, System

__all__ = ["Round", "calibrated_rounds", "fit_calibration", "squared_error"]

#: Rows that are processed at a time.
_ROWS = 8192
#: Squared relative distance to the span of the others below which a column of G counts as dependent: by rounding (of
#: scores, of an inexact solve) it may not be exactly so, and would get huge coefficients.
_NOISE = {"float32": 1e-9, "float64": 1e-12}


def fit_calibration(
    basis: Basis, scores: Array, targets: Array, weights: Array | None = None, *, domain: str | None
) -> Calibration:
    """The second half-step, ``argmin_C sum_i c_i ||y_i - C' G(scores_i)||^2``, followed by a projection on ``domain``.

    There is no ridge, because G has few columns. If they are linearly dependent up to rounding (for instance scores
    with sum 1 and the constant), the coefficients of minimum norm are taken.

    Parameters
    ----------
    basis : str or callable
        The functions G, see `manyclass.objective.links.calibrated.Calibration`.
    scores, targets : ndarray of shape (n, K)
        The predictions to calibrate, and their targets.
    weights : ndarray of shape (n,), optional
        Sample weights c. None: all 1.
    domain : {"simplex", "box", None}
        The set on which calibrated predictions are projected, see `Calibration`.

    Returns
    -------
    Calibration
        The fitted calibration.
    """
    moments = cross = np.zeros((0, 0))
    for begin, end in ranges(len(scores), _ROWS):
        G = expand(basis, scores[begin:end]).astype(np.float64)
        if not np.isfinite(G).all():
            raise ValueError("basis must return finite numbers, got NaN or infinity: scale the features or the basis")
        weighted = G if weights is None else G * weights[begin:end, None]
        if not begin:
            moments, cross = np.zeros((G.shape[1],) * 2), np.zeros((G.shape[1], targets.shape[1]))
        moments += weighted.T @ G
        cross += weighted.T @ targets[begin:end]
    coefficients = Factor(moments, _NOISE[scores.dtype.name], minimum_norm=True).solve(cross)
    return Calibration(basis, coefficients.astype(scores.dtype), domain)


@dataclass(frozen=True)
class Round:
    """The result of a round of Algorithm 2.

    Attributes
    ----------
    weights : ndarray of shape (q, K)
        W_t; the last row is the intercept if the design has one.
    calibration : Calibration
        The calibration of the second half-step.
    errors : tuple of float
        Mean squared error after the first and after the second half-step.
    """

    weights: Array
    calibration: Calibration
    errors: tuple[float, float]


def calibrated_rounds(
    design: Design,
    targets: Array,
    predictions: Array,
    alpha: float,
    *,
    basis: Basis,
    domain: str | None,
    factored: bool = True,
) -> Iterator[Round]:
    """Rounds of Algorithm 2, without end; each takes two passes and changes ``predictions`` in place.

    If the identity is in the span of G, the weighted squared error never increases from one half-step to the next,
    because W = 0 and the identity are among the candidates.

    Parameters
    ----------
    design : Design
        Features and sample weights, which both half-steps use.
    targets : ndarray of shape (n, K)
        y.
    predictions : ndarray of shape (n, K)
        The predictions so far, 0 at the start.
    alpha : float
        Ridge of the first half-step, >= 0: (1/2) mean ||y - yhat - W x||^2 + (alpha/2) ||W||^2.
    basis, domain
        See `fit_calibration`.
    factored : bool, default=True
        Whether to solve by Cholesky; else by conjugate gradients.
    """
    system: System = design.system(alpha, 1.0, factored=factored, tol=1e-8)
    weights = design.weights
    while True:
        W = system.solve(design.cross(targets - predictions))
        design.add_scores(W, predictions)
        first = squared_error(targets, predictions, weights)
        calibration = fit_calibration(basis, predictions, targets, weights, domain=domain)
        calibration(predictions, out=predictions)
        yield Round(W, calibration, (first, squared_error(targets, predictions, weights)))


def squared_error(targets: Array, predictions: Array, weights: Array | None = None) -> float:
    """The weighted mean of ||y - yhat||^2 over the rows, in float64; sample weights have mean 1."""
    total = 0.0
    for begin, end in ranges(len(targets), _ROWS):
        difference = targets[begin:end] - predictions[begin:end]
        squares = np.einsum("ik,ik->i", difference, difference, dtype=np.float64)
        total += float(squares.sum() if weights is None else squares @ weights[begin:end])
    return total / len(targets)

"""Algorithm 2: least squares on the residuals, and least squares on simple functions of what that predicts, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyclass.objective.links.calibrated import Basis, Calibration, expand
from manyclass.runtime.threads import ranges
from manyclass.solvers.least_squares.arrays import Array
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.systems import Factor, System

__all__ = ["Round", "calibrated_rounds", "fit_calibration", "squared_error"]

#: Rows expanded at a time.
_ROWS = 8192
#: Columns of G that differ from a combination of others by less than the root of this, of their length, may do so by
#: rounding alone (of the scores, of an inexact solve), and would be fitted with huge coefficients.
_NOISE = {"float32": 1e-9, "float64": 1e-12}


def fit_calibration(
    basis: Basis, scores: Array, targets: Array, weights: Array | None = None, *, domain: str | None
) -> Calibration:
    """The second half-step: ``argmin_C sum_i c_i ||y_i - C' G(scores_i)||^2``, then a projection on ``domain``.

    No ridge: G has few columns. Where they depend on each other (scores of a row that sum to one, and the constant),
    some get no coefficients; what is within rounding counts as dependent.

    Parameters
    ----------
    basis : str or callable
        See `manyclass.objective.links.calibrated.Calibration`.
    scores, targets : ndarray of shape (n, K)
    weights : ndarray of shape (n,), optional
    domain : {"simplex", "box", None}
    """
    moments = cross = np.zeros((0, 0))
    for begin, end in ranges(len(scores), _ROWS):
        G = expand(basis, scores[begin:end]).astype(np.float64)
        if not np.isfinite(G).all():
            raise ValueError("basis must give finite numbers; found NaN or infinity: scale the features or the basis")
        weighted = G if weights is None else G * weights[begin:end, None]
        if not begin:
            moments, cross = np.zeros((G.shape[1],) * 2), np.zeros((G.shape[1], targets.shape[1]))
        moments += weighted.T @ G
        cross += weighted.T @ targets[begin:end]
    coefficients = Factor(moments, _NOISE[scores.dtype.name]).solve(cross)
    return Calibration(basis, coefficients.astype(scores.dtype), domain)


@dataclass(frozen=True)
class Round:
    """One round of Algorithm 2.

    Attributes
    ----------
    weights : ndarray of shape (q, K)
        W_t; the last row is the intercept's where the design has one.
    calibration : Calibration
    errors : tuple of float
        The mean squared error after the first half-step, and after the second.
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
    """Rounds of Algorithm 2 on ``predictions`` (n, K), which are changed in place; two passes a round.

    The squared error over the rows of positive weight never rises from one half-step to the next where ``alpha`` is
    zero and the identity is in lin(G): a round could always leave things as they are.

    Parameters
    ----------
    design : Design
        Its sample weights weigh both half-steps.
    targets : ndarray of shape (n, K)
    predictions : ndarray of shape (n, K)
        Zero at the start.
    alpha : float
        Ridge of the first half-step: (1/2) mean ||y - yhat - W x||^2 + (alpha/2) ||W||^2.
    basis, domain
        See `fit_calibration`.
    factored : bool
        Solve by Cholesky; or else by conjugate gradients.
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
    """The mean over rows of ||y - yhat||^2, in float64; sample weights have mean 1."""
    total = 0.0
    for begin, end in ranges(len(targets), _ROWS):
        difference = targets[begin:end] - predictions[begin:end]
        squares = np.einsum("ik,ik->i", difference, difference, dtype=np.float64)
        total += float(squares.sum() if weights is None else squares @ weights[begin:end])
    return total / len(targets)

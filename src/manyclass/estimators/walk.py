"""Fits of one estimator for many alphas: data checked once, the grid of alphas, warm starts."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn import config_context
from sklearn.base import clone

from manyclass.estimators.base import LinearEstimator, check_number, check_sample_weight
from manyclass.kernels.rows import DenseRows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.intercept import lone_intercept
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.arrays import plain_array
from manyclass.runtime.memory import require

__all__ = ["Checked", "alpha_grid", "check", "check_estimator", "check_grid", "check_parameters", "problem_of", "walk"]


class Checked(NamedTuple):
    """Input that has been validated and converted for a fit."""

    X: Any
    y: Any
    sample_weight: Array | None
    feature_names: Array | None

    def rows(self, chosen: Array) -> Checked:
        """The chosen rows, copied."""
        weights = None if self.sample_weight is None else self.sample_weight[chosen]
        return self._replace(X=self.X[chosen], y=self.y[chosen], sample_weight=weights)


def check_estimator(estimator: Any) -> None:
    """Raise a ValueError unless ``estimator`` is a `LinearClassifier` or a `LinearRegressor`."""
    if not isinstance(estimator, LinearEstimator) or not {"loss", "alpha"} <= estimator.get_params(deep=False).keys():
        raise ValueError(f"estimator must be a LinearClassifier or a LinearRegressor, got {estimator!r}")


def check_parameters(estimator: LinearEstimator) -> Any:
    """Validate the parameters except alpha, as `fit` does; returns a clone.

    Raises
    ------
    ValueError
        As in `fit`.
    """
    probe = clone(estimator).set_params(alpha=1.0)
    probe._check_parameters()
    return probe


def check(estimator: LinearEstimator, X: Any, y: Any, sample_weight: Any) -> Checked:
    """Validate parameters (except alpha) and data, as `fit` does.

    Raises
    ------
    ValueError
        As in `fit`.
    """
    probe = check_parameters(estimator)
    X, y = probe._check_fit_input(plain_array(X), y)  # NumPy selects the rows of a fold
    names = getattr(probe, "feature_names_in_", None)
    return Checked(X, y, check_sample_weight(sample_weight, X), None if names is None else np.asarray(names, dtype=str))


def walk(estimator: LinearEstimator, data: Checked, alphas: Iterable[float]) -> Iterator[Any]:
    """Fit a clone for each of the alphas in turn, warm-started from the previous fit.

    Yields the same clone each time: copy what must survive the next step. The data are not checked for NaN again.
    """
    work = clone(estimator).set_params(warm_start=True)
    for alpha in alphas:
        with config_context(assume_finite=True):
            work.set_params(alpha=float(alpha)).fit(data.X, data.y, sample_weight=data.sample_weight)
        yield work


# --- the grid -------------------------------------------------------------------------------------------------------


def check_grid(alphas: Any, n_alphas: Any, eps: Any) -> Array | None:
    """The distinct ``alphas`` in decreasing order; None if they are to be chosen.

    Raises
    ------
    ValueError
        If ``alphas`` is not a list of positive finite numbers, ``n_alphas`` is not an integer of at least 1, or ``eps``
        is not in (0, 1).
    """
    if alphas is None:
        whole = isinstance(n_alphas, numbers.Integral) and not isinstance(n_alphas, bool)
        if not whole or operator.index(n_alphas) < 1:
            raise ValueError(f"n_alphas must be an integer of at least 1, got {n_alphas!r}")
        if eps is not None:
            check_number("eps", eps, low=0.0, high=1.0, low_open=True, high_open=True)
        return None
    try:
        found = np.asarray(alphas, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"alphas must be positive finite numbers, got {alphas!r}") from error
    if found.ndim != 1 or not found.size:
        raise ValueError(f"alphas must be a list of at least one number, got shape {found.shape}")
    if not (np.isfinite(found).all() and found.min() > 0):
        raise ValueError(f"alphas must be positive finite numbers, got {found[~(np.isfinite(found) & (found > 0))][0]}")
    return np.unique(found)[::-1]


def alpha_grid(
    estimator: LinearEstimator, data: Checked, n_alphas: int, eps: float | None, problem: Problem | None = None
) -> Array:
    """Alphas on a logarithmic scale, from a largest one to ``eps`` times it (None: 1e-3 with an l1 part, 1e-4 without).

    With an l1 part the largest is the smallest alpha for which all weights are zero: max |gradient of the mean loss| at
    W = 0 and its optimal intercept, divided by l1_ratio. Without an l1 part no alpha makes the weights zero. The
    largest is then the total variance of the features (their second moment without an intercept), divided by gamma if
    the loss is (1/gamma)-smooth with gamma > 1. No direction of the mean squared loss has a larger curvature, so that
    each coefficient is shrunk to at most half of its unpenalized value.
    """
    problem = problem_of(estimator, data) if problem is None else problem
    ratio = float(estimator.l1_ratio)
    if ratio:  # above the rounding error, which would leave one weight of its size
        largest = _steepest(problem) * (1.0 + problem.resolution) / ratio
    else:
        largest = _total_variance(problem, data.X) / _smoothness(problem)
    if not largest > 0:  # all weights are zero for every alpha, so that the scale does not matter
        largest = 1.0
    if eps is None:
        eps = 1e-3 if ratio else 1e-4
    return np.asarray(np.geomspace(largest, largest * eps if n_alphas > 1 else largest, n_alphas))


def problem_of(estimator: LinearEstimator, data: Checked) -> Problem:
    """The problem of a fit with alpha = 1."""
    probe = clone(estimator).set_params(alpha=1.0, verbose=0)
    with config_context(assume_finite=True):
        problem: Problem = probe._build(data.X, data.y, data.sample_weight)[0]
    return problem


def _smoothness(problem: Problem) -> float:
    return max(1.0, float(problem.loss.smoothness))


def _total_variance(problem: Problem, X: Any) -> float:
    """The trace of the second moments of the features, central ones if there is an intercept."""
    share = np.asarray(problem.sample_weight, np.float64) / problem.n_samples
    moment = float(share @ problem.norms.astype(np.float64))
    if not problem.intercept:
        return moment
    mean = np.asarray(X.T @ share, np.float64)
    if problem.standard is not None:
        mean = (mean - problem.standard.mean) * problem.standard.factor
    variance = moment - float(mean @ mean)
    return variance if variance > 1e-6 * moment else 0.0  # a smaller value is rounding error of constant features


def _steepest(problem: Problem) -> float:
    """Max |gradient of the mean loss| at W = 0 and its optimal intercept; zero if it is only rounding error."""
    loss: Any = problem.loss
    hard = problem.intercept and loss.joint and not (isinstance(loss, MultinomialLoss) and not loss.margin)
    n, d, K, size = problem.n_samples, problem.n_features, problem.n_outputs, problem.dtype.itemsize
    require({"gradients of the scores": n * K * size, "their sum": d * K * size}, "dtype=np.float32, or alphas=[...]")
    V, dual = np.zeros((d, K), problem.dtype), np.empty((n, K), problem.dtype)
    problem.respond(V, _joint_intercept(problem) if hard else lone_intercept(problem), dual)
    if problem.intercept:
        problem.balance(dual)
    problem.dual_image(dual, V)
    found = float(np.abs(V).max(initial=0.0)) * problem.lam
    share = np.asarray(problem.sample_weight, np.float64) / problem.n_samples
    bound = np.sqrt(share @ problem.norms.astype(np.float64) * np.einsum("i,ik,ik->k", share, dual, dual).max())
    return found if found > 100 * np.finfo(problem.dtype).eps * bound else 0.0


def _joint_intercept(problem: Problem) -> Array:
    """The optimal intercept of a joint loss at W = 0, where all examples of a class have the same loss."""
    K = problem.n_outputs
    masses = np.bincount(problem.targets.y, problem.sample_weight, minlength=K)  # type: ignore[union-attr]
    classes = Problem(
        rows=DenseRows(np.zeros((K, 1))),
        targets=ClassTargets(np.arange(K, dtype=np.int32), K),
        loss=problem.loss,
        penalty=problem.penalty,
        lam=1.0,
        n_features=1,
        sample_weight=masses,
        intercept=True,
    )
    W, dual = np.zeros((1, K)), np.empty((K, K))

    def loss(bias: Array) -> tuple[float, Array]:
        value = classes.respond(W, bias, dual) / K
        return value, -(np.asarray(classes.sample_weight) @ dual) / K

    found = minimize(loss, np.zeros(K), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-12})
    return np.asarray(found.x, problem.dtype)

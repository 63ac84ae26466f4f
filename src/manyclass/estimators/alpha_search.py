"""``alpha="auto"``: choose alpha by the score on held-out rows, along a path of decreasing values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.rows import CSRRows
from manyclass.kernels.scoring import Scorer
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.choice import choose, in_ranges
from manyclass.optimize.columns import minimize_columns
from manyclass.optimize.loop import Outcome, Result, minimize
from manyclass.solvers import Solver, State
from manyclass.solvers.dual.warm import lineage, warm_state

__all__ = ["AlphaSearch", "search_alpha"]

#: Fraction of the rows that is held out, and the maximum number of held-out rows, enough for a small standard error.
_FRACTION, _MOST = 0.1, 20_000
#: Ratio of consecutive alphas.
_STEP = 10**-0.5
#: Relative duality gap of the fits of the path, which is small enough to compare alphas.
_TOL = 1e-2
#: The path ends after 2 consecutive scores more than a standard error below the best, or 4 that are not better.
_TURNED, _STALE = 2, 4
#: Smallest alpha of the path, as a multiple of 1 / n.
_LEAST = 1e-4


class AlphaSearch(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    alpha : float
        The alpha with the best score; of equal scores the largest alpha.
    scores : dict of float to float
        Score by alpha, in the order of the path.
    state : tuple or None
        Warm start for the fit on all rows.
    interrupted : bool
        Whether Ctrl-C ended the search.
    """

    alpha: float
    scores: dict[float, float]
    state: tuple[str, State] | None
    interrupted: bool


def search_alpha(unit: Problem, solver: Solver | None, *, seed: int, max_iter: int | None) -> AlphaSearch:
    """Fit without the held-out rows for decreasing alphas, until the score on these rows gets worse.

    The held-out rows have sample weight zero, so that no rows are copied, and each fit is warm-started from the last.

    Parameters
    ----------
    unit : Problem
        The problem with all rows and alpha = 1.
    solver : Solver or None
        The solver; None chooses one for each alpha.
    seed : int
        Seed of the choice of the held-out rows and of the fits.
    max_iter : int or None
        Maximum number of iterations of each fit; None is the solver's default.
    """
    held = held_out_rows(unit, np.random.default_rng([seed, unit.n_samples]))
    weights = np.array(unit.sample_weight, np.float64)
    weights[held] = 0.0
    training = replace(unit, sample_weight=weights)
    judge = _Judge(unit, held)
    scores: dict[float, float] = {}
    best, state, interrupted = -math.inf, None, False
    kept: tuple[str, State] | None = None
    below = stale = 0
    for alpha in _path(training):
        problem = replace(training, lam=training.lam * alpha)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = _fit(problem, solver, state, seed, max_iter)
        state = (lineage(result.solver), result.state) if result.state else None
        scores[alpha] = found = judge(result)
        if found > best:
            best, below, stale = found, 0, 0
            kept = None if state is None else (state[0], {name: np.array(part) for name, part in state[1].items()})
        else:
            stale += 1
            below = below + 1 if found < best - judge.standard_error(best) else 0
        interrupted = result.outcome is Outcome.INTERRUPTED
        if below >= _TURNED or stale >= _STALE or interrupted:
            break
    chosen = max(scores, key=lambda alpha: (scores[alpha], alpha))
    return AlphaSearch(chosen, scores, kept, interrupted)


def held_out_rows(problem: Problem, rng: np.random.Generator) -> Array:
    """Indices of the held-out rows, sorted: a tenth of each class, but never the only row of a class."""
    n, weights = problem.n_samples, np.asarray(problem.sample_weight)
    order = rng.permutation(n)
    if isinstance(problem.targets, ClassTargets):
        group = problem.targets.y
    elif isinstance(problem.targets, SignTargets):
        indptr, indices = problem.targets.indptr, problem.targets.indices
        first = np.minimum(indptr[:-1], max(len(indices) - 1, 0))
        group = np.where(np.diff(indptr) > 0, indices[first] if len(indices) else 0, -1)
    else:
        group = np.zeros(n, np.int64)
    order = order[np.argsort(group[order], kind="stable")]
    sizes = np.unique(group, return_counts=True)
    alone = np.isin(group, sizes[0][sizes[1] == 1]) if len(sizes[0]) > 1 else np.zeros(n, bool)
    order = order[(weights[order] > 0) & ~alone[order]]
    size = min(_MOST, max(1, round(_FRACTION * len(order))))
    if len(order) < 2:
        raise ValueError(
            f"alpha='auto' needs rows to hold out, got {len(order)} rows that can be left out: pass a number for alpha"
        )
    places = (np.arange(size) + rng.random()) * (len(order) / size)
    return np.sort(order[places.astype(np.int64)])


def _path(problem: Problem) -> Iterator[float]:
    """Decreasing alphas, from about a tenth of the mean squared row norm divided by the smoothness of the loss."""
    gamma = float(problem.loss.smoothness) or 1.0
    strongest = float(np.average(problem.norms, weights=problem.sample_weight)) / max(1.0, gamma)
    alpha = max(0.1 * strongest, 10.0 / problem.n_samples) or 1.0
    alpha = 10.0 ** (math.ceil(2.0 * math.log10(alpha)) / 2.0)
    while alpha > _LEAST / problem.n_samples:
        yield float(f"{alpha:.6g}")
        alpha *= _STEP


def _fit(
    problem: Problem, solver: Solver | None, state: tuple[str, State] | None, seed: int, max_iter: int | None
) -> Result:
    ready = (choose(problem) if solver is None else solver).prepare(problem)
    if in_ranges(problem, ready):
        return minimize_columns(problem, ready, tol=_TOL, max_iter=max_iter, seed=seed)
    begin = None
    if state is not None and state[0] == lineage(ready) and ready.certified:
        begin = warm_state(problem, ready, state[1])
    return minimize(problem, ready, tol=_TOL, max_iter=max_iter, seed=seed, state=begin, warn=False)


class _Judge:
    """The score on the held-out rows: accuracy, micro-F1 (multilabel) or minus the mean squared error (regression)."""

    def __init__(self, problem: Problem, held: Array) -> None:
        rows, shape = problem.rows, (problem.n_samples, problem.n_features)
        if isinstance(rows, CSRRows):
            self._X: Any = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=shape, copy=False)[held]
        else:
            self._X = rows.x[held]
        self._problem, self._held = problem, held
        self._weights = np.asarray(problem.sample_weight, np.float64)[held]

    def standard_error(self, score: float) -> float:
        """Standard error of an accuracy or F1 on the held-out rows; 1 % of a mean squared error."""
        if score < 0:
            return 0.01 * abs(score)
        return math.sqrt(score * (1.0 - score) / len(self._held))

    def __call__(self, result: Result) -> float:
        targets, n_threads = self._problem.targets, self._problem.n_threads
        scorer = Scorer(result.weights, np.asarray(result.intercept))
        if isinstance(targets, RealTargets):
            errors = (scorer.scores(self._X, n_threads) - targets.y[self._held]) ** 2
            return -float(np.average(errors.mean(axis=1), weights=self._weights))
        if isinstance(targets, ClassTargets):
            right = scorer.best(self._X, 1, n_threads)[0][:, 0] == targets.y[self._held]
            return float(np.average(right, weights=self._weights))
        K = self._problem.n_outputs
        ones = np.ones(len(targets.indices), np.int8)
        shape = (self._problem.n_samples, K)
        truth = sp.csr_matrix((ones, targets.indices, targets.indptr), shape=shape)[self._held]
        if K > 1 and np.all(np.diff(targets.indptr) == 1):
            right = scorer.best(self._X, 1, n_threads)[0][:, 0] == truth.indices
            return float(np.average(right, weights=self._weights))
        found = scorer.positive(self._X, n_threads)
        if K == 1:
            right = np.asarray((found != truth).todense())[:, 0] == 0
            return float(np.average(right, weights=self._weights))
        common = float(found.multiply(truth).sum())
        return 2.0 * common / max(float(found.sum() + truth.sum()), 1.0)

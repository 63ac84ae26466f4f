"""``alpha="auto"``: choose alpha by the score on held-out rows."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.rows import CSRRows
from manyclass.kernels.scoring import Scorer
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets
from manyclass.objective.intercept import first_intercept
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.choice import choose, in_ranges
from manyclass.optimize.columns import minimize_columns
from manyclass.optimize.loop import Outcome, Result, minimize
from manyclass.solvers import Solver, State
from manyclass.solvers.dual.warm import lineage, warm_state

__all__ = ["AlphaSearch", "search_alpha"]

#: Fraction of the rows that is held out, and the maximum number of held-out rows, enough for a small standard error.
_FRACTION, _MOST = 0.2, 20_000
#: Ratio of neighboring alphas, the number of such steps between alphas of the walk, and the largest number from the
#: first alpha.
_RATIO, _STRIDE, _FARTHEST = 10**0.5, 2, 8
#: Relative duality gap of the fits of the search: small enough to compare accuracies, and to compare squared errors.
_TOL, _TOL_REAL = 3e-2, 3e-3
#: Most iterations of the first fit of the search; the others may take twice those of the best one, or `_FEW`.
_ITERATIONS, _FEW = 30, 6
#: Standard errors by which a weaker penalty must be better; if its fit is far from its optimum; and the rise of the
#: score for which one more fit is worth while.
_ERRORS, _ERRORS_FAR, _RISE = 1.0, 2.0, 0.002


class AlphaSearch(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    alpha : float
        The largest alpha with a score that no smaller one exceeds by more than chance.
    scores : dict of float to float
        Score by alpha, the largest alpha first.
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
    """Fit without the held-out rows for a few alphas, and keep the one with the best score on these rows.

    The search starts at an alpha that suits the loss (`_center`), tries a tenth of it, then a tenth of that, as long as
    the score gets better by more than chance, or else ten times it, a hundred times it and so on. At last it tries an
    alpha between the best one and its better neighbor, if a parabola through the three scores has its top there. It
    does not go on to a smaller alpha from one whose fit is far from its optimum after a limited number of iterations.
    Held-out rows have sample weight zero, so that no rows are copied, and each fit is warm-started from the best one.

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
    search = _Search(unit, solver, seed, max_iter)
    with suppress(_Interrupted):
        search.run()
    scores = dict(sorted(search.scores.items(), reverse=True))
    return AlphaSearch(search.alpha(search.best), scores, search.kept, search.interrupted)


class _Interrupted(Exception):
    """Ctrl-C ended a fit."""


class _Search:
    """The state of a search. Alphas have numbers: alpha number k is the first one times ``_RATIO**-k``."""

    def __init__(self, unit: Problem, solver: Solver | None, seed: int, max_iter: int | None) -> None:
        held = held_out_rows(unit, np.random.default_rng([seed, unit.n_samples]))
        weights = np.array(unit.sample_weight, np.float64)
        weights[held] = 0.0
        self._training, self._judge = replace(unit, sample_weight=weights), _Judge(unit, held)
        self._center, self._solver, self._seed, self._max_iter = _center(self._training), solver, seed, max_iter
        self._tol = _TOL_REAL if isinstance(unit.targets, RealTargets) else _TOL
        self._found: dict[int, _Score] = {}
        self.scores: dict[float, float] = {}
        self.best, self._iterations = 0, 0
        self.kept: tuple[str, State] | None = None
        self.interrupted = False

    def alpha(self, number: int) -> float:
        return float(f"{self._center * _RATIO**-number:.6g}")

    def run(self) -> None:
        """Weaker penalties, or else stronger ones; then one between."""
        self._try(0)
        for stride in (_STRIDE, -_STRIDE):
            number = self.best + stride
            while abs(number) <= _FARTHEST:
                near = self._try(number)
                if self.best != number or (stride > 0 and not near):
                    break
                number += stride
            if self.best:
                break
        between = self._between()
        if between is not None:
            self._try(between)

    def _between(self) -> int | None:
        """An alpha beside the best one, on the side where a parabola through the scores around it rises enough."""
        stronger, weaker = (self._found.get(self.best + step) for step in (-_STRIDE, _STRIDE))
        if stronger is None or weaker is None:
            return self.best + (_STRIDE // 2 if stronger is None else -(_STRIDE // 2))
        best, slope = self._found[self.best].score, 0.5 * (weaker.score - stronger.score)
        bend = 2.0 * best - weaker.score - stronger.score
        rise = 0.5 * slope * slope / bend if bend > 0 else math.inf
        if rise < _RISE * (1.0 if best >= 0 else -best):
            return None
        return self.best + (_STRIDE // 2 if slope > 0 else -(_STRIDE // 2))

    def _try(self, number: int) -> bool:
        """Fit and judge one alpha; whether the fit came near its optimum."""
        problem = replace(self._training, lam=self._training.lam * self.alpha(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = self._fit(problem)
        self._found[number] = found = self._judge(result)
        self.scores[self.alpha(number)] = found.score
        near = not result.certificate.relative_gap > self._tol
        if number == self.best or self._is_better(number, near):
            self.best, self._iterations = number, result.n_iter
            self.kept = (lineage(result.solver), result.state) if result.state else None
        if result.outcome is Outcome.INTERRUPTED:
            self.interrupted = True
            raise _Interrupted
        return near

    def _is_better(self, number: int, near: bool) -> bool:
        """Whether an alpha is to be preferred to the best one so far: the larger one unless that is worse, the smaller
        one if it is better by more than chance."""
        found, best = self._found[number], self._found[self.best]
        if number < self.best:
            return found.score >= best.score
        return found.score > best.score + (_ERRORS if near else _ERRORS_FAR) * found.error_beside(best)

    def _fit(self, problem: Problem) -> Result:
        ready = (choose(problem) if self._solver is None else self._solver).prepare(problem)
        limit = min(ready.default_max_iter if self._max_iter is None else self._max_iter, self._iterations_allowed())
        if in_ranges(problem, ready):
            return minimize_columns(problem, ready, tol=self._tol, max_iter=limit, seed=self._seed)
        begin = None
        if self.kept is not None and self.kept[0] == lineage(ready) and ready.certified:
            begin = warm_state(problem, ready, {name: np.array(part) for name, part in self.kept[1].items()})
        return minimize(problem, ready, tol=self._tol, max_iter=limit, seed=self._seed, state=begin, warn=False)

    def _iterations_allowed(self) -> int:
        return max(_FEW, 2 * self._iterations) if self._found else _ITERATIONS


def held_out_rows(problem: Problem, rng: np.random.Generator) -> Array:
    """Indices of the held-out rows, sorted: a fifth of each class, but never the only row of a class."""
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


def _center(problem: Problem) -> float:
    """The first alpha: the mean squared norm of the rows divided by their number, and a tenth of that for losses that
    give probabilities, which go on pushing rows away that are on the right side. With an l1 part, a tenth of what makes
    all weights zero."""
    if not isinstance(problem.penalty, L2):
        dual = np.empty((problem.n_samples, problem.n_outputs), problem.dtype)
        V = np.zeros((problem.n_features, problem.n_outputs), problem.dtype)
        problem.respond(V, first_intercept(problem), dual)
        problem.pull(dual, V)
        l1 = 1.0 if isinstance(problem.penalty, L1) else float(problem.penalty.threshold)
        return 0.1 * float(np.abs(V).max(initial=0.0)) / l1 or 1.0
    scale = float(np.average(problem.norms, weights=problem.sample_weight)) / problem.n_samples
    return scale * (0.1 if problem.loss.probability else 1.0) or 1.0


class _Score(NamedTuple):
    """A score, and those of the held-out rows if it is their mean."""

    score: float
    parts: Array | None = None

    def error_beside(self, other: _Score) -> float:
        """Standard error of the difference of two scores on the same rows; 1 % of a score that is no mean."""
        if self.parts is None or other.parts is None:
            return 0.01 * abs(other.score)
        return float(np.std(self.parts - other.parts)) / math.sqrt(len(self.parts))


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

    def __call__(self, result: Result) -> _Score:
        targets, n_threads = self._problem.targets, self._problem.n_threads
        scorer = Scorer(result.weights, np.asarray(result.intercept))
        if isinstance(targets, RealTargets):
            errors = (scorer.scores(self._X, n_threads) - targets.y[self._held]) ** 2
            return self._mean(-errors.mean(axis=1))
        if isinstance(targets, ClassTargets):
            return self._mean(scorer.best(self._X, 1, n_threads)[0][:, 0] == targets.y[self._held])
        K = self._problem.n_outputs
        ones = np.ones(len(targets.indices), np.int8)
        shape = (self._problem.n_samples, K)
        truth = sp.csr_matrix((ones, targets.indices, targets.indptr), shape=shape)[self._held]
        if K > 1 and np.all(np.diff(targets.indptr) == 1):
            return self._mean(scorer.best(self._X, 1, n_threads)[0][:, 0] == truth.indices)
        found = scorer.positive(self._X, n_threads)
        if K == 1:
            return self._mean(np.asarray((found != truth).todense())[:, 0] == 0)
        common = float(found.multiply(truth).sum())
        return _Score(2.0 * common / max(float(found.sum() + truth.sum()), 1.0))

    def _mean(self, parts: Array) -> _Score:
        parts = parts.astype(np.float64)
        return _Score(float(np.average(parts, weights=self._weights)), parts)

"""``alpha="auto"``: choose alpha by the score on held-out rows."""

from __future__ import annotations

import math
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets, RealTargets, alike
from manyclass.objective.history import FitProgress
from manyclass.objective.intercept import first_intercept
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.choice import choose, in_ranges
from manyclass.optimize.columns import minimize_columns
from manyclass.optimize.loop import Outcome, Result, minimize
from manyclass.optimize.validation import Judge, Score, held_out_rows
from manyclass.runtime.arrays import copied
from manyclass.runtime.memory import require
from manyclass.solvers import Solver, State
from manyclass.solvers.base import row_matrix
from manyclass.solvers.dual.accelerated import AcceleratedSDCA
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.sdca import SDCA
from manyclass.solvers.dual.warm import lineage, warm_state

__all__ = ["FRACTION", "AlphaSearch", "search_alpha"]

#: Fraction of the rows that is held out.
FRACTION = 0.2
#: Ratio of neighboring alphas, the number of such steps between alphas of the walk, and the largest number from the
#: first alpha.
_RATIO, _STRIDE, _FARTHEST = 10**0.5, 2, 8
#: Relative duality gap of the fits of the search: small enough to compare accuracies, and to compare squared errors.
_TOL, _TOL_REAL = 3e-2, 3e-3
#: Most iterations of the first fit of the search; the others may take twice those of the best one, or `_FEW`; with
#: active sets on all rows `_FEW`, because fits of this length rank alphas as longer ones do.
_ITERATIONS, _FEW = 30, 6
#: Rows and classes that are enough for a search with active sets of rivals, and the most rows that are copied for it.
_ROWS, _CLASSES, _COPIED = 30_000, 200, 120_000
#: Standard errors by which a weaker penalty must be better; if its fit is far from its optimum; and the rise of the
#: score for which one more fit is worth while.
_ERRORS, _ERRORS_FAR, _RISE = 1.0, 2.0, 0.002
#: The rise at the last alpha that is told, in units of that.
_TOLD = 5.0


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
    held : ndarray of int or None
        The held-out rows, sorted: no fit of the search, and so not ``state`` either, knows them. None, and no
        ``state``, of a search with some of the classes.
    interrupted : bool
        Whether Ctrl-C ended the search.
    rising : str or None
        A sentence, where the score was still rising, by more than chance and by a point, at the weakest or strongest
        penalty that was tried: a better one may lie beyond.
    """

    alpha: float
    scores: dict[float, float]
    state: tuple[str, State] | None
    held: Array | None
    interrupted: bool
    rising: str | None = None


def search_alpha(
    unit: Problem, solver: Solver | None, *, seed: int, max_iter: int | None, verbose: int = 0
) -> AlphaSearch:
    """Fit without the held-out rows for a few alphas, and keep the one with the best score on these rows.

    The search starts at an alpha that suits the loss (`_center`), tries a tenth of it, then a tenth of that, as long as
    the score gets better by more than chance, or else ten times it, a hundred times it and so on. At last it tries an
    alpha between the best one and its better neighbor, if a parabola through the three scores has its top there. It
    does not go on to a smaller alpha from one whose fit is far from its optimum after a limited number of iterations.
    Held-out rows have sample weight zero, so that no rows are copied, and each fit is warm-started from the best one.

    A classifier's fit by dual ascent ends where the score no longer changes (`_Settled`), with active sets of rivals
    (`ActiveSetSDCA`) from one search for rivals to the next: accuracy is final long before the gap is small, and a
    certificate takes as long as an epoch. Each fit takes long with active sets: none between the last alpha that was
    tried and its neighbor, if the score still rises at the last. Of many rows and classes the search takes some of the
    classes with all their rows, see `_some_classes`.

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
    verbose : int, default=0
        Above 0, a line on standard error for each alpha, and before these if the search takes some of the classes.
    """
    search = _Search(unit, solver, seed, max_iter, verbose)
    with suppress(_Interrupted):
        search.run()
    scores = dict(sorted(search.scores.items(), reverse=True))
    rising = None if search.interrupted else search.rising()
    kept, held = (search.kept, search.held) if search.whole else (None, None)
    return AlphaSearch(search.alpha(search.best), scores, kept, held, search.interrupted, rising)


class _Interrupted(Exception):
    """Ctrl-C ended a fit."""


class _Settled:
    """Ends a fit: whether the score has changed by less than `_RISE` since the epoch before; with active sets, risen by
    less since the search for rivals before. ``score`` is that of the start.
    """

    def __init__(self, judge: Judge, solver: Solver, score: float) -> None:
        self._judge, self._solver, self._score = judge, solver, score

    def __call__(self, progress: FitProgress) -> bool:
        active = isinstance(self._solver, ActiveSetSDCA)
        if active and not self._solver.passes_after(progress.iteration + 1):  # before the next one
            return False
        before, self._score = self._score, self._judge(*progress.weights()).score
        rise = self._score - before
        return (rise if active else abs(rise)) < _RISE  # a few epochs after a warm start may lower the score


class _Search:
    """The state of a search. Alphas have numbers: alpha number k is the first one times ``_RATIO**-k``."""

    def __init__(self, unit: Problem, solver: Solver | None, seed: int, max_iter: int | None, verbose: int) -> None:
        rng = np.random.default_rng([seed, unit.n_samples])
        ready = _ready(unit, solver)
        self._solver, self._seed, self._max_iter = solver, seed, max_iter
        part = _some_classes(unit, rng) if isinstance(ready, ActiveSetSDCA) else None
        l2 = isinstance(unit.penalty, L2)
        self._center = _center(unit if l2 or part is None else part, isinstance(ready, ActiveSetSDCA))
        self.whole = part is None
        if part is None:
            part = unit
        elif verbose:
            rows = f"{part.n_samples} of {unit.n_samples} rows"
            sys.stderr.write(f"alpha='auto' searches with {part.n_outputs} of {unit.n_outputs} classes, {rows}\n")
        self.held = held = held_out_rows(part.targets, part.sample_weight, rng, FRACTION, "alpha='auto'")
        weights = np.array(part.sample_weight, np.float64)
        weights[held] = 0.0
        self._training, self._judge = replace(part, sample_weight=weights), Judge.of(part, held)
        ready = _ready(self._training, solver)
        self._training, self._active = ready.readable(self._training), isinstance(ready, ActiveSetSDCA)
        self._tol = _TOL_REAL if isinstance(unit.targets, RealTargets) else _TOL
        self._verbose = verbose
        self._found: dict[int, Score] = {}
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
            long = self._active and self.whole
            return None if long else self.best + (_STRIDE // 2 if stronger is None else -(_STRIDE // 2))
        best, slope = self._found[self.best].score, 0.5 * (weaker.score - stronger.score)
        bend = 2.0 * best - weaker.score - stronger.score
        rise = 0.5 * slope * slope / bend if bend > 0 else math.inf
        if rise < _worth(best):
            return None
        return self.best + (_STRIDE // 2 if slope > 0 else -(_STRIDE // 2))

    def rising(self) -> str | None:
        """Say that the best alpha is the first or last that was tried, if its score is better by more than chance, and
        by a point, or 1 % of the squared error.

        On ICD-10-CM the score rises by 0.7 points at the last alpha, and a tenth of that adds 0.07 on other rows.
        """
        tried = sorted(self._found)
        if len(tried) == 1 or self.best not in (tried[0], tried[-1]):
            return None
        weakest = self.best == tried[-1]
        near = tried[-2] if weakest else tried[1]
        found, beside = self._found[self.best], self._found[near]
        if found.score - beside.score <= max(_error_beside(found, beside), _TOLD * _worth(beside.score)):
            return None
        alpha, word = self.alpha(self.best), "smaller" if weakest else "larger"
        return (
            f"alpha='auto' took {alpha:g}, the {word[:-1]}st that it tried, where the score on held-out rows was still "
            f"rising ({beside.score:.4g} at {self.alpha(near):g}, {found.score:.4g} here): a {word} one may be better. "
            f"Compare the score with alpha={alpha * (0.1 if weakest else 10.0):g}; where columns differ in scale, "
            "standardize them"
        )

    def _try(self, number: int) -> bool:
        """Fit and judge one alpha; whether the fit came near its optimum."""
        problem = replace(self._training, lam=self._training.lam * self.alpha(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            begun = time.perf_counter()
            result = self._fit(problem)
        self._found[number] = found = self._judge(result.weights, result.intercept)
        self.scores[self.alpha(number)] = found.score
        if self._verbose:
            words = f"alpha {self.alpha(number):<12g} held-out score {found.score:>8.4f}"
            sys.stderr.write(f"{words} {result.n_iter:>6} epochs {time.perf_counter() - begun:>8.2f} s\n")
        gap = result.certificate.relative_gap  # NaN without a certificate
        near = result.outcome is Outcome.STOPPED or gap <= self._tol or (self._active and not gap > self._tol)
        if number == self.best or self._is_better(number, near):
            self.best, self._iterations = number, result.n_iter
            self.kept = (lineage(result.solver), result.state) if result.state else None
        if result.outcome is Outcome.INTERRUPTED:
            self.interrupted = True
            raise _Interrupted
        return near

    def _is_better(self, number: int, near: bool) -> bool:
        """Whether an alpha is to be preferred to the best one so far: the larger one unless that is worse, the smaller
        one if it is better by more than chance, and by something: the fits of a smaller one take longer."""
        found, best = self._found[number], self._found[self.best]
        if number < self.best:
            return found.score >= best.score
        chance = (_ERRORS if near else _ERRORS_FAR) * _error_beside(found, best)
        return found.score > best.score + max(chance, 0.5 * _worth(best.score))

    def _fit(self, problem: Problem) -> Result:
        ready = _ready(problem, self._solver)
        limit = min(ready.default_max_iter if self._max_iter is None else self._max_iter, self._iterations_allowed())
        if in_ranges(problem, ready):
            return minimize_columns(problem, ready, tol=self._tol, max_iter=limit, seed=self._seed)
        begin, settled, every = None, None, None
        if self.kept is not None and self.kept[0] == lineage(ready) and ready.certified:
            size = sum(int(getattr(part, "nbytes", 0)) for part in self.kept[1].values())
            require({"a copy of what the next fit of the search starts from": size}, "a number for alpha")
            copy = {name: copied(part) for name, part in self.kept[1].items()}
            begin = warm_state(problem, ready, copy, rough=True)
        if isinstance(ready, ActiveSetSDCA):
            settled = _Settled(self._judge, ready, -math.inf if begin is None else self._found[self.best].score)
        elif type(ready) in (SDCA, AcceleratedSDCA) and not isinstance(problem.targets, RealTargets):
            settled = _Settled(self._judge, ready, -math.inf)
            every = limit + 1 if type(ready) is SDCA else None  # acceleration is steered by its certificates
        return minimize(
            problem,
            ready,
            tol=self._tol,
            max_iter=limit,
            seed=self._seed,
            state=begin,
            warn=False,
            check_every=every,
            certify=settled is None,
            callback=settled,
        )

    def _iterations_allowed(self) -> int:
        if not self._found or not self.whole:  # fits with some of the classes are short
            return _ITERATIONS
        return _FEW if self._active else max(_FEW, 2 * self._iterations)


def _ready(problem: Problem, solver: Solver | None) -> Solver:
    return (choose(problem) if solver is None else solver).prepare(problem)


def _some_classes(unit: Problem, rng: np.random.Generator) -> Problem | None:
    """The problem of classes drawn at random, with all their rows and the same weight of a row against the penalty:
    `_ROWS` rows or more, of `_CLASSES` classes or more. None: it would have most rows, or more than `_COPIED`.

    A margin has one rival at a time, so that an alpha that suits many classes suits some of them; more rows of all
    classes would be no substitute, as the best alpha depends on their number in a class. Not for losses to which all
    other classes contribute: the more there are, the smaller the alpha that they want.
    """
    targets, K = unit.targets, unit.n_outputs
    if not isinstance(targets, ClassTargets) or unit.standard is not None or unit.shift is not None:
        return None
    present = np.bincount(targets.y, np.asarray(unit.sample_weight) > 0, minlength=K)
    order = rng.permutation(np.flatnonzero(present))
    enough = int(np.searchsorted(np.cumsum(present[order]), _ROWS)) + 1
    chosen = np.sort(order[: max(_CLASSES, enough)])
    number = np.full(K, -1)
    number[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(number[targets.y] >= 0)
    if len(rows) > min(unit.n_samples // 2, _COPIED):
        return None
    loss = unit.loss
    if len(loss.costs):
        every = slice(None) if len(loss.costs) == 1 else chosen[:, None]
        loss = loss._replace(costs=alike(loss.costs, loss.costs[every, chosen]))
    weights = np.asarray(unit.sample_weight, np.float64)[rows]
    return replace(
        unit,
        rows=make_rows(row_matrix(unit)[rows]),
        targets=ClassTargets(alike(targets.y, number[targets.y[rows]]), len(chosen)),
        loss=loss,
        lam=unit.lam * unit.n_samples / float(weights.sum()),
        sample_weight=weights,
    )


def _center(problem: Problem, many: bool) -> float:
    """The first alpha: the mean squared norm of the rows divided by their number, without those of weight zero; a tenth
    of that for losses that give probabilities, which go on pushing rows away that are on the right side, and for
    ``many`` classes, where a larger one costs accuracy sooner than a smaller one, and the more classes there are, the
    sooner. With an l1 part, a tenth of what makes all weights zero, which takes an array of rows by classes."""
    if not isinstance(problem.penalty, L2):
        n, d, K, size = problem.n_samples, problem.n_features, problem.n_outputs, problem.dtype.itemsize
        require({"gradients of the scores": n * K * size, "their sum": d * K * size}, "a number for alpha")
        dual, V = np.empty((n, K), problem.dtype), np.zeros((d, K), problem.dtype)
        problem.respond(V, first_intercept(problem), dual)
        problem.pull(dual, V)
        l1 = 1.0 if isinstance(problem.penalty, L1) else float(problem.penalty.threshold)
        return 0.1 * float(np.abs(V).max(initial=0.0)) / l1 or 1.0
    mean = float(np.average(problem.norms, weights=problem.sample_weight))
    scale = mean / int(np.count_nonzero(np.asarray(problem.sample_weight)))
    return scale * (0.1 if many or problem.loss.probability else 1.0) or 1.0


def _worth(score: float) -> float:
    """The rise of a score for which one more fit is worth while."""
    return _RISE * (1.0 if score >= 0 else -score)


def _error_beside(one: Score, other: Score) -> float:
    """Standard error of the difference of two scores on the same rows; 1 % of a score that is no mean."""
    if one.parts is None or other.parts is None:
        return 0.01 * abs(other.score)
    return float(np.std(one.parts - other.parts)) / math.sqrt(len(one.parts))

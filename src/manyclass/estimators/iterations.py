"""The loop of the fits of log-linear models: records, held-out examples, callbacks, and what is said at the end."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass.objective.history import FitProgress, History, Record, Reporter, tell
from manyclass.objective.problem import Array, Certificate
from manyclass.optimize.scale import bad_norm, warn_of_zeros
from manyclass.optimize.validation import Validation
from manyclass.solvers.bound.majorization import BoundMajorization
from manyclass.solvers.bound.steps import Steps
from manyclass.solvers.primal.descent import DescentSolver
from manyclass.solvers.primal.on_values import Smooth, on_values

__all__ = ["BoundEngine", "DescentEngine", "Engine", "run"]


class Engine(Protocol):
    """A solver on an objective with an l2 penalty."""

    @property
    def point(self) -> Array:
        """The parameters after the last iteration, in an array that later iterations do not change."""

    @property
    def lam(self) -> float:
        """Strength of the penalty."""

    @property
    def mean(self) -> float:
        """Mean squared norm of the rows of features."""

    def advance(self) -> int:
        """Run one iteration, whose number of passes over the data is returned. The point changes at its end only."""

    def certificate(self) -> Certificate:
        """The objective at the point, and the lower bound that strong convexity gives there."""

    def move(self, point: Array) -> None:
        """Go on from another point."""


class DescentEngine:
    """One of `DESCENTS` on an objective with values and gradients."""

    _known: Certificate | None

    def __init__(self, solver: DescentSolver, smooth: Smooth, point: Array | None = None) -> None:
        self._solver, self._smooth = on_values(solver), smooth
        self._state = self._solver.state(smooth)  # type: ignore[arg-type]
        self.move(self._state["point"] if point is None else point)

    @property
    def point(self) -> Array:
        return self._state["point"]

    @property
    def lam(self) -> float:
        return self._smooth.lam

    @property
    def mean(self) -> float:
        return self._smooth.curvature

    def advance(self) -> int:
        before = float(self._state["passes"])
        self._known = next(self._steps).estimate
        return round(float(self._state["passes"]) - before)

    def certificate(self) -> Certificate:
        return self._smooth.certificate(self.point) if self._known is None else self._known

    def move(self, point: Array) -> None:
        self._state.update(point=point.copy(), iteration=np.zeros((), np.int64), passes=np.zeros(()))
        self._steps = self._solver.iterate(self._smooth, self._state, 0)  # type: ignore[arg-type]
        self._known = None


class BoundEngine:
    """`BoundMajorization` on label sets with features, from 0 or, without a stochastic pass, from another point."""

    def __init__(
        self, solver: BoundMajorization, steps: Steps, mean: float, seed: int, point: Array | None = None
    ) -> None:
        self._solver, self._steps, self.mean, self._seed = solver, steps, mean, seed
        self._state = solver.start(steps.form)
        if point is not None:
            self.move(point)
            self._state = solver.resumed(self._state)

    @property
    def point(self) -> Array:
        return self._state["point"]

    @property
    def lam(self) -> float:
        return self._steps.lam

    def advance(self) -> int:
        passes = self._solver.advance(self._steps, self._state, self._seed)
        self._state["iteration"] = np.asarray(self._state["iteration"] + 1)
        return passes

    def certificate(self) -> Certificate:
        scores = self._state["scores"]
        value, slope = self._steps.value(self.point, scores), self._steps.gradient(self.point, scores)
        return Certificate(value, value - float(np.vdot(slope, slope)) / (2.0 * self.lam))

    def move(self, point: Array) -> None:
        self._state.update(point=point, scores=self._steps.scores(point))


def run(
    engine: Engine,
    history: History,
    validation: Validation | None,
    tol: float,
    max_iter: int,
    verbose: int,
    callback: Callable[[FitProgress], Any] | None = None,
) -> None:
    """Iterate until tol, max_iter, the patience of a validation, a callback or an interrupt, and warn if need be.

    Parameters
    ----------
    engine : Engine
        At its end it has the last point, or, where a validation ended the fit, the best one.
    history : History
        Empty; its ``outcome`` becomes "converged", "max_iter", "patience", "stopped" or "interrupted".
    validation : Validation, optional
        What scores held-out examples after each iteration.
    tol, max_iter, verbose
        As in `LogLinearModel`.
    callback : callable, optional
        See `LinearClassifier.fit`.
    """
    history.outcome = "max_iter"
    begun, seconds, passes, iteration = time.perf_counter(), 0.0, 0, 0

    def record() -> None:
        found, elapsed = engine.certificate(), time.perf_counter() - begun
        facts = found.primal, found.dual, found.gap, found.relative_gap
        history.records.append(Record(iteration, passes, *facts, seconds, elapsed))

    shown = Reporter(verbose, tol, max_iter)
    try:
        with shown:
            while history.outcome == "max_iter" and iteration < max_iter:
                before = time.perf_counter()
                passes += engine.advance()
                seconds += time.perf_counter() - before
                iteration, score = iteration + 1, None
                record()
                weights = engine.point, np.zeros(engine.point.shape[1])
                if validation is not None:
                    history.validation.append(validation.look(iteration, seconds, *weights))
                    score = history.validation[-1].score
                if history.last.relative_gap <= tol:
                    history.outcome = "converged"
                elif validation is not None and validation.over(iteration):
                    history.outcome = "patience"
                finished = history.outcome != "max_iter" or iteration >= max_iter
                now = partial(lambda found: found, weights)
                if tell(shown, callback, history.last, score=score, finished=finished, weights=now):
                    history.outcome = "stopped" if history.outcome == "max_iter" else history.outcome
        if history.outcome == "patience" and validation is not None and validation.best is not None:
            engine.move(validation.best[0])
    except KeyboardInterrupt:
        history.outcome = "interrupted"
        record()
    _say_end(history, tol, engine)


def _say_end(history: History, tol: float, engine: Engine) -> None:
    """Warn if the fit did not converge, or converged to nothing; the warning is of the line that calls ``fit``."""
    if history.outcome == "converged":
        warn_of_zeros(engine.mean, engine.lam, stacklevel=5)
    elif history.outcome not in ("patience", "stopped"):
        ended = "max_iter was reached before tol" if history.outcome == "max_iter" else "interrupted"
        warnings.warn(
            f"{ended}: after {history.last.iteration} iterations the relative gap is "
            f"{history.last.relative_gap:.2e}, tol is {tol:g}: "
            f"{bad_norm(engine.mean) or 'raise max_iter, alpha or tol'}",
            ConvergenceWarning,
            stacklevel=4,
        )

"""What the files of this folder share: a fit of SDCAClassifier, and the epochs of a solver one by one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Data, shrink
from benchmarks.measure import Stopwatch, quiet
from benchmarks.task import Fit, Stop, Task

if TYPE_CHECKING:
    from manyclass.objective.problem import Problem

__all__ = ["Point", "fit", "refuses", "trace"]

#: Most weights that are made an array to be judged.
_JUDGED = 2**30
SEPARABLE = ("log_loss", "hinge", "smooth_hinge", "squared_hinge")


def refuses(task: Task) -> str | None:
    if task.l1_ratio >= 1:
        return "the dual needs a strongly convex part: l1_ratio must be below 1"
    return None


def fit(solver: str, data: Data, task: Task, stop: Stop, *, threads: int, seed: int) -> Fit:
    """``SDCAClassifier.fit``; compiled, or loaded from the cache, on a few rows first."""
    from manyclass.solvers.dual import _image

    # Few rows have few classes: compiled is what the weights of all of them are held in.
    large = data.X.shape[1] * data.n_classes * data.X.dtype.itemsize > _image._DENSE_BYTES
    with quiet():
        few = shrink(data, 200)
        with patch.object(_image, "_DENSE_BYTES", -1 if large else _image._DENSE_BYTES):
            _estimator(solver, task, Stop(max_iter=1), threads, seed).fit(few.X, few.y)
        model = _estimator(solver, task, stop, threads, seed)
        with Stopwatch() as watch:
            model.fit(data.X, data.y)
    history = model.history_
    last = history.last
    intercept = np.asarray(model.intercept_)
    # The judge of objectives reads arrays, of a size that fits; the clock has stopped.
    kept = model.model_.weights
    weights = (kept.toarray() if math.prod(kept.shape) <= _JUDGED else None) if sp.issparse(kept) else kept
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=model.predict,
        weights=weights,
        intercept=intercept,
        model_bytes=model.model_.nbytes,
        iterations=int(model.n_iter_),
        solver_seconds=last.seconds,
        compile_seconds=history.compile_seconds,
        certificate={"primal": last.primal, "dual": last.dual, "relative_gap": last.relative_gap},
    )


def _estimator(solver: str, task: Task, stop: Stop, threads: int, seed: int) -> Any:
    from manyclass import SDCAClassifier

    return SDCAClassifier(
        loss=task.objective,
        alpha=task.alpha,
        l1_ratio=task.l1_ratio,
        gamma=task.gamma,
        fit_intercept=task.intercept,
        solver=solver,
        random_state=seed,
        n_jobs=threads,
        **stop.given(),
    )


@dataclass(frozen=True)
class Point:
    """One epoch of a solver done.

    Attributes
    ----------
    epoch : int
    seconds : float
        Time in the solver so far; what is done with a point is off the clock.
    weights : ndarray or CSR matrix of shape (d, K)
    intercept : ndarray
        Live: valid until the next point is asked for.
    certificate : dict
        As in `Fit`, at the last epoch and where the solver certifies itself as it goes.
    """

    epoch: int
    seconds: float
    weights: Any
    intercept: Any
    certificate: dict[str, float]


def trace(solver: str, data: Data, task: Task, epochs: int, *, threads: int, seed: int) -> Iterator[Point]:
    """The points of a run on the loss multinomial or crammer_singer; compiled on a few rows first."""
    # One level below the estimator: it does not show its weights between epochs.
    from manyclass.kernels.rows import CSRRows
    from manyclass.optimize.choice import make_solver
    from manyclass.solvers import ActiveSetSDCA

    problem = _problem(data, task, threads)
    method = make_solver(solver, problem)
    # Compiled is what the whole data take, not what few rows would.
    first: Any = method
    if isinstance(method, ActiveSetSDCA) and isinstance(problem.rows, CSRRows):
        first = type(method)(storage="sparse" if "keys" in method.state(problem) else "dense")
    for _ in _points(first, _problem(shrink(data, 200), task, threads), 5, seed):
        pass
    yield from _points(method, problem, epochs, seed)


def _problem(data: Data, task: Task, threads: int) -> Problem:
    from manyclass.kernels.rows import make_rows
    from manyclass.kernels.targets import ClassTargets
    from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss
    from manyclass.objective.penalties import L2
    from manyclass.objective.problem import Problem

    return Problem(
        rows=make_rows(data.X),
        targets=ClassTargets(data.y.astype(np.int32), data.n_classes),
        loss=MultinomialLoss() if task.objective == "multinomial" else CrammerSingerLoss(task.gamma),
        penalty=L2(),
        lam=task.alpha,
        n_features=data.X.shape[1],
        intercept=task.intercept,
        dtype=data.X.dtype,
        n_threads=threads,
    )


def _points(method: Any, problem: Problem, epochs: int, seed: int) -> Iterator[Point]:
    begun = time.perf_counter()
    state = method.state(problem)
    steps = method.iterate(problem, state, seed)
    seconds = time.perf_counter() - begun
    for epoch in range(1, epochs + 1):
        begun = time.perf_counter()
        progress = next(steps)
        seconds += time.perf_counter() - begun
        bound = progress.bound
        if bound is None and epoch == epochs:
            bound = method.certificate(problem, state, final=True)
        known = (
            {}
            if bound is None
            else {
                "primal": bound.primal,
                "dual": bound.dual,
                "relative_gap": bound.relative_gap,
            }
        )
        weights, intercept = method.weights(problem, state)
        yield Point(epoch, seconds, weights, intercept, known)

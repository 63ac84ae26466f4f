"""The epochs of a run of one of our methods, one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from benchmarks.data import Data, shrink
from benchmarks.problem import make_problem
from benchmarks.task import Task

if TYPE_CHECKING:
    from manyclass.objective.problem import Problem

__all__ = ["Point", "trace"]


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
        As in `benchmarks.task.Fit`, at the last epoch and where the solver certifies itself as it goes.
    """

    epoch: int
    seconds: float
    weights: Any
    intercept: Any
    certificate: dict[str, float]


def trace(method: str, data: Data, task: Task, epochs: int, *, threads: int, seed: int) -> Iterator[Point]:
    """The points of a run of a method of ours with a certificate; compiled on a few rows first."""
    # One level below the estimator: it does not show its weights between epochs.
    from benchmarks.methods import METHODS
    from manyclass.optimize.choice import choose
    from manyclass.solvers import ActiveSetSDCA

    problem = _problem(data, task, threads)
    solver = (METHODS[method].solver or choose(problem)).prepare(problem)
    # Compiled is what the whole data take, not what few rows would.
    first = solver.prepare(problem)
    if isinstance(first, ActiveSetSDCA) and sp.issparse(data.X):
        first.set_params(storage="sparse" if "keys" in solver.state(problem) else "dense")
    for _ in _points(first, _problem(shrink(data, 200), task, threads), 5, seed):
        pass
    yield from _points(solver, problem, epochs, seed)


def _problem(data: Data, task: Task, threads: int) -> Problem:
    return make_problem(data.X, data.y, task, n_classes=data.n_classes, threads=threads)


def _points(solver: Any, problem: Problem, epochs: int, seed: int) -> Iterator[Point]:
    begun = time.perf_counter()
    state = solver.state(problem)
    steps = solver.iterate(problem, state, seed)
    seconds = time.perf_counter() - begun
    for epoch in range(1, epochs + 1):
        begun = time.perf_counter()
        progress = next(steps)
        seconds += time.perf_counter() - begun
        bound = progress.bound
        if bound is None and epoch == epochs:
            bound = solver.certificate(problem, state, final=True)
        known = {}
        if bound is not None:
            known = {"primal": bound.primal, "dual": bound.dual, "relative_gap": bound.relative_gap}
        weights, intercept = solver.weights(problem, state)
        yield Point(epoch, seconds, weights, intercept, known)

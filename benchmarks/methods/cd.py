"""Coordinate descent with working sets on the weights, for l1 and elastic net penalties."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _primal, _regression
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("squared", *_primal.SEPARABLE)
MULTILABEL = True


def refuses(task: Task) -> str | None:
    if task.objective == "smooth_hinge" and not task.gamma:
        return "needs a smooth loss: gamma must be above 0"
    return None


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from manyclass.solvers import CoordinateDescent

    room = _regression if task.objective == "squared" else _primal
    return room.fit(CoordinateDescent(), data, task, stop, threads=threads, seed=seed)

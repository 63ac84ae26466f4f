"""FISTA on the same problem: accelerated proximal gradient, with backtracking and restart."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _primal, _regression
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("squared", "multinomial", "crammer_singer", *_primal.SEPARABLE)
MULTILABEL = True


def refuses(task: Task) -> str | None:
    return _primal.has_kink(task)


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from manyclass.solvers import FISTA

    room = _regression if task.objective == "squared" else _primal
    return room.fit(FISTA(), data, task, stop, threads=threads, seed=seed)

"""LIBLINEAR itself (liblinear-official): squared hinge with an l1 penalty (solver 5)."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers import _liblinear
from benchmarks.task import Fit, Stop, Task

PACKAGE = _liblinear.PACKAGE
OBJECTIVES = ("squared_hinge",)
_SOLVER = 5

skip_reason, memory = _liblinear.skip_reason, _liblinear.memory


def refuses(task: Task) -> str | None:
    if task.l1_ratio != 1.0:
        return "a pure l1 penalty only"
    return "it penalizes the intercept: another objective" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _liblinear.fit(_SOLVER, data, task, stop)

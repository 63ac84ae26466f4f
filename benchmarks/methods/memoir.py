"""MemoirClassifier: MEMOIR-l2, the multi-class SVM by stochastic steps with exact rivals."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _memoir
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("margin",)

refuses = _memoir.refuses


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _memoir.fit(data, task, stop, threads=threads, seed=seed)

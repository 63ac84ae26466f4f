"""Batch bound majorisation on the same problem."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _primal
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("multinomial",)
MULTILABEL = False


def refuses(task: Task) -> str | None:
    return _primal.has_l1(task)


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from manyclass.solvers import BatchBound

    return _primal.fit(BatchBound(), data, task, stop, threads=threads, seed=seed)

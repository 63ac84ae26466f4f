"""Steepest descent on the same problem."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _primal
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("multinomial", "crammer_singer", *_primal.SEPARABLE)
MULTILABEL = True


def refuses(task: Task) -> str | None:
    return _primal.has_kink(task) or _primal.has_l1(task)


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from manyclass.solvers import GradientDescent

    return _primal.fit(GradientDescent(), data, task, stop, threads=threads, seed=seed)

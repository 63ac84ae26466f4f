"""scikit-learn's LinearSVC(dual=False): squared hinge one-vs-rest in the primal."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers import _linear_svc
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("squared_hinge",)
MULTILABEL = True

refuses, memory = _linear_svc.refuses, _linear_svc.memory


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _linear_svc.fit(data, task, stop, dual=False, threads=threads, seed=seed)


def fit_classes(data: Data, task: Task, stop: Stop, *, classes: list[int], threads: int = 1, seed: int = 0) -> Fit:
    return _linear_svc.fit_classes(data, task, stop, classes=classes, dual=False, seed=seed)

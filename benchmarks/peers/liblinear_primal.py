"""LIBLINEAR itself (liblinear-official): squared hinge in the primal (solver 2)."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers import _liblinear
from benchmarks.task import Fit, Stop, Task

PACKAGE = _liblinear.PACKAGE
OBJECTIVES = ("squared_hinge",)
_SOLVER = 2

skip_reason, refuses, memory = _liblinear.skip_reason, _liblinear.refuses, _liblinear.memory


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _liblinear.fit(_SOLVER, data, task, stop)


def fit_classes(data: Data, task: Task, stop: Stop, *, classes: list[int], threads: int = 1, seed: int = 0) -> Fit:
    return _liblinear.fit_classes(_SOLVER, data, task, stop, classes)

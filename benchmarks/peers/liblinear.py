"""LIBLINEAR itself (liblinear-official): squared hinge (dual, solver 1), hinge, log loss; Crammer-Singer (solver 4)."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers import _liblinear
from benchmarks.task import Fit, Stop, Task

#: Its solver numbers. The primal solver of the squared hinge is `benchmarks.peers.liblinear_primal`.
_SOLVERS = {"log_loss": 0, "squared_hinge": 1, "hinge": 3, "crammer_singer": 4}
PACKAGE = _liblinear.PACKAGE
OBJECTIVES = tuple(_SOLVERS)

skip_reason, refuses, memory = _liblinear.skip_reason, _liblinear.refuses, _liblinear.memory


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _liblinear.fit(_SOLVERS[task.objective], data, task, stop)


def fit_classes(data: Data, task: Task, stop: Stop, *, classes: list[int], threads: int = 1, seed: int = 0) -> Fit:
    return _liblinear.fit_classes(_SOLVERS[task.objective], data, task, stop, classes)

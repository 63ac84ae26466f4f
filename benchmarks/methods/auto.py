"""SDCAClassifier() as it comes: the solver that the library itself chooses."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _sdca
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("multinomial", "crammer_singer", *_sdca.SEPARABLE)
MULTILABEL = True

refuses = _sdca.refuses


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _sdca.fit("auto", data, task, stop, threads=threads, seed=seed)

"""Vowpal Wabbit's probabilistic label tree, its default parameters, ten passes."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers import _vowpal
from benchmarks.peers._common import missing
from benchmarks.task import Fit, Stop, Task

PACKAGE = _vowpal.PACKAGE
OBJECTIVES = ("tree",)


def skip_reason() -> str | None:
    return missing("vowpalwabbit", PACKAGE)


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return _vowpal.fit("plt", data, task, stop, seed=seed, first=0, prediction="--top_k 1")

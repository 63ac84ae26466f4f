"""Bound majorisation, a stochastic pass and then tightened steps, on the same problem."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.methods import _primal
from benchmarks.task import Fit, Stop, Task

PACKAGE = "manyclass"
OBJECTIVES = ("multinomial",)
MULTILABEL = False

#: Parameters up to which the curvature is of full rank; beyond, of rank 8.
_FULL = 4000


def refuses(task: Task) -> str | None:
    return _primal.has_l1(task)


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from manyclass.solvers import BoundMajorization

    rank = None if data.X.shape[1] * data.n_classes <= _FULL else 8
    return _primal.fit(BoundMajorization(rank=rank), data, task, stop, threads=threads, seed=seed)

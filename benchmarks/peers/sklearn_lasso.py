"""scikit-learn's Lasso and ElasticNet: cyclic coordinate descent, stopped on its duality gap."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("squared",)


def skip_reason() -> str | None:
    return missing("sklearn", PACKAGE)


def refuses(task: Task) -> str | None:
    return None if task.l1_ratio else "its coordinate descent wants an l1 part to work on"


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from sklearn.linear_model import ElasticNet, Lasso

    options = {"fit_intercept": task.intercept, "max_iter": 20_000, **stop.given()}
    ratio = task.l1_ratio
    model = Lasso(task.alpha, **options) if ratio == 1 else ElasticNet(task.alpha, l1_ratio=ratio, **options)
    return sklearn_fit(model, data)

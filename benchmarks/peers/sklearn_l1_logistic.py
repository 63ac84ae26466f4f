"""scikit-learn's LogisticRegression with LIBLINEAR's solver for a pure l1 penalty: two classes, no intercept."""

from __future__ import annotations

import inspect

from benchmarks.data import Data
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("log_loss",)


def skip_reason() -> str | None:
    return missing("sklearn", PACKAGE)


def refuses(task: Task) -> str | None:
    if task.l1_ratio != 1:
        return f"its penalty is pure l1, the task's l1_ratio is {task.l1_ratio:g}"
    return "it penalizes the intercept" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from sklearn.linear_model import LogisticRegression

    # Since version 1.8 the l1 norm is asked for by l1_ratio.
    known = inspect.signature(LogisticRegression).parameters["penalty"].default
    l1 = {"penalty": "l1"} if known == "l2" else {"l1_ratio": 1.0}
    model = LogisticRegression(
        solver="liblinear",
        C=task.C(data.n),
        fit_intercept=False,
        random_state=seed,
        **{"max_iter": 10_000, **stop.given()},
        **l1,
    )
    return sklearn_fit(model, data)

"""scikit-learn's LogisticRegression(solver="newton-cholesky"): multinomial, the whole Hessian."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("multinomial",)


def skip_reason() -> str | None:
    return None


def refuses(task: Task) -> str | None:
    return "this solver has no l1 penalty" if task.l1_ratio else None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """The Hessian of all weights and its factor; scores and probabilities."""
    size = data.X.shape[1] * data.n_classes
    return int(itemsize * (2 * size * size + 4 * data.n * data.n_classes))


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=task.C(data.n), solver="newton-cholesky", fit_intercept=task.intercept, random_state=seed, **stop.given()
    )
    return sklearn_fit(model, data)

"""scikit-learn's LogisticRegression(solver="saga"): multinomial, elastic net as well."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("multinomial",)


def skip_reason() -> str | None:
    return None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """Weights and the sum of gradients, each copied once; the slope of each row and class."""
    size = data.X.shape[1] * data.n_classes
    return int(itemsize * (4 * size + data.n * data.n_classes))


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from sklearn.linear_model import LogisticRegression

    # Without l1 the penalty is left at its default: naming it is deprecated in newer versions.
    elastic = {"penalty": "elasticnet", "l1_ratio": task.l1_ratio} if task.l1_ratio else {}
    model = LogisticRegression(
        C=task.C(data.n), solver="saga", fit_intercept=task.intercept, random_state=seed, **elastic, **stop.given()
    )
    return sklearn_fit(model, data)

"""skglm: log loss one-vs-rest with an elastic net (coordinate descent with working sets)."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "skglm"
OBJECTIVES = ("log_loss",)


def skip_reason() -> str | None:
    return missing("skglm", PACKAGE)


def refuses(task: Task) -> str | None:
    return None if task.l1_ratio else "its solver wants an l1 part to work on"


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    import scipy.sparse as sp
    from skglm import SparseLogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    data = data.cast("float64")
    if sp.issparse(data.X):
        data = Data(data.name, data.X.tocsc(), data.y, data.X_test, data.y_test)
    model = SparseLogisticRegression(
        alpha=task.alpha, l1_ratio=task.l1_ratio, fit_intercept=task.intercept, **stop.given()
    )
    return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads), data)

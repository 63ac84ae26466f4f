"""celer's LogisticRegression: log loss one-vs-rest with a pure l1 penalty."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "celer"
OBJECTIVES = ("log_loss",)
MULTILABEL = True


def skip_reason() -> str | None:
    return missing("celer", PACKAGE)


def refuses(task: Task) -> str | None:
    if task.l1_ratio != 1:
        return f"its penalty is pure l1, the task's l1_ratio is {task.l1_ratio:g}"
    return "it has no intercept" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    import scipy.sparse as sp
    from celer import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    data = data.cast("float64")
    if sp.issparse(data.X):
        data = Data(data.name, data.X.tocsc(), data.y, data.X_test, data.y_test)
    model = LogisticRegression(C=task.C(data.n), fit_intercept=False, **stop.given())
    return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads), data)

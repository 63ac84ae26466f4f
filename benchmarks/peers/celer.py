"""celer: log loss one-vs-rest with a pure l1 penalty; squared loss with an elastic net."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "celer"
OBJECTIVES = ("squared", "log_loss")
MULTILABEL = True


def skip_reason() -> str | None:
    return missing("celer", PACKAGE)


def refuses(task: Task) -> str | None:
    if task.objective == "squared":
        return None if task.l1_ratio else "its solver wants an l1 part to work on"
    if task.l1_ratio != 1:
        return f"its penalty is pure l1, the task's l1_ratio is {task.l1_ratio:g}"
    return "it has no intercept" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    import scipy.sparse as sp
    from celer import ElasticNet, Lasso, LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    data = data.cast("float64")
    if sp.issparse(data.X):
        data = Data(data.name, data.X.tocsc(), data.y, data.X_test, data.y_test)
    if task.objective == "squared":
        options = {"fit_intercept": task.intercept, **stop.given()}
        ratio = task.l1_ratio
        net = Lasso(task.alpha, **options) if ratio == 1 else ElasticNet(task.alpha, l1_ratio=ratio, **options)
        return sklearn_fit(net, data)
    model = LogisticRegression(C=task.C(data.n), fit_intercept=False, **stop.given())
    return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads), data)

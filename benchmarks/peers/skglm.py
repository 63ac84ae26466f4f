"""skglm: log loss one-vs-rest, and squared loss, with an elastic net (coordinate descent with working sets)."""

from __future__ import annotations

from benchmarks.data import Data, shrink
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "skglm"
OBJECTIVES = ("squared", "log_loss")
MULTILABEL = True


def skip_reason() -> str | None:
    return missing("skglm", PACKAGE)


def refuses(task: Task) -> str | None:
    return None if task.l1_ratio else "its solver wants an l1 part to work on"


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    import scipy.sparse as sp
    from skglm import ElasticNet, Lasso, SparseLogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    def train(rows: Data) -> Fit:
        if sp.issparse(rows.X):
            rows = Data(rows.name, rows.X.tocsc(), rows.y, rows.X_test, rows.y_test)
        # Its tolerance is on the subgradient, whose scale is that of alpha: the default of 1e-4 would end at the start.
        options = {"tol": 0.1 * task.alpha, **stop.given()}
        if task.objective == "squared":
            options["fit_intercept"] = task.intercept
            ratio = task.l1_ratio
            net = Lasso(task.alpha, **options) if ratio == 1 else ElasticNet(task.alpha, l1_ratio=ratio, **options)
            return sklearn_fit(net, rows)
        model = SparseLogisticRegression(
            alpha=task.alpha, l1_ratio=task.l1_ratio, fit_intercept=task.intercept, **options
        )
        return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads), rows)

    data = data.cast("float64")
    # It is compiled anew in each process: off the clock.
    few = Data(data.name, data.X[:200], data.y[:200], data.X_test, data.y_test)
    train(few if task.objective == "squared" else shrink(data, 200))
    return train(data)

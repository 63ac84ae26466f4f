"""scikit-learn's SGDClassifier: log loss, hinge and squared hinge one-vs-rest, elastic net as well."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.peers._common import sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("log_loss", "hinge", "squared_hinge")
MULTILABEL = True


def skip_reason() -> str | None:
    return None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from sklearn.linear_model import SGDClassifier
    from sklearn.multiclass import OneVsRestClassifier

    model = SGDClassifier(
        loss=task.objective,
        alpha=task.alpha,
        penalty="elasticnet" if task.l1_ratio else "l2",
        l1_ratio=task.l1_ratio or 0.15,
        fit_intercept=task.intercept,
        n_jobs=None if data.multilabel else threads,
        random_state=seed,
        **stop.given(),
    )
    return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads) if data.multilabel else model, data)

"""scikit-learn's LinearSVC (LIBLINEAR inside): squared hinge and hinge one-vs-rest, Crammer-Singer."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data
from benchmarks.peers._common import sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("squared_hinge", "hinge", "crammer_singer")
MULTILABEL = True


def skip_reason() -> str | None:
    return None


def refuses(task: Task) -> str | None:
    if task.l1_ratio:
        return "no elastic net"
    if task.gamma and task.objective == "crammer_singer":
        return "only the plain Crammer-Singer loss, gamma = 0"
    return "it penalises the intercept: another objective" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    options: dict[str, Any] = {"multi_class": "crammer_singer"}
    if task.objective != "crammer_singer":
        options = {"loss": task.objective, "dual": "auto" if task.objective == "squared_hinge" else True}
    model = LinearSVC(C=task.C(data.n), fit_intercept=False, random_state=seed, **options, **stop.given())
    return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads) if data.multilabel else model, data)

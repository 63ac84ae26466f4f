"""LinearSVC's training call, whole or class by class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.measure import Stopwatch, quiet
from benchmarks.peers._common import extrapolate, sklearn_fit
from benchmarks.task import Fit, Stop, Task

__all__ = ["fit", "fit_classes", "memory", "refuses"]


def refuses(task: Task) -> str | None:
    if task.l1_ratio:
        return "no elastic net"
    if task.gamma and task.objective == "crammer_singer":
        return "only the plain Crammer-Singer loss, gamma = 0"
    return "it penalizes the intercept: another objective" if task.intercept else None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """LIBLINEAR's own, the data once more in double precision, and the weights handed over."""
    nodes = 28 * data.facts["nnz"]
    weights = 2 * 8 * data.X.shape[1] * data.n_classes
    duals = 12 * data.n * data.n_classes if task.objective == "crammer_singer" else 0
    return int(nodes + weights + duals)


def fit(data: Data, task: Task, stop: Stop, *, dual: bool, threads: int, seed: int) -> Fit:
    from sklearn.multiclass import OneVsRestClassifier

    model = _model(data, task, stop, dual, seed)
    return sklearn_fit(OneVsRestClassifier(model, n_jobs=threads) if data.multilabel else model, data)


def fit_classes(data: Data, task: Task, stop: Stop, *, classes: list[int], dual: bool, seed: int) -> Fit:
    """One class against the rest for each of ``classes``.

    Checks and copies of the data, which a fit of all classes makes once, are taken to be what a fit of one iteration
    takes: a little too much, in favor of the peer.
    """
    weights = np.zeros((data.X.shape[1], len(classes)))
    watches = []
    with quiet():
        short = _model(data, task, replace(stop, max_iter=1), dual, seed)
        tries = [Stopwatch() for _ in range(3)]
        for copying in tries:
            with copying:
                short.fit(data.X, data.y == classes[0])
        copying = min(tries, key=lambda watch: watch.seconds)
        for column, k in enumerate(classes):
            model, own = _model(data, task, stop, dual, seed), data.y == k
            with Stopwatch() as watch:
                model.fit(data.X, own)
            watch.seconds = max(watch.seconds - copying.seconds, 0.0)
            watch.cpu_seconds = max(watch.cpu_seconds - copying.cpu_seconds, 0.0)
            watches.append(watch)
            weights[:, column] = model.coef_[0]
    return extrapolate(watches, copying, data.n_classes, weights)


def _model(data: Data, task: Task, stop: Stop, dual: bool, seed: int) -> Any:
    from sklearn.svm import LinearSVC

    options: dict[str, Any] = {"multi_class": "crammer_singer"}
    if task.objective != "crammer_singer":
        options = {"loss": task.objective, "dual": dual or task.objective == "hinge"}
    return LinearSVC(C=task.C(data.n), fit_intercept=False, random_state=seed, **options, **stop.given())

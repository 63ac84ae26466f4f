"""LIBLINEAR's training call, whole or class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Data, shrink
from benchmarks.measure import Stopwatch
from benchmarks.peers._common import extrapolate, missing
from benchmarks.task import Fit, Stop, Task

__all__ = ["PACKAGE", "fit", "fit_classes", "memory", "refuses", "skip_reason"]

PACKAGE = "liblinear-official"


def skip_reason() -> str | None:
    return missing("liblinear", PACKAGE)


def refuses(task: Task) -> str | None:
    if task.l1_ratio:
        return "no elastic net"
    if task.gamma and task.objective == "crammer_singer":
        return "only the plain Crammer-Singer loss, gamma = 0"
    return "it penalizes the intercept: another objective" if task.intercept else None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """What its sources allocate: doubles always, whatever the type of the data."""
    nodes = 16 * (data.facts["nnz"] + 2 * data.n)
    weights = 8 * data.X.shape[1] * data.n_classes
    # Solver 4: a dual (double) and a place in a list of candidates (int) for each row and class.
    duals = 12 * data.n * data.n_classes if task.objective == "crammer_singer" else 0
    return int(nodes + weights + duals)


def fit(solver: int, data: Data, task: Task, stop: Stop) -> Fit:
    """``train(problem, parameter)``."""
    from liblinear.liblinearutil import problem, train

    options = _options(solver, data, task, stop)
    X = sp.csr_matrix(data.X, dtype=np.float64)
    # Its own copy of the data is part of what a user waits for.
    with Stopwatch() as watch:
        model = train(problem(data.y.astype(np.float64), X), options)
    labels = np.asarray(model.get_labels())
    outputs = 1 if len(labels) == 2 and task.objective != "crammer_singer" else len(labels)
    held = np.ctypeslib.as_array(model.w, (model.nr_feature * outputs,)).reshape(model.nr_feature, outputs)
    if outputs == 1:
        weights = held.copy() if labels[0] == 1 else -held
    else:
        # Its columns are in the order in which the classes occur. A view: they are many bytes.
        weights = np.empty_like(held)
        weights[:, labels] = held
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda rows: _predict(rows, weights),
        weights=weights,
        intercept=np.zeros(outputs),
        model_bytes=int(held.nbytes),
    )


def fit_classes(solver: int, data: Data, task: Task, stop: Stop, classes: list[int]) -> Fit:
    """One class against the rest for each of ``classes``; the copy of the data is made once, as for all classes."""
    from liblinear.liblinearutil import problem, train

    options = _options(solver, data, task, stop)
    X = sp.csr_matrix(data.X, dtype=np.float64)
    with Stopwatch() as copying:
        copied = problem(np.zeros(data.n), X)
    signs = np.ctypeslib.as_array(copied.y, (data.n,))
    weights = np.zeros((data.X.shape[1], len(classes)))
    watches = []
    for column, k in enumerate(classes):
        signs[:] = np.where(data.y == k, 1.0, -1.0)
        with Stopwatch() as watch:
            model = train(copied, options)
        watches.append(watch)
        held = np.ctypeslib.as_array(model.w, (model.nr_feature,))
        weights[:, column] = held if model.get_labels()[0] == 1 else -held
    return extrapolate(watches, copying, data.n_classes, weights)


def _options(solver: int, data: Data, task: Task, stop: Stop) -> Any:
    from liblinear.liblinearutil import parameter, problem, train

    epsilon = "" if stop.tol is None else f" -e {stop.tol}"
    options = parameter(f"-s {solver} -c {task.C(data.n)} -B -1 -q{epsilon}")
    # Its copying of the data is compiled at the first call of a process, where Numba is installed: off the clock.
    few = shrink(data, 100)
    train(problem(few.y.astype(np.float64), sp.csr_matrix(few.X, dtype=np.float64)), options)
    return options


def _predict(X: Any, weights: Any) -> Any:
    scores = np.asarray(X @ weights)
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)

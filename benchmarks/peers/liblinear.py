"""LIBLINEAR itself (liblinear-official): log loss, squared hinge and hinge one-vs-rest, Crammer-Singer."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Data
from benchmarks.measure import Stopwatch
from benchmarks.peers._common import missing
from benchmarks.task import Fit, Stop, Task

PACKAGE = "liblinear-official"
#: Its solver numbers: for large sparse data the faster of the primal and the dual one.
_SOLVERS = {"log_loss": 0, "squared_hinge": 1, "hinge": 3, "crammer_singer": 4}
OBJECTIVES = tuple(_SOLVERS)


def skip_reason() -> str | None:
    return missing("liblinear", PACKAGE)


def refuses(task: Task) -> str | None:
    if task.l1_ratio:
        return "no elastic net"
    if task.gamma and task.objective == "crammer_singer":
        return "only the plain Crammer-Singer loss, gamma = 0"
    return "it penalises the intercept: another objective" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from liblinear.liblinearutil import parameter, problem, train

    epsilon = "" if stop.tol is None else f" -e {stop.tol}"
    options = parameter(f"-s {_SOLVERS[task.objective]} -c {task.C(data.n)} -B -1 -q{epsilon}")
    X = sp.csr_matrix(data.X, dtype=np.float64)
    # Its own copy of the data is part of what a user waits for.
    with Stopwatch() as watch:
        model = train(problem(data.y.astype(np.float64), X), options)
    labels = np.asarray(model.get_labels())
    outputs = 1 if len(labels) == 2 and task.objective != "crammer_singer" else len(labels)
    flat = np.ctypeslib.as_array(model.w, (model.nr_feature * outputs,))
    held = flat.reshape(model.nr_feature, outputs)
    weights = np.zeros((data.X.shape[1], outputs))
    if outputs == 1:
        weights[: len(held)] = held if labels[0] == 1 else -held
    else:
        weights[: len(held), labels] = held
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda rows: _predict(rows, weights),
        weights=weights,
        intercept=np.zeros(outputs),
        model_bytes=int(held.nbytes),
    )


def _predict(X: Any, weights: Any) -> Any:
    scores = np.asarray(X @ weights)
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)

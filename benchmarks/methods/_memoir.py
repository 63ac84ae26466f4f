"""What the files of MEMOIR share: a fit of MemoirClassifier, compiled on a few rows first."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data, shrink
from benchmarks.measure import Stopwatch, quiet
from benchmarks.task import Fit, Stop, Task

__all__ = ["compiled", "fit", "refuses"]

#: Epochs, unless told otherwise: the means of the weights are best at powers of two.
EPOCHS = 8


def refuses(task: Task) -> str | None:
    return "it has no intercept" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int, seed: int, **options: Any) -> Fit:
    """``MemoirClassifier.fit``; ``task.options`` are more of its parameters."""
    from manyclass import MemoirClassifier

    def estimator(epochs: int) -> Any:
        given = {"alpha": task.alpha, **options, **dict(task.options)}
        return MemoirClassifier(max_iter=epochs, random_state=seed, n_jobs=threads, **given)

    with quiet():
        few = shrink(data, 200)
        estimator(1).fit(few.X, few.y)
        compiled(few.X)
        model = estimator(stop.max_iter or EPOCHS)
        with Stopwatch() as watch:
            model.fit(data.X, data.y)
    last = model.history_[-1]
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda rows: np.asarray(model.predict(rows)),
        model_bytes=model.model_.nbytes,
        iterations=int(model.n_iter_),
        solver_seconds=last.seconds,
        # What it does with an index can be seen: these are not in the model.
        facts={
            "nonzeros": last.nonzeros,
            "held_bytes": max(record.nbytes for record in model.history_),
            "update_rate": last.update_rate,
            "search_recall": last.recall,
            "margin_error": last.margin_error,
            "batch_size": model._batch,
        },
    )


def compiled(X: Any) -> None:
    """Have what large fits alone need compiled, or loaded from the cache: tables, and searches of sorted copies."""
    import scipy.sparse as sp

    from manyclass.mips import ExactSearch
    from manyclass.solvers.memoir.learner import MemoirLearner

    if sp.issparse(X):
        y = np.arange(X.shape[0]) % 2
        for l1_ratio in (0.0, 1.0):
            learner = MemoirLearner(X.shape[1], 2, X.dtype, l1_ratio=l1_ratio, average=not l1_ratio, sparse=True)
            learner.epoch(X, y, np.arange(len(y)), batch_size=10)
        ExactSearch().build(learner.weights() + sp.eye(*learner.weights().shape, dtype=X.dtype)).query(X, 1, y)

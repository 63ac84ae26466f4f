"""scikit-learn's LogisticRegression(solver="lbfgs"): multinomial."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from benchmarks.data import Data
from benchmarks.measure import quiet
from benchmarks.peers._common import sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "scikit-learn"
OBJECTIVES = ("multinomial",)

#: Of a fit that is watched: it ends at the objective.
_EXACT, _MOST = 1e-12, 4096


def skip_reason() -> str | None:
    return None


def refuses(task: Task) -> str | None:
    return "this solver has no l1 penalty" if task.l1_ratio else None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """SciPy's L-BFGS-B in doubles: ten pairs in two forms, gradients, directions; scores and their slopes."""
    size = data.X.shape[1] * data.n_classes
    return int(8 * 29 * size + 2 * itemsize * data.n * data.n_classes)


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    return sklearn_fit(_model(data, task, stop, seed), data)


def watch(data: Data, task: Task, target: float, *, threads: int = 1, seed: int = 0) -> int | None:
    """By SciPy's callback; the objective is that of scikit-learn 1.6 and later, the mean over the rows."""
    from scipy import optimize

    minimize, done, reached = optimize.minimize, 0, False

    def watched(*given: Any, **options: Any) -> Any:
        def look(intermediate_result: Any) -> None:
            nonlocal done, reached
            done += 1
            if intermediate_result.fun <= target:
                reached = True
                raise StopIteration

        return minimize(*given, **{**options, "callback": look})

    with patch.object(optimize, "minimize", watched), quiet():
        _model(data, task, Stop(_EXACT, _MOST), seed).fit(data.X, data.y)
    return done if reached else None


def _model(data: Data, task: Task, stop: Stop, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        C=task.C(data.n), solver="lbfgs", fit_intercept=task.intercept, random_state=seed, **stop.given()
    )

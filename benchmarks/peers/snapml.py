"""Snap ML's LogisticRegression and SupportVectorMachine: dual coordinate descent, one class against the rest."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data
from benchmarks.peers._common import missing, sklearn_fit
from benchmarks.task import Fit, Stop, Task

PACKAGE = "snapml"
OBJECTIVES = ("log_loss", "squared_hinge", "hinge")


def skip_reason() -> str | None:
    return missing("snapml", PACKAGE)


def refuses(task: Task) -> str | None:
    if task.l1_ratio:
        return "no elastic net"
    return "it penalizes the intercept: another objective" if task.intercept else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    """``regularizer`` weighs ``||w||^2 / 2`` beside the SUM of losses."""
    import snapml

    options: dict[str, Any] = {"regularizer": task.alpha * data.n, "n_jobs": threads, "random_state": seed}
    options |= stop.given()
    kind = snapml.LogisticRegression
    if task.objective != "log_loss":
        kind, options["loss"] = snapml.SupportVectorMachine, task.objective
    return sklearn_fit(kind(fit_intercept=False, **options), data)

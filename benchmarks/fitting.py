"""A fit measured in a process of its own: time, peak memory, quality. Called through `benchmarks.children`.

Imports NumPy and SciPy alone, so that a peer's own environment can run it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import catalog, data, measure
from benchmarks.objective import objective
from benchmarks.scores import quality
from benchmarks.task import Fit, Stop, Task

__all__ = ["describe", "fit_and_judge", "judge"]


def fit_and_judge(
    source: dict[str, Any],
    method: str,
    task: dict[str, Any],
    stop: dict[str, Any],
    threads: int,
    seed: int,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Fit and describe what came out; ``source`` is a `DataFile`'s arguments."""
    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    rows = rows if dtype is None else rows.cast(dtype)
    found = catalog.method(method)
    problem = Task(**task)
    before = measure.resident_memory()
    measure.reset_peak_memory()
    with measure.threads_limited(threads):
        fit = found.fit(rows, problem, Stop(**stop), threads=threads, seed=seed)
    memory = {"memory_before": before, "memory_peak": measure.peak_memory()}
    return {**rows.facts, "version": found.version, **describe(fit), **memory, **judge(rows, problem, fit)}


def describe(fit: Fit) -> dict[str, Any]:
    """What the fit says of itself."""
    return {
        "seconds": fit.seconds,
        "cpu_seconds": fit.cpu_seconds,
        "solver_seconds": fit.solver_seconds,
        "compile_seconds": fit.compile_seconds,
        "iterations": fit.iterations,
        "model_bytes": fit.model_bytes,
        **{f"certified_{key}": value for key, value in fit.certificate.items()},
    }


def judge(rows: data.Data, task: Task, fit: Fit) -> dict[str, Any]:
    """Objective, where there is one to compute here, and quality on the test rows."""
    known: dict[str, Any] = {}
    computed = task.objective != "tree" and not (task.objective == "crammer_singer" and task.gamma)
    if fit.weights is not None and computed:
        known["objective"] = objective(rows, task, fit.weights, fit.intercept)
    return {**known, **quality(rows.y_test, fit.predict(rows.X_test))}

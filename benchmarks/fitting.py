"""A fit measured in a process of its own: time, peak memory, quality. Called through `benchmarks.children`.

Imports NumPy and SciPy alone, so that a peer's own environment can run it.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import catalog, data, measure
from benchmarks.objective import objective
from benchmarks.scores import quality
from benchmarks.task import Fit, Stop, Task

__all__ = ["describe", "fit_and_judge", "judge", "watch"]


def fit_and_judge(
    source: dict[str, Any],
    method: str,
    task: dict[str, Any],
    stop: dict[str, Any],
    threads: int,
    seed: int,
    dtype: str | None = None,
    classes: list[int] | None = None,
    budget: float | None = None,
    memory: int | None = None,
    held_out: int | None = None,
    features: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Fit and describe what came out; ``source`` is a `DataFile`'s arguments.

    Parameters
    ----------
    classes : list of int, optional
        Of a loss that is a sum over classes: the objective is the sum over these classes. A method that can fit them
        alone does so; its quality on the test rows is then not known.
    budget : float, optional
        Seconds after which this process ends itself.
    memory : int, optional
        Bytes that the process may hold during the fit.
    held_out : int, optional
        Fit on four fifths of the training rows and judge on the others instead of the test rows:
        `benchmarks.data.validation` with groups of so many rows, drawn by ``seed``.
    features : list of dict, optional
        Blocks of features, one made of what the other makes (see `benchmarks.staged.make`): the fit is on what the last
        makes of all rows. Made once in a process, with ``threads``; how long that took is ``feature_seconds``.
    """
    rows = _read(source["path"], source["name"], source["quick"], dtype)
    made: dict[str, Any] = {}
    if features is not None:
        rows, made["feature_seconds"] = _featured(json.dumps(source), json.dumps(features), dtype, threads)
    if held_out is not None:
        rows = data.validation(rows, group=held_out, seed=seed)
    found, problem, until = catalog.method(method), Task(**task), Stop(**stop)
    before = measure.resident_memory()
    measure.reset_peak_memory()
    with ExitStack() as limits:
        limits.enter_context(measure.threads_limited(threads))
        limits.enter_context(measure.memory_limit(memory))
        limits.enter_context(measure.time_limit(budget))
        if classes is not None and found.fit_classes is not None:
            fit = found.fit_classes(rows, problem, until, classes=classes, threads=threads, seed=seed)
        else:
            fit = found.fit(rows, problem, until, threads=threads, seed=seed)
    held = {"memory_before": before, "memory_peak": measure.peak_memory()}
    facts = {**rows.facts, "version": found.version, **made}
    return {**facts, **describe(fit), **held, **judge(rows, problem, fit, classes)}


def watch(
    source: dict[str, Any],
    method: str,
    task: dict[str, Any],
    target: float,
    threads: int,
    seed: int,
    dtype: str | None,
    budget: float,
) -> int | None:
    """See `benchmarks.catalog.Method`; this process ends itself after ``budget`` seconds."""
    rows = _read(source["path"], source["name"], source["quick"], dtype)
    found = catalog.method(method)
    assert found.watch is not None
    with measure.threads_limited(threads), measure.time_limit(budget):
        return found.watch(rows, Task(**task), target, threads=threads, seed=seed)


# A worker that fits again and again reads its data once; no more than one data set in two types of number.
@lru_cache(maxsize=2)
def _read(path: str, name: str, quick: bool, dtype: str | None) -> data.Data:
    rows = data.read(Path(path), name, quick=quick)
    return rows if dtype is None else rows.cast(dtype)


# Features of all rows may be gigabytes: those of one fit at a time.
@lru_cache(maxsize=1)
def _featured(source: str, features: str, dtype: str | None, threads: int) -> tuple[data.Data, float]:
    from benchmarks.staged import made_of_all, make

    told = json.loads(source)
    rows = _read(told["path"], told["name"], told["quick"], dtype)
    X, X_test = rows.X, rows.X_test
    with measure.threads_limited(threads), measure.Stopwatch() as watch:
        for described in json.loads(features):
            block = make(described).fit(X)
            X, X_test = made_of_all(block, X), made_of_all(block, X_test)
            block.release()
    return replace(rows, X=X, X_test=X_test), watch.seconds


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
        **fit.estimate,
        **fit.facts,
    }


def judge(rows: data.Data, task: Task, fit: Fit, classes: list[int] | None = None) -> dict[str, Any]:
    """Objective, where there is one to compute here, and quality on the test rows."""
    if classes is not None:
        whole = fit.weights.shape[1] > len(classes)
        chosen = np.asarray(classes)
        weights, intercept = (fit.weights[:, chosen], fit.intercept[chosen]) if whole else (fit.weights, fit.intercept)
        return {"objective": objective(rows, task, weights, intercept, classes=chosen)}
    known: dict[str, Any] = {}
    computed = task.objective not in ("tree", "margin") and not (task.objective == "crammer_singer" and task.gamma)
    if fit.weights is not None and computed:
        known["objective"] = objective(rows, task, fit.weights, fit.intercept)
    with measure.Stopwatch() as watch:
        predicted = fit.predict(rows.X_test)
    return {**known, "predict_seconds": watch.seconds, **quality(rows.y_test, predicted)}

"""Ten thousand classes: accuracy and macro-F1 against time, peak memory, model size; label trees beside.

Each fit has a process of its own. Ours shows its weights between epochs: they are judged on the test rows off the
clock, with the full certificate at the end. A peer that shows nothing until it is done is one point. Figures recorded
earlier stand in rows of their own, marked so, and count for orientation only: other versions, another day.
"""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import children, measure, scores
from benchmarks.bench import Bench, DataFile
from benchmarks.catalog import Method
from benchmarks.figures import legend_below, log_seconds
from benchmarks.task import Task

EARLIER = Path(__file__).with_name("many_classes_earlier.csv")
#: Test rows scored at a time.
_BLOCK = 256


def run(bench: Bench) -> None:
    methods = bench.methods("sdca", "sdca_active", "sdca_async", "napkinxc", "pecos")
    for source in bench.datasets("icd10cm"):
        for alpha in bench.alphas(1e-6):
            for method in methods:
                for task, epochs in _tasks(method, alpha):
                    for number in range(bench.options.runs):
                        _measure(bench, source, method, task, bench.options.epochs or epochs, number)
        if not bench.options.quick:
            earlier(bench, source.name)
    _report(bench)


def _tasks(method: Method, alpha: float) -> list[tuple[Task, int]]:
    """What a method is measured on: itself, not every loss it knows."""
    if not method.ours:
        return [(Task(method.objectives[0], alpha=alpha), 0)]
    if method.name in ("sdca_active", "sdca_async"):
        return [(Task("crammer_singer", alpha=alpha, gamma=0.1), 30)]
    return [(Task("multinomial", alpha=alpha), 10)]


def _measure(bench: Bench, source: DataFile, method: Method, task: Task, epochs: int, number: int) -> None:
    threads = bench.options.threads
    arguments: dict[str, Any] = {
        "source": source.arguments(),
        "method": method.name,
        "task": asdict(task),
        "threads": threads,
        "seed": number,
    }
    what = {"method": method.name, "objective_name": task.objective, "run": number}
    if task.objective != "tree":
        what |= {"alpha": task.alpha, "gamma": task.gamma}
    bench.say(f"{source.name} {method.name} {task.objective} ...")
    try:
        if method.ours:
            points = children.call("benchmarks.experiments.many_classes:trace", arguments | {"epochs": epochs})
        else:
            arguments["stop"] = {}
            points = [children.call("benchmarks.fitting:fit_and_judge", arguments, python=method.python())]
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    for point in points:
        bench.record(**what, **point, last=point is points[-1])


def trace(
    source: dict[str, Any], method: str, task: dict[str, Any], epochs: int, threads: int, seed: int
) -> list[dict[str, Any]]:
    """In a child: the epochs of one run, each judged on the test rows."""
    from benchmarks import data
    from benchmarks.experiments import _epochs

    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    before = measure.resident_memory()
    measure.reset_peak_memory()
    points: list[dict[str, Any]] = []
    with measure.threads_limited(threads):
        for point in _epochs.trace(method, rows, Task(**task), epochs, threads=threads, seed=seed):
            certified = {f"certified_{key}": value for key, value in point.certificate.items()}
            points.append(
                {
                    **rows.facts,
                    "iterations": point.epoch,
                    "seconds": point.seconds,
                    **certified,
                    **scores.quality(rows.y_test, _predict(rows.X_test, point.weights, point.intercept)),
                }
            )
    points[-1] |= {
        "memory_before": before,
        "memory_peak": measure.peak_memory(),
        **_size(point.weights, point.intercept),
    }
    return points


def _size(weights: Any, intercept: Any) -> dict[str, int]:
    sparse = sp.issparse(weights)
    parts = (weights.data, weights.indices, weights.indptr) if sparse else (weights,)
    return {
        "model_bytes": sum(int(part.nbytes) for part in (*parts, intercept)),
        "model_nonzeros": int(np.count_nonzero(weights.data if sparse else weights)),
    }


def _predict(X: Any, weights: Any, intercept: Any) -> Any:
    found = np.empty(X.shape[0], np.int64)
    for begin in range(0, X.shape[0], _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        scores = X[rows] @ weights
        found[rows] = ((scores.toarray() if sp.issparse(scores) else np.asarray(scores)) + intercept).argmax(axis=1)
    return found


def earlier(bench: Bench, name: str) -> None:
    with EARLIER.open(newline="") as handle:
        for row in csv.DictReader(handle):
            if row["data"] == name:
                numbers = {key: float(row[key]) for key in ("seconds", "accuracy", "macro_f1") if row[key]}
                bench.record(
                    **{
                        "data": name,
                        "method": row["method"],
                        "status": "recorded earlier",
                        "reason": row["note"],
                        **numbers,
                    }
                )


def _report(bench: Bench) -> None:
    lines = []
    for rows in _groups(bench, last=True):
        row = rows[0]
        peak = [(r["memory_peak"] - r["memory_before"]) / 2**30 for r in rows if r.get("memory_peak")]
        lines.append(
            [
                row["data"],
                row["method"],
                row.get("objective_name"),
                "measured",
                row.get("iterations"),
                measure.spread_text([r["seconds"] for r in rows]),
                *(median(r[quality] for r in rows) for quality in ("accuracy", "macro_f1")),
                row.get("certified_relative_gap"),
                max(peak) if peak else None,
                row["model_bytes"] / 2**20 if row.get("model_bytes") else None,
            ]
        )
    for row in bench.rows:
        if row["status"] == "recorded earlier":
            lines.append(
                [
                    row["data"],
                    row["method"],
                    None,
                    "recorded earlier",
                    None,
                    row["seconds"],
                    row["accuracy"],
                    row.get("macro_f1"),
                    None,
                    None,
                    None,
                ]
            )
    columns = (
        "data",
        "method",
        "objective",
        "source",
        "epochs",
        "seconds",
        "accuracy",
        "macro-F1",
        "gap",
        "peak GiB",
        "model MiB",
    )
    bench.table("At the end of each fit; seconds: median [least, most]; peak: besides the data", columns, lines)
    if lines:
        _draw(bench)


def _groups(bench: Bench, *, last: bool) -> list[list[dict[str, Any]]]:
    """Measured rows by data set, method, objective and penalty: the end points of all runs, or all of the first run."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured" and (row["last"] if last else row["run"] == 0):
            key = tuple(row.get(name) for name in ("data", "method", "objective_name", "alpha"))
            groups.setdefault(key, []).append(row)
    return list(groups.values())


def _draw(bench: Bench) -> None:
    with bench.figure(2) as panels:
        for ax, what in zip(panels, ("accuracy", "macro_f1")):
            for rows in _groups(bench, last=False):
                label = f"{rows[0]['method']} {rows[0]['objective_name']}"
                ax.plot([r["seconds"] for r in rows], [r[what] for r in rows], marker="o", markersize=3, label=label)
            earlier = [r for r in bench.rows if r["status"] == "recorded earlier" and r.get(what)]
            for row in earlier:
                ax.plot([row["seconds"]], [row[what]], "x", color="gray")
                ax.annotate(
                    f"{row['method']} (earlier) ", (row["seconds"], row[what]), fontsize=6, color="gray", ha="right"
                )
            log_seconds(ax, "training time (s)")
            ax.set_ylabel(what)
            ax.grid(alpha=0.3)
        legend_below(panels[0])

"""MEMOIR-l2 by batch size, 0.1 to 1000 times the square root of the classes: time, accuracy, macro-F1 (table 2).

The passes over the data are the same for all: larger batches have fewer steps, at rivals that are less up to date.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from benchmarks import children
from benchmarks.bench import Bench
from benchmarks.measure import spread_text
from benchmarks.task import Stop, Task

#: Times the square root of the number of classes.
FACTORS = (0.1, 1.0, 10.0, 100.0, 1000.0)


def run(bench: Bench) -> None:
    methods = bench.methods("memoir")
    for source in bench.datasets("icd10cm/4"):
        data = source.read()
        for method in methods:
            for alpha in bench.alphas(1e-6):
                for factor in FACTORS:
                    batch = min(data.n, max(1, round(factor * math.sqrt(data.n_classes))))
                    task = Task("margin", alpha=alpha, options=(("batch_size", batch),))
                    for number in range(bench.options.runs):
                        fit(bench, source, method, task, number, factor=factor)
    _report(bench)


def fit(bench: Bench, source: Any, method: Any, task: Task, number: int, **what: Any) -> None:
    """One fit in a process of its own, recorded."""
    what |= {"method": method.name, "alpha": task.alpha, "run": number}
    bench.say(f"{source.name} {method.name} alpha {task.alpha:g} {dict(task.options)} ...")
    arguments = {
        "source": source.arguments(),
        "method": method.name,
        "task": asdict(task),
        "stop": asdict(Stop(max_iter=bench.options.epochs)),
        "threads": bench.options.threads,
        "seed": number,
        "budget": bench.options.budget,
    }
    try:
        bench.record(**what, **children.call("benchmarks.fitting:fit_and_judge", arguments))
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)


def groups(bench: Bench, *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The measured rows by data set, method and these names."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            found.setdefault(tuple(row.get(name) for name in ("data", "method", *names)), []).append(row)
    return found


def _report(bench: Bench) -> None:
    shown = ("seconds", "accuracy", "macro_f1", "update_rate")
    lines = [
        [*key, rows[0]["batch_size"], *(spread_text([row[name] for row in rows]) for name in shown)]
        for key, rows in groups(bench, "alpha", "factor").items()
    ]
    columns = ("data", "method", "alpha", "|b| / sqrt K", "|b|", "fit s", "accuracy", "macro-F1", "updates, last epoch")
    bench.table("Batch size, the same passes: median [least, most]", columns, lines)

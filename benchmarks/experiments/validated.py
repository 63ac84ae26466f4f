"""Accuracy and macro-F1 on test rows, with alpha chosen on a fifth of the training rows; label trees beside.

Per loss: a fit for each alpha of a grid on four fifths of the training rows, judged on the others (drawn class by
class, seeded; rows that belong together stay together); then one fit on all training rows with the alpha of the best
accuracy there, of equals the greatest. Test rows are looked at once, with that model. Of the losses the one with the
best validation accuracy is the choice that a user would make: it is marked. Every fit has a process of its own.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from statistics import median
from typing import Any

from benchmarks import children, modules
from benchmarks.bench import Bench, DataFile
from benchmarks.catalog import Method
from benchmarks.experiments.many_classes import earlier
from benchmarks.figures import legend_below
from benchmarks.measure import spread_text
from benchmarks.task import Stop, Task

LOSSES = ("multinomial", "crammer_singer", "squared_hinge")
#: The more classes, the weaker the penalty that does best.
ALPHAS = {"few": (3e-4, 1e-4, 3e-5, 1e-5, 3e-6), "many": (1e-5, 3e-6, 1e-6, 3e-7)}
#: A certified relative gap far below what moves an accuracy.
STOP = Stop(tol=1e-2, max_iter=200)
#: Classes from which on active sets are worth their keep.
MANY = 200


def run(bench: Bench) -> None:
    methods = bench.methods("sdca", "sdca_active", "napkinxc", "pecos")
    for source in bench.datasets("news20", "news20/bigrams", "icd10cm"):
        many = source.read().n_classes >= MANY
        for number in range(bench.options.runs):
            for loss in LOSSES:
                method = _method(methods, loss, many)
                if method is not None:
                    alphas = bench.alphas(*ALPHAS["many" if many else "few"])
                    _chosen(bench, source, method, Task(loss), alphas, number)
            for tree in methods:
                if "tree" in tree.objectives:
                    _fit(bench, source, tree, Task("tree"), number, "test")
        if not bench.options.quick:
            earlier(bench, source.name)
    _report(bench)


def _method(methods: list[Method], loss: str, many: bool) -> Method | None:
    """The method of ours for a loss and that many classes, of those asked for."""
    able = [method for method in methods if method.ours and loss in method.objectives]
    preferred = [method for method in able if method.name == ("sdca_active" if many else "sdca")]
    return next(iter(preferred + able), None)


def _chosen(bench: Bench, source: DataFile, method: Method, task: Task, alphas: tuple[float, ...], number: int) -> None:
    """The grid, and the fit of what was best."""
    tried = []
    for alpha in sorted(alphas, reverse=True):
        row = _fit(bench, source, method, replace(task, alpha=alpha), number, "validation")
        if row is not None:
            tried.append((alpha, row))
    if tried:
        # max keeps the first of equals: the greatest alpha.
        alpha, best = max(tried, key=lambda entry: entry[1]["accuracy"])
        known = {
            "search_seconds": sum(row["seconds"] for _, row in tried),
            "validation_accuracy": best["accuracy"],
            "grid_end": len(tried) > 1 and alpha in (tried[0][0], tried[-1][0]),
        }
        _fit(bench, source, method, replace(task, alpha=alpha), number, "test", known)


def _fit(
    bench: Bench,
    source: DataFile,
    method: Method,
    task: Task,
    number: int,
    part: str,
    known: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    what = {"method": method.name, "objective_name": task.objective, "run": number, "part": part, **(known or {})}
    if task.objective != "tree":
        what["alpha"] = task.alpha
    at = f" alpha {task.alpha:g}" if "alpha" in what else ""
    bench.say(f"{source.name} {method.name} {task.objective}{at} ({part}) ...")
    arguments = {
        "source": source.arguments(),
        "method": method.name,
        "task": asdict(task),
        "stop": asdict(STOP if method.ours else Stop()),
        "threads": bench.options.threads,
        "seed": number,
        "held_out": _group(source) if part == "validation" else None,
    }
    try:
        found = children.call("benchmarks.fitting:fit_and_judge", arguments, python=method.python())
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return None
    row: dict[str, Any] = {**what, **found}
    bench.record(**row)
    return row


def _group(source: DataFile) -> int:
    """How many training rows in succession belong together."""
    return int(getattr(modules.module("datasets", source.name.partition("/")[0]), "GROUP", 1))


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured" and row["part"] == "test":
            groups.setdefault((row["data"], row["method"], row["objective_name"]), []).append(row)
    lines = []
    for key, rows in groups.items():
        ours = "validation_accuracy" in rows[0]
        rivals = [r for name, r in groups.items() if name[0] == key[0] and "validation_accuracy" in r[0]]
        best = ours and rows is max(rivals, key=_validation)
        edge = any(row.get("grid_end") for row in rows)
        lines.append(
            [
                *key,
                ", ".join(f"{a:g}" for a in sorted({row["alpha"] for row in rows})) if ours else None,
                _validation(rows) if ours else None,
                *(spread_text([row[name] for row in rows]) for name in ("accuracy", "macro_f1", "seconds")),
                spread_text([row["search_seconds"] for row in rows]) if ours else None,
                "; ".join(filter(None, ("best in validation" if best else "", "end of the grid" if edge else ""))),
            ]
        )
    for row in bench.rows:
        if row["status"] == "recorded earlier":
            found = (row.get(name) for name in ("accuracy", "macro_f1", "seconds"))
            lines.append([row["data"], row["method"], None, None, None, *found, None, "recorded earlier"])
    columns = (
        "data",
        "method",
        "objective",
        "alpha",
        "validation",
        "accuracy",
        "macro-F1",
        "fit s",
        "search s",
        "",
    )
    bench.table("On the test rows, alpha chosen in validation: median [least, most]", columns, lines)
    if groups:
        _draw(bench, groups)


def _validation(rows: list[dict[str, Any]]) -> float:
    return float(median(row["validation_accuracy"] for row in rows))


def _draw(bench: Bench, groups: dict[tuple[Any, ...], list[dict[str, Any]]]) -> None:
    """Validation accuracy along the grid, and the test accuracy of what was chosen."""
    sources = list(dict.fromkeys(key[0] for key in groups))
    with bench.figure(len(sources)) as panels:
        for ax, name in zip(panels, sources):
            shown = [key for key in groups if key[0] == name]
            for at, key in enumerate(shown):
                tests = groups[key]
                if "alpha" not in tests[0]:
                    ax.axhline(tests[0]["accuracy"], color="gray", linestyle=":", label=key[1])
                    continue
                grid = [
                    (row["alpha"], row["accuracy"])
                    for row in bench.rows
                    if row["status"] == "measured"
                    and (row["data"], row["method"], row["objective_name"]) == key
                    and (row["part"], row["run"]) == ("validation", tests[0]["run"])
                ]
                ax.plot(*zip(*grid), marker="o", markersize=3, color=f"C{at}", label=f"{key[2]}, validation")
                ax.plot(tests[0]["alpha"], tests[0]["accuracy"], "*", color=f"C{at}", label=f"{key[2]}, test")
            ax.set_xscale("log")
            ax.set_xlabel("alpha")
            ax.set_ylabel("accuracy")
            ax.set_title(name, fontsize=8)
            ax.grid(alpha=0.3)
        legend_below(panels[0])

"""Every method and every peer on the same problem: time, certified suboptimality, quality, memory, model size.

Each fit has a process of its own and stops by its own default rule (ours: a certified relative gap of 1e-3). How far
from the optimum it stopped is certified: its objective, judged in float64 by `benchmarks.objective`, against the best
lower bound that long dual runs of ours give. Methods are compared within an objective only; label trees have none.
"""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks import catalog, children, modules
from benchmarks.bench import Bench, DataFile
from benchmarks.catalog import Method
from benchmarks.data import Data
from benchmarks.figures import log_seconds
from benchmarks.measure import spread_text
from benchmarks.task import Stop, Task

BOUND = Stop(tol=1e-5, max_iter=500)


def run(bench: Bench) -> None:
    # LC stalls far from the gap asked for (see the experiment ds_mlr); on one thread the asynchronous solver is the
    # plain one.
    left_out = {"lc"} if bench.options.threads > 1 else {"lc", "sdca_async"}
    ours = [name for name in catalog.ours() if name not in left_out]
    methods = bench.methods(*ours, *modules.names("peers"))
    for source in bench.datasets("news20"):
        data = source.read()
        for alpha in bench.alphas(1e-5):
            for task in _tasks(alpha, data):
                willing = bench.willing(methods, task, multilabel=data.multilabel)
                lower = _bound(bench, source, task) if willing else None
                for number in range(bench.options.runs):
                    for method in willing if number % 2 == 0 else willing[::-1]:
                        _measure(bench, source, method, task, number, lower)
    _report(bench)


def _tasks(alpha: float, data: Data) -> list[Task]:
    separable = [
        Task("squared_hinge", alpha),
        Task("hinge", alpha),
        Task("log_loss", alpha),
        Task("log_loss", alpha, l1_ratio=0.5),
        Task("log_loss", alpha, l1_ratio=1.0),
    ]
    joint = [Task("multinomial", alpha), Task("multinomial", alpha, l1_ratio=0.5), Task("crammer_singer", alpha)]
    # Two classes have one column of weights: multinomial is log_loss. LIBLINEAR's Crammer-Singer keeps two columns,
    # which is another penalty.
    if data.multilabel or data.n_classes == 2:
        return separable
    return [*joint, *separable, Task("tree", alpha)]


def _bound(bench: Bench, source: DataFile, task: Task) -> float | None:
    """A lower bound on the least objective, from a long run in float64."""
    ours = catalog.method("sdca")
    if ours.refuses(task) is not None:
        return None
    try:
        found = children.call(
            "benchmarks.fitting:fit_and_judge",
            {
                "source": source.arguments(),
                "method": "sdca",
                "task": asdict(task),
                "stop": asdict(BOUND),
                "threads": bench.options.threads,
                "seed": 0,
                "dtype": "float64",
            },
        )
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, method="sdca (bound)", objective_name=task.objective)
        return None
    return float(found["certified_dual"])


def _measure(bench: Bench, source: DataFile, method: Method, task: Task, number: int, lower: float | None) -> None:
    what = {
        "method": method.name,
        "objective_name": task.objective,
        "alpha": task.alpha,
        "l1_ratio": task.l1_ratio,
        "run": number,
    }
    stop = Stop(tol=1e-3, max_iter=1000) if method.ours else Stop()
    try:
        found = children.call(
            "benchmarks.fitting:fit_and_judge",
            {
                "source": source.arguments(),
                "method": method.name,
                "task": asdict(task),
                "stop": asdict(stop),
                "threads": bench.options.threads,
                "seed": number,
            },
            python=method.python(),
        )
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    if lower is not None and "objective" in found:
        what |= {"lower_bound": lower, "suboptimality": (found["objective"] - lower) / abs(found["objective"])}
    bench.record(**what, **found)


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = tuple(row[name] for name in ("data", "objective_name", "alpha", "l1_ratio", "method"))
            groups.setdefault(key, []).append(row)
    lines = []
    for key, rows in groups.items():
        row = rows[0]
        peak = [(r["memory_peak"] - r["memory_before"]) / 2**20 for r in rows if r["memory_peak"]]
        lines.append(
            [
                *key,
                spread_text([r["seconds"] for r in rows]),
                row.get("suboptimality"),
                *(median(r[q] for r in rows) for q in ("accuracy", "macro_f1", "micro_f1")),
                max(peak) if peak else None,
                row["model_bytes"] / 2**20 if row["model_bytes"] else None,
            ]
        )
    columns = (
        "data",
        "objective",
        "alpha",
        "l1_ratio",
        "method",
        "fit s",
        "suboptimality",
        "accuracy",
        "macro-F1",
        "micro-F1",
        "peak MiB",
        "model MiB",
    )
    bench.table("Each to its own stopping rule; suboptimality: at most this, relative", columns, lines)
    if lines:
        _draw(bench, groups)


def _draw(bench: Bench, groups: dict[tuple[Any, ...], list[dict[str, Any]]]) -> None:
    methods = sorted({key[4] for key in groups})
    with bench.figure(height=1.0 + 0.17 * len(groups)) as (ax,):
        for at, (key, rows) in enumerate(groups.items()):
            seconds = median(r["seconds"] for r in rows)
            ax.barh(at, seconds, color=f"C{methods.index(key[4]) % 10}")
            far = rows[0].get("suboptimality")
            note = f" {rows[0]['accuracy']:.3f}" + ("" if far is None else f", {far:.0e}")
            ax.annotate(note, (seconds, at), fontsize=5, va="center")
        ax.set_yticks(range(len(groups)), [_label(key) for key in groups], fontsize=6)
        ax.invert_yaxis()
        log_seconds(ax, "fit (s); beside: accuracy, suboptimality")
        # Room for the notes.
        ax.set_xlim(right=ax.get_xlim()[1] * 8)


def _label(key: tuple[Any, ...]) -> str:
    _, objective, _, l1_ratio, method = key
    return f"{objective}{f' l1 {l1_ratio:g}' if l1_ratio else ''}  {method}"

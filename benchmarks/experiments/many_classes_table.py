"""The big table: training and prediction time, peak memory, model bytes, accuracy, macro-F1; MEMOIR, ours, the peers.

Each method is fitted as it comes, its default setting, and where it has others here, with the one that is best on a
fifth of the training rows (see `validated`): a modest search, the same for all of about three settings. Every fit has a
process of its own and the same threads; what would not fit into memory, and what takes longer than the budget, is
told.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from statistics import median
from typing import Any

from benchmarks import children, modules
from benchmarks.bench import Bench, DataFile
from benchmarks.catalog import Method
from benchmarks.contest import MEMORY
from benchmarks.figures import legend_below, log_seconds
from benchmarks.machine import memory_bytes
from benchmarks.measure import spread_text
from benchmarks.task import Stop, Task

Setting = tuple[Task, Stop]
#: Ours, stopped on a gap far below what moves an accuracy.
_GAP = Stop(tol=1e-2, max_iter=100)


def _alphas(objective: str, stop: Stop, *alphas: float, gamma: float = 0.0) -> list[Setting]:
    return [(Task(objective, alpha=alpha, gamma=gamma), stop) for alpha in alphas]


def _options(name: str, *values: Any) -> list[Setting]:
    """The default, then one option at other values."""
    return [(Task("tree"), Stop()), *((Task("tree", options=((name, value),)), Stop()) for value in values)]


#: Of each method its entries, and the settings of each: the first is its default.
SETTINGS: dict[str, dict[str, list[Setting]]] = {
    "memoir": {"MEMOIR-l2": _alphas("margin", Stop(), 1e-6, 1e-5, 1e-7)},
    "memoir_l1": {"MEMOIR-l1": _alphas("margin", Stop(), 1e-6, 3e-6, 3e-7)},
    "memoir_lsh": {"MEMOIR-LSH": _alphas("margin", Stop(), 1e-6, 1e-5, 1e-7)},
    "sdca_active": {"Crammer-Singer, certified": _alphas("crammer_singer", _GAP, 1e-6, 1e-5, 3e-6, gamma=0.1)},
    "liblinear": {
        # C = 1, its default, is alpha = 1 / n: set from the data.
        "one-vs-rest": _alphas("squared_hinge", Stop(), 0.0),
        "Crammer-Singer": _alphas("crammer_singer", Stop(), 0.0),
    },
    "vw_oaa": {"one-against-all": _options("learning_rate", 2.0)},
    "vw_recall_tree": {"recall tree": _options("learning_rate", 2.0)},
    "vw_plt": {"PLT": _options("learning_rate", 2.0)},
    "napkinxc": {"PLT": _options("liblinear_c", 1.0, 32.0)},
    "pecos": {"XLinear": _options("Cp", 4.0, 16.0)},
}
DATA = ("icd10cm/4", "panlex_swadesh", "bible_verses", "generated/100k")


def run(bench: Bench) -> None:
    compare(bench, SETTINGS, DATA)


def compare(bench: Bench, entries: dict[str, dict[str, list[Setting]]], names: tuple[str, ...]) -> None:
    """Each entry of each method on each data set: its default, its search, and what the search has chosen."""
    methods = bench.methods(*entries)
    for source in bench.datasets(*names):
        data = source.read()
        n, facts = data.n, data
        for method in methods:
            for entry, settings in entries.get(method.name, {}).items():
                tasks = [(_at(task, n), stop) for task, stop in settings]
                if method.memory is not None:
                    needed = method.memory(facts, tasks[0][0], 8)
                    if needed > MEMORY * memory_bytes():
                        reason = f"needs an estimated {needed / 2**30:.1f} GiB of {memory_bytes() / 2**30:.1f}"
                        bench.skip(reason, data=source.name, method=method.name, entry=entry)
                        continue
                for number in range(bench.options.runs):
                    _entry(bench, source, method, entry, tasks, number)
    _report(bench)


def _at(task: Task, n: int) -> Task:
    """With alpha = 1 / (C n) where no alpha is given; C is 1, or an option."""
    return task if task.alpha else replace(task, alpha=1.0 / (dict(task.options).get("C", 1.0) * n))


def _entry(bench: Bench, source: DataFile, method: Method, entry: str, settings: list[Setting], number: int) -> None:
    """The default, the search, and what the search has chosen."""
    first = _fit(bench, source, method, entry, settings[0], number, "default")
    if first is None or len(settings) == 1:
        return
    tried = [(_fit(bench, source, method, entry, setting, number, "validation"), setting) for setting in settings]
    found = [(row["accuracy"], setting) for row, setting in tried if row is not None]
    if found:
        # max keeps the first of equals.
        _, chosen = max(found, key=lambda pair: pair[0])
        search = sum(row["seconds"] for row, _ in tried if row is not None)
        if chosen is settings[0]:  # the fit of the default is that of the search
            bench.record(**{**first, "part": "searched", "search_seconds": search})
        else:
            _fit(bench, source, method, entry, chosen, number, "searched", search_seconds=search)


def _fit(
    bench: Bench,
    source: DataFile,
    method: Method,
    entry: str,
    setting: Setting,
    number: int,
    part: str,
    **known: Any,
) -> dict[str, Any] | None:
    task, stop = setting
    how = ", ".join(f"{name} {value:g}" for name, value in task.options) or (
        "" if task.objective == "tree" else f"alpha {task.alpha:.3g}"
    )
    how += "" if stop.max_iter is None or task.objective != "tree" else f"{', ' if how else ''}{stop.max_iter} passes"
    what = {"method": method.name, "entry": entry, "run": number, "part": part, "setting": how, **known}
    bench.say(f"{source.name} {method.name} {entry} {how} ({part}) ...")
    group = int(getattr(modules.module("datasets", source.name.partition("/")[0]), "GROUP", 1))
    if method.name.startswith("memoir") and bench.options.epochs:
        stop = Stop(max_iter=bench.options.epochs)
    arguments = {
        "source": source.arguments(),
        "method": method.name,
        "task": asdict(task),
        "stop": asdict(stop),
        "threads": bench.options.threads,
        "seed": number,
        "budget": bench.options.budget,
        "held_out": group if part == "validation" else None,
    }
    try:
        found = children.call("benchmarks.fitting:fit_and_judge", arguments, python=method.python())
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return None
    row: dict[str, Any] = {**what, **found}
    bench.record(**row)
    return row


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured" and row["part"] != "validation":
            groups.setdefault(tuple(row[name] for name in ("data", "method", "entry", "part")), []).append(row)
    lines = []
    for key, rows in groups.items():
        peak = [(r["memory_peak"] - r["memory_before"]) / 2**20 for r in rows if r.get("memory_peak")]
        size = rows[0].get("model_bytes")
        lines.append(
            [
                *key,
                ", ".join(dict.fromkeys(row["setting"] for row in rows)) or None,
                *(spread_text([row[name] for row in rows]) for name in ("seconds", "predict_seconds")),
                max(peak) if peak else None,
                None if size is None else size / 2**20,
                *(median(row[name] for row in rows) for name in ("accuracy", "macro_f1")),
            ]
        )
    columns = (
        *("data", "method", "entry", "part", "setting", "train s", "predict s"),
        *("peak MiB", "model MiB", "accuracy", "macro-F1"),
    )
    bench.table("Median [least, most]; peak: besides the data; prediction: all test rows", columns, lines)
    if groups:
        _draw(bench, groups)


def _draw(bench: Bench, groups: dict[tuple[Any, ...], list[dict[str, Any]]]) -> None:
    sources = list(dict.fromkeys(key[0] for key in groups))
    with bench.figure(len(sources)) as panels:
        for ax, name in zip(panels, sources):
            for at, entry in enumerate(dict.fromkeys(key[1:3] for key in groups)):
                for part, mark in (("default", "o"), ("searched", "*")):
                    rows = groups.get((name, *entry, part))
                    if rows:
                        x, y = (median(row[what] for row in rows) for what in ("seconds", "accuracy"))
                        ax.plot([x], [y], mark, color=f"C{at % 10}", label=" ".join(entry) if mark == "o" else None)
            log_seconds(ax, "training time (s)")
            ax.set_ylabel("accuracy")
            ax.set_title(name, fontsize=8)
            ax.grid(alpha=0.3)
        legend_below(panels[0])

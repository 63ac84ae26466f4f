"""MEMOIR-l1 by alpha: weights, memory, time, accuracy, macro-F1 (figure 1); lazy truncation, and that of the paper."""

from __future__ import annotations

from statistics import median

from benchmarks.bench import Bench
from benchmarks.experiments.memoir_batch import fit, groups
from benchmarks.figures import legend_below
from benchmarks.measure import spread_text
from benchmarks.task import Task

ALPHAS = (1e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5)
TRUNCATIONS = ("lazy", "touched")


def run(bench: Bench) -> None:
    methods = bench.methods("memoir_l1")
    for source in bench.datasets("icd10cm/4"):
        for method in methods:
            for truncation in TRUNCATIONS:
                for alpha in bench.alphas(*ALPHAS):
                    task = Task("margin", alpha=alpha, options=(("truncation", truncation),))
                    for number in range(bench.options.runs):
                        fit(bench, source, method, task, number, truncation=truncation)
    _report(bench)


def _report(bench: Bench) -> None:
    found = groups(bench, "truncation", "alpha")
    lines = [
        [
            *key,
            median(row["nonzeros"] for row in rows),
            median(row["held_bytes"] for row in rows) / 2**20,
            median(row["model_bytes"] for row in rows) / 2**20,
            *(spread_text([row[name] for row in rows]) for name in ("seconds", "accuracy", "macro_f1")),
        ]
        for key, rows in found.items()
    ]
    columns = (
        "data",
        "method",
        "truncation",
        "alpha",
        "weights",
        "held MiB",
        "model MiB",
        "fit s",
        "accuracy",
        "macro-F1",
    )
    bench.table("l1: median [least, most]", columns, lines)
    if not lines:
        return
    with bench.figure(2) as panels:
        for ax, what in zip(panels, ("accuracy", "macro_f1")):
            for name in dict.fromkeys((key[0], key[2]) for key in found):
                points = [
                    (median(row["model_bytes"] for row in rows) / 2**20, median(row[what] for row in rows))
                    for key, rows in found.items()
                    if (key[0], key[2]) == name
                ]
                ax.plot(*zip(*points), marker="o", markersize=3, label=f"{name[0]}, {name[1]}")
            ax.set_xscale("log")
            ax.set_xlabel("model (MiB)")
            ax.set_ylabel(what)
            ax.grid(alpha=0.3)
        legend_below(panels[0])

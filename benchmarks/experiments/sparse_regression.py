"""Lasso, elastic net and l1 logistic regression at equal certified gap, against celer, skglm, scikit-learn and FISTA.

Per case (data, loss, l1_ratio, strength, tolerance): the loosest tolerance of its own with which a method's weights
have the certified relative gap asked for, by the one judge in `benchmarks.gap`, is searched for off the clock, for ours
and for the peers alike; then all are timed in turn, whole fits, in an order that is swapped from run to run. Strengths
are parts of the least one at which all weights are zero. Data are float64 and have no intercept. Class 1 against the
rest is the target +1 / -1 of the squared loss. A method with a fit longer than a tenth of --budget is left at that.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.catalog import Method
from benchmarks.data import Data
from benchmarks.figures import legend_below, log_seconds
from benchmarks.gap import relative_gap
from benchmarks.measure import quiet, spread_text, threads_limited
from benchmarks.search import Tolerances, Trial
from benchmarks.task import Fit, Stop, Task

TOLS = (1e-3, 1e-6)
PARTS = (0.1, 0.01, 0.001)
#: loss, l1_ratio
PENALTIES = (("squared", 1.0), ("squared", 0.5), ("log_loss", 1.0))
METHODS = ("cd", "fista", "celer", "skglm", "sklearn_lasso", "sklearn_l1_logistic")
RUNGS = tuple(float(f"{lead}e-{k}") for k in range(2, 13) for lead in (3, 1))


def run(bench: Bench) -> None:
    chosen = bench.methods(*METHODS)
    for source in bench.datasets("covtype", "designs/tall", "designs/wide", "rcv1/ccat", "news20"):
        data = source.read().cast("float64")
        for loss, ratio in PENALTIES:
            if loss == "log_loss" and data.y.dtype.kind == "f":
                continue
            rows = _one_against_the_rest(data, loss)
            most = largest_strength(rows, loss) / ratio
            for part in bench.alphas(*PARTS):
                task = Task(loss, alpha=part * most, l1_ratio=ratio)
                _case(bench, rows, task, part, [m for m in chosen if m.refuses(task) is None])
    _report(bench)


def _one_against_the_rest(data: Data, loss: str) -> Data:
    """y as the loss takes it: numbers, or 1 for class 1 and 0 for the rest."""
    if data.y.dtype.kind == "f":
        return data
    low = -1.0 if loss == "squared" else 0
    return replace(data, y=np.where(data.y == 1, 1, low), y_test=np.where(data.y_test == 1, 1, low))


def largest_strength(data: Data, loss: str) -> float:
    """The least l1 strength at which all weights are zero: the steepest slope of the mean loss there."""
    y = data.y if loss == "squared" else 0.5 * np.where(data.y == 1, 1.0, -1.0)
    return float(np.abs(data.X.T @ y).max()) / data.n


def _case(bench: Bench, data: Data, task: Task, part: float, methods: list[Method]) -> None:
    about = {"objective_name": task.objective, "l1_ratio": task.l1_ratio, "part": part, "alpha": task.alpha}
    searches: dict[str, Tolerances] = {}
    for tol in TOLS:
        entries = []
        for method in methods:
            if method.name not in searches:
                fitting = _Fitting(bench, method, data, task)
                searches[method.name] = Tolerances(fitting, 0.1 * bench.options.budget, _rungs(method))
            found = searches[method.name].search(tol)
            bench.say(
                f"{data.name} {task.objective} {task.l1_ratio:g} max/{1 / part:g} to {tol:g}: {method.name} tolerance "
                f"{found.setting:g}{'' if found.reached else ' (not reached)'}, {found.at_least:.3g} s"
            )
            entries.append((method, found))
        for number in range(bench.options.runs):
            for method, found in entries if number % 2 == 0 else entries[::-1]:
                known = {"method": method.name, **about, "tol": tol, "run": number, "setting": found.setting}
                if not found.reached:
                    if number == 0:
                        bench.fail("the gap was not reached", **known, data=data.name, at_least=found.at_least)
                    continue
                fit = _fit(bench, method, data, task, found.setting, number)
                objective, gap = relative_gap(data, task, fit.weights, fit.intercept)
                bench.record(
                    **{**data.facts, **known},
                    version=method.version,
                    seconds=fit.seconds,
                    cpu_seconds=fit.cpu_seconds,
                    solver_seconds=fit.solver_seconds,
                    iterations=fit.iterations,
                    objective=objective,
                    relative_gap=gap,
                    nonzero=int(np.count_nonzero(fit.weights)),
                )


def _rungs(method: Method) -> tuple[float, ...]:
    # Ours stop on the gap itself; a rung of the same ladder below is there in case the judge's dual point is worse.
    return tuple(rung for rung in RUNGS if not method.ours or rung <= max(TOLS))


class _Fitting:
    """A trial at a tolerance: judged by its gap; None once a fit has taken too long."""

    def __init__(self, bench: Bench, method: Method, data: Data, task: Task) -> None:
        self._what = bench, method, data, task
        self._long = False

    def __call__(self, tol: float) -> Trial | None:
        if self._long:
            return None
        bench, method, data, task = self._what
        fit = _fit(bench, method, data, task, tol, 0)
        self._long = fit.seconds > 0.1 * bench.options.budget
        return Trial(relative_gap(data, task, fit.weights, fit.intercept)[1], fit.seconds, fit.iterations)


def _fit(bench: Bench, method: Method, data: Data, task: Task, tol: float, seed: int) -> Fit:
    # skglm's tolerance is of the scale of alpha, those of the others are relative.
    scale = task.alpha if method.name == "skglm" else 1.0
    stop = Stop(tol * scale, 100_000 if method.name == "fista" else None)
    with quiet(), threads_limited(bench.options.threads):
        found: Fit = method.fit(data, task, stop, threads=bench.options.threads, seed=seed)
    return found


def _report(bench: Bench) -> None:
    cases: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = row["data"], row["objective_name"], row["l1_ratio"], row["part"], row["tol"]
            cases.setdefault(key, {}).setdefault(row["method"], []).append(row)
    lines, ratios = [], []
    for key, methods in cases.items():
        ours = methods.get("cd")
        if ours is None:
            continue
        label = f"{key[0]} {key[1]} {key[2]:g} max/{1 / key[3]:g} {key[4]:g}"
        for name, rows in methods.items():
            seconds = [row["seconds"] for row in rows]
            against = [row["seconds"] / mine["seconds"] for row, mine in zip(rows, ours)]
            gap = max(row["relative_gap"] for row in rows)
            lines.append([label, name, spread_text(seconds), spread_text(against), f"{gap:.1e}", rows[0]["nonzero"]])
            if name != "cd":
                ratios.append((label, name, median(against)))
            label = ""
    columns = ("case", "method", "fit s", "over cd", "gap", "non-zero")
    bench.table("Seconds to a certified relative gap, median [least, most]", columns, lines)
    if ratios:
        _draw(bench, ratios)


def _draw(bench: Bench, ratios: list[tuple[str, str, float]]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in ratios))
    with bench.figure(height=1.2 + 0.16 * len(labels)) as (ax,):
        for name in dict.fromkeys(name for _, name, _ in ratios):
            points = [(value, labels.index(label)) for label, who, value in ratios if who == name]
            ax.plot(*zip(*points), "o", markersize=3, label=name)
        ax.axvline(1.0, color="black", linewidth=0.8)
        ax.set_yticks(range(len(labels)), labels, fontsize=5)
        ax.invert_yaxis()
        log_seconds(ax, "time over that of coordinate descent (right of 1: slower than ours)")
        legend_below(ax)

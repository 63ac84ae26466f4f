"""One thread and several: time to the same certified gap, and whether the result is the same to the last bit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import catalog
from benchmarks.bench import Bench
from benchmarks.catalog import Method
from benchmarks.data import Data
from benchmarks.figures import legend_below, log_seconds
from benchmarks.fitting import describe
from benchmarks.measure import quiet, spread_text, threads_limited
from benchmarks.task import Fit, Stop, Task

TOL = 1e-3
STOP = Stop(TOL, max_iter=300)

#: By data: method, loss, gamma. With many classes sdca and sdca_active go in rounds, and one-vs-rest in ranges.
_CASES: dict[str, tuple[tuple[str, str, float], ...]] = {
    "news20": (
        ("auto", "multinomial", 0.0),
        ("auto", "crammer_singer", 0.1),
        ("sdca_rounds", "multinomial", 0.0),
        ("sdca_rounds", "crammer_singer", 0.1),
        ("sdca_async", "multinomial", 0.0),
        ("sdca_async", "crammer_singer", 0.1),
    ),
    "icd10cm": (
        ("sdca", "multinomial", 0.0),
        ("sdca_active", "crammer_singer", 0.1),
        ("sdca", "squared_hinge", 0.0),
    ),
    "mnist": (("auto", "multinomial", 0.0), ("auto", "crammer_singer", 0.1)),
}


@dataclass(frozen=True)
class Case:
    method: Method
    task: Task


def run(bench: Bench) -> None:
    bench.methods("auto", "sdca", "sdca_rounds", "sdca_active", "sdca_async")
    chosen = bench.options.only
    several = max(2, bench.options.threads)
    for source in bench.datasets(*_CASES):
        data = source.read()
        for alpha in bench.alphas(1e-5):
            for name, objective, gamma in _CASES.get(source.name.partition("/")[0], _CASES["news20"]):
                if chosen is None or name in chosen:
                    task = Task(objective, alpha=alpha, gamma=gamma)
                    _compare(bench, data, Case(catalog.method(name), task), (1, several))
    _report(bench)


def _compare(bench: Bench, data: Data, case: Case, jobs: tuple[int, int]) -> None:
    for number in range(bench.options.runs):
        first: str | None = None
        for threads in jobs if number % 2 == 0 else jobs[::-1]:
            with threads_limited(threads), quiet():
                fit = case.method.fit(data, case.task, STOP, threads=threads, seed=number)
            mark = _mark(fit)
            same = {} if first is None else {"same_bits": mark == first}
            first = mark
            bench.record(
                **data.facts,
                method=case.method.name,
                version=case.method.version,
                objective_name=case.task.objective,
                alpha=case.task.alpha,
                run=number,
                n_jobs=threads,
                **describe(fit),
                **same,
            )


def _mark(fit: Fit) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(fit.weights).tobytes())
    digest.update(np.ascontiguousarray(fit.intercept).tobytes())
    return digest.hexdigest()


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], dict[int, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = tuple(row[name] for name in ("data", "method", "objective_name", "alpha"))
            groups.setdefault(key, {}).setdefault(row["n_jobs"], []).append(row)
    lines = []
    for key, by_jobs in groups.items():
        one, more = (sorted(by_jobs[n], key=lambda r: r["run"]) for n in sorted(by_jobs))
        same = [r["same_bits"] for r in one + more if "same_bits" in r]
        worst = max(r["certified_relative_gap"] for r in one + more)
        # Runs that ended elsewhere are no comparison.
        ratios = ["not reached"] * 2
        if worst <= TOL:
            ratios = [spread_text([a[c] / b[c] for a, b in zip(one, more)]) for c in ("seconds", "solver_seconds")]
        lines.append(
            [
                *key,
                *(spread_text([r["seconds"] for r in rows]) for rows in (one, more)),
                *ratios,
                worst,
                "yes" if all(same) else "no",
            ]
        )
    several = max(2, bench.options.threads)
    columns = (
        "data",
        "method",
        "objective",
        "alpha",
        "1 thread: fit s",
        f"{several} threads: fit s",
        "ratio: fit",
        "ratio: solver",
        "worst gap",
        "same bits",
    )
    bench.table("Time to a certified gap of 1e-3: median [least, most]", columns, lines)
    if lines:
        _draw(bench, groups)


def _draw(bench: Bench, groups: dict[tuple[Any, ...], dict[int, list[dict[str, Any]]]]) -> None:
    with bench.figure() as (ax,):
        for at, by_jobs in enumerate(groups.values()):
            for number, (jobs, rows) in enumerate(sorted(by_jobs.items())):
                seconds = [r["seconds"] for r in rows]
                ax.plot(
                    seconds,
                    [at + 0.2 * number] * len(seconds),
                    "o" if number else "s",
                    markersize=4,
                    color=f"C{number}",
                    label=f"{jobs} thread(s)" if at == 0 else None,
                )
        ax.set_yticks(range(len(groups)), [f"{k[0]}\n{k[1]} {k[2]}" for k in groups], fontsize=6)
        log_seconds(ax, "fit (s) to a certified gap of 1e-3, every run")
        legend_below(ax)

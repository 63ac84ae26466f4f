"""DS-MLR beside L-BFGS and LC: objective and test F1 against time, the rank of the true label.

Softmax regression with an intercept on clef, 20 Newsgroups, panlex_swadesh (its frequent n-grams) and icd10cm (3
characters). The optimum is certified by SDCA; the error is that of the objective relative to it. All run in one
process, DS-MLR on ``--threads`` workers; LC takes its steps on the classes by the same number of threads.
``ds_mlr_stochastic`` is the first phase alone and ``ds_mlr_printed`` the algorithm as printed: these two are to show
where they stall, and get a fifth of the time. ``--budget`` seconds a run at most. Rows: a look at a run each (kind
"look"), the time to each level (kind "run"), and the distribution of ranks (kind "ranks").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.contest import MEMORY
from benchmarks.experiments import _ds_mlr
from benchmarks.experiments._ds_mlr import ALPHAS, LEVELS, Case, Curve
from benchmarks.machine import memory_bytes
from benchmarks.measure import quiet, threads_limited

#: What --only may name.
ENTRIES = ("ds_mlr", "ds_mlr_queue", "ds_mlr_stochastic", "ds_mlr_printed", "lbfgs", "lc")
#: Ranks that are written down.
_RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_SHOWN = ("ds_mlr_stochastic", "ds_mlr_printed")


def run(bench: Bench) -> None:
    workers, results = bench.options.threads, {}
    for source in bench.datasets(*ALPHAS):
        data = source.read()
        for alpha in bench.alphas(ALPHAS.get(source.name, 1e-5)):
            with threads_limited(workers), quiet():
                case = _ds_mlr.make_case(data, alpha, threads=workers)
                bench.say(
                    f"{source.name}: optimum {case.optimum:.6g}, certified to {1 - case.least / case.optimum:.1e}"
                )
                found = _curves(bench, case, workers)
            results[source.name if bench.options.alphas is None else f"{source.name} {alpha:g}"] = found
    _report(bench, results)


def _curves(bench: Bench, case: Case, workers: int) -> dict[str, list[Curve]]:

    makers = _ds_mlr.entries(workers)
    chosen = [name for name in makers if bench.options.only is None or name in bench.options.only]
    for name in list(chosen):
        needed = sum(makers[name]().prepare(case.problem).nbytes(case.problem).values())
        if needed > MEMORY * memory_bytes():
            reason = f"needs an estimated {needed / 2**30:.1f} GiB of {memory_bytes() / 2**30:.1f}"
            bench.skip(reason, data=case.data.name, method=name)
            chosen.remove(name)
    found: dict[str, list[Curve]] = {name: [] for name in chosen}
    for name in chosen:  # compiles
        _ds_mlr.trace(case, makers[name](), budget=1e9, most=4, judge=False)
    for number in range(bench.options.runs):
        for name in chosen if number % 2 == 0 else chosen[::-1]:
            budget = bench.options.budget * (0.2 if name in _SHOWN else 1.0)
            curve = _ds_mlr.trace(case, makers[name](), budget=budget, seed=number, judge=number == 0)
            found[name].append(curve)
            _record(bench, case, name, number, curve)
    return found


def _record(bench: Bench, case: Case, name: str, number: int, curve: Curve) -> None:
    common: dict[str, Any] = {**case.facts, "method": name, "run": number}
    times = {f"seconds_to_{level:g}": curve.when(level) for level in LEVELS}
    times |= {f"passes_to_{level:g}": curve.when(level, "passes") for level in LEVELS}
    bench.record(
        **common, kind="run", **times, error=curve.error[-1], seconds=curve.seconds[-1], iterations=curve.iterations[-1]
    )
    if number:
        return
    for at, seconds in enumerate(curve.seconds):
        bench.record(
            **common,
            kind="look",
            seconds=seconds,
            passes=curve.passes[at],
            iterations=curve.iterations[at],
            error=curve.error[at],
            micro_f1=curve.micro_f1[at],
            macro_f1=curve.macro_f1[at],
        )
    for when, shares in curve.ranks.items():
        for rank in _RANKS:
            if rank <= len(shares):
                bench.record(**common, kind="ranks", when=when, rank=rank, share=float(shares[rank - 1]))


def _report(bench: Bench, results: dict[str, dict[str, list[Curve]]]) -> None:
    lines: list[list[Any]] = []
    for label, found in results.items():
        shown = label
        for name, curves in found.items():
            times = [_median([curve.when(level) for curve in curves]) for level in LEVELS]
            passes = _median([curve.when(LEVELS[-1], "passes") for curve in curves])
            first = curves[0]
            lines.append([shown, name, *times, passes, first.error[-1], first.micro_f1[-1], first.macro_f1[-1]])
            shown = ""
        if "lc" in found and "ds_mlr" in found:
            # The least error that LC reaches in its time, and how long DS-MLR takes to it.
            least = min(curve.error[-1] for curve in found["lc"])
            slow = _median([curve.when(least * (1 + 1e-9)) for curve in found["lc"]])
            fast = _median([curve.when(least) for curve in found["ds_mlr"]])
            ratio = None if slow is None or fast is None else slow / fast
            bench.say(f"{label}: to LC's last error, {least:.1e}, LC takes {slow} s and DS-MLR {fast} s: {ratio} times")
    columns = ("data", "method", *(f"s to {level:g}" for level in LEVELS), "passes", "error", "micro F1", "macro F1")
    bench.table("Medians of the runs (-: a run did not get there)", columns, lines)
    if results:
        _draw(bench, results)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if len(known) == len(values) else None


def _draw(bench: Bench, results: dict[str, dict[str, list[Curve]]]) -> None:
    from matplotlib.figure import Figure

    from benchmarks.figures import legend_below, log_seconds

    figure = Figure(figsize=(14, 2.8 * len(results) + 0.6), layout="constrained")
    axes = figure.subplots(len(results), 4, squeeze=False)
    for row, (label, found) in zip(axes, results.items()):
        for number, (name, curves) in enumerate(found.items()):
            curve = curves[0]
            look = {"color": f"C{number}", "linewidth": 1.2, "label": name}
            row[0].plot(curve.seconds, np.maximum(curve.error, 1e-7), **look)
            row[1].plot(curve.seconds, curve.micro_f1, **look)
            row[2].plot(curve.seconds, curve.macro_f1, **look)
            for when, shares in curve.ranks.items():
                style = {**look, "linestyle": "-" if when == "at the end" else "--"}
                row[3].plot(np.arange(1, len(shares) + 1), shares, **style)
        row[0].set(yscale="log", ylabel=f"{label}\nrelative error of the objective")
        row[1].set(ylabel="test micro F1")
        row[2].set(ylabel="test macro F1")
        row[3].set(xscale="log", xlabel="rank", ylabel="true label within (dashed: 5 iterations)")
        for ax in row[:3]:
            log_seconds(ax, "seconds")
    legend_below(axes[0][0])
    bench.save(figure)

"""Time to a certified gap of 1e-3, multinomial, against scikit-learn's time to the SAME objective value.

Protocol. Per penalty, with and without an intercept:
1. Ours is fitted to a certified relative gap of 1e-3, once per seed; its weights are judged in float64 by
   `benchmarks.objective`. That value is the target of this seed's run.
2. The peer's least number of iterations whose weights reach the target is found by doubling and bisection: a full fit
   per number tried, judged by the same function, off the clock. It may never be reached (float32): then the peer's best
   stands, and counts as not reached.
3. Ours and the peer, stopped at that number, are timed in turn, the order swapped from run to run: the whole of fit().
   For ours the solver's own time (no evaluations, no compilation) is recorded as well, for both the processor time of
   fit(), which tells whether others used the machine meanwhile.
Both run in one process on the same number of threads, both get float32 and float64 data ready made; a ratio is taken
against the faster of the peer's two.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.bench import Bench
from benchmarks.catalog import Method
from benchmarks.data import Data
from benchmarks.figures import legend_below, log_seconds
from benchmarks.fitting import describe
from benchmarks.measure import quiet, spread, spread_text, threads_limited
from benchmarks.objective import objective
from benchmarks.task import Fit, Stop, Task

TOL = 1e-3
DTYPES = ("float32", "float64")
#: The peer's own tolerance must not stop it before the target.
PEER_TOL = 1e-12
MOST = 4096

Row = dict[str, Any]


class Ladder:
    """The objective of a peer after m iterations, remembered."""

    def __init__(self, fit: Callable[[int], Fit], judge: Callable[[Fit], float]) -> None:
        self._fit, self._judge = fit, judge
        self._values: dict[int, float] = {}
        self.end = MOST

    def value(self, m: int) -> float:
        if m not in self._values:
            fit = self._fit(m)
            self._values[m] = self._judge(fit)
            if fit.iterations is not None and fit.iterations < m:
                self.end = min(self.end, max(fit.iterations, 1))
        return self._values[m]

    def first(self, target: float, near: int | None = None) -> tuple[int, bool]:
        """The least m whose objective is at most ``target``, and True; or the last m of all, and False.

        ``near`` is a guess: the answer for another seed, or for the other type.
        """
        m, step = near or 8, 1 if near else 8
        if near and self.value(near) <= target:
            while m > step and self.value(m - step) <= target:
                m, step = m - step, 2 * step
            above = max(m - step, 0)
        else:
            above = 0
            while self.value(m) > target:
                if m >= self.end:
                    return self.end, False
                above, m, step = m, min(m + step, MOST), 2 * step
        while m - above > 1:
            middle = (above + m) // 2
            above, m = (above, middle) if self.value(middle) <= target else (middle, m)
        return m, True


def run(bench: Bench) -> None:
    chosen = bench.methods("sdca", "sklearn_lbfgs")
    ours = [method for method in chosen if method.ours]
    peers = [method for method in chosen if not method.ours]
    for source in bench.datasets("news20"):
        data = source.read()
        for alpha in bench.alphas(1e-4, 1e-5, 1e-6):
            for intercept in (False, True):
                task = Task("multinomial", alpha=alpha, intercept=intercept)
                with threads_limited(bench.options.threads), quiet():
                    _compare(bench, data, task, bench.willing(ours, task), bench.willing(peers, task))
    _report(bench)


def _compare(bench: Bench, data: Data, task: Task, ours: list[Method], peers: list[Method]) -> None:
    threads = bench.options.threads
    typed = {dtype: data.cast(dtype) for dtype in DTYPES}

    def fit(method: Method, dtype: str, seed: int, stop: Stop) -> Fit:
        return method.fit(typed[dtype], task, stop, threads=threads, seed=seed)

    def judge(found: Fit) -> float:
        return objective(typed["float64"], task, found.weights, found.intercept)

    def stopped(method: Method, dtype: str) -> Ladder:
        return Ladder(lambda m: fit(method, dtype, 0, Stop(PEER_TOL, m)), judge)

    near: dict[str, int | None] = {peer.name: None for peer in peers}
    ladders = {(peer.name, dtype): stopped(peer, dtype) for peer in peers for dtype in DTYPES}
    for method in ours:
        for dtype in DTYPES:
            case = {"alpha": task.alpha, "intercept": task.intercept, "ours": method.name, "ours_dtype": dtype}
            for run_number in range(bench.options.runs):
                target = judge(fit(method, dtype, run_number, Stop(TOL, 1000)))
                entries = [(method, dtype, Stop(TOL, 1000), True)]
                for peer in peers:
                    for peer_dtype in DTYPES:
                        most, reached = ladders[peer.name, peer_dtype].first(target, near[peer.name])
                        near[peer.name] = most if reached else near[peer.name]
                        entries.append((peer, peer_dtype, Stop(PEER_TOL, most), reached))
                for who, kind, stop, reached in entries if run_number % 2 == 0 else entries[::-1]:
                    found = fit(who, kind, run_number if who.ours else 0, stop)
                    bench.record(
                        **data.facts,
                        **case,
                        method=who.name,
                        version=who.version,
                        dtype=kind,
                        run=run_number,
                        target=target,
                        reached=reached,
                        objective=judge(found),
                        **describe(found),
                    )


def _report(bench: Bench) -> None:
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = tuple(row[name] for name in ("data", "alpha", "intercept", "ours", "ours_dtype"))
            cases.setdefault(key, []).append(row)
    lines, bars = [], []
    for key, rows in cases.items():
        mine = sorted((r for r in rows if r["method"] == key[3]), key=lambda r: r["run"])
        lines.append(
            [
                *key[:3],
                f"{key[3]} {key[4]}",
                median(r["seconds"] for r in mine),
                median(r["solver_seconds"] for r in mine),
                median(r["iterations"] for r in mine),
                max(r["certified_relative_gap"] for r in mine),
                None,
                None,
                None,
            ]
        )
        label = f"{key[0]} {key[1]:g}{' +b' if key[2] else ''} {key[4]}"
        bars.append((label, key[3], [r["seconds"] for r in mine]))
        for peer in dict.fromkeys(r["method"] for r in rows if r["method"] != key[3]):
            theirs = _best(rows, peer)
            sign = "" if all(t["reached"] for t in theirs) else ">= "
            ratios = [
                sign + spread_text([t["seconds"] / m[clock] for t, m in zip(theirs, mine)])
                for clock in ("seconds", "solver_seconds")
            ]
            ratios.append(sign + spread_text([t["cpu_seconds"] / m["cpu_seconds"] for t, m in zip(theirs, mine)]))
            lines.append(
                [
                    *key[:3],
                    f"{peer} {theirs[0]['dtype']}",
                    median(t["seconds"] for t in theirs),
                    None,
                    median(t["iterations"] for t in theirs),
                    None,
                    *ratios,
                ]
            )
            bars.append((label, peer, [t["seconds"] for t in theirs]))
    columns = (
        "data",
        "alpha",
        "intercept",
        "method",
        "fit s",
        "solver s",
        "iterations",
        "gap",
        "ratio: fit",
        "ratio: solver",
        "ratio: CPU",
    )
    bench.table("Median seconds to the same objective; ratio peer / ours: median [least, most]", columns, lines)
    if bars:
        _draw(bench, bars)


def _best(rows: list[Row], peer: str) -> list[Row]:
    """The peer's runs on the type of data on which it is faster, those that reach the target first."""
    by_dtype = [
        sorted((r for r in rows if r["method"] == peer and r["dtype"] == dtype), key=lambda r: r["run"])
        for dtype in DTYPES
    ]
    return min(by_dtype, key=lambda runs: (not all(r["reached"] for r in runs), median(r["seconds"] for r in runs)))


def _draw(bench: Bench, bars: list[tuple[str, str, list[float]]]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in bars))
    methods = list(dict.fromkeys(method for _, method, _ in bars))
    height = 0.8 / len(methods)
    with bench.figure(height=1.2 + 0.3 * len(labels)) as (ax,):
        for at, method in enumerate(methods):
            places = [labels.index(label) + at * height for label, who, _ in bars if who == method]
            middles, least, most = zip(*(spread(seconds) for _, who, seconds in bars if who == method))
            errors = [[m - low for m, low in zip(middles, least)], [high - m for m, high in zip(middles, most)]]
            ax.barh(places, middles, height, xerr=errors, label=method, error_kw={"linewidth": 0.8})
        ax.set_yticks([i + 0.4 - height / 2 for i in range(len(labels))], labels, fontsize=6)
        ax.invert_yaxis()
        log_seconds(ax, "fit (s) to the same objective")
        legend_below(ax)

"""The protocol of the experiments that measure time to the SAME objective, ours to a certified gap.

Per case (a data set, a task, a tolerance):
1. Ours is fitted to the tolerance, once per run with a seed of its own, and judged in float64 by
   `benchmarks.objective`. The WORST of these objectives is the target: the easiest for the peers.
2. Each peer's cheapest setting that reaches the target is searched for (`benchmarks.search`), off the clock, from what
   a watched fit tells where a peer can be watched. A fit longer than the budget is stopped; what was not reached then
   stands with its time as a lower bound.
3. Ours and the peers, each at its setting, are timed in turn, the order swapped from run to run: the whole of fit().
   What took longer than a minute is not timed again: that fit of the search is its only run.
All of this happens in one worker process with the same threads for everyone; a peer is given what types of number it is
asked to be tried on, and the fastest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.bench import Bench, DataFile
from benchmarks.catalog import Method
from benchmarks.children import ChildFailed, TimedOut, Worker
from benchmarks.data import Data
from benchmarks.figures import legend_below, log_seconds
from benchmarks.machine import memory_bytes
from benchmarks.measure import spread, spread_text
from benchmarks.search import Found, Iterations, Tolerances, Trial
from benchmarks.task import Stop, Task

__all__ = ["Contest", "report"]

Row = dict[str, Any]
Search = Iterations | Tolerances

#: Seconds beyond which a fit is its only run.
LONG = 60.0
#: A peer's own tolerance must not stop it before the target.
EXACT = 1e-12
#: The part of the machine's memory that a peer may be estimated to need.
MEMORY = 0.9


@dataclass
class Contest:
    """Ours against peers on one data set.

    Attributes
    ----------
    bench, source, data
    task : Task
    search : type
        `Iterations` or `Tolerances`: what is turned until a peer reaches the target.
    dtypes : tuple of str
        Types of number the peers are tried on; ours is fitted on ``ours_dtype``.
    classes : list of int, optional
        The peers are timed on these classes alone and their time is estimated; all are judged on them alone.
    """

    bench: Bench
    source: DataFile
    data: Data
    task: Task
    search: type[Search]
    dtypes: tuple[str, ...] = ("float64",)
    ours_dtype: str = "float32"
    classes: list[int] | None = None
    _searches: dict[tuple[str, str], Search] = field(default_factory=dict)
    _near: dict[str, Any] = field(default_factory=dict)

    def run(self, ours: Iterable[Method], peers: Iterable[Method], tols: Iterable[float]) -> None:
        """Every method of ours at every tolerance, the loosest first, against every peer."""
        entered = list(self._fitting(peers))
        with Worker() as self._worker:
            for method in ours:
                for tol in sorted(tols, reverse=True):
                    try:
                        self._case(method, entered, tol)
                    except ChildFailed as failure:
                        self.bench.fail(str(failure), **self._what(method.name, self.ours_dtype), tol=tol)

    def _fitting(self, peers: Iterable[Method]) -> Iterator[tuple[Method, str]]:
        """Peers and types of number that fit into memory; the others are recorded as skipped."""
        for peer in peers:
            for dtype in self.dtypes:
                one_by_one = self.classes is not None and peer.fit_classes is not None
                if peer.memory is not None and not one_by_one:
                    needed = peer.memory(self.data, self.task, 4 if dtype == "float32" else 8)
                    if needed > MEMORY * memory_bytes():
                        reason = f"needs an estimated {needed / 2**30:.1f} GiB of {memory_bytes() / 2**30:.1f}"
                        self.bench.skip(reason, **self._what(peer.name, dtype))
                        continue
                yield peer, dtype

    def _case(self, method: Method, peers: list[tuple[Method, str]], tol: float) -> None:
        bench, stop = self.bench, Stop(tol, 10_000)
        bench.say(f"{self.source.name} {self.task.objective} alpha {self.task.alpha:g} {method.name} to {tol:g} ...")
        first = [self._fit(method, self.ours_dtype, stop, 0)]
        runs = 1 if first[0].seconds > LONG else bench.options.runs
        first += [self._fit(method, self.ours_dtype, stop, seed) for seed in range(1, runs)]
        target = max(trial.objective for trial in first)
        case = {"ours": method.name, "tol": tol, "target": target}
        entries: list[tuple[Method, str, Stop, Found]] = [
            (method, self.ours_dtype, stop, Found(tol, True, first[0], first[0].seconds))
        ]
        for peer, dtype in peers:
            try:
                found = self._searched(peer, dtype, target)
            except ChildFailed as failure:
                bench.fail(str(failure), **self._what(peer.name, dtype), **case)
                continue
            bench.say(f"  {peer.name} {dtype}: {found.setting:g}{'' if found.reached else ' (not reached)'}")
            entries.append((peer, dtype, self._stop(found.setting), found))
        for number in range(bench.options.runs):
            for who, dtype, how, found in entries if number % 2 == 0 else entries[::-1]:
                once = found.at_least > LONG or not found.reached
                if once and number:
                    continue
                try:
                    trial = found.trial if once else self._fit(who, dtype, how, number if who.ours else 0)
                except ChildFailed as failure:
                    bench.fail(str(failure), **self._what(who.name, dtype), **case)
                    continue
                self._record(who, dtype, number, found, trial, case)

    def _searched(self, peer: Method, dtype: str, target: float) -> Found:
        key = (peer.name, dtype)
        if key not in self._searches:

            def fit(setting: float) -> Trial | None:
                try:
                    return self._fit(peer, dtype, self._stop(setting), 0)
                except TimedOut:
                    return None

            self._searches[key] = self.search(fit, self.bench.options.budget)
        near = self._near.get(peer.name)
        if peer.watch is not None and self.search is Iterations:
            about = {"source": self.source.arguments(), "method": peer.name, "task": asdict(self.task), "dtype": dtype}
            limits = {"threads": self.bench.options.threads, "seed": 0, "budget": self.bench.options.budget}
            try:
                near = self._worker.call("benchmarks.fitting:watch", {**about, **limits, "target": target}) or near
            except TimedOut:
                return Found(Iterations.MOST, False, None, self.bench.options.budget)
        found = self._searches[key].search(target, near)
        if found.reached:
            self._near[peer.name] = found.setting
        return found

    def _stop(self, setting: float) -> Stop:
        return Stop(EXACT, int(setting)) if self.search is Iterations else Stop(setting, None)

    def _fit(self, method: Method, dtype: str, stop: Stop, seed: int) -> Trial:
        facts = self._worker.call(
            "benchmarks.fitting:fit_and_judge",
            {
                "source": self.source.arguments(),
                "method": method.name,
                "task": asdict(self.task),
                "stop": asdict(stop),
                "threads": self.bench.options.threads,
                "seed": seed,
                "dtype": dtype,
                "classes": self.classes,
                "budget": None if method.ours else self.bench.options.budget,
            },
        )
        # The peak of a process that has fitted before says nothing of this fit.
        known = {name: value for name, value in facts.items() if not name.startswith("memory_")}
        return Trial(facts["objective"], facts["seconds"], facts["iterations"], known)

    def _what(self, method: str, dtype: str) -> Row:
        task = self.task
        about = {"objective_name": task.objective, "alpha": task.alpha, "intercept": task.intercept}
        return {"data": self.source.name, "method": method, **about, "dtype": dtype}

    def _record(self, who: Method, dtype: str, number: int, found: Found, trial: Trial | None, case: Row) -> None:
        facts = {**self.data.facts, "version": who.version, "seconds": found.at_least} if trial is None else trial.facts
        knob = "tolerance" if who.ours else self.search.knob
        judged = {} if self.classes is None else {"judged_classes": len(self.classes)}
        over = {"reason": f"stopped at the budget of {self.bench.options.budget:g} s"} if trial is None else {}
        how = {"run": number, "knob": knob, "setting": found.setting, "reached": found.reached}
        self.bench.record(**{**self._what(who.name, dtype), **case, **how, **over, **judged, **facts})


def report(bench: Bench) -> None:
    """The table of ratios and the figure of an experiment whose rows are those of contests."""
    names = ("data", "objective_name", "alpha", "intercept", "ours", "tol")
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in bench.rows:
        if row["status"] == "measured" and "tol" in row:
            cases.setdefault(tuple(row[name] for name in names), []).append(row)
    lines, bars = [], []
    for key, rows in cases.items():
        data, _, alpha, intercept, ours, tol = key
        mine = sorted((r for r in rows if r["method"] == ours), key=lambda r: r["run"])
        if not mine:
            continue
        label = f"{data} {alpha:g}{' +b' if intercept else ''}, gap {tol:g}"
        gap = max(r["certified_relative_gap"] for r in mine)
        lines.append([label, ours, *_times(mine), mine[0]["iterations"], f"gap {gap:.1e}", None, None, None])
        bars.append((label, ours, [r["seconds"] for r in mine]))
        bests = []
        for peer in dict.fromkeys(r["method"] for r in rows if r["method"] != ours):
            theirs = _fastest([r for r in rows if r["method"] == peer])
            bests.append(theirs)
            bars.append((label, peer, [r["seconds"] for r in theirs]))
            about = f"{theirs[0]['knob']} {theirs[0]['setting']:g}"
            name = f"{peer} {theirs[0]['dtype']}"
            lines.append(["", name, *_times(theirs), None, about, *_ratios(theirs, mine), _note(theirs)])
        if len(bests) > 1:
            best = min(bests, key=lambda runs: median(r["seconds"] for r in runs))
            lines.append(["", "best of them", *[None] * 4, *_ratios(best, mine), best[0]["method"]])
    if not lines:
        return
    columns = ("case", "method", "fit s", "solver s", "epochs", "stopped by", "ratio", "ratio: solver", "note")
    title = "Seconds to the same objective; ratio: peer / ours, median [least, most]"
    bench.table(title, columns, lines)
    _draw(bench, bars)


def _times(rows: list[Row]) -> list[str | None]:
    solver = [r["solver_seconds"] for r in rows if r.get("solver_seconds") is not None]
    sign = "" if rows[0]["reached"] else ">= "
    return [sign + spread_text([r["seconds"] for r in rows]), spread_text(solver) if solver else None]


def _ratios(theirs: list[Row], mine: list[Row]) -> list[str]:
    """Whole fits, and against our solver's own time; of the same run where both have it, else of the median."""
    found = []
    for clock in ("seconds", "solver_seconds"):
        if len(theirs) == len(mine):
            ratios = [t["seconds"] / m[clock] for t, m in zip(theirs, mine)]
        else:
            ratios = [t["seconds"] / median(m[clock] for m in mine) for t in theirs]
        found.append(("" if theirs[0]["reached"] else ">= ") + spread_text(ratios))
    return found


def _note(rows: list[Row]) -> str:
    row, notes = rows[0], []
    if not row["reached"]:
        notes.append(row.get("reason") or "not reached")
    if row.get("measured_classes"):
        notes.append(f"from {row['measured_classes']} of {row['K']} classes, +- {row['standard_error']:.2g} s")
    return "; ".join(notes)


def _fastest(rows: list[Row]) -> list[Row]:
    """A peer's runs on the type of number on which it is faster, those that reach the target first."""
    by_dtype = [
        sorted((r for r in rows if r["dtype"] == dtype), key=lambda r: r["run"])
        for dtype in dict.fromkeys(r["dtype"] for r in rows)
    ]
    return min(by_dtype, key=lambda runs: (not all(r["reached"] for r in runs), median(r["seconds"] for r in runs)))


def _draw(bench: Bench, bars: list[tuple[str, str, list[float]]]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in bars))
    methods = list(dict.fromkeys(method for _, method, _ in bars))
    height = 0.8 / len(methods)
    with bench.figure(height=1.4 + (0.12 + 0.1 * len(methods)) * len(labels)) as (ax,):
        for at, method in enumerate(methods):
            places = [labels.index(label) + at * height for label, who, _ in bars if who == method]
            middles, least, most = zip(*(spread(seconds) for _, who, seconds in bars if who == method))
            errors = [[m - low for m, low in zip(middles, least)], [high - m for m, high in zip(middles, most)]]
            ax.barh(places, middles, height, xerr=errors, label=method, error_kw={"linewidth": 0.8})
        ax.set_yticks([i + 0.4 - height / 2 for i in range(len(labels))], labels, fontsize=6)
        ax.invert_yaxis()
        log_seconds(ax, "fit (s) to the same objective")
        legend_below(ax, columns=2)

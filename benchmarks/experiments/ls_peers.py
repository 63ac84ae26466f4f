"""Least squares beside LIBLINEAR, Vowpal Wabbit and scikit-learn's lbfgs: the same features, equal error or objective.

Random Fourier features of 50 principal components of MNIST, the same for everyone, and on everyone's clock. Two
questions. How long does a peer need for its test error, and the fastest of ours (ridge regression, calibrated,
softmax) for no greater an error? And how long does lbfgs need to the softmax objective at which ours ends with a
certified gap of 1e-3? lbfgs gets half as many iterations again until it is there; the last number that is too few
bounds its time from below. What is stopped at the budget bounds a peer's time too. Nobody has an intercept (LIBLINEAR
would penalize it), and everyone the same alpha. Every fit of ours has a process of its own.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.children import TimedOut
from benchmarks.task import Stop, Task

SIZES = (1000, 4000)
#: A sum of losses weighted by C = 1 / (alpha n), 16.7 here.
ALPHA = 1e-6
COMPONENTS = 50
BANDWIDTH = 0.5
GAP = 1e-3
#: Ours, on features that are made chunk by chunk.
STREAMED: dict[str, dict[str, Any]] = {
    "ridge": {"make": "GeneralizedLeastSquaresClassifier"},
    "calibrated": {"make": "CalibratedLeastSquaresClassifier", "basis": "cubic", "max_iter": 5, "tol": 1e-4},
}
#: Ours on softmax regression; the first says which objective lbfgs is to reach.
OURS = ("preconditioned_lbfgs", "majorise")
#: Peers that are steered by their own defaults, and the objectives and shares of l1 they are given. Six are LIBLINEAR.
PEERS: dict[str, tuple[tuple[str, float], ...]] = {
    "liblinear": tuple((name, 0.0) for name in ("log_loss", "squared_hinge", "hinge", "crammer_singer")),
    "liblinear_primal": (("squared_hinge", 0.0),),
    "liblinear_l1": (("squared_hinge", 1.0),),
    "vowpal_wabbit": (("log_loss", 0.0),),
}
#: Features up to which a peer takes part: beyond, its text alone would be gigabytes.
MOST = {"vowpal_wabbit": 1000}
FIRST, GROWTH = 64, 1.5


def run(bench: Bench) -> None:
    methods = {method.name: method for method in bench.methods(*OURS, *PEERS, "sklearn_lbfgs")}
    for source in bench.datasets("mnist"):
        for alpha in bench.alphas(ALPHA):
            for size in (40, 60) if bench.options.quick else SIZES:
                _case(bench, source, methods, alpha, size)
    _report(bench)


def _blocks(size: int) -> list[dict[str, Any]]:
    components = {"make": "PrincipalComponents", "n_components": COMPONENTS}
    return [
        components,
        {"make": "RandomFourier", "n_components": size, "bandwidth": BANDWIDTH, "random_state": 0},
    ]


def _case(bench: Bench, source: DataFile, methods: dict[str, Any], alpha: float, size: int) -> None:
    first, second = _blocks(size)
    chain = {"make": "Chain", "first": first, "second": second, "random_state": 0}
    if bench.options.only is None:
        for name, estimator in STREAMED.items():
            what = {"data": source.name, "method": name, "ours": True, "n_features": size, "alpha": alpha}
            bench.say(f"{size} features, {name} ...")
            arguments = {
                "source": source.arguments(),
                "estimator": {**estimator, "features": chain, "alpha": alpha, "fit_intercept": False},
                "threads": bench.options.threads,
            }
            for number in range(bench.options.runs):
                _record(bench, "benchmarks.staged:fit_and_judge", arguments, {**what, "run": number})
    target = None
    for name in OURS:
        if name in methods:
            for number in range(bench.options.runs):
                row = _Fit(bench, source, name, Task("multinomial", alpha), size)(Stop(GAP, 1000), number)
                target = row["objective"] if row and target is None else target
    for name, objectives in PEERS.items():
        if name in methods and size > MOST.get(name, size):
            bench.skip("its text would be gigabytes", data=source.name, method=name, n_features=size, alpha=alpha)
        elif name in methods:
            for objective, l1_ratio in objectives:
                task = Task(objective, alpha, l1_ratio=l1_ratio)
                _Fit(bench, source, name, task, size, bench.options.budget)(Stop(), 0)
    if "sklearn_lbfgs" in methods:
        _ladder(
            bench, _Fit(bench, source, "sklearn_lbfgs", Task("multinomial", alpha), size, bench.options.budget), target
        )


class _Fit:
    """One method on one task, as often as it is asked for, with one setting after the other."""

    def __init__(
        self, bench: Bench, source: DataFile, method: str, task: Task, size: int, budget: float | None = None
    ) -> None:
        self.bench, self.what = bench, {"data": source.name, "method": method, "ours": budget is None}
        self.what |= {"n_features": size, "alpha": task.alpha, "objective_name": task.objective}
        self.arguments = {
            "source": source.arguments(),
            "method": method,
            "task": asdict(task),
            "threads": bench.options.threads,
            "seed": 0,
            "dtype": "float32",
            "budget": budget,
            "features": _blocks(size),
        }

    def __call__(self, stop: Stop, number: int, **known: Any) -> dict[str, Any] | None:
        self.bench.say(f"{self.what['n_features']} features, {self.what['method']} {self.what['objective_name']} ...")
        arguments = {**self.arguments, "stop": asdict(stop)}
        return _record(self.bench, "benchmarks.fitting:fit_and_judge", arguments, {**self.what, "run": number, **known})


def _record(bench: Bench, function: str, arguments: dict[str, Any], what: dict[str, Any]) -> dict[str, Any] | None:
    """One fit to one row; None where it failed, or was stopped at the budget, which is a row that says so."""
    try:
        found = children.call(function, arguments)
    except TimedOut:
        budget = bench.options.budget
        bench.record(**what, finished=False, seconds=budget, reason=f"stopped at the budget of {budget:g} s")
        return None
    except children.ChildFailed as failure:
        bench.fail(str(failure), **what)
        return None
    if "accuracy" in found:
        found["test_error"] = 1.0 - found["accuracy"]
    row = {**what, **found, "finished": True}
    row["in_all"] = row["seconds"] + row.get("feature_seconds", 0.0)
    bench.record(**row)
    return row


def _ladder(bench: Bench, fit: _Fit, target: float | None) -> None:
    """More and more iterations till the objective is that of ours, lbfgs ends by itself, or the budget is used."""
    asked = float(FIRST)
    while True:
        row = fit(Stop(1e-12, int(asked)), 0, target=target, setting=int(asked))
        if row is None or (row["iterations"] or 0) < int(asked) or (target is not None and row["objective"] <= target):
            return
        # An iteration takes what it took: what would not fit into the budget is not tried.
        if GROWTH * row["seconds"] > bench.options.budget:
            return
        asked *= GROWTH


def _report(bench: Bench) -> None:
    rows = [row for row in bench.rows if row["status"] == "measured"]
    lines = []
    for row in rows:
        name = f"{row['method']} {row.get('objective_name') or ''} {row.get('setting') or ''}".strip()
        seconds = [row.get("feature_seconds"), row["seconds"], row.get("in_all")]
        error = None if row.get("test_error") is None else 100 * row["test_error"]
        lines.append([row["n_features"], name, *seconds, error, row.get("objective"), row.get("reason")])
    columns = ("features", "method", "features s", "fit s", "in all s", "test error %", "objective", "note")
    bench.table(
        "MNIST, the same random Fourier features for everyone; ridge and calibrated make them in the fit",
        columns,
        lines,
    )
    lines = [*_at_equal_error(rows), *_at_equal_objective(rows)]
    columns = ("features", "peer", "what is equal", "peer s", "ours", "ours s", "ratio")
    bench.table("Seconds with features; ratio: peer / ours", columns, lines)


def _at_equal_error(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """For each fit of a peer, the fastest of ours that errs no more; of a peer with several the one with the least
    error."""
    lines = []
    for size in dict.fromkeys(row["n_features"] for row in rows):
        ours = [row for row in rows if row["n_features"] == size and row["ours"] and row["finished"]]
        peers: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in rows:
            if row["n_features"] == size and not row["ours"]:
                peers.setdefault((row["method"], row["objective_name"]), []).append(row)
        for (name, objective), fits in peers.items():
            done = [row for row in fits if row["finished"]]
            theirs = min(done, key=lambda row: (row["test_error"], row["in_all"])) if done else fits[0]
            seconds = theirs["in_all"] if done else theirs["seconds"]
            what = f"error, {100 * theirs['test_error']:.2f} %" if done else "unfinished"
            line: list[Any] = [size, f"{name} {objective}", what, seconds]
            # Of a peer that did not finish no error is known: it stands against the best that ours has.
            least = theirs["test_error"] if done else min((row["test_error"] for row in ours), default=0.0)
            good = [row for row in ours if row["test_error"] <= least]
            if not good:
                lines.append([*line, "none of ours", None, None])
                continue
            mine = min(good, key=lambda row: row["in_all"])
            ratio = f"{'' if done else '>= '}{seconds / mine['in_all']:.3g}"
            lines.append([*line, mine["method"], mine["in_all"], ratio])
    return lines


def _at_equal_objective(rows: list[dict[str, Any]]) -> list[list[Any]]:
    lines = []
    for size, name in ((size, name) for size in dict.fromkeys(row["n_features"] for row in rows) for name in OURS):
        mine = [row for row in rows if row["n_features"] == size and row["method"] == name]
        ladder = [row for row in rows if row["n_features"] == size and row["method"] == "sklearn_lbfgs"]
        if not mine or not ladder or ladder[0].get("target") is None:
            continue
        ours = sorted(row["in_all"] for row in mine)[len(mine) // 2]
        there = [row for row in ladder if row["finished"] and row["objective"] <= row["target"]]
        before = [row for row in ladder if row not in there]
        least = max((row.get("in_all") or row["seconds"] for row in before), default=0.0)
        most = f" to {there[0]['in_all'] / ours:.3g}" if there else " or more"
        what = f"objective, {ladder[0]['target']:.5g}"
        lines.append([size, "sklearn_lbfgs", what, f">= {least:.3g}", name, ours, f"{least / ours:.3g}{most}"])
    return lines

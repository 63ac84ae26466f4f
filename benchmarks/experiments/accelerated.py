"""The paper's figure: objective against passes for SDCA, accelerated SDCA and FISTA, l2 weight 1e-6 .. 1e-9.

Smoothed hinge (gamma = 1), l1 weight 1e-5, no intercept: RCV1, CCAT against the rest; forest cover, class 1 against
the rest, all 20 000 records; and, standing in for astro-ph, 20 Newsgroups, the four groups on science against the rest.
Rows are scaled so that the longest has norm 1. All three solvers minimize the same `Problem`, start from zero and are
certified after every iteration, off the clock, until the relative duality gap is 1e-3 or ``MOST`` passes are spent. A
pass is one reading of all rows: an epoch of SDCA, a gradient and a point tried of FISTA. The lower bound that
suboptimality is drawn against is the best dual value that any of them has found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.bench import Bench
from benchmarks.data import Data
from benchmarks.measure import quiet, threads_limited

TOL = 1e-3
L1 = 1e-5
MOST = 3000
SOLVERS = ("sdca", "accelerated", "fista")
#: Records kept of a run, at least: a curve.
POINTS = 60

#: name -> the classes that are positive, and whether the test rows are taken along.
_SETS: dict[str, tuple[tuple[int, ...], bool]] = {
    "rcv1/ccat": ((1,), False),
    "covtype": ((0,), True),
    "news20": ((11, 12, 13, 14), False),
}


def run(bench: Bench) -> None:
    chosen = bench.options.only or SOLVERS
    for source in bench.datasets(*_SETS):
        positive, whole = _SETS.get(source.name, ((1,), False))
        X, y = _problem_data(source.read(), positive, whole)
        for lam in bench.alphas(1e-6, 1e-7, 1e-8, 1e-9):
            for name in (name for name in SOLVERS if name in chosen):
                _run(bench, source.name, X, y, lam, name)
    _report(bench)


def _problem_data(data: Data, positive: tuple[int, ...], whole: bool) -> tuple[Any, Any]:
    X, y = data.X, data.y
    if whole:
        X = sp.vstack([X, data.X_test]).tocsr() if sp.issparse(X) else np.vstack([X, data.X_test])
        y = np.concatenate([y, data.y_test])
    X = X.astype(np.float64)
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else (X**2).sum(axis=1)
    return X / np.sqrt(squares.max()), np.isin(y, positive)


def _run(bench: Bench, data: str, X: Any, y: Any, lam: float, name: str) -> None:
    from manyclass import __version__, solvers
    from manyclass.kernels.rows import make_rows
    from manyclass.kernels.targets import SignTargets
    from manyclass.objective.losses import SmoothHingeLoss
    from manyclass.objective.penalties import ElasticNet
    from manyclass.objective.problem import Problem
    from manyclass.optimize.loop import minimize

    most = bench.options.epochs or (200 if bench.options.quick else MOST)
    solver = {"sdca": solvers.SDCA, "accelerated": solvers.AcceleratedSDCA, "fista": solvers.FISTA}[name]()
    indptr = np.concatenate([[0], np.cumsum(y)])
    targets = SignTargets(indptr.astype(np.int64), np.zeros(int(y.sum()), np.int32), 1)
    problem = Problem(make_rows(X), targets, SmoothHingeLoss(1.0), ElasticNet(L1 / lam), lam, X.shape[1])
    with threads_limited(bench.options.threads), quiet():
        history = minimize(problem, solver, tol=TOL, max_iter=most, check_every=1).history
    records = history.records
    places = np.unique(np.geomspace(1, len(records), min(POINTS, len(records))).round().astype(int)) - 1
    for place in places.tolist():
        record = records[place]
        bench.record(
            data=data,
            n=X.shape[0],
            d=X.shape[1],
            lam=lam,
            method=name,
            version=__version__,
            passes=record.passes,
            primal=record.primal,
            dual=record.dual,
            relative_gap=record.relative_gap,
            solver_seconds=record.seconds,
            end=place == len(records) - 1,
            reached=record.relative_gap <= TOL,
        )


def _report(bench: Bench) -> None:
    curves: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            curves.setdefault((row["data"], row["lam"], row["n"]), {}).setdefault(row["method"], []).append(row)
    lines = []
    for (data, lam, n), by_method in curves.items():
        ends = {method: rows[-1] for method, rows in by_method.items()}
        mine = ends.get("accelerated")
        ratios = [
            f"{'' if ends[m]['reached'] else '>= '}{ends[m]['passes'] / mine['passes']:.1f}"
            if m in ends and mine and mine["reached"]
            else None
            for m in ("sdca", "fista")
        ]
        passes = [
            f"{ends[m]['passes']:.0f}"
            if ends[m]["reached"]
            else f"> {ends[m]['passes']:.0f} ({ends[m]['relative_gap']:.0e})"
            for m in ends
        ]
        lines.append([data, f"{lam:g}", f"{lam * n:.2g}", *passes, *ratios])
    methods = list(dict.fromkeys(method for by_method in curves.values() for method in by_method))
    columns = ("data", "l2 weight", "lam n", *(f"{m}: passes" for m in methods), "sdca / acc.", "fista / acc.")
    bench.table(f"Passes to a certified relative gap of {TOL:g} (or > passes spent, and the gap then)", columns, lines)
    if curves:
        _draw(bench, curves)


def _draw(bench: Bench, curves: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]]) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(key[0] for key in curves))
    lams = list(dict.fromkeys(key[1] for key in curves))
    figure = Figure(figsize=(3.2 * len(lams), 2.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(lams), squeeze=False)
    for (data, lam, _), by_method in curves.items():
        ax = axes[names.index(data)][lams.index(lam)]
        best = max(row["dual"] for rows in by_method.values() for row in rows)
        for method, rows in by_method.items():
            passes = [row["passes"] for row in rows]
            ax.plot(passes, [max(row["primal"] / best - 1, 1e-6) for row in rows], label=method, linewidth=1.2)
        ax.set(xscale="log", yscale="log", title=f"{data}, l2 {lam:g}", xlabel="passes", ylim=(1e-5, None))
        ax.title.set_fontsize(8)
        ax.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    axes[0][0].set_ylabel("P / best dual - 1")
    bench.save(figure)

"""The paper's toy, two classes that mirror each other: one stochastic pass of the bound, L-BFGS, SGD at any gain.

The paper shows its data in a figure only. These have the properties it names: highly symmetric (the set is its own
mirror image along a direction that says nothing of the class, and along which nearly all of the rows' length lies), and
not linearly separable. That direction is no axis, so that no scaling of the features would help. A gradient points
along it, almost at random: gains above the inverse of its curvature oscillate, gains below never learn the other one.
lambda 10. SGD with a constant gain, eta_0 / t and eta_0 tau / (tau + t): gains 1e-12 ... 1, tau 1 ... 1e5, mini-batches
of 1 and 10, 40 passes each (``--epochs``). The bound takes one example at a time. L-BFGS spends most of its passes on
its first line search: at the origin the gradients along the idle direction cancel, and the other is ten million times
flatter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.experiments import _bound
from benchmarks.experiments._bound import Case, Curve, Entry
from benchmarks.measure import threads_limited

ROWS = 1000
LAMBDA = 10.0
MOST = 40
GAINS = tuple(10.0**power for power in range(-12, 1))
BATCHES = (1, 10)
TAUS = tuple(10.0**power for power in range(6))


def toy(rows: int = ROWS) -> Case:
    """``rows`` examples, a quarter of them drawn, the others mirror images."""
    rng = np.random.default_rng(0)
    quarter = rows // 4
    idle = rng.normal(5000.0, 500.0, quarter)
    told = rng.normal(0.8, 1.0, quarter)
    # Mirrored along the idle direction, and, with the other class, along the one that tells.
    idle = np.concatenate([idle, -idle, idle, -idle])
    told = np.concatenate([told, told, -told, -told])
    y = np.repeat([0, 1], 2 * quarter)
    X = np.stack([idle + told, idle - told, np.full(len(y), np.sqrt(2.0))], axis=1) / np.sqrt(2.0)
    return Case("toy", X, y, X, y, 2, LAMBDA)


def run(bench: Bench) -> None:
    quick = bench.options.quick
    case = toy(200 if quick else ROWS)
    most = bench.options.epochs or (3 if quick else MOST)
    ours = [
        _bound.BOUND(batch_size=1),
        Entry("bound, literal", "bound", _bound.bound(schedule="literal", batch_size=1)),
        Entry("L-BFGS", "lbfgs", _bound.named("LBFGS")),
    ]
    tuned = [
        _bound.sgd(name, gain, eta0, tau, batch)
        for name, gain in (("sgd", "constant"), ("asgd", "inverse"), ("asgd", "tau"))
        for eta0 in (GAINS[::4] if quick else GAINS)
        for tau in (TAUS if gain == "tau" and not quick else TAUS[:1])
        for batch in BATCHES
    ]
    curves: dict[str, list[tuple[Entry, Curve]]] = {}
    with threads_limited(bench.options.threads):
        best = _bound.optimum(case)
        for entry in _bound.chosen([*ours, *tuned], bench.options.only):
            if entry.name not in curves:
                _bound.warm(case, [entry])
            curve = _bound.trace(case, entry.make(), most=most, best=best[0], seed=1)
            curves.setdefault(entry.name, []).append((entry, curve))
            _record(bench, case, entry, curve, best)
    _report(bench, case, curves, best)


def _record(bench: Bench, case: Case, entry: Entry, curve: Curve, best: tuple[float, float, float]) -> None:
    from manyclass import __version__

    bench.record(
        **case.facts,
        method=entry.name,
        version=__version__,
        **entry.about,
        best=best[0],
        best_error=best[2],
        objective_after_a_pass=float(curve.at([1.0], "objective")[0]),
        error_after_a_pass=float(curve.at([1.0], "error")[0]),
        objective=curve.objective[-1],
        error=curve.error[-1],
        passes=curve.passes[-1],
        monotone=curve.monotone,
    )


def _report(bench: Bench, case: Case, curves: dict[str, list[tuple[Entry, Curve]]], best: Any) -> None:
    lines, drawn = [], []
    for name, runs in curves.items():
        entry, curve = min(runs, key=lambda found: _end(found[1]))
        drawn.append((name, curve))
        options = ", ".join(f"{key} {value:g}" for key, value in entry.about.items() if not isinstance(value, str))
        first = float(curve.at([1.0], "objective")[0])
        lines.append(
            [
                name,
                options or None,
                first / best[0] - 1,
                curve.objective[-1] / best[0] - 1,
                f"{100 * curve.error[-1]:.1f}",
            ]
        )
    lines.append(["optimum", None, None, 0.0, f"{100 * best[2]:.1f}"])
    columns = ("method", "best of its gains", "P/P* - 1 after one pass", "at the end", "error % at the end")
    bench.table(
        f"The symmetric toy, {len(case.y)} rows: of each method the setting whose second half was lowest",
        columns,
        lines,
    )
    with bench.figure(3) as axes:
        rows = slice(None, None, max(1, len(case.y) // 500))
        idle, told = (case.X[rows, :2] @ np.array([[1, 1], [1, -1]]) / np.sqrt(2)).T
        axes[0].scatter(idle, told, c=case.y[rows], s=4, cmap="coolwarm")
        axes[0].set(title="the data, turned by 45 degrees", xlabel="idle direction", ylabel="the one that tells")
        for number, (name, best_curve) in enumerate(drawn):
            for _, curve in curves[name]:
                bold = curve is best_curve
                style = {"color": f"C{number}", "alpha": 1.0 if bold else 0.2, "linewidth": 1.4 if bold else 0.6}
                label = name if bold else None
                axes[1].plot(curve.passes, [-value for value in curve.objective], label=label, **style)
                axes[2].plot(curve.passes, [100 * value for value in curve.error], **style)
        axes[1].set(title="training objective, over -n", xlabel="passes", ylim=(-1.6 * np.log(2), -0.9 * best[0]))
        axes[2].set(title="training error (%)", xlabel="passes")
        axes[1].legend(fontsize=7)


def _end(curve: Curve) -> float:
    """The highest objective of the second half: where a run oscillates, luck at its end does not count."""
    worst = float(np.max(curve.objective[len(curve.objective) // 2 :]))
    return worst if np.isfinite(worst) else np.inf

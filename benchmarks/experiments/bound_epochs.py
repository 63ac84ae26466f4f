"""Passes of bound majorization to relative errors of the objective, beside its other schedules and batch methods.

Iris, wine, ecoli, vowel and pendigits, all rows, standardized; lambda 1 and 0.01 (``--alpha``). The relative error is
(P - P*) / P* with P* by Newton to the last digits. ``--epochs`` passes at most, 200 by default.
"""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.experiments import _bound
from benchmarks.measure import threads_limited

ERRORS = (1e-2, 1e-4, 1e-6)
MOST = 200


def run(bench: Bench) -> None:
    from manyclass import __version__

    entries = _bound.chosen(_bound.batch_entries(), bench.options.only)
    most = bench.options.epochs or (40 if bench.options.quick else MOST)
    curves: dict[tuple[str, float], dict[str, Any]] = {}
    for source in bench.datasets("bundled/iris", "bundled/wine", "uci/ecoli", "uci/vowel", "uci/pendigits"):
        data = source.read()
        for lam in bench.alphas(1.0, 0.01):
            case = _bound.pooled(data, lam, test=0.0)
            with threads_limited(bench.options.threads):
                _bound.warm(case, entries)
                best = _bound.optimum(case)[0]
                for entry in entries:
                    curve = _bound.trace(case, entry.make(), most=most, best=best, seconds=bench.options.budget)
                    curves.setdefault((source.name, lam), {})[entry.name] = curve, best
                    bench.record(
                        **case.facts,
                        method=entry.name,
                        version=__version__,
                        best=best,
                        objective=curve.objective[-1],
                        passes=curve.passes[-1],
                        iterations=curve.iterations,
                        monotone=curve.monotone,
                        **{f"passes_to_{error:g}": _passes(curve, best, error) for error in ERRORS},
                        cpu_seconds=curve.cpu[-1],
                    )
    _report(bench, curves, most)


def _passes(curve: _bound.Curve, best: float, error: float) -> float | None:
    """Passes from which on the relative error is below ``error``."""
    at = curve.settles(lambda curve, index: curve.objective[index] <= best * (1 + error))
    return None if at is None else curve.passes[at]


def _report(bench: Bench, curves: dict[tuple[str, float], dict[str, Any]], most: int) -> None:
    methods = list(dict.fromkeys(name for found in curves.values() for name in found))
    lines = []
    for (data, lam), found in curves.items():
        line: list[Any] = [data, f"{lam:g}"]
        for name in methods:
            curve, best = found[name]
            passes = [_passes(curve, best, error) for error in ERRORS]
            text = "/".join("-" if value is None else f"{value:.0f}" for value in passes)
            line.append(text + ("" if curve.monotone else " *"))
        lines.append(line)
    errors = ", ".join(f"{error:g}" for error in ERRORS)
    title = f"Passes to a relative error of {errors} (-: not within {most}; *: the objective rose)"
    bench.table(title, ("data", "lambda", *methods), lines)
    if curves:
        _draw(bench, curves)


def _draw(bench: Bench, curves: dict[tuple[str, float], dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    from benchmarks.figures import legend_below

    names = list(dict.fromkeys(name for name, _ in curves))
    lams = list(dict.fromkeys(lam for _, lam in curves))
    figure = Figure(figsize=(3.0 * len(names), 2.6 * len(lams) + 0.6), layout="constrained")
    axes = figure.subplots(len(lams), len(names), squeeze=False)
    for (name, lam), found in curves.items():
        ax = axes[lams.index(lam)][names.index(name)]
        for number, (label, (curve, best)) in enumerate(found.items()):
            errors = [max(value / best - 1, 1e-12) for value in curve.objective[1:]]
            ax.plot(curve.passes[1:], errors, color=f"C{number}", linewidth=1.2, label=label)
        ax.set(xscale="log", yscale="log", ylim=(1e-9, 2), title=f"{name}, lambda {lam:g}", xlabel="passes")
        ax.title.set_fontsize(8)
        ax.grid(alpha=0.3)
    axes[0][0].set_ylabel("P / P* - 1")
    legend_below(axes[0][0])
    bench.save(figure)

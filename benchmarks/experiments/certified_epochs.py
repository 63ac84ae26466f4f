"""Which fits of the default solver end with a certificate: iterations and gaps, by data, loss, alpha and intercept.

`LinearClassifier(loss, alpha=..., fit_intercept=..., solver="auto")` with everything else as it comes, so that a fit
may take `max_iter` iterations and no more. What is counted does not depend on the machine: it can be busy. --only names
the solvers, "auto" if it is left out; --alphas the penalties, in which 0 is 1 / n, the default of the estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.bench import Bench, DataFile
from benchmarks.measure import Stopwatch, quiet, threads_limited

DATASETS = (
    *("uci/vowel", "uci/segment", "uci/pendigits", "uci/optdigits", "uci/letter", "usps", "covtype", "clef"),
    *("libsvm_binary/a9a", "libsvm_binary/w8a", "reuters21578", "intents/banking77", "news20"),
)
LOSSES = ("multinomial", "log_loss", "crammer_singer", "hinge", "squared_hinge")


def run(bench: Bench) -> None:
    solvers = [method.name for method in bench.methods("auto")]
    for source in bench.datasets(*DATASETS):
        for loss in LOSSES:
            for alpha in bench.alphas(0.0, 1e-3, 1e-4, 1e-5, 1e-6):
                for intercept in (True, False):
                    for solver in solvers:
                        for seed in range(bench.options.runs):
                            fit(bench, source, loss, alpha, intercept, solver, seed)
    _report(bench)


def fit(
    bench: Bench,
    source: DataFile,
    loss: str,
    alpha: float,
    intercept: bool,
    solver: str,
    seed: int,
    callback: Callable[[Any], bool] | None = None,
) -> dict[str, Any]:
    """One fit, which ``callback`` may end; returns what was recorded."""
    from manyclass import LinearClassifier, __version__

    data = source.read()
    model = LinearClassifier(
        loss,
        alpha=alpha or None,
        fit_intercept=intercept,
        solver=solver,
        random_state=seed,
        n_jobs=bench.options.threads,
    )
    with threads_limited(bench.options.threads), quiet(), Stopwatch() as watch:
        model.fit(data.X, data.y, callback=callback)
    row = dict(
        **data.facts,
        objective_name=loss,
        alpha=model.alpha_,
        default_alpha=not alpha,
        intercept=intercept,
        method=solver,
        solver=model.solver_,
        run=seed,
        version=f"manyclass {__version__}",
        iterations=model.n_iter_,
        passes=model.history_.last.passes,
        relative_gap=model.duality_gap_,
        certified=model.duality_gap_ <= model.tol,
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        compile_seconds=model.history_.compile_seconds,
    )
    bench.record(**row)
    return row


def _report(bench: Bench) -> None:
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = *(row[name] for name in ("data", "objective_name", "intercept")), row["solver"]
            cases.setdefault(key, []).append(row)
    lines = []
    for (data, loss, intercept, solver), rows in cases.items():
        missed = [row for row in rows if not row["certified"]]
        lines.append(
            [
                *(data, loss, "yes" if intercept else "no", solver, f"{len(rows) - len(missed)} of {len(rows)}"),
                max(row["iterations"] for row in rows),
                ", ".join(f"{row['alpha']:.0e} ({row['relative_gap']:.0e})" for row in missed),
            ]
        )
    columns = ("data", "loss", "intercept", "solver", "certified", "most iterations", "alphas without (and the gap)")
    bench.table("Certified fits", columns, lines)

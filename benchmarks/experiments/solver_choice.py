"""``solver="auto"`` beside every solver it could have taken: time to the certificate, by data, loss, alpha, intercept.

`LinearClassifier(loss, alpha=..., fit_intercept=..., solver=...)` with everything else as it comes. A solver is ended
when it has taken four times as long as the default one, and a second. Kernels are compiled or loaded by a fit of one
iteration before, off the clock. --only names the solvers; in --alpha 0 is 1 / n, the default of the estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.bench import Bench, DataFile
from benchmarks.experiments.certified_epochs import LOSSES, fit
from benchmarks.measure import quiet

DATASETS = (
    *("uci/vowel", "uci/segment", "uci/pendigits", "uci/optdigits", "uci/letter", "usps", "covtype", "clef"),
    *("libsvm_binary/a9a", "libsvm_binary/w8a", "reuters21578", "intents/banking77", "news20"),
)
SOLVERS = (
    *("sdca", "accelerated", "sdca_active", "interior_point", "preconditioned_lbfgs"),
    *("lbfgs", "newton", "cd"),
)
#: A solver is ended after so many times the time of the default one, and so many seconds more.
_TIMES, _MORE = 4.0, 1.0
#: Within this factor of the fastest, or this many seconds, a choice is good.
_FACTOR, _SECONDS = 1.2, 0.02

Row = dict[str, Any]


def run(bench: Bench) -> None:
    solvers = [method.name for method in bench.methods("auto", *SOLVERS) if method.name != "auto"]
    for source in bench.datasets(*DATASETS):
        for loss in LOSSES:
            for intercept in (True, False):
                willing = [solver for solver in ("auto", *solvers) if _tried(bench, source, loss, intercept, solver)]
                for alpha in bench.alphas(0.0, 1e-3, 1e-4, 1e-5, 1e-6):
                    _case(bench, source, loss, alpha, intercept, willing)
    _report(bench)


def _tried(bench: Bench, source: DataFile, loss: str, intercept: bool, solver: str) -> bool:
    """Whether a solver takes the problem; it is compiled then."""
    from manyclass import LinearClassifier

    data = source.read()
    model = LinearClassifier(loss, fit_intercept=intercept, solver=solver, max_iter=1, n_jobs=bench.options.threads)
    try:
        with quiet():
            model.fit(data.X, data.y)
    except (ValueError, MemoryError) as error:
        bench.skip(str(error), data=source.name, objective_name=loss, intercept=intercept, method=solver)
        return False
    return True


def _case(bench: Bench, source: DataFile, loss: str, alpha: float, intercept: bool, solvers: list[str]) -> None:
    times: list[float] = []
    for seed in range(bench.options.runs):
        for solver in solvers:
            limit = _TIMES * times[0] + _MORE if times else bench.options.budget
            row = fit(bench, source, loss, alpha, intercept, solver, seed, callback=_until(limit))
            times += [row["seconds"]] if solver == "auto" else []


def _until(limit: float) -> Callable[[Any], bool]:
    return lambda progress: bool(progress.seconds > limit)


def _report(bench: Bench) -> None:
    cases: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = tuple(row[name] for name in ("data", "objective_name", "alpha", "intercept"))
            cases.setdefault(key, {}).setdefault(row["method"], []).append(row)
    sums: dict[tuple[str, str], list[Any]] = {}
    worst = []
    for (data, loss, alpha, intercept), methods in cases.items():
        medians = {name: _time(rows) for name, rows in methods.items()}
        auto = medians.pop("auto", None)
        known = {name: time for name, time in medians.items() if time is not None}
        if not known and auto is None:
            continue
        best = min(known, key=lambda name: known[name]) if known else "auto"
        least = min([*known.values(), *([] if auto is None else [auto])])
        good = auto is not None and (auto <= _FACTOR * least or auto <= least + _SECONDS)
        found = sums.setdefault((data, loss), [0, 0, 0, 0.0, 0.0])
        times = (0.0, 0.0) if auto is None else (auto, least)
        for index, value in enumerate((good, 1, auto is None, *times)):
            found[index] += value
        if not good:
            ratio = None if auto is None else auto / least
            chosen = methods["auto"][0]["solver"]
            worst.append([data, loss, f"{alpha:.0e}", "yes" if intercept else "no", chosen, auto, best, least, ratio])
    lines = [[*key, f"{good} of {count}", *rest] for key, (good, count, *rest) in sums.items()]
    columns = (
        "data",
        "loss",
        "within 1.2 of the best",
        "without a certificate",
        "auto, s in all",
        "the best of these, s",
    )
    bench.table("The default solver beside the best one", columns, lines)
    worst.sort(key=lambda line: (line[-1] is not None, -(line[-1] or 0.0)))
    columns = ("data", "loss", "alpha", "intercept", "auto takes", "s", "the best", "its s", "ratio")
    bench.table("Where another solver is faster", columns, worst)


def _time(rows: list[Row]) -> float | None:
    """The median time to the certificate; None: it is not reached in every run."""
    return median(row["seconds"] for row in rows) if all(row["certified"] for row in rows) else None

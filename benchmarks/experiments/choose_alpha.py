"""What ``alpha="auto"`` costs and is worth: beside the fit at its alpha alone, and a path over nine alphas.

Defaults but for alpha. The path goes from 100 / n down to 0.01 / n, in half decades, each fit certified; the best of
its models on the TEST rows is the best that a search could have found. Its time stands beside that of one fit, at its
last and weakest alpha. All fits of a case are made in one process, after short ones of the same rows, which compile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import children, data, measure
from benchmarks.bench import Bench
from benchmarks.measure import spread_text
from benchmarks.scores import quality

DATA = ("intents/clinc150", "news20", "usps", "uci/letter", "omniglot", "embeddings/100")
LOSSES = ("multinomial", "crammer_singer", "squared_hinge")
ENTRIES = LOSSES
#: Times 1 / n.
GRID = tuple(float(c) for c in np.geomspace(100, 0.01, 9))


def run(bench: Bench) -> None:
    for source in bench.datasets(*DATA):
        for loss in bench.options.only or LOSSES:
            for number in range(bench.options.runs):
                what = {"data": source.name, "objective_name": loss, "run": number}
                asked = {"source": source.arguments(), "loss": loss, "threads": bench.options.threads, "seed": number}
                try:
                    found = children.call(
                        "benchmarks.experiments.choose_alpha:measured", {**asked, "budget": bench.options.budget}
                    )
                except children.TimedOut:
                    bench.fail(f"stopped after {bench.options.budget:g} s", **what)
                    break
                except children.ChildFailed as failure:
                    bench.fail(str(failure), **what)
                    break
                for row in found:
                    bench.record(**{**what, **row})
                bench.say(f"{source.name} {loss}: " + ", ".join(f"{r['what']} {r['seconds']:.2f} s" for r in found))
    _report(bench)


def measured(source: dict[str, Any], loss: str, threads: int, seed: int, budget: float) -> list[dict[str, Any]]:
    """The rows of one case, in this process: for `benchmarks.children`."""
    from manyclass import LinearClassifier, regularization_path

    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    common = {"n_jobs": threads if threads > 1 else None, "random_state": seed}
    alphas = [c / rows.n for c in GRID]
    found: list[dict[str, Any]] = []

    def timed(what: str, call: Callable[[], Any], models: Callable[[Any], dict[float, Any]]) -> Any:
        with measure.quiet(), measure.Stopwatch() as watch:
            made = call()
        by_alpha = {alpha: quality(rows.y_test, model.predict(rows.X_test)) for alpha, model in models(made).items()}
        alpha = max(by_alpha, key=lambda a: by_alpha[a]["accuracy"])
        about = {**rows.facts, "what": what, "seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds}
        found.append({**about, "alpha": alpha, "alpha_n": alpha * rows.n, **by_alpha[alpha]})
        return made

    def fit(what: str, alpha: Any) -> Any:
        estimator = LinearClassifier(loss, alpha=alpha, **common)
        made = timed(what, lambda: estimator.fit(rows.X, rows.y), lambda model: {model.alpha_: model})
        found[-1] |= {"solver": made.solver_, "iterations": made.n_iter_, "relative_gap": made.duality_gap_}
        return made

    with measure.threads_limited(threads), measure.time_limit(budget):
        for alpha in ("auto", None):
            with measure.quiet():
                LinearClassifier(loss, alpha=alpha, max_iter=3, **common).fit(rows.X, rows.y).predict(rows.X_test)
        chosen = fit("auto", "auto").alpha_
        fit("alone", chosen)
        timed(
            "path",
            lambda: regularization_path(LinearClassifier(loss, **common), rows.X, rows.y, alphas=alphas),
            lambda path: {alpha: path.model(alpha) for alpha in path.alphas},
        )
        fit("weakest", alphas[-1])
    return found


def _report(bench: Bench) -> None:
    cases: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            case = cases.setdefault((row["data"], row["objective_name"]), {})
            case.setdefault(row["what"], []).append(row)
    lines = []
    for key, kinds in cases.items():
        seconds, accuracy = (
            {what: [row[name] for row in rows] for what, rows in kinds.items()} for name in ("seconds", "accuracy")
        )
        ratios = [[a / b for a, b in zip(seconds[x], seconds[y])] for x, y in (("auto", "alone"), ("path", "weakest"))]
        lines.append(
            [
                *key,
                spread_text(seconds["auto"]),
                spread_text(ratios[0]),
                *(median(accuracy[what]) for what in ("auto", "path")),
                100 * (median(accuracy["auto"]) - median(accuracy["path"])),
                spread_text(ratios[1]),
            ]
        )
    columns = ("data", "loss", "auto s", "of a fit", "accuracy", "best of nine", "points", "path, of a fit")
    bench.table('alpha="auto" beside a fit at its alpha, and beside nine alphas', columns, lines)

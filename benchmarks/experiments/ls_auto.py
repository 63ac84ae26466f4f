"""Which solver of softmax regression is fastest to a certified gap: by spectrum, sparsity, n, d, K and penalty.

Generated rows, of which one thing is varied at a time from a middle case: the singular values of dense rows fall as a
power of their number, or rows are sparse, with words of Zipf's law. Rows have a mean squared length of 1, so that alpha
means the same everywhere. Least squares steps (`majorise`, by a factor, and by conjugate gradients) beside dual ascent
(`sdca`, `accelerated`), quasi-Newton (`lbfgs`, and begun with a matrix) and Newton; and `auto`, which is to be near the
best of them. A fit is stopped at --budget seconds, 60 at most.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks import children, measure
from benchmarks.bench import Bench
from benchmarks.children import TimedOut
from benchmarks.task import Stop, Task

#: decay: singular value j is j^-decay of the first; density: the part of a row that is not zero.
MIDDLE: dict[str, Any] = {"n": 10_000, "d": 500, "K": 10, "decay": 1.0, "density": 1.0, "alpha": 1e-5}
VARIED: dict[str, tuple[Any, ...]] = {
    "decay": (0.0, 0.5, 2.0),
    "alpha": (1e-3, 1e-4, 1e-6),
    "n": (2000, 50_000),
    "d": (50, 2000),
    "K": (3, 100),
    "density": (0.1, 0.01),
}
#: Sparse and wide, as text is.
TEXT = MIDDLE | {"d": 20_000, "density": 0.003, "K": 20}
METHODS = ("auto", "majorise", "majorise_cg", "preconditioned_lbfgs", "sdca", "accelerated", "lbfgs", "newton")
GAP = 1e-3
MOST_SECONDS = 60.0


def run(bench: Bench) -> None:
    methods = bench.methods(*METHODS)
    for name, case in _cases(bench).items():
        for method in methods:
            for number in range(bench.options.runs):
                _fit(bench, name, case, method, number)
    _report(bench)


def _cases(bench: Bench) -> dict[str, dict[str, Any]]:
    cases = {"middle": MIDDLE}
    for name, values in VARIED.items():
        cases |= {f"{name} {value:g}": MIDDLE | {name: value} for value in values}
    cases["text"] = TEXT
    if not bench.options.quick:
        return cases
    return {
        name: case | {"n": 300, "d": 20, "K": 3} for name, case in cases.items() if name in ("middle", "density 0.1")
    }


def _fit(bench: Bench, name: str, case: dict[str, Any], method: Any, number: int) -> None:
    what = {"case": name, **case, "method": method.name, "run": number, "tol": GAP}
    budget = min(bench.options.budget, MOST_SECONDS)
    bench.say(f"{name}: {method.name} ...")
    task = Task("multinomial", alpha=case["alpha"])
    arguments = {
        "case": case,
        "method": method.name,
        "task": asdict(task),
        "stop": asdict(Stop(GAP, 100_000)),
        "threads": bench.options.threads,
        "seed": number,
        "budget": budget,
    }
    try:
        found = children.call("benchmarks.experiments.ls_auto:fit_generated", arguments)
    except TimedOut:
        bench.record(**what, finished=False, seconds=budget, reason=f"stopped at the budget of {budget:g} s")
        return
    except children.ChildFailed as failure:
        bench.fail(str(failure), **what)
        return
    bench.record(**what, finished=True, **found)


def fit_generated(
    case: dict[str, Any],
    method: str,
    task: dict[str, Any],
    stop: dict[str, Any],
    threads: int,
    seed: int,
    budget: float,
) -> dict[str, Any]:
    """One fit of generated rows; for a process of its own."""
    from benchmarks import catalog
    from benchmarks.fitting import describe

    rows = generate(**{name: value for name, value in case.items() if name != "alpha"})
    with measure.threads_limited(threads), measure.time_limit(budget + 30.0):
        fit = catalog.method(method).fit(rows, Task(**task), Stop(**stop), threads=threads, seed=seed)
    return describe(fit)


def generate(n: int, d: int, K: int, decay: float, density: float) -> Any:
    """Rows of mean squared length 1, in float32, whose classes are noisy linear functions of them."""
    import scipy.sparse as sp

    from benchmarks.data import Data

    rng = np.random.default_rng(0)
    X: Any
    if density == 1.0:
        X = rng.standard_normal((n, d), np.float32) * (np.arange(1, d + 1) ** -decay).astype(np.float32)
        # Turned, so that no feature by itself is the cause.
        X = X @ np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    else:
        words = max(1, round(density * d))
        often = np.arange(1, d + 1) ** -decay
        columns = rng.choice(d, (n, words), p=often / often.sum())
        counts = sp.csr_matrix(
            (np.ones(n * words, np.float32), columns.ravel(), np.arange(0, n * words + 1, words)), shape=(n, d)
        )
        counts.sum_duplicates()
        X = counts
    X = X / np.float32(np.sqrt((X.multiply(X) if sp.issparse(X) else X * X).sum() / n))
    scores = X @ rng.standard_normal((d, K)).astype(np.float32)
    scores = (scores - scores.mean(axis=0)) / scores.std()
    y = (scores + 0.5 * rng.standard_normal((n, K))).argmax(axis=1)
    y[:K] = np.arange(K)
    X = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)
    return Data("generated", X, y, X[:1], y[:1])


def _report(bench: Bench) -> None:
    cases: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            cases.setdefault(row["case"], {}).setdefault(row["method"], []).append(row)
    names = list(dict.fromkeys(row["method"] for row in bench.rows if row["status"] == "measured"))
    lines = []
    for case, found in cases.items():
        best = min((_seconds(rows) for rows in found.values() if rows[0]["finished"]), default=None)
        cells = []
        for name in names:
            rows = found.get(name)
            if not rows:
                cells.append(None)
            elif not rows[0]["finished"]:
                cells.append(f">= {rows[0]['seconds']:.3g}")
            else:
                cells.append(f"{_seconds(rows):.3g}{' *' if _seconds(rows) == best else ''}")
        lines.append([case, *cells])
    bench.table(f"Seconds to a certified gap of {GAP:g}; * the least", ("case", *names), lines)


def _seconds(rows: list[dict[str, Any]]) -> float:
    return float(np.median([row["seconds"] for row in rows]))

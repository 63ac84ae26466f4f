"""Table 1 of Least squares revisited: MNIST, raw or Fourier features; linear, logistic, calibrated; errors, time.

Raw pixels are fitted as they are; 4000 and 8000 random Fourier features are those of 50 principal components, with the
paper's bandwidth, the median squared distance. Nothing is deskewed. Features are made chunk by chunk, as often as a fit
passes over the rows, on the clock; every fit has a process of its own. Beside the errors are those that the paper
prints.
"""

from __future__ import annotations

from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.measure import spread_text

#: Features -> the errors in the paper's table, in percent: linear, logistic, polynomial calibration.
PAPER = {0: (14.1, 7.8, 8.1), 4000: (1.83, 1.48, 1.54), 8000: (1.48, 1.33, 1.36)}
#: Parts of the median squared distance.
BANDWIDTHS = (1.0,)
#: Functions of the predictions that calibration takes: of raw pixels' predictions, cubes are worse.
BASES = {True: "cubic", False: "quadratic"}
ALPHAS = {0: 1e-4, 4000: 1e-7, 8000: 1e-7}
COMPONENTS = 50


def run(bench: Bench) -> None:
    sizes = (0, 60, 120) if bench.options.quick else tuple(PAPER)
    for source in bench.datasets("mnist"):
        for number in range(bench.options.runs):
            for place, size in enumerate(sizes):
                for bandwidth in BANDWIDTHS if size else (None,):
                    for column, name in enumerate(("linear", "logistic", "calibrated")):
                        alpha = bench.alphas(ALPHAS[tuple(PAPER)[place]])[0]
                        paper = tuple(PAPER.values())[place][column]
                        _fit(bench, source, name, size, bandwidth, alpha, number, paper)
    _report(bench)


def _estimator(name: str, size: int, bandwidth: float | None, alpha: float, seed: int) -> dict[str, Any]:
    common: dict[str, Any] = {"alpha": alpha, "random_state": seed}
    if size:
        fourier = {"make": "RandomFourier", "n_components": size, "bandwidth": bandwidth, "random_state": seed}
        components = {"make": "PrincipalComponents", "n_components": COMPONENTS}
        common["features"] = {"make": "Chain", "first": components, "second": fourier, "random_state": seed}
    if name == "linear":
        return {"make": "GeneralizedLeastSquaresClassifier", "link": "identity", **common}
    if name == "logistic":
        return {"make": "GeneralizedLeastSquaresClassifier", "link": "softmax", **common}
    return {"make": "CalibratedLeastSquaresClassifier", "basis": BASES[bool(size)], "tol": 1e-4, **common}


def _fit(
    bench: Bench,
    source: DataFile,
    name: str,
    size: int,
    bandwidth: float | None,
    alpha: float,
    number: int,
    paper: float,
) -> None:
    what = {"method": name, "n_features": size, "bandwidth": bandwidth, "alpha": alpha, "run": number}
    bench.say(f"{source.name} {name}, {size or 'raw'} features, bandwidth {bandwidth} ...")
    arguments = {
        "source": source.arguments(),
        "estimator": _estimator(name, size, bandwidth, alpha, number),
        "threads": bench.options.threads,
    }
    try:
        found = children.call("benchmarks.staged:fit_and_judge", arguments)
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    bench.record(**what, paper_error=paper, **found)


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["n_features"] or "raw", row["bandwidth"], row["method"]), []).append(row)
    lines = []
    for (size, bandwidth, method), rows in groups.items():
        peak = max((row["memory_peak"] or 0) - (row["memory_before"] or 0) for row in rows) / 2**20
        errors, seconds = ([100 * row["test_error"] for row in rows], [row["seconds"] for row in rows])
        lines.append([size, bandwidth, method, spread_text(errors), rows[0]["paper_error"], spread_text(seconds), peak])
    columns = ("features", "bandwidth", "method", "test error %", "the paper's %", "seconds", "peak MiB")
    bench.table("MNIST: median [least, most] of the runs, each with features of its own", columns, lines)

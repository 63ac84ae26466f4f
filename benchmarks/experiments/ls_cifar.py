"""CIFAR-10: k-means patches, linear, and with random polynomials of them, stagewise; errors, time.

As in section 3.2 of Least squares revisited: some 400 filters learned by k-means, their rectified responses averaged
over the quarters of an image, then least squares on these features, or on random polynomials of them block by block.
Patches are made once, for all rows, on the clock. Every fit has a process of its own.
"""

from __future__ import annotations

from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.datasets.cifar10 import SHAPE
from benchmarks.measure import spread_text

FILTERS = 400
PATCH = 6
COMPONENTS = 800

#: name -> kind of filters and what is fitted on their responses.
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "random masks, linear": ("RandomPatches", {"make": "LeastSquaresClassifier", "alpha": 1e-3}),
    "k-means masks, linear": ("KMeansPatches", {"make": "LeastSquaresClassifier", "alpha": 1e-3}),
    "k-means masks, polynomials": (
        "KMeansPatches",
        {
            "make": "StagewiseClassifier",
            "features": {"make": "RandomPolynomial", "degree": 2},
            "prepare": {"make": "PrincipalComponents", "n_components": COMPONENTS},
            "block_size": 2000,
            "n_blocks": 10,
            "update": "calibrated",
            "basis": "linear",
            "alpha": 1e-5,
        },
    ),
}


def run(bench: Bench) -> None:
    for source in bench.datasets("cifar10"):
        for number in range(bench.options.runs):
            for name, (filters, estimator) in FITS.items():
                _fit(bench, source, name, filters, dict(estimator), number)
    _report(bench)


def _fit(bench: Bench, source: DataFile, name: str, filters: str, estimator: dict[str, Any], number: int) -> None:
    quick = bench.options.quick
    bench.say(f"{source.name} {name} ...")
    estimator["random_state"] = number
    if quick and "block_size" in estimator:
        estimator |= {"block_size": 50, "n_blocks": 2, "prepare": {"make": "PrincipalComponents", "n_components": 20}}
    patches = {
        "make": filters,
        "n_filters": 10 if quick else FILTERS,
        "shape": list(SHAPE),
        "patch": PATCH,
        "random_state": number,
        "n_jobs": bench.options.threads,
    }
    arguments = {
        "source": source.arguments(),
        "estimator": estimator,
        "prepare": patches,
        "standardise": True,
        "threads": bench.options.threads,
    }
    what = {"method": name, "run": number, "n_filters": patches["n_filters"]}
    try:
        found = children.call("benchmarks.staged:fit_and_judge", arguments)
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    bench.record(**what, **found)


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["method"], row["n_filters"]), []).append(row)
    lines = []
    for key, rows in groups.items():
        peak = max((row["memory_peak"] or 0) - (row["memory_before"] or 0) for row in rows) / 2**20
        numbers = ([scale * row[name] for row in rows] for name, scale in _NUMBERS.items())
        lines.append([*key, *map(spread_text, numbers), peak])
    columns = ("method", "filters", "test error %", "seconds", "of them patches", "peak MiB")
    bench.table("CIFAR-10: median [least, most] of the runs, each with filters of its own", columns, lines)


_NUMBERS = {"test_error": 100.0, "seconds": 1.0, "prepare_seconds": 1.0}

"""CIFAR-10 by least squares on k-means patches: linear, random polynomials, Nystrom features; models averaged.

As in section 3.2 of Least squares revisited: some 400 filters learned by k-means (or drawn at random), their rectified
responses averaged over a grid, then least squares on these features, or block by block on features of them. The first
two fits are on 50 to 800 filters of 6 x 6 pixels and the quarters of images; the others on 200 filters and their mirror
images, 400 in all, and ninths of images; the last on filters of 9 x 9. All is made once, for all rows, on the clock.
Every fit has a process and filters of its own; where there are several runs, the filters of the last fit differ in
size, its scores are averaged too, and the seconds summed. Settings were chosen on the last 4000 training rows, by
fits to 8000, 12 000 and 46 000 others; test rows were not looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.datasets.cifar10 import SHAPE
from benchmarks.measure import spread_text

FILTERS = 400
#: Numbers of filters of the fits with linear features in the first run: the curves of figure 3.
CURVE = (50, 100, 200, FILTERS, 800)
#: Pixels along a side of a patch; of the fit that is averaged, of its runs one after the other: they are to differ.
PATCH, PATCHES = 6, (9, 12)
#: Principal components of features that stay and that change their sign in a mirror image, as many of each.
COMPONENTS = 1000

PLAIN: dict[str, Any] = {"n_filters": FILTERS, "pool": 2, "standardize": True}
MIRRORED: dict[str, Any] = {
    "n_filters": FILTERS // 2,
    "mirror": True,
    "pool": 3,
    "power": 0.5,
    "threshold": 0.4,
    "n_patches": 200_000,
    "standardize": True,
}
LINEAR: dict[str, Any] = {"make": "GeneralizedLeastSquaresClassifier", "alpha": 1e-3}
STAGEWISE: dict[str, Any] = {"make": "StagewiseClassifier", "update": "calibrated", "basis": "linear"}

#: name -> kind of filters, their options, and what is fitted on their responses.
FITS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "random masks, linear": ("RandomPatches", PLAIN, LINEAR),
    "k-means masks, linear": ("KMeansPatches", PLAIN, LINEAR),
    "mirror images, polynomials": (
        "KMeansPatches",
        MIRRORED,
        STAGEWISE
        | {
            "features": {"make": "RandomPolynomial", "degree": 2},
            "block_size": 4000,
            "n_blocks": 4,
            "alpha": 1e-3,
        },
    ),
    "mirror images, Nystrom": (
        "KMeansPatches",
        MIRRORED,
        STAGEWISE | {"features": {"make": "Nystrom"}, "block_size": 4000, "n_blocks": 8, "alpha": 3e-6},
    ),
}
#: The fit whose scores are averaged over the runs.
AVERAGED = "mirror images, Nystrom"
#: What ``--only`` takes, and the fit that it names.
ENTRIES = dict(zip(("random", "kmeans", "polynomials", "nystrom"), FITS))


def run(bench: Bench) -> None:
    for source in bench.datasets("cifar10"):
        kept: list[tuple[Any, Any, float]] = []
        for number in range(bench.options.runs):
            # Another number of blocks: of the fit that it is meant for.
            for name in (
                (AVERAGED,) if bench.options.epochs else map(ENTRIES.__getitem__, bench.options.only or ENTRIES)
            ):
                filters, options, estimator = FITS[name]
                for count in CURVE if options is PLAIN and number == 0 else (options["n_filters"],):
                    patches = _patches(bench, filters, {**options, "n_filters": count}, number, name == AVERAGED)
                    found = _fit(bench, source, name, patches, dict(estimator), number)
                    if found is not None and name == AVERAGED:
                        kept.append(found)
        if len(kept) > 1:
            _average(bench, source, kept)
    _report(bench)


def _patches(bench: Bench, filters: str, options: dict[str, Any], number: int, differ: bool) -> dict[str, Any]:
    size = PATCHES[number % len(PATCHES)] if differ else PATCH
    patches = {"make": filters, "shape": list(SHAPE), "patch": size, "random_state": number}
    patches |= {**options, "n_jobs": bench.options.threads}
    return patches | ({"n_filters": 5, "n_patches": 2000} if bench.options.quick else {})


def _fit(
    bench: Bench, source: DataFile, name: str, patches: dict[str, Any], estimator: dict[str, Any], number: int
) -> tuple[Any, Any, float] | None:
    """One fit; the scores of the test rows, their classes and the seconds, if they are to be averaged."""
    quick = bench.options.quick
    bench.say(f"{source.name} {name} ...")
    estimator["random_state"] = number
    if "features" in estimator:
        components = 20 if quick else COMPONENTS
        # Half of what the patches make changes its sign in a mirror image, and so does half of the components.
        made = 2 * 2 * patches["n_filters"] * patches["pool"] ** 2 if patches.get("mirror") else 0
        estimator["prepare"] = {"make": "PrincipalComponents", "n_components": components, "n_odd": made // 2}
        estimator["features"] = {**estimator["features"], "n_odd": components // 2 if made else 0}
        estimator |= {"block_size": 50, "n_blocks": 2} if quick else {}
        estimator["n_blocks"] = bench.options.epochs or estimator["n_blocks"]
    arguments = {
        "source": source.arguments(),
        "estimator": estimator,
        "prepare": patches,
        "threads": bench.options.threads,
        "scores": name == AVERAGED,
    }
    what = {"method": name, "run": number, "n_filters": patches["n_filters"] * (2 if patches.get("mirror") else 1)}
    try:
        found = children.call("benchmarks.staged:fit_and_judge", arguments)
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return None
    scores, truth = found.pop("scores", None), found.pop("truth", None)
    bench.record(**what, **found)
    return None if scores is None else (np.array(scores), np.array(truth), found["seconds"])


def _average(bench: Bench, source: DataFile, kept: list[tuple[Any, Any, float]]) -> None:
    for count in range(2, len(kept) + 1):
        mean = np.mean([scores for scores, _, _ in kept[:count]], axis=0)
        error = float(np.mean(mean.argmax(axis=1) != kept[0][1]))
        seconds = sum(seconds for _, _, seconds in kept[:count])
        what = {"data": source.name, "method": f"average of {count}", "n_filters": FILTERS * count}
        bench.record(**what, run=0, test_error=error, seconds=seconds)


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["method"], row["n_filters"]), []).append(row)
    lines = []
    for key, rows in groups.items():
        peak = max((row.get("memory_peak") or 0) - (row.get("memory_before") or 0) for row in rows) / 2**20
        numbers = ([scale * (row.get(name) or 0.0) for row in rows] for name, scale in _NUMBERS.items())
        lines.append([*key, *map(spread_text, numbers), peak])
    columns = ("method", "filters", "test error %", "seconds", "of them patches", "peak MiB")
    bench.table("CIFAR-10: median [least, most] of the runs, each with filters of its own", columns, lines)


_NUMBERS = {"test_error": 100.0, "seconds": 1.0, "prepare_seconds": 1.0}

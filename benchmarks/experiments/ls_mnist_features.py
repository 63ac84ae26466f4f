"""MNIST below 1.1 %: stagewise least squares on better features, by kernels at rows and by k-means patches.

Error against time, as `ls_stagewise`, of calibrated blocks of Nystrom features: of 50 principal components of the
pixels, and of 300 of the responses to k-means patches, averaged over a grid. Nothing is deskewed, nor are images moved.
Settings were chosen on the last 10 000 training rows; here all 60 000 are fitted. Each fit has a process of its own.
"""

from __future__ import annotations

from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.figures import legend_below, log_seconds

PIXELS: dict[str, Any] = {"make": "PrincipalComponents", "n_components": 50}
PATCHES: dict[str, Any] = {
    "make": "Chain",
    "first": {
        "make": "KMeansPatches",
        "n_filters": 100,
        "shape": [28, 28, 1],
        "patch": 6,
        "pool": 4,
        "power": 0.5,
        "contrast": None,
        "standardize": True,
    },
    "second": {"make": "PrincipalComponents", "n_components": 300},
}
#: name -> what is made once, bandwidth of the kernel, alpha, blocks.
FITS: dict[str, tuple[dict[str, Any], float, float, int]] = {
    "pixels": (PIXELS, 0.8, 1e-6, 6),
    "patches": (PATCHES, 1.0, 1e-5, 4),
}
SIZE = 2048
GOALS = (0.0125, 0.011)


def run(bench: Bench) -> None:
    for source in bench.datasets("mnist"):
        for number in range(bench.options.runs):
            for name, (prepare, bandwidth, alpha, blocks) in FITS.items():
                _fit(bench, source, name, prepare, bandwidth, bench.alphas(alpha)[0], blocks, number)
    _report(bench)


def _fit(
    bench: Bench,
    source: DataFile,
    name: str,
    prepare: dict[str, Any],
    bandwidth: float,
    alpha: float,
    blocks: int,
    number: int,
) -> None:
    quick = bench.options.quick
    what = {"features": name, "alpha": alpha, "bandwidth": bandwidth, "run": number}
    bench.say(f"{source.name}, {name} ...")
    if quick:
        prepare = PIXELS | {"n_components": 10} if name == "pixels" else _small(prepare)
    seeded = {"random_state": number} if prepare["make"] == "Chain" else {}
    estimator = {
        "make": "StagewiseClassifier",
        "features": {"make": "Nystrom", "bandwidth": bandwidth},
        "prepare": prepare | seeded,
        "block_size": 60 if quick else SIZE,
        "n_blocks": bench.options.epochs or (2 if quick else blocks),
        "update": "calibrated",
        "basis": "linear",
        "alpha": alpha,
        "random_state": number,
        "n_jobs": bench.options.threads,
    }
    arguments = {"source": source.arguments(), "estimator": estimator, "threads": bench.options.threads, "curve": True}
    try:
        found = children.call("benchmarks.staged:fit_and_judge", arguments)
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    curve = found.pop("curve")
    found.pop("test_error")
    for point in curve:
        bench.record(**{**what, **found, **point}, end=point is curve[-1])


def _small(prepare: dict[str, Any]) -> dict[str, Any]:
    """Patches of few pixels' images."""
    side = {"shape": [12, 12, 1], "patch": 4, "n_filters": 5, "n_patches": 1000}
    return prepare | {"first": prepare["first"] | side, "second": prepare["second"] | {"n_components": 10}}


def _report(bench: Bench) -> None:
    curves: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            curves.setdefault((row["features"], row["run"]), []).append(row)
    lines = []
    for key, rows in curves.items():
        reached = [next((row["seconds"] for row in rows if row["test_error"] <= goal), None) for goal in GOALS]
        peak = ((rows[-1]["memory_peak"] or 0) - (rows[-1]["memory_before"] or 0)) / 2**20
        errors = " ".join(f"{100 * row['test_error']:.2f}" for row in rows)
        lines.append([*key, errors, rows[-1]["seconds"], *reached, peak])
    goals = [f"s to {100 * goal:g} %" for goal in GOALS]
    columns = ("features", "run", "test error % after each block", "seconds", *goals, "peak MiB")
    bench.table("MNIST, calibrated blocks of Nystrom features", columns, lines)
    if not curves:
        return
    with bench.figure() as (ax,):
        for (name, number), rows in curves.items():
            errors = [100 * max(row["test_error"], 0.5 / row["n_test"]) for row in rows]
            label = name if not number else None
            ax.plot([row["seconds"] for row in rows], errors, ".-", label=label, color=f"C{list(FITS).index(name)}")
        ax.set(yscale="log", ylabel="test error %")
        log_seconds(ax, "seconds")
        legend_below(ax)

"""MNIST, error against time: stagewise least squares, four updates, blocks of 300 to 2048 features.

The right half of figure 1 (a) of Least squares revisited: random Fourier features and (in blocks of 1024 only) random
logits of 50 principal components, not deskewed; after each block the error on the test rows, replayed off the clock.
Every fit has a process of its own.
"""

from __future__ import annotations

from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.figures import legend_below, log_seconds

UPDATES = ("calibrated", "linear", "appended", "logistic")
#: What ``--only`` takes.
ENTRIES = UPDATES
SIZES = {"fourier": (2048, 1024, 512, 300), "logits": (1024,)}
#: Features in all: as many for each size of block. What an inner step of the logistic update costs, a linear update
#: costs too: fewer blocks in the same time.
FEATURES = {"linear": 40 * 1024, "appended": 40 * 1024, "calibrated": 76 * 1024, "logistic": 12 * 1024}
COMPONENTS = 50
BLOCKS: dict[str, dict[str, Any]] = {
    "fourier": {"make": "RandomFourier", "bandwidth": 0.8},
    "logits": {"make": "RandomLogits", "scale": 1.0},
}
ALPHA = 1e-5


def run(bench: Bench) -> None:
    quick = bench.options.quick
    for source in bench.datasets("mnist"):
        for name, block in BLOCKS.items():
            for update in bench.options.only or UPDATES:
                for size in (40, 60) if quick else SIZES[name]:
                    blocks = bench.options.epochs or (2 if quick else -(-FEATURES[update] // size))
                    _fit(bench, source, name, block, update, size, blocks)
    _report(bench)


def _fit(bench: Bench, source: DataFile, name: str, block: dict[str, Any], update: str, size: int, blocks: int) -> None:
    what = {"features": name, "update": update, "block_size": size, "n_blocks": blocks}
    bench.say(f"{source.name} {name} {update}, {blocks} blocks of {size} ...")
    estimator = {
        "make": "StagewiseClassifier",
        "features": block,
        "prepare": {"make": "PrincipalComponents", "n_components": COMPONENTS},
        "block_size": size,
        "n_blocks": blocks,
        "update": update,
        "basis": "linear",
        "alpha": bench.alphas(ALPHA)[0],
        "random_state": 0,
    }
    arguments = {
        "source": source.arguments(),
        "estimator": estimator,
        "threads": bench.options.threads,
        "curve": True,
    }
    try:
        found = children.call("benchmarks.staged:fit_and_judge", arguments)
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    curve = found.pop("curve")
    whole = found.pop("test_error")
    for point in curve:
        last = point is curve[-1]
        bench.record(**{**what, **found, **point}, end=last, whole_error=whole if last else None)


def _report(bench: Bench) -> None:
    curves: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            curves.setdefault((row["features"], row["update"], row["block_size"]), []).append(row)
    lines = []
    for key, rows in curves.items():
        best = min(rows, key=lambda row: row["test_error"])
        reached = [
            next((row["seconds"] for row in rows if row["test_error"] <= goal), None) for goal in (0.015, 0.0125)
        ]
        peak = (rows[-1]["memory_peak"] or 0) - (rows[-1]["memory_before"] or 0)
        lines.append(
            [
                *key,
                len(rows),
                100 * rows[-1]["test_error"],
                rows[-1]["seconds"],
                100 * best["test_error"],
                best["stage"],
                *reached,
                peak / 2**20,
            ]
        )
    columns = (
        "features",
        "update",
        "block",
        "blocks",
        "test error %",
        "seconds",
        "least %",
        "at block",
        "s to 1.5 %",
        "s to 1.25 %",
        "peak MiB",
    )
    bench.table("MNIST, stagewise", columns, lines)
    if not curves:
        return
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    kinds = list(dict.fromkeys(key[0] for key in curves))
    styles = dict(zip(dict.fromkeys(key[2] for key in curves), ("dashdot", "dotted", "dashed", "solid")))
    colors = dict(zip(UPDATES, ("tab:blue", "tab:orange", "tab:red", "tab:green")))
    with bench.figure(len(kinds)) as axes:
        for (kind, update, size), rows in curves.items():
            ax = axes[kinds.index(kind)]
            ax.plot(
                [row["seconds"] for row in rows],
                # No error at all has no place on the axis: half an error.
                [100 * max(row["test_error"], 0.5 / row["n_test"]) for row in rows],
                label=f"{update}, {size}",
                color=colors[update],
                linestyle=styles[size],
                linewidth=1.2,
            )
        for ax, kind in zip(axes, kinds):
            ax.set(yscale="log", title=kind, ylabel="test error %")
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.yaxis.set_minor_formatter(NullFormatter())
            log_seconds(ax, "seconds")
        legend_below(axes[0], 3)

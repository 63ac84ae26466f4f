"""The inner loop on one thread: epoch time, GFLOP/s and bytes/s beside what this machine can do at all.

An epoch of SDCA reads a row of W for each non-zero (scores) and, where the dual moved, reads and writes it again
(update): 2 K operations each, K s and 2 K s bytes of W for numbers of s bytes. Limits of the machine, measured here:
a STREAM-like triad on arrays far beyond the caches; rows of W gathered, and updated, by the data's own column indices
in the order of an epoch and by uniformly random ones. What an epoch takes beyond its gather and its update at these
speeds is the dual steps (exponentials, projections) and the labels' bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.bench import Bench
from benchmarks.data import Data
from benchmarks.figures import legend_below
from benchmarks.measure import Stopwatch, spread_text
from benchmarks.problem import make_problem
from benchmarks.task import Task

DEFAULT = ("generated", "generated/wide", "mnist", "digits")
LOSSES = ("multinomial", "squared_hinge")
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Speeds:
    """Bytes of W a second, best of the runs: a limit is what can be done."""

    gather: float
    update: float
    gather_uniform: float
    update_uniform: float


def run(bench: Bench) -> None:
    triad = _triad(bench)
    for source in bench.datasets(*DEFAULT):
        data = source.read()
        for dtype in DTYPES:
            typed = data.cast(dtype)
            speeds = _limits(bench, typed, dtype)
            for loss in LOSSES:
                _epochs(bench, typed, loss, dtype, speeds, triad)
    _report(bench)


def _triad(bench: Bench) -> float:
    from benchmarks.experiments import _machine_limits as limits

    n = 1 << (20 if bench.options.quick else 25)
    a, b, c = np.zeros(n), np.ones(n), np.ones(n)
    limits.triad(a[:8], b[:8], c[:8], 2.0)
    best = 0.0
    for number in range(bench.options.runs):
        with Stopwatch() as watch:
            limits.triad(a, b, c, 2.0)
        speed = 3 * a.nbytes / watch.seconds
        best = max(best, speed)
        bench.record(what="triad", run=number, seconds=watch.seconds, bytes_per_second=speed)
    return best


def _limits(bench: Bench, data: Data, dtype: str) -> Speeds:
    from benchmarks.experiments import _machine_limits as limits

    d, K = data.X.shape[1], data.n_classes
    V = np.zeros((d, K), dtype)
    coef = np.ones(K, dtype)
    # A few million rows are enough to tell a speed.
    own = data.X.indices if sp.issparse(data.X) else np.tile(np.arange(d, dtype=np.int32), data.n)
    own = np.ascontiguousarray(own[: 1 << 22])
    uniform = np.random.default_rng(0).integers(0, d, len(own), dtype=np.int32)
    best: dict[str, float] = {}
    for name, kernel, indices, bytes_a_row in (
        ("gather", limits.gather, own, V.itemsize * K),
        ("update", limits.update, own, 2 * V.itemsize * K),
        ("gather_uniform", limits.gather, uniform, V.itemsize * K),
        ("update_uniform", limits.update, uniform, 2 * V.itemsize * K),
    ):
        kernel(V, indices[:8], coef)
        for number in range(bench.options.runs):
            with Stopwatch() as watch:
                kernel(V, indices, coef)
            speed = len(indices) * bytes_a_row / watch.seconds
            best[name] = max(best.get(name, 0.0), speed)
            bench.record(
                what=name, **data.facts, dtype=dtype, run=number, seconds=watch.seconds, bytes_per_second=speed
            )
    return Speeds(**best)


def _epochs(bench: Bench, data: Data, loss: str, dtype: str, speeds: Speeds, triad: float) -> None:
    """Epochs from the start; the first compiles or loads the kernel, and is not counted."""
    from manyclass.kernels.sdca import sdca_epoch
    from manyclass.solvers import SDCA

    K = data.n_classes
    problem = make_problem(data.X, data.y, Task(loss, alpha=1e-5), n_classes=K, dtype=dtype)
    state = SDCA().state(problem)
    lengths = np.diff(data.X.indptr) if sp.issparse(data.X) else (data.X != 0).sum(axis=1)
    nnz = int(lengths.sum())
    size = np.dtype(dtype).itemsize
    for number in range(-1, bench.options.runs):
        order = np.random.default_rng(number + 1).permutation(data.n).astype(np.int32)
        with Stopwatch() as watch:
            moved = sdca_epoch(
                problem.rows,
                problem.targets,
                problem.sample_weight,
                problem.norms,
                order,
                problem.loss,
                problem.penalty,
                state["V"],
                state["bias"],
                state["dual"],
                state["idle"],
                problem.inv_lam_n,
                0.0,
                0,
                K,
            )
        if number < 0:
            continue
        # Which rows moved the kernel does not tell, only how many: taken to be as long as the others.
        updated = nnz * moved / data.n
        floor = nnz * K * size / speeds.gather + 2 * updated * K * size / speeds.update
        bench.record(
            what="sdca_epoch",
            **data.facts,
            dtype=dtype,
            objective_name=loss,
            run=number,
            seconds=watch.seconds,
            moved=int(moved),
            gflops=2 * (nnz + updated) * K / watch.seconds / 1e9,
            bytes_per_second=(nnz + 2 * updated) * K * size / watch.seconds,
            floor_seconds=floor,
            of_floor=watch.seconds / floor,
            triad=triad,
        )


def _report(bench: Bench) -> None:
    measured = [r for r in bench.rows if r["status"] == "measured"]
    triad = max(r["bytes_per_second"] for r in measured if r["what"] == "triad") / 1e9
    limits: dict[tuple[str, str], dict[str, float]] = {}
    epochs: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in measured:
        if row["what"] == "sdca_epoch":
            epochs.setdefault((row["data"], row["dtype"], row["objective_name"]), []).append(row)
        elif row["what"] != "triad":
            best = limits.setdefault((row["data"], row["dtype"]), {})
            best[row["what"]] = max(best.get(row["what"], 0.0), row["bytes_per_second"] / 1e9)
    names = ("gather", "update", "gather_uniform", "update_uniform")
    bench.table(
        f"Limits: GB/s of rows of W, best of the runs; triad {triad:.1f} GB/s",
        ("data", "dtype", *names),
        [[*key, *(best[name] for name in names)] for key, best in limits.items()],
    )
    bench.table(
        "Epochs: median [least, most]; floor: the same gathers and updates with nothing else",
        ("data", "dtype", "loss", "seconds", "GFLOP/s", "GB/s of W", "times the floor"),
        [
            [
                *key,
                spread_text([r["seconds"] for r in rows]),
                spread_text([r["gflops"] for r in rows]),
                spread_text([r["bytes_per_second"] / 1e9 for r in rows]),
                spread_text([r["of_floor"] for r in rows]),
            ]
            for key, rows in epochs.items()
        ],
    )
    with bench.figure() as (ax,):
        labels = [" ".join(key) for key in epochs]
        ax.barh(
            range(len(labels)),
            [median(r["bytes_per_second"] / 1e9 for r in rows) for rows in epochs.values()],
            label="sdca_epoch",
        )
        for name, marker in zip(names[:2], ("|", "x")):
            ax.plot(
                [limits[key[:2]][name] for key in epochs],
                range(len(labels)),
                marker,
                color="black",
                label=f"{name} (limit)",
            )
        ax.axvline(triad, color="gray", linewidth=0.8, label="triad")
        ax.set_yticks(range(len(labels)), labels, fontsize=6)
        ax.invert_yaxis()
        ax.set_xlabel("GB/s of W")
        legend_below(ax)

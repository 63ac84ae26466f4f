"""What the curvature of the bound costs: GFLOP/s of full rank beside this machine's gemm and syrk; memory of rank 8.

Full rank: one accumulation of curvature and gradient over all rows, the labels' terms of the bound included, on
generated dense rows (n, d with the constant feature, K). Counted are the K' (K' + 1) d^2 operations an example of the
blocks x x' on and below the diagonal, K' = K - 1, at most (1 + 1/K') D^2 with D = d K' the free parameters: less than
the K D^2 of a rank-one update for each label. The limits are products and symmetric products of large square matrices,
the best of the runs.

Low rank: a fit of one million parameters (100 000 features, 10 classes, sparse rows) with rank 8, in a process of its
own: peak memory less what it held when the rows were read; time of an iteration for some ranks and sizes.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.measure import Stopwatch, peak_memory, quiet, reset_peak_memory, resident_memory, threads_limited
from benchmarks.problem import make_problem
from benchmarks.task import Task

#: n, d, K
SHAPES = ((10_000, 51, 10), (4_000, 65, 26), (5_000, 201, 10), (20_000, 316, 2), (5_000, 1001, 2))
#: n, d, K, rank
LOW = ((2_000, 25_000, 10, 8), (2_000, 100_000, 10, 1), (2_000, 100_000, 10, 8))
_LIMIT = 1 << 30


def run(bench: Bench) -> None:
    quick = bench.options.quick
    with threads_limited(bench.options.threads):
        limits = _limits(bench, 256 if quick else 1536)
        for n, d, K in ((400, 11, 4), (300, 40, 2)) if quick else SHAPES:
            _full(bench, n, d, K, limits)
    for n, d, K, rank in ((200, 2_000, 5, 2),) if quick else LOW:
        _low(bench, n, d, K, rank)
    _report(bench)


def _limits(bench: Bench, size: int) -> dict[str, float]:
    """GFLOP/s of dgemm and dsyrk."""
    from scipy.linalg.blas import dgemm, dsyrk

    A = np.asfortranarray(np.random.default_rng(0).normal(size=(size, size)))
    found = {}
    for name, call, flops in (
        ("gemm", lambda: dgemm(1.0, A, A), 2.0 * size**3),
        ("syrk", lambda: dsyrk(1.0, A), 1.0 * size**3),
    ):
        seconds = [_timed(call) for _ in range(max(3, bench.options.runs))]
        found[name] = flops / min(seconds) / 1e9
        bench.record(what="limit", kind=name, n=size, seconds=min(seconds), gflops=found[name])
    return found


def _timed(call: Any) -> float:
    with Stopwatch() as watch:
        call()
    return watch.seconds


def _full(bench: Bench, n: int, d: int, K: int, limits: dict[str, float]) -> None:
    from manyclass import __version__
    from manyclass.solvers.bound.forms import KroneckerForm
    from manyclass.solvers.bound.steps import Steps

    problem = _problem(n, d, K, None)
    form = KroneckerForm.of(problem, 0.0)
    steps = Steps(form, problem.lam, "ascending", bench.options.threads)
    point = 0.1 * np.random.default_rng(1).normal(size=form.shape)
    S, G = steps.scores(point), np.empty((form.reduced, form.reduced))
    steps.gradient(point, S, G)  # compiled
    seconds = [_timed(lambda: steps.gradient(point, S, G)) for _ in range(bench.options.runs)]
    alone = [_timed(lambda: steps.gradient(point, S)) for _ in range(bench.options.runs)]
    free = K - 1
    flops = float(n) * free * (free + 1) * d**2
    bench.record(
        what="full rank",
        n=n,
        d=d,
        K=K,
        parameters=d * K,
        version=__version__,
        seconds=median(seconds),
        gradient_seconds=median(alone),
        gflop=flops / 1e9,
        of_the_bound=flops / (n * K * float(d * K) ** 2),
        gflops=flops / median(seconds) / 1e9,
        gemm_share=flops / median(seconds) / 1e9 / limits["gemm"],
        syrk_share=flops / median(seconds) / 1e9 / limits["syrk"],
    )


def _low(bench: Bench, n: int, d: int, K: int, rank: int) -> None:
    from benchmarks.children import ChildFailed, call
    from manyclass import __version__

    asked = {"n": n, "d": d, "K": K, "rank": rank}
    try:
        found = call("benchmarks.experiments.bound_cost:fit_low", asked | {"threads": bench.options.threads})
    except ChildFailed as failed:
        bench.fail(str(failed), what="low rank", **asked)
        return
    bench.record(what="low rank", **asked, parameters=d * K, version=__version__, **found)


def fit_low(n: int, d: int, K: int, rank: int, threads: int) -> dict[str, Any]:
    """A few iterations of low rank: peak memory beyond the rows, and the time of one. For a process of its own."""
    from manyclass.optimize.loop import minimize
    from manyclass.solvers import BoundMajorization

    with threads_limited(threads), quiet():
        minimize(_problem(60, 40, K, 5), BoundMajorization(rank=rank), tol=0.0, max_iter=2, warn=False)
        problem = _problem(n, d, K, 50)
        before = resident_memory()
        reset_peak_memory()
        solver = BoundMajorization(rank=rank)
        begun = time.process_time()
        result = minimize(problem, solver, tol=0.0, max_iter=5, warn=False)
        seconds = time.process_time() - begun
    peak = peak_memory()
    return {
        "peak_bytes": None if peak is None or before is None else peak - before,
        "process_bytes": peak,
        "estimated_bytes": sum(solver.nbytes(problem).values()),
        "seconds": result.history.last.seconds / result.n_iter,
        "fit_cpu_seconds": seconds,
        "passes": result.history.last.passes,
    }


def _problem(n: int, d: int, K: int, words: int | None) -> Any:
    """Random rows, dense or with so many words each; the best of K random scores is the class, now and then."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    X: Any
    if words is None:
        X = rng.normal(size=(n, d))
    else:
        indices = np.sort(rng.integers(0, d, (n, words)), axis=1).astype(np.int32).ravel()
        X = sp.csr_matrix((rng.random(n * words), indices, words * np.arange(n + 1)), shape=(n, d))
        X.sum_duplicates()
    y = (X @ rng.normal(size=(d, K)) + rng.normal(size=(n, K))).argmax(axis=1)
    return make_problem(X, y, Task("multinomial", alpha=1.0 / n), n_classes=K)


def _report(bench: Bench) -> None:
    rows = [row for row in bench.rows if row["status"] == "measured"]
    limits = ", ".join(f"{row['kind']} {row['gflops']:.1f}" for row in rows if row["what"] == "limit")
    full = [row for row in rows if row["what"] == "full rank"]
    low = [row for row in rows if row["what"] == "low rank"]
    bench.table(
        f"Full rank: curvature and gradient of all rows (machine: {limits} GFLOP/s)",
        ("n x d x K", "parameters", "GFLOP", "of n K (dK)^2", "s", "gradient alone s", "GFLOP/s", "of gemm", "of syrk"),
        [
            [
                f"{row['n']} x {row['d']} x {row['K']}",
                row["parameters"],
                row["gflop"],
                row["of_the_bound"],
                row["seconds"],
                row["gradient_seconds"],
                row["gflops"],
                row["gemm_share"],
                row["syrk_share"],
            ]
            for row in full
        ],
    )
    bench.table(
        "Low rank: five iterations in a process of its own",
        (
            "n x d x K",
            "rank",
            "parameters",
            "peak MiB beyond the rows",
            "estimated MiB",
            "under 1 GiB",
            "s an iteration",
        ),
        [
            [
                f"{row['n']} x {row['d']} x {row['K']}",
                row["rank"],
                row["parameters"],
                None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20,
                row["estimated_bytes"] / 2**20,
                None if row["process_bytes"] is None else row["process_bytes"] < _LIMIT,
                row["seconds"],
            ]
            for row in low
        ],
    )
    with bench.figure(2) as axes:
        axes[0].bar([f"{row['n']}\n{row['d']} x {row['K']}" for row in full], [row["gflops"] for row in full])
        for row in rows:
            if row["what"] == "limit":
                axes[0].axhline(row["gflops"], color="black", linewidth=0.8)
                axes[0].annotate(row["kind"], (0, row["gflops"]), fontsize=7, va="bottom")
        axes[0].set(title="full rank", ylabel="GFLOP/s")
        axes[0].tick_params(axis="x", labelsize=6)
        axes[1].bar(
            [f"{row['parameters']:.0e}\nrank {row['rank']}" for row in low],
            [(row["peak_bytes"] or 0) / 2**20 for row in low],
        )
        axes[1].set(title="low rank", ylabel="peak memory beyond the rows (MiB)")

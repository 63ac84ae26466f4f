"""Peak memory of least-squares fits beside its formula, O(chunk x p + p^2 + n K); and 20 000 features at once.

Features are made chunk by chunk from 50 columns: no matrix of n x p numbers ever exists. From a middle case, n, p
and K are varied one at a time, in processes of their own: peak less what was held before the fit, beside the sum of its
parts. Then 20 000 features under a limit of --memory GiB of address space: by a factor, which does not fit and is to be
refused before anything is allocated; by conjugate gradients; by blocks.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks import children
from benchmarks.bench import Bench
from benchmarks.measure import peak_memory, quiet, reset_peak_memory, resident_memory, threads_limited

COLUMNS = 50
#: n, p, K: the middle case and what differs from it.
CASES = (
    (40_000, 2000, 10),
    (160_000, 2000, 10),
    (40_000, 500, 10),
    (40_000, 4000, 10),
    (40_000, 8000, 10),
    (40_000, 2000, 100),
)
QUICK = ((500, 40, 3), (500, 80, 3))
FITS = ("ridge", "softmax", "calibrated", "stagewise")
LARGE = 20_000
#: Ways to fit so many features.
WAYS = ("cholesky", "cg", "blocks")


def run(bench: Bench) -> None:
    quick = bench.options.quick
    for n, p, K in QUICK if quick else CASES:
        for fit in FITS if (n, p, K) == (QUICK if quick else CASES)[0] else FITS[:1]:
            _fit(bench, {"fit": fit, "n": n, "p": p, "K": K})
    for way in WAYS:
        _fit(
            bench, {"fit": way, "n": 200 if quick else 5000, "p": LARGE // (100 if quick else 1), "K": 10}, limited=True
        )
    _report(bench)


def _fit(bench: Bench, asked: dict[str, Any], *, limited: bool = False) -> None:
    bench.say(f"{asked['fit']}, n {asked['n']}, p {asked['p']}, K {asked['K']} ...")
    limit = int(bench.options.memory * 2**30) if limited and not bench.options.quick else None
    try:
        found = children.call(
            "benchmarks.experiments.ls_memory:fit_once",
            {**asked, "threads": bench.options.threads, "limit": limit},
        )
    except children.ChildFailed as failure:
        bench.fail(str(failure), limit=limit, **asked)
        return
    bench.record(**asked, limit=limit, **found)


def estimated(n: int, p: int, K: int) -> dict[str, int]:
    """Bytes of a fit in float32 of p features at a time: a chunk of them, second moments, responses."""
    from manyclass.solvers.least_squares.design import Design

    rows = min(n, Design(np.empty((n, p), np.float32)).rows)
    return {
        # The features, and what is copied of them: a cast, a product with weights.
        "chunk": 2 * 4 * rows * p,
        # In float64, and those of a chunk in float32.
        "moments": 12 * (p + 1) ** 2,
        "responses": 3 * 4 * n * K,
    }


def fit_once(fit: str, n: int, p: int, K: int, threads: int, limit: int | None) -> dict[str, Any]:
    """One fit; peak memory, time, or the refusal. For a process of its own."""
    X, y = _rows(n, K)
    with threads_limited(threads), quiet():
        _estimator(fit, min(p, 20), threads).fit(X[: 10 * K], y[: 10 * K])
        if limit is not None:
            _limit_address_space(limit)
        before = resident_memory()
        reset_peak_memory()
        begun = time.perf_counter()
        refusal = None
        model = _estimator(fit, p, threads)
        try:
            model.fit(X, y)
        except MemoryError as error:
            refusal = str(error)
        seconds = time.perf_counter() - begun
        peak = peak_memory()
    at_once = p // 10 if fit == "blocks" else p
    parts = estimated(n, at_once, K)
    return {
        "peak_bytes": None if peak is None or before is None else peak - before,
        **{f"{name}_bytes": size for name, size in parts.items()},
        "estimated_bytes": sum(size for name, size in parts.items() if fit != "cg" or name != "moments"),
        "refused": refusal is not None,
        "reason": refusal,
        "seconds": seconds,
        "train_error": None if refusal else float(np.mean(model.predict(X[:2000]) != y[:2000])),
    }


def _rows(n: int, K: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS), np.float32)
    W = rng.standard_normal((COLUMNS, K), np.float32)
    y = (X @ W + rng.standard_normal((n, K), np.float32)).argmax(axis=1)
    y[:K] = np.arange(K)
    return X, y


def _estimator(fit: str, p: int, threads: int) -> Any:
    from manyclass import (
        CalibratedLeastSquaresClassifier,
        GeneralizedLeastSquaresClassifier,
        RandomFourier,
        StagewiseClassifier,
    )

    common: dict[str, Any] = {"alpha": 1e-4, "random_state": 0, "n_jobs": threads}
    if fit in ("stagewise", "blocks"):
        blocks = 10 if fit == "blocks" else 2
        size = max(1, p // blocks) if fit == "blocks" else p
        return StagewiseClassifier(RandomFourier(size), n_blocks=blocks, **common)
    if fit == "calibrated":
        return CalibratedLeastSquaresClassifier(features=RandomFourier(p), max_iter=2, tol=1e-4, **common)
    system = fit if fit in ("cholesky", "cg") else "auto"
    link = "softmax" if fit == "softmax" else "identity"
    common |= {"max_iter": 3} if fit == "softmax" else {}
    return GeneralizedLeastSquaresClassifier(link, features=RandomFourier(p), system=system, **common)


def _limit_address_space(more: int) -> None:
    """Hold this process to so many bytes more: what the library is told is there, and what the system gives."""
    try:
        import resource
        from pathlib import Path

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    except (ImportError, OSError):
        pass


def _report(bench: Bench) -> None:
    lines = []
    for row in bench.rows:
        if row["status"] != "measured":
            continue
        sizes = [row[f"{name}_bytes"] / 2**20 for name in ("chunk", "moments", "responses", "estimated")]
        peak = None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20
        outcome = f"refused: {row['reason']}" if row["refused"] else f"{row['seconds']:.3g} s"
        lines.append([row["fit"], row["n"], row["p"], row["K"], peak, *reversed(sizes), outcome])
    columns = ("fit", "n", "p", "K", "peak MiB", "formula MiB", "n K", "p^2", "chunk x p", "outcome")
    bench.table("Peak memory beyond the rows, float32", columns, lines)

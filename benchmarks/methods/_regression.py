"""A fit of a solver to a `Problem` of regression: y holds real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.measure import Stopwatch, quiet
from benchmarks.task import Fit, Stop, Task

__all__ = ["fit"]

DEFAULT = {"tol": 1e-3, "max_iter": 1000}


def fit(solver: Any, data: Data, task: Task, stop: Stop, *, threads: int, seed: int) -> Fit:
    """`manyclass.optimize.loop.minimise`; compiled, or loaded from the cache, on a few rows first."""
    from manyclass.optimize.loop import minimize

    few = Data(data.name, data.X[:200], data.y[:200], data.X_test, data.y_test)
    with quiet():
        minimize(_problem(few, task, threads), solver, tol=0.0, max_iter=2, seed=seed)
        with Stopwatch() as watch:
            result = minimize(_problem(data, task, threads), solver, seed=seed, **{**DEFAULT, **stop.given()})
    last = result.history.last
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda X: np.asarray(X @ result.weights + result.intercept)[:, 0],
        weights=result.weights,
        intercept=result.intercept,
        model_bytes=result.weights.nbytes,
        iterations=result.n_iter,
        solver_seconds=last.seconds,
        compile_seconds=result.history.compile_seconds,
        certificate={"primal": last.primal, "dual": last.dual, "relative_gap": last.relative_gap},
    )


def _problem(data: Data, task: Task, threads: int) -> Any:
    from manyclass.kernels.rows import make_rows
    from manyclass.kernels.targets import RealTargets
    from manyclass.objective.losses import SquaredLoss
    from manyclass.objective.penalties import L1, L2, ElasticNet
    from manyclass.objective.problem import Problem

    ratio = task.l1_ratio
    return Problem(
        rows=make_rows(data.X),
        targets=RealTargets(np.ascontiguousarray(np.reshape(data.y, (-1, 1)), data.X.dtype), 1),
        loss=SquaredLoss(),
        penalty=L2() if not ratio else L1() if ratio >= 1 else ElasticNet(ratio / (1.0 - ratio)),
        lam=task.alpha * (1.0 - ratio if ratio < 1 else 1.0),
        n_features=data.X.shape[1],
        intercept=task.intercept,
        dtype=data.X.dtype,
        n_threads=threads,
    )

"""What the solvers on the weights share: a fit of one of them to a `Problem`, below the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data, shrink
from benchmarks.measure import Stopwatch, quiet
from benchmarks.task import Fit, Stop, Task

__all__ = ["SEPARABLE", "fit", "has_kink", "has_l1"]

SEPARABLE = ("log_loss", "smooth_hinge", "squared_hinge")

#: As ours stops by itself; an iteration of these costs a pass or two.
DEFAULT = {"tol": 1e-3, "max_iter": 1000}


def has_kink(task: Task) -> str | None:
    if task.objective in ("crammer_singer", "smooth_hinge") and not task.gamma:
        return "needs a smooth loss: gamma must be above 0"
    return None


def has_l1(task: Task) -> str | None:
    return "needs a smooth penalty: l1_ratio must be 0" if task.l1_ratio else None


def fit(solver: Any, data: Data, task: Task, stop: Stop, *, threads: int, seed: int) -> Fit:
    """`manyclass.optimize.loop.minimise`; compiled, or loaded from the cache, on a few rows first."""
    from manyclass.models.linear import LinearModel
    from manyclass.optimize.loop import minimize

    with quiet():
        minimize(_problem(shrink(data, 200), task, threads), solver, tol=0.0, max_iter=2, seed=seed)
        with Stopwatch() as watch:
            result = minimize(_problem(data, task, threads), solver, seed=seed, **{**DEFAULT, **stop.given()})
    many = data.multilabel or data.n_classes > 2
    model = LinearModel(
        weights=result.weights,
        intercept=result.intercept,
        classes=np.arange(data.n_classes),
        task="multilabel" if data.multilabel else "multiclass" if many else "binary",
    )
    last = result.history.last
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=model.predict,
        weights=model.weights,
        intercept=model.intercept,
        model_bytes=model.nbytes,
        iterations=result.n_iter,
        solver_seconds=last.seconds,
        compile_seconds=result.history.compile_seconds,
        certificate={"primal": last.primal, "dual": last.dual, "relative_gap": last.relative_gap},
    )


def _problem(data: Data, task: Task, threads: int) -> Any:
    from manyclass.kernels.rows import make_rows
    from manyclass.kernels.targets import ClassTargets, SignTargets
    from manyclass.objective.losses import CrammerSingerLoss, LogisticLoss, MultinomialLoss, SmoothHingeLoss,
    SquaredHingeLoss from manyclass.objective.penalties import L1, L2, ElasticNet from manyclass.objective.problem
    import Problem

    one_vs_rest = {
        "log_loss": LogisticLoss(),
        "hinge": SmoothHingeLoss(0.0),
        "smooth_hinge": SmoothHingeLoss(task.gamma),
        "squared_hinge": SquaredHingeLoss(),
    }
    joint = {"multinomial": MultinomialLoss(), "crammer_singer": CrammerSingerLoss(task.gamma)}
    # Two classes have one margin and one column of weights.
    margin = {"multinomial": LogisticLoss(), "crammer_singer": SmoothHingeLoss(task.gamma)}
    loss: Any
    targets: Any
    if data.multilabel:
        y = data.y.tocsr()
        targets = SignTargets(y.indptr.astype(np.int64), y.indices.astype(np.int32), data.n_classes)
        loss = one_vs_rest[task.objective]
    elif data.n_classes == 2:
        indptr = np.concatenate([[0], np.cumsum(data.y)]).astype(np.int64)
        targets = SignTargets(indptr, np.zeros(int(indptr[-1]), np.int32), 1)
        loss = {**one_vs_rest, **margin}[task.objective]
    elif task.objective in joint:
        targets, loss = ClassTargets(data.y.astype(np.int32), data.n_classes), joint[task.objective]
    else:
        targets = SignTargets(np.arange(data.n + 1, dtype=np.int64), data.y.astype(np.int32), data.n_classes)
        loss = one_vs_rest[task.objective]
    ratio = task.l1_ratio
    return Problem(
        rows=make_rows(data.X),
        targets=targets,
        loss=loss,
        penalty=L2() if not ratio else L1() if ratio >= 1 else ElasticNet(ratio / (1.0 - ratio)),
        lam=task.alpha * (1.0 - ratio if ratio < 1 else 1.0),
        n_features=data.X.shape[1],
        intercept=task.intercept,
        dtype=data.X.dtype,
        n_threads=threads,
    )

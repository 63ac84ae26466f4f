"""The loss and the `Problem` that a task stands for, for what works below the estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.task import Task

if TYPE_CHECKING:
    from manyclass.objective.losses import Loss
    from manyclass.objective.problem import Problem

__all__ = ["OBJECTIVES", "loss_of", "make_problem"]

#: What a method may minimize; "margin" is crammer_singer without smoothing, by MEMOIR's steps.
OBJECTIVES = (
    *("multinomial", "crammer_singer", "log_loss", "hinge", "smooth_hinge", "squared_hinge"),
    *("squared", "margin"),
)
_WITH_GAMMA = ("crammer_singer", "smooth_hinge")


def loss_of(task: Task) -> Loss:
    """The loss of a task as a user writes it."""
    from manyclass.objective.losses import CLASSIFICATION, REGRESSION, CrammerSinger

    if task.objective == "margin":
        return CrammerSinger(gamma=0.0)
    kind = {**CLASSIFICATION, **REGRESSION}[task.objective]
    return kind(gamma=task.gamma) if task.objective in _WITH_GAMMA else kind()


def make_problem(
    X: Any, y: Any, task: Task, *, n_classes: int | None = None, threads: int = 1, dtype: Any = None
) -> Problem:
    """The problem of a task, one column of weights for each class; ``y`` holds class numbers, or numbers to predict."""
    from manyclass.kernels.rows import make_rows
    from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets
    from manyclass.objective.penalties import L1, L2, ElasticNet
    from manyclass.objective.problem import Problem

    loss = loss_of(task).compiled()
    dtype = np.dtype(X.dtype if dtype is None else dtype)
    targets: Any
    if loss.targets == "real":
        targets = RealTargets(np.ascontiguousarray(np.reshape(y, (-1, 1)), dtype), 1)
    else:
        classes = np.asarray(y, np.int32)
        K = int(classes.max()) + 1 if n_classes is None else n_classes
        joint = loss.targets == "class"
        targets = ClassTargets(classes, K) if joint else SignTargets(np.arange(len(y) + 1, dtype=np.int64), classes, K)
    l1, l2 = task.alpha * task.l1_ratio, task.alpha * (1.0 - task.l1_ratio)
    return Problem(
        rows=make_rows(X),
        targets=targets,
        loss=loss,
        penalty=(ElasticNet(l1 / l2) if l1 else L2()) if l2 else L1(),
        lam=l2 or l1,
        n_features=X.shape[1],
        intercept=task.intercept,
        dtype=dtype,
        n_threads=threads,
    )

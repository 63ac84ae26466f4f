"""PyTorch's own L-BFGS on full batches, with its strong Wolfe line search: softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.devices import no_torch
from benchmarks.measure import Stopwatch
from benchmarks.task import Fit, Stop, Task

PACKAGE = "torch"
OBJECTIVES = ("multinomial",)

#: Most iterations of a fit that is watched.
_MOST = 4096


def skip_reason() -> str | None:
    return no_torch()


def refuses(task: Task) -> str | None:
    return "this objective has no l1 penalty here" if task.l1_ratio else None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """Ten pairs, gradients and directions; scores, their slopes and what the loss keeps of them."""
    return int(itemsize * (26 * data.X.shape[1] * data.n_classes + 3 * data.n * data.n_classes))


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    with Stopwatch() as watch:
        W, b, iterations, _ = _minimized(data, task, int(stop.max_iter or 100), threads)
    weights, intercept = W.detach().cpu().numpy(), b.detach().cpu().numpy().astype(np.float64)
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda rows: np.argmax(rows @ weights + intercept, axis=1),
        weights=weights,
        intercept=intercept,
        model_bytes=int(weights.nbytes + intercept.nbytes),
        iterations=iterations,
    )


def watch(data: Data, task: Task, target: float, *, threads: int = 1, seed: int = 0) -> int | None:
    """It computes the objective at each trial step, before its iteration ends."""
    _, _, iterations, reached = _minimized(data, task, _MOST, threads, target)
    return iterations if reached else None


class _Reached(Exception):
    """The objective is at the target."""


def _minimized(
    data: Data, task: Task, most: int, threads: int, target: float | None = None
) -> tuple[Any, Any, int, bool]:
    """Weights, intercept, iterations, and whether the objective was at ``target``, where it ends."""
    import torch

    torch.set_num_threads(threads)
    K, X, y = data.n_classes, torch.from_numpy(data.X), torch.from_numpy(data.y.astype(np.int64))
    W = torch.zeros((X.shape[1], K), dtype=X.dtype, requires_grad=True)
    b = torch.zeros(K, dtype=X.dtype, requires_grad=task.intercept)
    # A line search takes evaluations, of which only iterations are to be limited.
    how = {"max_iter": most, "max_eval": 30 * most, "history_size": 10, "line_search_fn": "strong_wolfe"}
    solver = torch.optim.LBFGS([W, b] if task.intercept else [W], tolerance_grad=0, tolerance_change=0, **how)

    def evaluate() -> torch.Tensor:
        solver.zero_grad()
        loss = torch.nn.functional.cross_entropy(X @ W + b, y) + 0.5 * task.alpha * (W * W).sum()
        if target is not None and float(loss.detach()) <= target:
            raise _Reached
        loss.backward()
        return loss

    reached = False
    try:
        solver.step(evaluate)
    except _Reached:
        reached = True
    return W, b, int(solver.state[W].get("n_iter", 1)), reached

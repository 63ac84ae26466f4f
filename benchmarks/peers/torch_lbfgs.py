"""PyTorch's own L-BFGS on full batches, with its strong Wolfe line search: softmax."""

from __future__ import annotations

import numpy as np

from benchmarks.data import Data
from benchmarks.devices import no_torch
from benchmarks.measure import Stopwatch
from benchmarks.task import Fit, Stop, Task

PACKAGE = "torch"
OBJECTIVES = ("multinomial",)


def skip_reason() -> str | None:
    return no_torch()


def refuses(task: Task) -> str | None:
    return "this objective has no l1 penalty here" if task.l1_ratio else None


def memory(data: Data, task: Task, itemsize: int) -> int:
    """Ten pairs, gradients and directions; scores, their slopes and what the loss keeps of them."""
    return int(itemsize * (26 * data.X.shape[1] * data.n_classes + 3 * data.n * data.n_classes))


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    import torch

    torch.set_num_threads(threads)
    K, X, y = data.n_classes, torch.from_numpy(data.X), torch.from_numpy(data.y.astype(np.int64))
    with Stopwatch() as watch:
        W = torch.zeros((X.shape[1], K), dtype=X.dtype, requires_grad=True)
        b = torch.zeros(K, dtype=X.dtype, requires_grad=task.intercept)
        # A line search takes evaluations, of which only iterations are to be limited.
        most = int(stop.max_iter or 100)
        how = {"max_iter": most, "max_eval": 30 * most, "history_size": 10, "line_search_fn": "strong_wolfe"}
        solver = torch.optim.LBFGS([W, b] if task.intercept else [W], tolerance_grad=0, tolerance_change=0, **how)

        def evaluate() -> torch.Tensor:
            solver.zero_grad()
            loss = torch.nn.functional.cross_entropy(X @ W + b, y) + 0.5 * task.alpha * (W * W).sum()
            loss.backward()
            return loss

        solver.step(evaluate)
    weights, intercept = W.detach().cpu().numpy(), b.detach().cpu().numpy().astype(np.float64)
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda rows: np.argmax(rows @ weights + intercept, axis=1),
        weights=weights,
        intercept=intercept,
        model_bytes=int(weights.nbytes + intercept.nbytes),
        iterations=int(solver.state[W]["n_iter"]),
    )

"""scikit-learn's LogisticRegression(solver="lbfgs") on PyTorch's tensors, by its array API dispatch: multinomial."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.data import Data
from benchmarks.devices import device_facts, device_of, moved, no_torch, settled
from benchmarks.measure import Stopwatch, quiet
from benchmarks.peers.sklearn_lbfgs import memory, refuses
from benchmarks.task import Fit, Stop, Task

__all__ = ["fit", "memory", "refuses", "skip_reason"]

PACKAGE = "scikit-learn"
OBJECTIVES = ("multinomial",)


def skip_reason() -> str | None:
    from sklearn.linear_model import LogisticRegression

    if no_torch():
        return no_torch()
    if not LogisticRegression().__sklearn_tags__().array_api_support:
        return "this version's LogisticRegression takes no arrays of other libraries: scikit-learn 1.9 does"
    return None if os.environ.get("SCIPY_ARRAY_API") == "1" else "set SCIPY_ARRAY_API=1, which its dispatch needs"


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    import torch
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression

    torch.set_num_threads(threads)
    device = device_of(task)
    X, y = moved(data, device)
    model = LogisticRegression(
        C=task.C(data.n), solver="lbfgs", fit_intercept=task.intercept, random_state=seed, **stop.given()
    )
    with quiet(), config_context(array_api_dispatch=True), Stopwatch() as watch:
        model.fit(X, y)
        settled(device)
    weights = model.coef_.cpu().numpy().T
    intercept = np.broadcast_to(np.asarray(torch.as_tensor(model.intercept_).cpu(), np.float64), weights.shape[1:])
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=lambda rows: np.argmax(rows @ weights + intercept, axis=1),
        weights=weights,
        intercept=intercept,
        model_bytes=int(weights.nbytes + intercept.nbytes),
        iterations=int(np.max(np.asarray(torch.as_tensor(model.n_iter_).cpu()))),
        facts=device_facts(device),
    )

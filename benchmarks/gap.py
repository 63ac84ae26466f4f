"""The certified relative gap of linear weights with an l1 or elastic net penalty, in NumPy and float64.

The one judge of `benchmarks.experiments.sparse_regression`. Written apart from the library: nothing here comes from it.
One output; the loss is ``squared`` (y real) or ``log_loss`` (y is 1 for one class).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import xlogy

from benchmarks.data import Data
from benchmarks.task import Task

__all__ = ["relative_gap"]


def relative_gap(data: Data, task: Task, weights: Any, intercept: Any = None) -> tuple[float, float]:
    """The objective P of the weights and (P - D) / max(|P|, |D|).

    D is the better of two values of the dual at points made from the residuals of these very weights: brought to sum
    zero where there is an intercept, and shrunk until no slope is steeper than the l1 penalty allows, or (where there
    is an l2 part, so that the dual is finite) not shrunk.
    """
    X = data.X.astype(np.float64)
    w = np.asarray(weights, np.float64).reshape(-1)
    s = X @ w + (0.0 if intercept is None else float(np.ravel(intercept)[0]))
    l1, l2 = task.alpha * task.l1_ratio, task.alpha * (1.0 - task.l1_ratio)
    penalty = l1 * np.abs(w).sum() + 0.5 * l2 * (w @ w)
    if task.objective == "squared":
        y = np.asarray(data.y, np.float64)
        primal, a = 0.5 * np.mean((s - y) ** 2), y - s
        if task.intercept:
            a = a - a.mean()
    else:
        y = np.where(data.y == 1, 1.0, -1.0)
        primal, a = np.mean(np.logaddexp(0.0, -y * s)), y * 0.5 * (1.0 - np.tanh(0.5 * y * s))
        if task.intercept:
            above, below = a[a > 0].sum(), -a[a < 0].sum()
            a = np.where(a > 0, a * min(1.0, below / above), a * min(1.0, above / below))
    primal += penalty
    pull = np.asarray(X.T @ a).ravel() / len(y)

    def conjugate(a: Any) -> float:
        if task.objective == "squared":
            return float(np.mean(0.5 * a * a - a * y))
        b = a * y
        return float(np.mean(xlogy(b, b) + xlogy(1.0 - b, 1.0 - b)))

    shrink = min(1.0, l1 / max(float(np.abs(pull).max()), 1e-300))
    duals = [-conjugate(shrink * a)]
    if l2:
        excess = np.maximum(np.abs(pull) - l1, 0.0)
        duals.append(-conjugate(a) - float(excess @ excess) / (2.0 * l2))
    dual = max(duals)
    return float(primal), float(primal - dual) / max(abs(primal), abs(dual), 1e-12)

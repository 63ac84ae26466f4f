"""The objective of a linear model, in NumPy and float64: the one judge of all methods.

Written apart from the library on purpose: nothing here comes from `manyclass`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.task import Task

__all__ = ["objective"]

#: Scores held at a time.
_BLOCK = 1 << 22


def objective(data: Data, task: Task, weights: Any, intercept: Any = None) -> float:
    """``(1/n) sum_i phi(W^T x_i + b; y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)`` on the training rows.

    Parameters
    ----------
    weights : ndarray of shape (d, K), or (d, 1) for two classes
    intercept : ndarray of shape (K,) or (1,), optional
    """
    loss = _LOSSES[task.objective]
    if task.objective in ("crammer_singer",) and task.gamma:
        raise ValueError(f"only the plain crammer_singer is judged here, got gamma = {task.gamma}")
    W = np.asarray(weights, np.float64)
    b = np.zeros(W.shape[1]) if intercept is None else np.asarray(intercept, np.float64).ravel()
    total = 0.0
    step = max(1, _BLOCK // W.shape[1])
    for begin in range(0, data.n, step):
        rows = slice(begin, begin + step)
        scores = np.asarray(data.X[rows].astype(np.float64) @ W) + b
        total += float(loss(scores, data.y[rows], task.gamma).sum())
    squares = float(np.einsum("jk,jk->", W, W))
    penalty = 0.5 * (1.0 - task.l1_ratio) * squares
    if task.l1_ratio:
        penalty += task.l1_ratio * float(np.abs(W).sum())
    return total / data.n + task.alpha * penalty


def _multinomial(scores: Any, y: Any, gamma: float) -> Any:
    if scores.shape[1] == 1:  # two classes, one column of weights
        return _log_loss(scores, y, gamma)
    top = scores.max(axis=1)
    return np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - scores[np.arange(len(y)), y]


def _crammer_singer(scores: Any, y: Any, gamma: float) -> Any:
    if scores.shape[1] == 1:
        return _hinge(scores, y, gamma)
    rows = np.arange(len(y))
    own = scores[rows, y]
    rivals = scores.copy()
    rivals[rows, y] = -np.inf
    return np.maximum(0.0, 1.0 + rivals.max(axis=1) - own)


def _margins(scores: Any, y: Any) -> Any:
    """Scores times +1 in the columns of a row's classes, -1 in the others."""
    if hasattr(y, "toarray"):
        return scores * np.where(y.toarray() > 0, 1.0, -1.0)
    if scores.shape[1] == 1:
        return scores * np.where(y == 1, 1.0, -1.0)[:, None]
    margins = -scores
    rows = np.arange(len(y))
    margins[rows, y] *= -1.0
    return margins


def _log_loss(scores: Any, y: Any, gamma: float) -> Any:
    return np.logaddexp(0.0, -_margins(scores, y)).sum(axis=1)


def _hinge(scores: Any, y: Any, gamma: float) -> Any:
    return np.maximum(0.0, 1.0 - _margins(scores, y)).sum(axis=1)


def _squared_hinge(scores: Any, y: Any, gamma: float) -> Any:
    return (np.maximum(0.0, 1.0 - _margins(scores, y)) ** 2).sum(axis=1)


def _smooth_hinge(scores: Any, y: Any, gamma: float) -> Any:
    if not gamma:
        return _hinge(scores, y, gamma)
    short = np.maximum(0.0, 1.0 - _margins(scores, y))
    return np.where(short >= gamma, short - 0.5 * gamma, short**2 / (2.0 * gamma)).sum(axis=1)


_LOSSES = {
    "multinomial": _multinomial,
    "crammer_singer": _crammer_singer,
    "log_loss": _log_loss,
    "hinge": _hinge,
    "squared_hinge": _squared_hinge,
    "smooth_hinge": _smooth_hinge,
}

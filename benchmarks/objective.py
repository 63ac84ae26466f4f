"""The objective of a linear model, in NumPy and float64: the one judge of all methods.

Written apart from the library on purpose: nothing here comes from `manyclass`. Rows and columns are taken in blocks:
neither the scores of all rows nor a copy of the weights in float64 is held at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.task import Task

__all__ = ["objective"]

#: Numbers of a block of weights, and of a block of scores.
_BLOCK = 1 << 22


def objective(data: Data, task: Task, weights: Any, intercept: Any = None, classes: Any = None) -> float:
    """``(1/n) sum_i phi(W^T x_i + b; y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)`` on the training rows.

    Parameters
    ----------
    weights : ndarray of shape (d, K), or (d, 1) for two classes
    intercept : ndarray of shape (K,) or (1,), optional
    classes : ndarray of int64, optional
        Of a loss one class against the rest: the columns of ``weights`` are those of these classes, and the objective
        is the sum over them alone.
    """
    if task.objective == "crammer_singer" and task.gamma:
        raise ValueError(f"only the plain crammer_singer is judged here, got gamma = {task.gamma}")
    W = np.asarray(weights)
    K = W.shape[1]
    b = np.zeros(K) if intercept is None else np.asarray(intercept, np.float64).ravel()
    joint = _JOINT.get(task.objective)
    if joint is not None and classes is not None:
        raise ValueError(f"{task.objective} is no sum over classes: it cannot be judged on some of them")
    # One column of weights is one of two classes: a loss of its margin, whatever it is called.
    sums: Any = _Margins(_OF_MARGIN[task.objective]) if joint is None or K == 1 else joint(data.n)
    names = (np.arange(K) if K > 1 else np.array([1])) if classes is None else np.asarray(classes)
    penalty = 0.0
    for first in range(0, K, max(1, _BLOCK // W.shape[0])):
        columns = slice(first, first + max(1, _BLOCK // W.shape[0]))
        block = np.asarray(W[:, columns], np.float64)
        penalty += 0.5 * (1.0 - task.l1_ratio) * float(np.einsum("jk,jk->", block, block))
        if task.l1_ratio:
            penalty += task.l1_ratio * float(np.abs(block).sum())
        step = max(1, _BLOCK // max(block.shape[1], 64))
        for begin in range(0, data.n, step):
            rows = slice(begin, begin + step)
            scores = np.asarray(data.X[rows].astype(np.float64) @ block) + b[columns]
            sums.add(rows, scores, _own(data.y[rows], names[columns]), task.gamma)
    return float(sums.total()) / data.n + task.alpha * penalty


def _own(y: Any, names: Any) -> Any:
    """Which of the columns of ``names`` are a row's own."""
    if hasattr(y, "toarray"):
        return y[:, names].toarray() > 0
    return y[:, None] == names


class _Margins:
    """The sum of a function of the margins: scores, with the sign turned where the column is not a row's own."""

    def __init__(self, function: Any) -> None:
        self._function, self._sum = function, 0.0

    def add(self, rows: slice, scores: Any, own: Any, gamma: float) -> None:
        self._sum += float(self._function(np.where(own, scores, -scores), gamma).sum())

    def total(self) -> float:
        return self._sum


class _Multinomial:
    """``log sum_k exp s_k - s_y``, the sum of exponentials under its running maximum."""

    def __init__(self, n: int) -> None:
        self._top, self._sum, self._own = np.full(n, -np.inf), np.zeros(n), np.zeros(n)

    def add(self, rows: slice, scores: Any, own: Any, gamma: float) -> None:
        top = np.maximum(self._top[rows], scores.max(axis=1))
        new = np.exp(scores - top[:, None]).sum(axis=1)
        self._sum[rows] = self._sum[rows] * np.exp(self._top[rows] - top) + new
        self._top[rows] = top
        self._own[rows] += np.where(own, scores, 0.0).sum(axis=1)

    def total(self) -> float:
        return float((np.log(self._sum) + self._top - self._own).sum())


class _CrammerSinger:
    """``max(0, 1 + max_{k != y} s_k - s_y)``."""

    def __init__(self, n: int) -> None:
        self._rival, self._own = np.full(n, -np.inf), np.zeros(n)

    def add(self, rows: slice, scores: Any, own: Any, gamma: float) -> None:
        self._rival[rows] = np.maximum(self._rival[rows], np.where(own, -np.inf, scores).max(axis=1))
        self._own[rows] += np.where(own, scores, 0.0).sum(axis=1)

    def total(self) -> float:
        return float(np.maximum(0.0, 1.0 + self._rival - self._own).sum())


def _log_loss(margins: Any, gamma: float) -> Any:
    return np.logaddexp(0.0, -margins)


def _hinge(margins: Any, gamma: float) -> Any:
    return np.maximum(0.0, 1.0 - margins)


def _squared_hinge(margins: Any, gamma: float) -> Any:
    return np.maximum(0.0, 1.0 - margins) ** 2


def _smooth_hinge(margins: Any, gamma: float) -> Any:
    short = np.maximum(0.0, 1.0 - margins)
    if not gamma:
        return short
    return np.where(short >= gamma, short - 0.5 * gamma, short**2 / (2.0 * gamma))


_JOINT = {"multinomial": _Multinomial, "crammer_singer": _CrammerSinger}

_OF_MARGIN = {
    "multinomial": _log_loss,
    "crammer_singer": _hinge,
    "log_loss": _log_loss,
    "hinge": _hinge,
    "squared_hinge": _squared_hinge,
    "smooth_hinge": _smooth_hinge,
}

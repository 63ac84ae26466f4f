"""The link and the temperature of a model, which make its scores probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, log_softmax, softmax

from manyclass.metrics._labels import first, positions, row_weights
from manyclass.models.base import Model
from manyclass.runtime.threads import ranges

__all__ = ["best_link"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of scores that are in memory at a time.
_PIECE = 1 << 22
#: The inverse temperature is searched within this factor of 1 / (root mean square of the scores).
_WIDE = 1e6
_STEPS = 60
#: A decrease of the log loss of a row that does not matter.
_FLAT = 1e-7


def best_link(model: Model, X: Any, y: Any, sample_weight: Any, n_jobs: int | None) -> tuple[str, float]:
    """The link and the T > 0 that minimize the log loss of ``model`` on these rows, see `Model.calibrate`."""
    X = model.rows(X)
    n = int(X.shape[0])
    target = _targets(model, y)
    if not n or target.shape[0] != n:
        raise ValueError(f"y must have a label for each row of X, at least one, got {target.shape[0]} for {n} rows")
    own = row_weights(sample_weight, n)
    weights = np.ones(n) if own is None else own
    pieces = ranges(n, max(1, _PIECE // model.n_outputs))
    kept = model.scores(X, n_jobs).astype(np.float64) if len(pieces) == 1 else None

    def blocks() -> Iterator[tuple[Array, Any, Array]]:
        for begin, end in pieces:
            scores = model.scores(X[begin:end], n_jobs) if kept is None else kept
            part = target[begin:end]
            yield (
                scores.astype(np.float64, copy=False),
                part.toarray() if sp.issparse(part) else part,
                weights[begin:end],
            )

    square = sum(float(w @ np.einsum("ik,ik->i", s, s)) for s, _, w in blocks()) / (weights.sum() * model.n_outputs)
    start = 1.0 / (float(np.sqrt(square)) or 1.0)

    flat = _FLAT * float(weights.sum())

    def best(slopes: Any, start: float = start) -> float:
        return _root(lambda beta: np.sum([slopes(beta, *block) for block in blocks()], axis=0), start, flat)

    if model.task != "multiclass":
        return "sigmoid", 1.0 / best(_signs)
    smooth = best(_softmax)
    found = {"softmax": smooth, "sigmoid": best(_sigmoids, smooth)}
    losses = {link: sum(_loss(link, beta, *block) for block in blocks()) for link, beta in found.items()}
    link = min(losses, key=losses.__getitem__)
    return link, 1.0 / found[link]


def _root(slope: Callable[[float], Any], start: float, flat: float) -> float:
    """Where an increasing function is zero, by Newton steps within a bracket; it returns value and derivative.

    Ends where a step would lower the integral of the function by less than ``flat``.
    """
    low, high, beta = start / _WIDE, start * _WIDE, start
    for _ in range(_STEPS):
        value, derivative = slope(beta)
        if value > 0:
            high = beta
        else:
            low = beta
        # Newton's step, at most by a factor of 4; where it leaves the bracket, that is halved in logarithms.
        new = beta - value / derivative if derivative > 0 else (0.0 if value > 0 else np.inf)
        new = float(min(max(new, 0.25 * beta), 4.0 * beta))
        if not low < new < high:
            new = float(np.sqrt(low * high))
        if new == beta or 0 < value * value <= flat * derivative:
            return new
        beta = new
    return beta


def _softmax(beta: float, scores: Array, target: Array, weights: Array) -> tuple[float, float]:
    """First and second derivative of sum_i w_i (log sum_k exp(beta s_ik) - beta s_iy) with respect to beta."""
    p = softmax(beta * scores, axis=1)
    mean = np.einsum("ik,ik->i", p, scores)
    spread = np.einsum("ik,ik->i", p, (scores - mean[:, None]) ** 2)
    return float(weights @ (mean - scores[np.arange(len(target)), target])), float(weights @ spread)


def _sigmoids(beta: float, scores: Array, target: Array, weights: Array) -> tuple[float, float]:
    """The same of sum_i w_i (log sum_k sigma(beta s_ik) - log sigma(beta s_iy)), where sigma is the sigmoid."""
    n = np.arange(len(target))
    p = softmax(log_expit(beta * scores), axis=1)
    wrong = expit(-beta * scores)
    u = scores * wrong
    du = -scores * u * (1.0 - wrong)
    mean = np.einsum("ik,ik->i", p, u)
    bend = np.einsum("ik,ik->i", p, (u - mean[:, None]) ** 2 + du) - du[n, target]
    return float(weights @ (mean - u[n, target])), float(weights @ bend)


def _loss(link: str, beta: float, scores: Array, target: Array, weights: Array) -> float:
    logs = log_softmax(log_expit(beta * scores) if link == "sigmoid" else beta * scores, axis=1)
    return -float(weights @ logs[np.arange(len(target)), target])


def _signs(beta: float, scores: Array, target: Array, weights: Array) -> tuple[float, float]:
    """The same of sum_i w_i sum_k log(1 + exp(-beta t_ik s_ik)), where t is 1 for a target and else -1."""
    margins = np.where(target > 0, scores, -scores)
    wrong = expit(-beta * margins)
    slope = -np.einsum("ik,ik->i", wrong, margins)
    return float(weights @ slope), float(weights @ np.einsum("ik,ik->i", wrong * (1.0 - wrong), margins * margins))


def _targets(model: Model, y: Any) -> Any:
    """The class of each row; for a binary model a 0/1 column, for a multilabel one the indicator."""
    if model.classes is None:
        raise ValueError("calibrate is for classifiers, and this is a regression model")
    if model.task == "multilabel":
        found = sp.csr_matrix(y)
        if found.shape[1] != model.n_outputs:
            raise ValueError(f"y must be an indicator with {model.n_outputs} columns, got shape {found.shape}")
        return found
    classes, labels = np.asarray(model.classes), np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must be a vector of labels, got shape {labels.shape}")
    index = positions(classes, labels)
    if (index < 0).any():
        raise ValueError(f"y must have the classes of the model, got the label {first(labels, index < 0)}")
    return index[:, None] if model.task == "binary" else index

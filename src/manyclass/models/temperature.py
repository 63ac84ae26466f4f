"""The link, the temperature and the shifts of a model, which make its scores probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax

from manyclass.metrics._labels import first, positions, row_weights
from manyclass.models.base import Model
from manyclass.runtime.threads import ranges

__all__ = ["Held"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of scores that are in memory at a time.
_PIECE = 1 << 22
#: The inverse temperature is searched within this factor of 1 / (root mean square of the scores).
_WIDE = 1e6
_STEPS = 60
#: A decrease of the log loss of a row that does not matter.
_FLAT = 1e-7


class Held:
    """Held-out rows of a model: their scores, targets and weights, in pieces."""

    def __init__(self, model: Model, X: Any, y: Any, sample_weight: Any, n_jobs: int | None) -> None:
        self._model, self._n_jobs = model, n_jobs
        self._X = model.rows(X)
        n = int(self._X.shape[0])
        self._target = _targets(model, y)
        if not n or self._target.shape[0] != n:
            got = self._target.shape[0]
            raise ValueError(f"y must have a label for each row of X, at least one, got {got} for {n} rows")
        own = row_weights(sample_weight, n)
        self._weights = np.ones(n) if own is None else own
        self.weight = float(self._weights.sum())
        self._pieces = ranges(n, max(1, _PIECE // model.n_outputs))
        self._kept = self._scores(0, n) if len(self._pieces) == 1 else None

    def _scores(self, begin: int, end: int) -> Array:
        return self._model.scores(self._X[begin:end], self._n_jobs).astype(np.float64, copy=False)

    def __iter__(self) -> Iterator[tuple[Array, Any, Array]]:
        for begin, end in self._pieces:
            part = self._target[begin:end]
            yield (
                self._scores(begin, end) if self._kept is None else self._kept,
                part.toarray() if sp.issparse(part) else part,
                self._weights[begin:end],
            )

    def link(self) -> tuple[str, float]:
        """The link and the T > 0 that minimize the log loss, see `Model.calibrate`."""
        square = sum(float(w @ np.einsum("ik,ik->i", s, s)) for s, _, w in self)
        start = 1.0 / (float(np.sqrt(square / (self.weight * self._model.n_outputs))) or 1.0)

        def best(slopes: Any, start: float = start) -> float:
            flat = _FLAT * self.weight
            return _root(lambda beta: np.sum([slopes(beta, *block) for block in self], axis=0), start, flat)

        if self._model.task != "multiclass":
            return "sigmoid", 1.0 / best(_signs)
        smooth = best(_softmax)
        found = {"softmax": smooth, "sigmoid": best(_sigmoids, smooth)}
        losses = {link: sum(_loss(link, beta, *block) for block in self) for link, beta in found.items()}
        link = min(losses, key=losses.__getitem__)
        return link, 1.0 / found[link]

    def shifts(self, link: str, temperature: float) -> tuple[float, Array]:
        """The T and the shifts of the outputs that minimize the log loss + ||shifts / T||^2 / 2."""
        joint = self._model.task == "multiclass"

        def value(point: Array) -> tuple[float, Array]:
            # In units of the inverse temperature, which is found already.
            beta, b = point[0] / temperature, point[1:]
            loss, slope, slopes = 0.5 * float(b @ b), 0.0, b.copy()
            for scores, target, weights in self:
                z = beta * scores + b
                if joint:
                    losses, pull = _pull(link, z, target)
                else:
                    signs = np.where(target > 0, 1.0, -1.0)
                    losses, pull = -log_expit(signs * z).sum(axis=1), -signs * expit(-signs * z)
                pull *= weights[:, None]
                loss += float(weights @ losses)
                slope += float(np.vdot(pull, scores))
                slopes += pull.sum(axis=0)
            return loss / self.weight, np.concatenate([[slope / temperature], slopes]) / self.weight

        start = np.zeros(1 + self._model.n_outputs)
        start[0] = 1.0
        bounds = [(1.0 / _WIDE, _WIDE), *[(None, None)] * self._model.n_outputs]
        options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}
        found = minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        T = temperature / float(found[0])
        return T, T * found[1:]


def _pull(link: str, z: Array, target: Array) -> tuple[Array, Array]:
    """The log loss of each row and its gradient with respect to z, before the link."""
    logits = log_expit(z) if link == "sigmoid" else z
    logs, n = log_softmax(logits, axis=1), np.arange(len(target))
    pull = np.exp(logs)
    pull[n, target] -= 1.0
    if link == "sigmoid":
        pull *= expit(-z)
    return -logs[n, target], pull


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

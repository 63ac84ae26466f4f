"""The link, the temperature and the shifts of a model, which make its scores probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from manyclass.kernels import temperature as kernels
from manyclass.metrics._labels import first, positions, row_weights
from manyclass.models.base import Model
from manyclass.runtime.threads import ranges, resolve_n_jobs, run

__all__ = ["Held"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of scores that are in memory at a time.
_PIECE = 1 << 22
#: Rows of one task of a thread.
_ROWS = 512
#: The inverse temperature is searched within this factor of 1 / (root mean square of the scores).
_WIDE = 1e6
_STEPS = 60
#: Largest step in the logarithm of the inverse temperature.
_FAR = float(np.log(4.0))
#: A decrease of the log loss of a row that does not matter.
_FLAT = 1e-7


class Held:
    """Held-out rows of a model: their scores, targets and weights, in pieces.

    The scores are those of ``sources``, pairs of a model and of rows, one after the other.
    """

    def __init__(
        self, model: Model, sources: Iterable[tuple[Model, Any]], y: Any, sample_weight: Any, n_jobs: int | None
    ) -> None:
        self._model, self._n_jobs = model, n_jobs
        self._sources = [(source, source.rows(X)) for source, X in sources]
        n = sum(int(X.shape[0]) for _, X in self._sources)
        self._target = _targets(model, y)
        if not n or self._target.shape[0] != n:
            got = self._target.shape[0]
            raise ValueError(f"y must have a label for each row of X, at least one, got {got} for {n} rows")
        own = row_weights(sample_weight, n)
        self._weights = np.ones(n) if own is None else own
        self.weight = float(self._weights.sum())
        #: Number of the source, first row and last row + 1 in it, and number of rows before it.
        self._pieces: list[tuple[int, int, int, int]] = []
        before, most = 0, max(1, _PIECE // model.n_outputs)
        for number, (_, X) in enumerate(self._sources):
            self._pieces += [(number, *piece, before) for piece in ranges(int(X.shape[0]), most)]
            before += int(X.shape[0])
        self._kept = [self._scores(*piece) for piece in self._pieces] if n <= most else None

    def _scores(self, number: int, begin: int, end: int, before: int) -> tuple[Array, Array]:
        """Scores of some rows, and the largest of each row."""
        model, X = self._sources[number]
        found = model.scores(X[begin:end], self._n_jobs)
        return found, found.max(axis=1)

    def _each(self) -> Iterator[tuple[slice, Array, Array]]:
        """The rows of each piece, their scores, and the largest of each row."""
        for at, piece in enumerate(self._pieces):
            _, begin, end, before = piece
            yield slice(before + begin, before + end), *(self._scores(*piece) if self._kept is None else self._kept[at])

    def _sums(self, losses: Any, beta: float, b: Array, slopes: Array) -> tuple[float, float, float]:
        """Log loss, and its derivatives: with respect to the inverse temperature, and added to ``slopes``, to ``b``."""
        found = []
        for rows, scores, tops in self._each():
            part = self._target[rows]
            given = scores, tops, part.toarray() if sp.issparse(part) else part, self._weights[rows], beta, b
            tasks = ranges(len(scores), _ROWS)
            grown = np.zeros((len(tasks), len(slopes)))
            found += run(
                lambda lo, hi, given=given, grown=grown: losses(*given, grown[lo // _ROWS], lo, hi),  # type: ignore[misc]
                tasks,
                resolve_n_jobs(self._n_jobs),
            )
            slopes += grown.sum(axis=0)
        loss, slope, bend = np.sum(found, axis=0).tolist()
        return loss, slope, bend

    def link(self) -> tuple[str, float]:
        """The link and the T > 0 that minimize the log loss, see `Model.calibrate`."""
        names = ("softmax", "sigmoid") if self._model.task == "multiclass" else ("sigmoid",)
        none, zeros = np.empty(0), np.zeros(self._model.n_outputs)
        start, found = 1.0 / (self._size() or 1.0), {}
        for name in names:
            sums = partial(self._sums, self._losses(name), b=zeros, slopes=none)
            start, loss = _root(sums, start, _FLAT * self.weight)
            found[name] = loss, 1.0 / start
        link = min(names, key=lambda name: found[name][0])
        return link, found[link][1]

    def _size(self) -> float:
        """Root mean square of the scores."""
        square = 0.0
        for rows, scores, _ in self._each():
            square += float(self._weights[rows] @ np.einsum("ik,ik->i", scores, scores, dtype=np.float64))
        return float(np.sqrt(square / (self.weight * self._model.n_outputs)))

    def _losses(self, link: str) -> Any:
        if self._model.task != "multiclass":
            return kernels.sign_losses
        return kernels.sigmoid_losses if link == "sigmoid" else kernels.softmax_losses

    def shifts(self, link: str, temperature: float) -> tuple[float, Array]:
        """The T and the shifts of the outputs that minimize the log loss + ||shifts / T||^2 / 2."""
        losses = self._losses(link)

        def value(point: Array) -> tuple[float, Array]:
            # In units of the inverse temperature, which is found already.
            b = np.ascontiguousarray(point[1:])
            slopes = b.copy()
            loss, slope, _ = self._sums(losses, point[0] / temperature, b, slopes)
            loss += 0.5 * float(b @ b)
            return loss / self.weight, np.concatenate([[slope / temperature], slopes]) / self.weight

        start = np.zeros(1 + self._model.n_outputs)
        start[0] = 1.0
        bounds = [(1.0 / _WIDE, _WIDE), *[(None, None)] * self._model.n_outputs]
        options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}
        found = minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        T = temperature / float(found[0])
        return T, T * found[1:]


def _root(sums: Callable[[float], Any], start: float, flat: float) -> tuple[float, float]:
    """Where a function is smallest, and its value there, by Newton steps within a bracket.

    ``sums`` returns it and its first two derivatives. Ends where a step would lower it by less than ``flat``.
    """
    low, high, beta = start / _WIDE, start * _WIDE, start
    for _ in range(_STEPS):
        loss, value, derivative = sums(beta)
        if value > 0:
            high = beta
        else:
            low = beta
        # Newton's step for the logarithm of beta, in which the slope is nearer to a line; at most by a factor of 4.
        bend = derivative + value / beta
        new = beta * float(np.exp(min(max(-value / (beta * bend), -_FAR), _FAR))) if bend > 0 else 4.0 * beta
        if not low < new < high:
            new = float(np.sqrt(low * high))
        if new == beta or 0 < value * value <= flat * derivative:
            return new, loss
        beta = new
    return beta, loss


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

"""Predictions for rows that are an array of another library (PyTorch, CuPy, any that follows the array API).

A linear model with dense weights computes them where the rows live, and so does a staged one whose features can be
computed there (`manyclass.features.elsewhere`) if its scores are not calibrated; the copy of the weights there is kept
for the next call. Other models, and rankings of candidates, get a NumPy copy of the rows. All give back arrays of the
kind of the rows, on their device, but labels that are texts, which only NumPy has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from manyclass.models.parts import NO_PROBABILITIES, positive
from manyclass.runtime.arrays import Array, as_type, detached, is_foreign, namespace, place, to_numpy, type_of
from manyclass.runtime.threads import ranges

if TYPE_CHECKING:
    from manyclass.models.base import Model

__all__ = ["of_any_library"]

F = TypeVar("F", bound=Callable[..., Any])

#: Scores, or values of rows that are converted, at a time: 64 MiB in float32.
_PIECE = 1 << 24
#: The largest k for which the k best of a row are found one by one, not by sorting all.
_FEW = 16


def of_any_library(method: F) -> F:
    """Decorator of a method that predicts for rows X: it then takes arrays of any library, and gives back such."""

    @wraps(method)
    def wrapped(self: Model, X: Any, *given: Any, **options: Any) -> Any:
        if not is_foreign(X):
            return method(self, X, *given, **options)
        X = detached(X)
        there, placed = _METHODS.get(method.__name__), _placed_class(self)
        if there is None or placed is None or options.get("candidates") is not None:
            found = method(self, to_numpy(X), *given, **options)
            return tuple(_like_rows(part, X) for part in found) if isinstance(found, tuple) else _like_rows(found, X)
        return there(placed.of(self, X), X, *given, **options)

    return cast(F, wrapped)


def _placed_class(model: Any) -> type[Placed] | None:
    """The class that computes the predictions of a model where rows of another library are; None if none can."""
    if model.kind == "linear":
        return Placed if isinstance(model.weights, np.ndarray) else None
    if model.kind != "staged" or any(stage.calibration is not None for stage in model.stages):
        return None
    from manyclass.features.elsewhere import transforms_there  # imports scikit-learn, which linear models do without

    blocks = [model.prepare, *(stage.block for stage in model.stages)]
    return PlacedStages if all(block is None or transforms_there(block) for block in blocks) else None


class Placed:
    """A linear model whose weights are in the library and on the device of some rows."""

    def __init__(self, model: Any, X: Any, kind: tuple[Any, ...]) -> None:
        self.model, self.kind, self.type = model, kind, kind[-1]
        self._nothing = place(np.zeros((model.n_features, 1)), X, self.type)
        self._place(X)

    def _place(self, X: Any) -> None:
        """Copy the weights to X."""
        parts = self.model.weights, self.model.intercept
        self._weights, self._intercept = (place(part, X, self.type) for part in parts)

    def _made(self, part: Any) -> Any:
        """The scores of some rows."""
        return part @ self._weights + self._intercept

    @property
    def _wide(self) -> int:
        """The most numbers for a row that are made at a time."""
        return int(self.model.n_outputs)

    @classmethod
    def of(cls, model: Model, X: Any) -> Placed:
        """The model where X is: that of the last call if it was there, and of the same type, already."""
        wanted = np.result_type(model.dtype, np.dtype(type_of(X)) if type_of(X) in ("float32", "float64") else "f4")
        if type_of(X).startswith(("int", "uint")):
            wanted = np.dtype(np.float64)
        kind = namespace(X), getattr(X, "device", None), wanted.name
        kept = model.__dict__.get("_placed")
        if kept is None or kept.kind != kind:
            kept = cls(model, X, kind)
            object.__setattr__(model, "_placed", kept)
        return cast(Placed, kept)

    # --- scores -----------------------------------------------------------------------------------------------------

    def pieces(self, X: Any) -> list[Any]:
        """The scores of some rows at a time.

        Raises
        ------
        ValueError
            If X is no matrix with the features of the model, or has NaN or infinity.
        """
        d = self.model.n_features
        if X.ndim != 2 or X.shape[1] != d:
            raise ValueError(
                f"X must have shape (n, {d}), with the features of the fit in their order, got {tuple(X.shape)}"
            )
        size = max(1, _PIECE // (self._wide + (0 if type_of(X) == self.type else d)))
        found = []
        for begin, end in ranges(int(X.shape[0]), size) or [(0, 0)]:
            part = as_type(X[begin:end, :], self.type)
            self._refuse(part, begin)
            found.append(self._made(part))
        return found

    def _refuse(self, part: Any, begin: int) -> None:
        """Raise a ValueError for rows with NaN or infinity; zero times such a number is NaN."""
        xp = namespace(part)
        with np.errstate(invalid="ignore"):
            products = part @ self._nothing
        if bool(xp.all(xp.isfinite(products))):
            return
        wrong = to_numpy(xp.any(~xp.isfinite(part), axis=1))
        raise ValueError(
            f"X has NaN or infinity in row {begin + int(np.argmax(wrong))}: replace such values or remove their rows"
        )

    def scores(self, X: Any) -> Any:
        """``X @ weights + intercept``."""
        return _joined(self.pieces(X))

    # --- what is made of them ---------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Any:
        """The scores; a vector for a binary model."""
        scores = self.scores(X)
        return scores[:, 0] if self.model.task == "binary" else scores

    def predict(self, X: Any, dense: bool) -> Any:
        """Labels, label sets (an indicator in an array, whatever ``dense`` is), or the values of a regression."""
        model = self.model
        if model.task == "multilabel":
            xp = namespace(X)
            return xp.astype(self.scores(X) > model.threshold, xp.int8)
        if model.classes is None:
            scores = self.scores(X)
            return scores[:, 0] if model.n_outputs == 1 else scores
        return self.topk(X, 1)[0][:, 0]

    def topk(self, X: Any, k: int) -> tuple[Any, Any]:
        """The k best classes of each row, and their scores."""
        numbers, scores = self._ranked(X, k, None)
        return self._labels(numbers), scores

    def probabilities(self, X: Any) -> Any:
        """Probabilities of the classes."""
        self._check_link()
        return _joined([self._probabilities(scores) for scores in self.pieces(X)])

    def topk_probabilities(self, X: Any, k: int) -> tuple[Any, Any]:
        """The k best classes of each row, and their probabilities."""
        self._check_link()
        numbers, found = self._ranked(X, k, self._probabilities)
        return self._labels(numbers), found

    def _ranked(self, X: Any, k: int, link: Callable[[Any], Any] | None) -> tuple[Any, Any]:
        """Indices of the k best classes by their scores, best first, and their scores or what ``link`` makes of them.

        The scores are in memory for some rows at a time.
        """
        model, xp = self.model, namespace(X)
        if model.classes is None:
            raise ValueError("a regression model has no classes to rank: use predict or scores")
        if positive("k", k) > len(model.classes):
            raise ValueError(f"k must be at most {len(model.classes)}, the number of classes of this model, got {k}")
        numbers, values = [], []
        for scores in self.pieces(X):
            ranked = xp.concat([-scores, scores], axis=1) if model.task == "binary" else scores
            places = _best(xp, ranked, k)
            numbers.append(places)
            made = ranked if link is None else link(scores)
            values.append(xp.take_along_axis(made, places, axis=1))
        return _joined(numbers), _joined(values)

    def _check_link(self) -> None:
        if not self.model.gives_probabilities:
            raise ValueError(NO_PROBABILITIES)

    def _probabilities(self, scores: Any) -> Any:
        model, xp = self.model, namespace(scores)
        scores = scores / model.temperature
        if model.task == "binary":
            # sigmoid(-s) rather than 1 - sigmoid(s), which cancels for small probabilities.
            return _sigmoid(xp, xp.concat([-scores, scores], axis=1))
        if model.link == "sigmoid" and model.task != "multiclass":
            return _sigmoid(xp, scores)
        if model.link == "sigmoid":  # divided by their sum, also where every one underflows
            scores = xp.where(scores < 0, scores, xp.zeros_like(scores)) - xp.log1p(xp.exp(-xp.abs(scores)))
        shares = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        return shares / xp.sum(shares, axis=1, keepdims=True)

    def _labels(self, numbers: Any) -> Any:
        """The classes with these indices: of the kind of the indices, but texts in a NumPy array."""
        classes: Array = self.model.classes
        if classes.dtype.kind not in "biuf":
            return classes[to_numpy(numbers)]
        there = _like_rows(classes, numbers)
        xp = namespace(numbers)
        return xp.reshape(xp.take(there, xp.reshape(numbers, (-1,))), numbers.shape)


class PlacedStages(Placed):
    """A staged model whose weights are in the library and on the device of some rows."""

    def _place(self, X: Any) -> None:
        self._members = [
            [
                (stage.block, *(place(part, X, self.type) for part in (stage.weights, stage.intercept)))
                for stage in member
            ]
            for member in self.model.members
        ]

    def _made(self, part: Any) -> Any:
        from manyclass.features.elsewhere import transform_there

        model = self.model
        rows = part if model.prepare is None else transform_there(model.prepare, part)
        total: Any = 0.0
        for member in self._members:
            for block, weights, intercept in member:
                features = rows if block is None else transform_there(block, rows)
                total = features @ weights + intercept + total
        return total / len(self._members)

    @property
    def _wide(self) -> int:
        return max(super()._wide, *(len(stage.weights) for stage in self.model.stages))


#: Name of a method of `Model` -> the same for rows of another library.
_METHODS: dict[str, Callable[..., Any]] = {
    "scores": lambda placed, X, n_jobs=None: placed.scores(X),
    "decision_function": lambda placed, X, n_jobs=None: placed.decision_function(X),
    "predict": lambda placed, X, n_jobs=None, *, dense=False: placed.predict(X, dense),
    "topk": lambda placed, X, k, n_jobs=None, *, candidates=None: placed.topk(X, k),
    "probabilities": lambda placed, X, n_jobs=None: placed.probabilities(X),
    "topk_probabilities": lambda placed, X, k, n_jobs=None: placed.topk_probabilities(X, k),
}


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=0)


def _sigmoid(xp: Any, scores: Any) -> Any:
    """``1 / (1 + exp(-s))``, with no exponential that overflows."""
    small = xp.exp(-xp.abs(scores))
    return xp.where(scores < 0, small, xp.ones_like(small)) / (1 + small)


def _best(xp: Any, scores: Any, k: int) -> Any:
    """Indices of the k largest of each row, largest first; of equal ones the lower index first."""
    if k > _FEW:
        return xp.argsort(scores, axis=1, descending=True, stable=True)[:, :k]
    found = []
    everything = xp.arange(scores.shape[1], device=scores.device)[None, :]
    for _ in range(k):
        place_of = xp.argmax(scores, axis=1, keepdims=True)
        found.append(place_of)
        if len(found) < k:
            scores = xp.where(everything == place_of, xp.full_like(scores, -float("inf")), scores)
    return xp.concat(found, axis=1)


def _like_rows(made: Any, X: Any) -> Any:
    """A NumPy result in the library and on the device of X; a CSR indicator as an array; texts as they are."""
    if sp.issparse(made):
        made = made.toarray()
    if not isinstance(made, np.ndarray) or made.dtype.kind not in "biuf":
        return made
    name = {"i": "int64", "u": "int64", "b": "bool"}.get(made.dtype.kind, made.dtype.name)
    return place(made, X, name)

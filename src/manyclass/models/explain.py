"""Why a linear model scores a class higher than another: the contributions of the features of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.models.linear import LinearModel
from manyclass.models.parts import positive

__all__ = ["Explanation", "explain"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Explanation(NamedTuple):
    """The difference of the scores of two classes for one row, as a sum of contributions.

    ``margin`` is ``contributions.sum() + rest + intercept``.

    Parameters
    ----------
    label : label
        The class; for regression the index of the output.
    rival : label or None
        The class with which it is compared; None for label sets and for regression, where the score itself is the sum.
    margin : float
        The score of the class minus that of the rival.
    features : ndarray
        Names of the features with the largest contributions by magnitude, or their indices.
    contributions : ndarray
        Their values times the difference of the weights.
    rest, intercept : float
        The sum of the other contributions, and the difference of the intercepts.
    """

    label: Any
    rival: Any
    margin: float
    features: Array
    contributions: Array
    rest: float
    intercept: float

    def __str__(self) -> str:
        against = "" if self.rival is None else f" against {self.rival}"
        parts = [f"{feature} {value:+.3g}" for feature, value in zip(self.features, self.contributions)]
        return f"{self.label}{against}: {self.margin:.3g} = {', '.join([*parts, f'rest {self.rest:+.3g}'])}" + (
            f", intercept {self.intercept:+.3g}" if self.intercept else ""
        )


def explain(model: LinearModel, X: Any, top: int, labels: Sequence[Any] | Array | None, n_jobs: int | None) -> Any:
    """See `LinearModel.explain`."""
    positive("top", top)
    X = model.rows(X)
    n = X.shape[0]
    if labels is not None and len(labels) != n:
        raise ValueError(f"labels must have one class for each row, got {len(labels)} for {n} rows")
    compared = model.task == "multiclass" and model.n_outputs > 1
    best, scores = model._best(X, 2 if compared else 1, n_jobs)  # checks X
    if labels is None and model.task == "binary":
        assert model.classes is not None
        labels = model.classes[(scores[:, 0] > 0).astype(np.intp)]
    names = model.names()
    return [_row(model, _stored(X, i), best[i], None if labels is None else labels[i], top, names) for i in range(n)]


def _stored(X: Any, i: int) -> tuple[Array, Array]:
    """Indices and values of a row that are not zero."""
    if sp.issparse(X):
        row = X[[i]]
        row.sum_duplicates()
        return row.indices, row.data
    at = np.flatnonzero(X[i])
    return at, X[i, at]


def _row(
    model: LinearModel, row: tuple[Array, Array], best: Array, label: Any, top: int, names: Array | None
) -> Explanation:
    at, values = row
    classes = model.classes
    weights, intercept = model.weights, model.intercept
    if model.task == "binary":
        assert classes is not None
        w, shift = _column(weights, at, 0), float(intercept[0])
        sign = model._column_of(label)[1]
        rival = classes[0 if sign > 0 else 1]
        difference, shift = sign * w, sign * shift
    else:
        column = int(best[0]) if label is None else model._column_of(label)[0]
        label = column if classes is None else classes[column]
        difference, shift, rival = _column(weights, at, column), float(intercept[column]), None
        if len(best) > 1:
            assert classes is not None
            other = int(best[0] if best[0] != column else best[1])
            rival = classes[other]
            difference, shift = difference - _column(weights, at, other), shift - float(intercept[other])
    parts = np.asarray(values, np.float64) * difference
    order = np.argsort(-np.abs(parts), kind="stable")[:top]
    order = order[parts[order] != 0]
    total = float(parts.sum())
    return Explanation(
        label,
        rival,
        total + shift,
        at[order] if names is None else names[at[order]],
        parts[order],
        total - float(parts[order].sum()),
        shift,
    )


def _column(weights: Any, at: Array, column: int) -> Array:
    """The weights of some features for a class."""
    if sp.issparse(weights):
        return np.asarray(weights[at][:, [column]].toarray()[:, 0], np.float64)
    return np.asarray(weights[at, column], np.float64)

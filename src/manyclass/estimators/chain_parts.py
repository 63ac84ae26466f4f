"""Parts of `manyclass.LinearChainCRF`: parameters for other features and labels, the score of held-out sequences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyclass.estimators.sequences import Tokens, read_label_sequences, read_sequences
from manyclass.objective.problem import Array
from manyclass.optimize.validation import Score
from manyclass.solvers.chain import Chains

__all__ = ["ChainJudge", "Space"]


class Space(NamedTuple):
    """The features and labels that a point has parameters for.

    Attributes
    ----------
    width : int
        Number of features.
    columns : dict of str to int, or None
        The column of each name; None for sequences that are matrices.
    classes : ndarray of shape (K,)
        The labels, sorted.
    """

    width: int
    columns: dict[str, int] | None
    classes: Array

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a point, see `manyclass.solvers.chain`."""
        return self.width + len(self.classes) + 2, len(self.classes)

    def with_classes(self, classes: Array) -> Array:
        """The labels, and others, sorted.

        Raises
        ------
        ValueError
            If one of them are strings and the others integers.
        """
        if (classes.dtype.kind == "U") != (self.classes.dtype.kind == "U"):
            raise ValueError(
                f"y must have labels of the same type as before, such as {self.classes[:1].tolist()[0]!r}, got "
                f"{classes[:1].tolist()[0]!r}"
            )
        return np.union1d(self.classes, classes)

    def carry(self, point: Array, old: Space, fill: float = 0.0, *, longer: bool = False) -> Array:
        """The parameters ``point`` of another space, in this one; those that it does not have are ``fill``.

        ``longer`` promises that the columns here are those of the other space, and further ones behind them.

        Raises
        ------
        ValueError
            If one has names and the other matrices, or both matrices of other widths.
        """
        if (self.columns is None) != (old.columns is None) or (self.columns is None and self.width != old.width):
            wanted = f"matrices with {old.width} columns" if old.columns is None else "names of features"
            raise ValueError(f"X must have {wanted}, as before, to continue: give such, or a new estimator")
        rows = np.arange(self.width)
        if longer:
            rows[old.width :] = -1
        elif self.columns is not None and old.columns is not None:
            rows = np.array([old.columns.get(name, -1) for name in self.columns], np.int64)
        labels = _places(self.classes, old.classes)
        new, mine = np.flatnonzero(rows >= 0), np.flatnonzero(labels >= 0)
        K, before = len(self.classes), len(old.classes)
        into = np.concatenate([new, self.width + mine, self.width + K + np.arange(2)])
        source = np.concatenate([rows[new], old.width + labels[mine], old.width + before + np.arange(2)])
        found = np.full(self.shape, fill)
        found[np.ix_(into, mine)] = point[np.ix_(source, labels[mine])]
        return found


class ChainJudge:
    """The share of right labels in held-out sequences, as the function that a `Validation` calls.

    Parameters
    ----------
    tokens : Tokens
        The sequences.
    y : ndarray of shape (N,)
        The right labels of all tokens; negative numbers are never right.
    weights : ndarray of shape (N,), optional
        Weights of the tokens.
    n_threads : int, default=1
        Number of threads.
    """

    def __init__(self, tokens: Tokens, y: Array, weights: Array | None = None, n_threads: int = 1) -> None:
        self._chains, self._y, self._weights = Chains(tokens.X, tokens.edges, n_threads), y, weights

    @classmethod
    def given(cls, X_val: object, y_val: object, space: Space, n_threads: int) -> ChainJudge:
        """That of the sequences that a fit was given.

        Raises
        ------
        ValueError
            If one of X_val and y_val is missing, or either is invalid.
        """
        if X_val is None or y_val is None:
            one, other = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(f"{one} was given without {other}: pass both, or neither")
        width = space.width if space.columns is None else None
        tokens = read_sequences(X_val, space.columns, width, name="X_val")
        y = read_label_sequences(y_val, tokens.edges, space.classes, "y_val")[1]
        return cls(tokens, y, None, n_threads)

    @classmethod
    def of_rows(cls, tokens: Tokens, y: Array, held: Array, scale: Array, n_threads: int) -> ChainJudge:
        """That of the sequences ``held``, sorted, of those of a fit, with their weights."""
        sizes = np.diff(tokens.edges)
        rows = np.flatnonzero(np.repeat(np.isin(np.arange(len(sizes)), held), sizes))
        edges = np.concatenate([[0], np.cumsum(sizes[held])])
        apart = Tokens(tokens.X[rows], edges, tokens.columns)
        return cls(apart, y[rows], np.repeat(scale[held], sizes[held]), n_threads)

    def __call__(self, point: Array, intercept: Array) -> Score:
        return Score(float(np.average(self._chains.best(point) == self._y, weights=self._weights)))


def _places(labels: Array, known: Array) -> Array:
    """The places of labels among sorted known ones; -1 for those that are not known."""
    if (labels.dtype.kind == "U") != (known.dtype.kind == "U"):
        return np.full(len(labels), -1)
    place = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[place] == labels, place, -1)

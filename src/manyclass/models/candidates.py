"""Candidates: the classes among which a ranking is restricted, for all rows or for each."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import check_sparse
from manyclass.metrics._labels import positions

__all__ = ["Candidates", "read_candidates", "sorter"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Candidates(NamedTuple):
    """Column numbers: row i has ``columns[indptr[i]:indptr[i + 1]]``, ascending; two entries: one list for all rows."""

    indptr: Array
    columns: Array

    def within(self, lo: int, hi: int) -> Candidates:
        """Those of the columns lo .. hi - 1, numbered from 0."""
        inside = (self.columns >= lo) & (self.columns < hi)
        before = np.concatenate([[0], np.cumsum(inside)])
        return Candidates(before[self.indptr], self.columns[inside] - lo)

    def mask(self, begin: int, end: int, width: int) -> Array:
        """Whether each of ``width`` columns is a candidate of the rows begin .. end - 1."""
        shared = len(self.indptr) == 2
        found = np.zeros((1 if shared else end - begin, width), bool)
        rows = np.zeros(1, np.int64) if shared else np.arange(begin, end)
        for place, row in enumerate(rows):
            found[place, self.columns[self.indptr[row] : self.indptr[row + 1]]] = True
        return found


def _columns_of(classes: Array, labels: Array, order: Array, name: str) -> Array:
    """The column of each label; ``order`` sorts the classes.

    Raises
    ------
    ValueError
        If a label is none of the classes.
    """
    if len(labels) and (labels.dtype.kind in "US") != (classes.dtype.kind in "US") and labels.dtype.kind != "O":
        kinds = [f"{array[:1].tolist()[0]!r} ({array.dtype})" for array in (labels, classes)]
        raise ValueError(f"{name} has labels such as {kinds[0]}, the classes of the model are such as {kinds[1]}")
    if labels.dtype.kind == "O":
        labels = labels.astype(classes.dtype)
    columns = positions(classes, labels, order)
    wrong = columns < 0
    if np.any(wrong):
        raise ValueError(
            f"{name} has the label {labels[wrong][:1].tolist()[0]!r}, which is none of the {len(classes)} classes of "
            "the model: leave it out"
        )
    return columns


def sorter(model: Any) -> Array:
    """The order that sorts the classes of a model, found once."""
    if "_sorter" not in model.__dict__:
        object.__setattr__(model, "_sorter", np.argsort(np.asarray(model.classes), kind="stable"))
    found: Array = model.__dict__["_sorter"]
    return found


def read_candidates(given: Any, classes: Array, order: Array, n: int, k: int) -> Candidates:
    """The candidates of n rows, from labels for all rows (1-d), of each row (2-d or lists), or an indicator.

    Raises
    ------
    ValueError
        If a label is unknown, a row has fewer than k candidates, or the shape does not match n rows.
    """
    if sp.issparse(given):
        check_sparse(given, "candidates")
        if given.shape != (n, len(classes)):
            raise ValueError(
                f"candidates is a sparse matrix of shape {given.shape}, expected {(n, len(classes))}: a row for each "
                "row of X, a column for each class"
            )
        chosen = sp.csr_matrix(given, copy=True)
        chosen.sum_duplicates()
        chosen.eliminate_zeros()
        found = Candidates(chosen.indptr.astype(np.int64), chosen.indices.astype(np.int64))
    else:
        labels, indptr = _lists(given, n)
        columns = _columns_of(classes, labels, order, "candidates")
        row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        once = np.unique(row * len(classes) + columns)
        row, columns = np.divmod(once, len(classes))
        found = Candidates(np.searchsorted(row, np.arange(len(indptr))).astype(np.int64), columns)
    held = np.diff(found.indptr)
    if n and held.min() < k:
        which = "" if len(held) == 1 and n > 1 else f" for row {int(np.argmin(held))}"
        raise ValueError(
            f"candidates has {int(held.min())} classes{which}, and k is {k}: pass more candidates, or a smaller k"
        )
    return found


def _lists(given: Any, n: int) -> tuple[Array, Array]:
    """All labels one after the other, and where those of each row begin; one list if they are for all rows."""
    values = list(given) if isinstance(given, (list, tuple)) else given
    nested = isinstance(values, list) and any(isinstance(part, (list, tuple, set, np.ndarray)) for part in values)
    if nested or (isinstance(values, np.ndarray) and values.dtype == object and _holds_lists(values)):
        parts = [np.asarray(sorted(part) if isinstance(part, set) else part) for part in values]
        wrong = [row for row, part in enumerate(parts) if part.ndim != 1]
        if wrong:
            raise ValueError(f"candidates of row {wrong[0]} must be a list of labels, got {values[wrong[0]]!r}")
        if len(parts) != n:
            raise ValueError(f"candidates has lists for {len(parts)} rows, and X has {n} rows: pass one for each row")
        filled = [part for part in parts if len(part)]
        labels = np.concatenate(filled) if filled else np.empty(0, np.int64)
        return labels, np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    labels = np.asarray(values)
    if labels.ndim == 1:
        return labels, np.array([0, len(labels)])
    if labels.ndim != 2 or len(labels) != n:
        raise ValueError(
            f"candidates must be labels for all rows, of shape (m,), or for each of the {n} rows of X, ({n}, m), got "
            f"shape {labels.shape}"
        )
    return labels.ravel(), np.arange(n + 1) * (labels.size // max(n, 1))


def _holds_lists(values: Array) -> bool:
    return values.ndim == 1 and any(isinstance(part, (list, tuple, set, np.ndarray)) for part in values)

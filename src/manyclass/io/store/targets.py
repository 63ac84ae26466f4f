"""Targets of a store: collected piece by piece, encoded when all are known, split by shards."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, issparse

from manyclass.io._csr import row_pointers
from manyclass.io.labels import Targets
from manyclass.kernels.rows import check_sparse

__all__ = ["GatheredTargets", "Resolved", "split_targets"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Resolved(NamedTuple):
    """The targets of all rows."""

    kind: str  # "none", "classes", "labels" or "numbers"
    n_outputs: int
    classes: Array | None
    y: Array | None  # int32 (n,), or float64 (n,) or (n, m)
    columns: Array | None  # of labels: int32, the indices of CSR rows
    bounds: Array | None  # their row pointers: int64 (n + 1,)
    weights: Array | None


class GatheredTargets:
    """Collects targets; classes take 4 bytes for each row, whatever their names."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._codes: dict[Any, int] = {}
        self._width = 0
        self._pieces: list[Array] = []
        self._lengths: list[Array] = []
        self._names: Array | None = None
        self.weights: list[Array] | None = None

    @classmethod
    def whole(cls, targets: Targets) -> GatheredTargets:
        """Return the targets of all rows, given at once."""
        found = cls()
        y, names = targets
        found.add(y, None, 0 if y is None else y.shape[0])
        if y is not None and issparse(y):
            found._names = names
        return found

    def add(self, y: Any, weights: Any, rows: int) -> None:
        """Add the targets and the sample weights of the next rows."""
        kind, y = _kind_of(y)
        if self._kind not in (None, kind):
            raise ValueError(f"y holds {kind}; expected {self._kind}, as for the rows before")
        if (weights is None) != (self.weights is None) and self._kind is not None:
            raise ValueError("sample weights must be given in all calls or in none")
        if y is not None and y.shape[0] != rows:
            raise ValueError(f"y has {y.shape[0]} rows; expected {rows}, as X has")
        if weights is not None:
            given = np.array(weights, np.float64)
            if given.shape != (rows,) or not np.isfinite(given).all() or given.min(initial=0) < 0:
                raise ValueError(
                    f"sample weights must be finite, at least 0 and of shape ({rows},), got shape {given.shape}"
                )
            self.weights = [*(self.weights or []), given]
        self._kind = kind
        if kind == "classes":
            names, codes = np.unique(y, return_inverse=True)
            if self._codes and isinstance(next(iter(self._codes)), str) != (names.dtype.kind == "U"):
                raise ValueError("y holds names in some calls and numbers in others: convert one to the other")
            table = np.array([self._codes.setdefault(name, len(self._codes)) for name in names.tolist()], np.int32)
            self._pieces.append(table[codes.reshape(-1)] if len(names) else np.empty(0, np.int32))
        elif kind == "numbers":
            self._pieces.append(np.array(y, np.float64))
        elif kind == "labels":
            self._width = max(self._width, y.shape[1])
            self._pieces.append(y.indices.astype(np.int32))
            self._lengths.append(np.diff(y.indptr))

    def finish(self, n: int) -> Resolved:
        """Return the targets of all ``n`` rows."""
        weights = None if self.weights is None else np.concatenate(self.weights)
        kind = self._kind or "none"
        if kind == "none":
            return Resolved("none", 0, None, None, None, None, weights)
        if kind == "labels":
            bounds = row_pointers(np.concatenate(self._lengths))
            _check_length(len(bounds) - 1, n)
            names = np.arange(self._width) if self._names is None else self._names
            if names.shape != (self._width,):
                raise ValueError(
                    f"label_names has {len(names)} names; expected {self._width}, one for each column of y"
                )
            return Resolved("labels", self._width, names, None, np.concatenate(self._pieces), bounds, weights)
        y = np.concatenate(self._pieces)
        _check_length(len(y), n)
        if kind == "numbers":
            return Resolved("numbers", 1 if y.ndim == 1 else y.shape[1], None, y, None, None, weights)
        names = np.array(list(self._codes))
        order = np.argsort(names, kind="stable")
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return Resolved("classes", len(names), names[order], rank[y], None, None, weights)


def _check_length(found: int, n: int) -> None:
    if found != n:
        raise ValueError(f"y has {found} rows; expected {n}, as X has")


def _kind_of(y: Any) -> tuple[str, Any]:
    """Return the kind of targets, and the targets as an array or a CSR matrix without zeros or repeats."""
    if y is None:
        return "none", None
    if issparse(y):
        check_sparse(y, "y")
        y = csr_matrix(y, copy=True)
        y.sum_duplicates()
        y.eliminate_zeros()
        return "labels", y
    y = np.asarray(y)
    if y.dtype == object and all(isinstance(item, str) for item in y.flat):
        y = y.astype(np.str_)
    if y.dtype.kind == "f" and y.ndim in (1, 2):
        return "numbers", y
    if y.ndim == 1 and y.dtype.kind in "Uiub":
        return "classes", y.astype(np.int64) if y.dtype.kind in "bu" else y
    if y.ndim == 2 and y.dtype.kind in "iub":
        return "labels", csr_matrix(y != 0)
    raise ValueError(f"y has type {y.dtype} and shape {y.shape}; expected classes, numbers or a 0/1 matrix")


def split_targets(targets: Resolved, begin: int, end: int) -> dict[str, Array]:
    """Return the arrays of targets of the rows of a shard."""
    arrays: dict[str, Array] = {}
    if targets.y is not None:
        arrays["y"] = targets.y[begin:end]
    if targets.bounds is not None and targets.columns is not None:
        arrays["indptr"] = targets.bounds[begin : end + 1] - targets.bounds[begin]
        arrays["indices"] = targets.columns[targets.bounds[begin] : targets.bounds[end]]
    if targets.weights is not None:
        arrays["weights"] = targets.weights[begin:end]
    return arrays

"""Checks the features of label sets and concatenates those of all examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.estimators.base import check_squares
from manyclass.estimators.sequences import read_names
from manyclass.kernels.rows import check_sparse
from manyclass.objective.problem import Array

__all__ = ["LabelSets", "observed", "read_held_out", "read_label_sets", "scale_of"]


class LabelSets(NamedTuple):
    """Joint features of all labels of all examples.

    Attributes
    ----------
    features : (N, D)
        One row per label.
    offsets : (n + 1,)
        The labels of example i are the rows offsets[i] .. offsets[i + 1] - 1.
    log_measure : (N,) or None
        log h of each label; None if all are 0.
    columns : dict of str to int, or None
        The column of each feature; None if they have no names.
    """

    features: Any
    offsets: Array
    log_measure: Array | None
    columns: dict[str, int] | None = None


def read_label_sets(
    features: Any,
    offsets: Any = None,
    log_measure: Any = None,
    width: int | None = None,
    columns: Mapping[str, int] | None = None,
) -> LabelSets:
    """Check features and measures, in the formats that `manyclass.LogLinearModel` accepts, and concatenate them.

    After a fit with ``width`` columns, which have the names ``columns`` or none, other names are left out.

    Raises
    ------
    ValueError
        Naming the invalid example.
    """
    if offsets is None:
        features, offsets, names = _joined(features, width, columns)
    else:
        names = _columns_of(features)
        features = _matrix("features", features)
        offsets = _edges(offsets, features)
    if names is not None and columns is not None and list(names) != list(columns):
        strange = next((name for name in names if name not in columns), None)
        what = "the columns of the fit in another order" if strange is None else f"a column {strange!r}"
        raise ValueError(f"features must have the columns of the fit in their order, got {what}: select them by name")
    if width is not None and features.shape[1] != width:
        raise ValueError(f"features must have {width} columns, as in the fit, got {features.shape[1]}")
    values = features.data if sp.issparse(features) else features
    if not np.isfinite(values).all():
        bad = np.isfinite(values)
        row = (
            np.searchsorted(features.indptr, np.argmin(bad), side="right") - 1
            if sp.issparse(features)
            else np.argmin(bad.all(axis=1))
        )
        raise ValueError(f"features must be finite, got NaN or infinity for {_place(int(row), offsets)}")
    if width is None:  # a fit
        check_squares(features, np.dtype(np.float64), "features")
    return LabelSets(features, offsets, _measures(log_measure, offsets), names)


def observed(sets: LabelSets, given: Any) -> Array:
    """Check y, the index of the observed label of each example within its label set.

    Raises
    ------
    ValueError
        If the number of entries differs from that of the examples, or a label is not in its set or has measure zero.
    """
    y: Array = np.asarray(given)
    n = len(sets.offsets) - 1
    if y.shape != (n,):
        raise ValueError(f"y must have shape ({n},), one label per example, got {y.shape}")
    if y.dtype.kind not in "iu":
        raise ValueError(f"y must contain integers, indices of labels within their examples' sets, got {y.dtype}")
    sizes = np.diff(sets.offsets)
    index = y.astype(np.int64)
    strange = np.flatnonzero((index < 0) | (index >= sizes))
    if len(strange):
        i = int(strange[0])
        raise ValueError(
            f"y of example {i} must be from 0 to {int(sizes[i]) - 1}, an index into its {int(sizes[i])} labels, got "
            f"{int(y[i])}; {len(strange)} such examples"
        )
    if sets.log_measure is not None:
        none = np.flatnonzero(np.isneginf(sets.log_measure[sets.offsets[:-1] + index]))
        if len(none):
            raise ValueError(
                f"the observed label {int(y[none[0]])} of example {int(none[0])} has measure zero (log_measure is "
                "minus infinity), so that its probability is 0: remove the example or correct its log_measure"
            )
    return index


def read_held_out(X_val: Any, y_val: Any, log_measure_val: Any, fitted: LabelSets) -> tuple[LabelSets, Array]:
    """Held-out examples, and the index of the observed label of each.

    Raises
    ------
    ValueError
        If one of X_val and y_val is missing, or either is invalid.
    """
    if X_val is None or y_val is None:
        one, other = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
        raise ValueError(f"{one} was given without {other}: pass both, or neither")
    sets = read_label_sets(X_val, None, log_measure_val, fitted.features.shape[1], fitted.columns)
    return sets, observed(sets, y_val)


def scale_of(sample_weight: Any, n: int) -> Array:
    """c_i / n."""
    if sample_weight is None:
        return np.full(n, 1.0 / n)
    weights = np.asarray(sample_weight)
    weights = weights.astype(np.float64) if weights.dtype.kind in "biuf" else np.full(0, np.nan)
    if weights.shape != (n,) or not np.isfinite(weights).all() or weights.min() < 0 or not weights.sum() > 0:
        raise ValueError(f"sample_weight must be {n} finite numbers of at least 0, not all zero, got {weights!r:.60}")
    return np.asarray(weights / weights.sum())


def _joined(
    features: Any, width: int | None, columns: Mapping[str, int] | None
) -> tuple[Any, Array, dict[str, int] | None]:
    """The vertically stacked matrices of a list, their offsets, and the columns of names."""
    if isinstance(features, np.ndarray) and features.ndim == 3:
        features = list(features)
    if not isinstance(features, Sequence) or isinstance(features, str) or len(features) == 0:
        raise ValueError(
            "features must be a list with a matrix for each example (labels x features), or one matrix with offsets, "
            f"got {type(features).__name__}"
        )
    if _has_names(features[0]):
        if width is not None and columns is None:
            raise ValueError(f"features must be matrices with {width} columns, as in the fit, got lists of names")
        for i, part in enumerate(features):
            if not isinstance(part, Sequence) or isinstance(part, str) or len(part) == 0:
                raise ValueError(f"features of example {i} must be a list of its labels, each a dict, got {part!r:.60}")
        found = read_names(features, columns or {}, width is None, "features", "label")
        return found.X, found.edges, found.columns
    names = [_columns_of(part) for part in features]
    for i, own in enumerate(names):
        if own is not None and names[0] is not None and list(own) != list(names[0]):
            raise ValueError(f"features of example {i} must have the columns of example 0, got {list(own)!r:.60}")
    parts = [_matrix(f"features of example {i}", part) for i, part in enumerate(features)]
    width = parts[0].shape[1]
    for i, part in enumerate(parts):
        if part.shape[1] != width:
            raise ValueError(
                f"features must have the same number of columns for all examples, got {part.shape[1]} for example {i} "
                f"and {width} for example 0"
            )
        if part.shape[0] == 0:
            raise ValueError(f"every example must have at least one label, got an empty label set for example {i}")
    offsets = np.concatenate([[0], np.cumsum([part.shape[0] for part in parts])]).astype(np.int64)
    if all(sp.issparse(part) for part in parts):
        return sp.csr_matrix(sp.vstack(parts, format="csr")), offsets, names[0]
    return np.vstack([part.toarray() if sp.issparse(part) else part for part in parts]), offsets, names[0]


def _has_names(part: Any) -> bool:
    """Whether the features of an example are names, not a matrix."""
    first = part[0] if isinstance(part, list | tuple) and len(part) else None
    if isinstance(first, list | tuple | set | frozenset):
        return any(isinstance(name, str) for name in first)
    return isinstance(first, str | Mapping)


def _columns_of(part: Any) -> dict[str, int] | None:
    """The names of the columns of a data frame."""
    if not (hasattr(part, "columns") and hasattr(part, "to_numpy")):
        return None
    return {str(name): column for column, name in enumerate(part.columns)}


def _matrix(name: str, given: Any) -> Any:
    if sp.issparse(given):
        check_sparse(given, name)
        found: Any = sp.csr_matrix(given)
        return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)
    found = np.asarray(given)
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a matrix of real numbers, labels x features, got shape {found.shape} of {found.dtype}"
        )
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)


def _edges(offsets: Any, features: Any) -> Array:
    found = np.asarray(offsets)
    if found.ndim != 1 or len(found) < 2 or found.dtype.kind not in "iu":
        raise ValueError("offsets must be n + 1 integers: the first row of each example, and the number of rows")
    if found[0] != 0 or found[-1] != features.shape[0]:
        raise ValueError(
            f"offsets must go from 0 to {features.shape[0]}, the number of rows of features, got {found[0]} to "
            f"{found[-1]}"
        )
    short = np.flatnonzero(np.diff(found.astype(np.int64)) < 1)
    if len(short):
        raise ValueError(
            f"every example must have at least one label, got an empty label set for example {int(short[0])}"
        )
    return found.astype(np.int64)


def _measures(log_measure: Any, offsets: Array) -> Array | None:
    if log_measure is None:
        return None
    if isinstance(log_measure, Sequence):
        for i, part in enumerate(log_measure):
            size = int(offsets[i + 1] - offsets[i]) if i + 1 < len(offsets) else 0
            if np.shape(part) != (size,):
                raise ValueError(f"log_measure of example {i} must have shape ({size},), got {np.shape(part)}")
        log_measure = np.concatenate([np.asarray(part, np.float64) for part in log_measure])
    found = np.asarray(log_measure)
    if found.shape != (offsets[-1],) or found.dtype.kind not in "biuf":
        raise ValueError(
            f"log_measure must have {int(offsets[-1])} numbers, one per label, got {found.dtype} of shape {found.shape}"
        )
    found = found.astype(np.float64)
    bad = np.flatnonzero(np.isnan(found) | np.isposinf(found))
    if len(bad):
        raise ValueError(
            f"log_measure must be less than infinity, got {found[bad[0]]} for {_place(int(bad[0]), offsets)}"
        )
    empty = np.flatnonzero(np.isneginf(np.maximum.reduceat(found, offsets[:-1])))
    if len(empty):
        raise ValueError(
            f"log_measure must be finite for at least one label of each example, got minus infinity for all labels of "
            f"example {int(empty[0])}"
        )
    return found


def _place(row: int, offsets: Array) -> str:
    example = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"label {row - int(offsets[example])} of example {example}"

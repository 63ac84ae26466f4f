"""Features of label sets as a user gives them: checked, example by example, and laid end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import check_sparse
from manyclass.objective.problem import Array

__all__ = ["LabelSets", "observed", "read_label_sets"]


class LabelSets(NamedTuple):
    """Joint features of all labels of all examples.

    ``features`` is (N, D), a row a label; ``offsets`` (n + 1,) says where an example's begin; ``log_measure`` is (N,)
    or None.
    """

    features: Any
    offsets: Array
    log_measure: Array | None


def read_label_sets(features: Any, offsets: Any = None, log_measure: Any = None, width: int | None = None) -> LabelSets:
    """Check features and measures; see `manyclass.LogLinearModel` for what may be given.

    Raises
    ------
    ValueError
        With the number of the example that is at fault.
    """
    if offsets is None:
        features, offsets = _joined(features)
    else:
        features = _matrix("features", features)
        offsets = _edges(offsets, features)
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
        raise ValueError(f"features of {_place(int(row), offsets)} hold NaN or infinity")
    return LabelSets(features, offsets, _measures(log_measure, offsets))


def observed(sets: LabelSets, given: Any) -> Array:
    """The number of the observed label of each example within its set, checked.

    Raises
    ------
    ValueError
        If there are more or fewer than examples, one is no member of its set, or has measure zero.
    """
    y: Array = np.asarray(given)
    n = len(sets.offsets) - 1
    if y.shape != (n,):
        raise ValueError(f"y must have shape ({n},), one label an example, got {y.shape}")
    if y.dtype.kind not in "iu":
        raise ValueError(f"y must hold the number of a label within its example's set, integers, got {y.dtype}")
    sizes = np.diff(sets.offsets)
    strange = np.flatnonzero((y < 0) | (y >= sizes))
    if len(strange):
        i = int(strange[0])
        raise ValueError(
            f"y of example {i} is {int(y[i])}, which is not in its label set of {int(sizes[i])} "
            f"(0 to {int(sizes[i]) - 1}): {len(strange)} such examples"
        )
    if sets.log_measure is not None:
        none = np.flatnonzero(np.isneginf(sets.log_measure[sets.offsets[:-1] + y]))
        if len(none):
            raise ValueError(
                f"the observed label {int(y[none[0]])} of example {int(none[0])} has measure zero (log_measure is "
                "minus infinity): no parameters can make it likely; leave the example out or correct its measure"
            )
    return y.astype(np.int64)


def _joined(features: Any) -> tuple[Any, Array]:
    """A list of matrices, one below the other."""
    if isinstance(features, np.ndarray) and features.ndim == 3:
        features = list(features)
    if not isinstance(features, Sequence) or isinstance(features, str) or len(features) == 0:
        raise ValueError(
            "features must be a list with a matrix for each example (labels x features), or one matrix with offsets, "
            f"got {type(features).__name__}"
        )
    parts = [_matrix(f"features of example {i}", part) for i, part in enumerate(features)]
    width = parts[0].shape[1]
    for i, part in enumerate(parts):
        if part.shape[1] != width:
            raise ValueError(f"features of example {i} have {part.shape[1]} columns, those of example 0 have {width}")
        if part.shape[0] == 0:
            raise ValueError(f"example {i} has an empty label set: every example needs at least one label")
    offsets = np.concatenate([[0], np.cumsum([part.shape[0] for part in parts])]).astype(np.int64)
    if all(sp.issparse(part) for part in parts):
        return sp.csr_matrix(sp.vstack(parts, format="csr")), offsets
    return np.vstack([part.toarray() if sp.issparse(part) else part for part in parts]), offsets


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
        raise ValueError("offsets must be integers, where each example's labels begin, and at last where they end")
    if found[0] != 0 or found[-1] != features.shape[0]:
        raise ValueError(
            f"offsets must go from 0 to the {features.shape[0]} rows of features, got {found[0]} to {found[-1]}"
        )
    short = np.flatnonzero(np.diff(found.astype(np.int64)) < 1)
    if len(short):
        raise ValueError(f"example {int(short[0])} has an empty label set: every example needs at least one label")
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
    found = np.asarray(log_measure, np.float64).reshape(-1)
    if len(found) != offsets[-1]:
        raise ValueError(f"log_measure must hold one number a label, {int(offsets[-1])}, got {len(found)}")
    bad = np.flatnonzero(np.isnan(found) | np.isposinf(found))
    if len(bad):
        raise ValueError(
            f"log_measure of {_place(int(bad[0]), offsets)} is {found[bad[0]]}: less than infinity is meant"
        )
    empty = np.flatnonzero(np.isneginf(np.maximum.reduceat(found, offsets[:-1])))
    if len(empty):
        raise ValueError(f"all labels of example {int(empty[0])} have measure zero: at least one has to be possible")
    return found


def _place(row: int, offsets: Array) -> str:
    example = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"label {row - int(offsets[example])} of example {example}"

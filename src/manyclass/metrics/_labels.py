"""Checks of the labels, indicators and weights passed to metrics; without dense n x K arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from manyclass.kernels.rows import check_sparse

__all__ = [
    "LabelsLike",
    "class_columns",
    "class_labels",
    "first",
    "indicator",
    "is_indicator",
    "label_vector",
    "positions",
    "row_weights",
    "same_kind",
    "same_length",
    "unique_classes",
]

#: One label per row (n,), or a 0/1 indicator of shape (n, K), dense or sparse.
LabelsLike: TypeAlias = "npt.ArrayLike | sparse.spmatrix | sparse.sparray"

_INDICATOR = "an indicator must contain only 0 and 1, and single labels must be a vector of shape (n,)"


def _as_array(name: str, values: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} has rows of different lengths; pass one label per row, or a 0/1 indicator matrix"
        ) from error


def is_indicator(name: str, y: Any) -> bool:
    """Whether ``y`` is a 0/1 matrix (two dimensions) rather than one label per row."""
    return bool(sparse.issparse(y)) or _as_array(name, y).ndim == 2


def class_labels(name: str, values: Any) -> npt.NDArray[Any]:
    """``values`` as an array of 64-bit integers or of strings (fixed width or objects), in its shape."""
    array = _as_array(name, values)
    kind = array.dtype.kind
    if kind == "U":
        return array
    if kind in "bi":
        return array.astype(np.int64, copy=False)
    if kind == "u":
        if array.dtype.itemsize == 8 and array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{name} has the label {array.max()}; integer labels must fit a signed 64-bit integer")
        return array.astype(np.int64)
    if kind == "f":
        whole = (array == np.floor(array)) & (np.abs(array) <= 2.0**53)
        if not whole.all():
            raise ValueError(f"{name} has the label {array[~whole][0]!s}; class labels must be integers or strings")
        return array.astype(np.int64)
    if kind in "OT":
        types = {type(value) for value in array.flat}
        if all(issubclass(t, str) for t in types):
            return array.astype(object, copy=False)
        if all(issubclass(t, (int, np.integer, np.bool_)) for t in types):
            try:
                return array.astype(np.int64)
            except OverflowError as error:
                raise ValueError(
                    f"{name} has labels beyond 64 bits; integer labels must fit a signed 64-bit integer"
                ) from error
        found = ", ".join(sorted(t.__name__ for t in types))
        raise ValueError(f"{name} has labels of type {found}; class labels must be all integers or all strings")
    raise ValueError(f"{name} has dtype {array.dtype}; class labels must be integers or strings")


def label_vector(name: str, y: Any) -> npt.NDArray[Any]:
    """Checked labels, one per row, at least one row."""
    labels = class_labels(name, y)
    if labels.ndim != 1:
        raise ValueError(f"{name} has {labels.ndim} dimensions; expected one label per row, shape (n,)")
    if labels.size == 0:
        raise ValueError(f"{name} is empty; at least one label is needed")
    return labels


def unique_classes(name: str, classes: Any) -> npt.NDArray[Any]:
    """A checked vector of distinct classes."""
    labels = label_vector(name, classes)
    if np.unique(labels).size != labels.size:
        raise ValueError(f"{name} has a class more than once; classes must be distinct")
    return labels


def indicator(name: str, y: Any) -> Any:
    """A 0/1 matrix as a canonical CSR array of ones: sorted, no duplicates, no stored zeros.

    The caller's matrix is not changed.
    """
    is_sparse = bool(sparse.issparse(y))
    if is_sparse:
        check_sparse(y, name)
        matrix: Any = y.tocsr()
    else:
        dense = _as_array(name, y)
        if dense.dtype.kind not in "biuf":
            raise ValueError(f"{name} is a matrix of dtype {dense.dtype}; {_INDICATOR}")
        matrix = sparse.csr_array(dense)
    if len(matrix.shape) != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} has shape {matrix.shape}; expected (n, K), both at least 1")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    stray = (matrix.data != 0) & (matrix.data != 1)
    if stray.any():
        raise ValueError(f"{name} is a matrix with the value {matrix.data[stray][0]!s}; {_INDICATOR}")
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    ones = np.ones(matrix.indices.size, dtype=np.int8)
    return sparse.csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape)


def row_weights(sample_weight: npt.ArrayLike | None, n: int) -> npt.NDArray[np.float64] | None:
    """Checked weights of n rows; None for equal weights."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight has shape {weights.shape}; expected ({n},), a weight per row")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight must have finite, non-negative numbers, not all zero")
    return weights


def first(labels: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]) -> str:
    """The first of the chosen labels, for a message."""
    return repr(labels[chosen][:1].tolist()[0])


def same_length(name: str, n: int, other_name: str, other: int) -> None:
    """Raise a ValueError if two arguments have different numbers of rows."""
    if n != other:
        raise ValueError(f"{name} has {n} rows but {other_name} has {other}; they must describe the same rows")


def same_kind(name: str, a: npt.NDArray[Any], other_name: str, b: npt.NDArray[Any]) -> None:
    """Raise a ValueError if one argument has integers and the other strings, which never match."""
    kinds = ["integers" if array.dtype.kind == "i" else "strings" for array in (a, b)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{name} has {kinds[0]} but {other_name} has {kinds[1]}; both must have the same type")


def positions(
    classes: npt.NDArray[Any], values: npt.NDArray[Any], order: npt.NDArray[np.intp] | None = None
) -> npt.NDArray[np.int64]:
    """The index of each of ``values`` in ``classes`` (distinct, in any order), or -1; ``order`` sorts the classes."""
    order = np.argsort(classes, kind="stable") if order is None else order
    at = order[np.minimum(np.searchsorted(classes, values, sorter=order), classes.size - 1)]
    return np.where(classes[at] == values, at, -1)


def class_columns(
    classes: npt.ArrayLike | None, n_classes: int, name: str, values: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """The column of each of the labels ``values``, or -1 for a label that is not a class.

    ``classes`` has the labels of the ``n_classes`` columns; None means 0 .. n_classes - 1.
    """
    if classes is None:
        if values.dtype.kind != "i":
            raise ValueError(f"{name} has string labels; pass classes=, the class of each column")
        return np.asarray(np.where((values >= 0) & (values < n_classes), values, -1), dtype=np.int64)
    known = unique_classes("classes", classes)
    if known.size != n_classes:
        raise ValueError(f"classes has {known.size} entries; expected {n_classes}, a class per column")
    same_kind("classes", known, name, values)
    return positions(known, values)

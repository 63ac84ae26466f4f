"""Reads y: class labels, or a multilabel indicator matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._unique import attach_unique, cached_unique
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from manyclass.kernels.rows import check_sparse
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets, Targets
from manyclass.objective.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from manyclass.objective.problem import Array

__all__ = [
    "check_labels",
    "coded",
    "distinct",
    "is_indicator",
    "loss_of_link",
    "one_class",
    "read_indicator",
    "read_labels",
    "with_distinct",
]


def is_indicator(y: Any) -> bool:
    """Whether y is a multilabel indicator matrix."""
    return bool(sp.issparse(y)) or type_of_target(y, input_name="y") == "multilabel-indicator"


def with_distinct(y: Any) -> Any:
    """Labels with their distinct values attached, which `distinct` and scikit-learn's checks look for four times.

    Anything but a vector of labels is returned as it is. Parts of the result have the values of the whole attached.
    """
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "iubUO":
        try:
            return attach_unique(y)
        except TypeError:  # labels that cannot be compared, which the checks name
            pass
    return y


def distinct(y: Any) -> Array:
    """The sorted distinct values of an array of labels."""
    found: Array = cached_unique(y)
    return found


def check_labels(y: Array) -> None:
    """Raise a ValueError if a vector has no class labels, or labels that no model file can hold (dates, other objects).

    A model whose labels cannot be saved would be lost.
    """
    if y.dtype.kind in "mM":
        raise ValueError(
            f"y has labels of type {y.dtype}, which a model file cannot hold: pass texts, such as y.astype(str)"
        )
    try:
        check_classification_targets(y)
    except ValueError as fault:
        kinds = {type(label).__name__ for label in y.tolist()} if y.dtype.kind == "O" else set()
        others = kinds - {"str", "int", "float", "bool"}
        if not others:
            raise
        raise ValueError(
            f"y has labels of type {', '.join(sorted(others))}, which cannot be classes: pass texts, such as "
            "[str(label) for label in y]"
        ) from fault


def read_labels(y: Any) -> tuple[Array, Array]:
    """The sorted classes, and the class index of each row (int32).

    Raises
    ------
    ValueError
        If y does not contain labels, or only one class.
    """
    y = column_or_1d(y, warn=True)
    check_labels(y)
    classes, index = np.unique(y, return_inverse=True)
    one_class(classes)
    return classes, np.ascontiguousarray(index.reshape(-1), np.int32)


def one_class(classes: Array) -> None:
    """Raise a ValueError if there is only one class."""
    if len(classes) < 2:
        only = classes[:1].tolist()[0]
        raise ValueError(f"y must have at least 2 classes, got one class only ({only!r}): add rows of another class")


def read_indicator(y: Any) -> sp.csr_matrix[Any]:
    """The indicator as a CSR matrix whose stored values are all 1.

    Raises
    ------
    ValueError
        If it contains other values than 0 and 1.
    """
    check_sparse(y, "y")
    labels = sp.csr_matrix(y)
    if labels.nnz and not np.all((labels.data == 1) | (labels.data == 0)):
        raise ValueError(
            "a multi-label y must contain only 0 and 1, got other values: pass labels as a vector, or an indicator"
        )
    if not np.all(labels.data):
        labels = labels.copy()
        labels.eliminate_zeros()
    return labels


def coded(labels: Any, n_outputs: int, dtype: Any, *, signs: bool = False) -> Array:
    """Least-squares targets, (n, K): 1 where the row has the class, else 0, or -1 with ``signs``.

    Parameters
    ----------
    labels : ndarray of int of shape (n,), or CSR indicator of shape (n, K)
        Class indices, or a multilabel indicator.
    n_outputs : int
        K; 1 for one column that stands for the second of two classes.
    dtype : dtype
        Type of the result.
    signs : bool, default=False
        Whether rows without the class have -1 instead of 0.

    Examples
    --------
    >>> coded(np.array([0, 2]), 3, np.float64)
    array([[1., 0., 0.],
           [0., 0., 1.]])
    >>> coded(np.array([0, 1]), 1, np.float64, signs=True)
    array([[-1.],
           [ 1.]])
    """
    if sp.issparse(labels):
        targets: Array = labels.toarray().astype(dtype)
    else:
        targets = np.zeros((len(labels), n_outputs), dtype)
        if n_outputs == 1:
            targets[:, 0] = labels
        else:
            targets[np.arange(len(labels)), labels] = 1
    if signs:
        targets *= 2
        targets -= 1
    return targets


def loss_of_link(link: str, labels: Any, task: str, n_outputs: int, dtype: Any) -> tuple[Any, Targets]:
    """The compiled loss whose gradient is the link minus the targets, and the targets.

    Parameters
    ----------
    link : {"identity", "softmax", "sigmoid"}
        The link; softmax of two classes with one column is the sigmoid.
    labels, n_outputs, dtype
        See `coded`.
    task : {"multiclass", "binary", "multilabel"}
        What ``labels`` are of.
    """
    if link == "identity":
        return SquaredLoss(), RealTargets(coded(labels, n_outputs, dtype, signs=task != "multiclass"), n_outputs)
    if task == "multiclass" and link == "softmax":
        return MultinomialLoss(), ClassTargets(labels, n_outputs)
    rows = labels if sp.issparse(labels) else sp.csr_matrix(coded(labels, n_outputs, np.int8))
    return LogisticLoss(), SignTargets(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), n_outputs)

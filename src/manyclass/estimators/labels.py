"""What y holds: labels of classes, or an indicator of several labels a row; and the numbers a fit makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from manyclass.kernels.rows import check_sparse
from manyclass.objective.problem import Array

__all__ = ["coded", "is_indicator", "one_class", "read_indicator", "read_labels"]


def is_indicator(y: Any) -> bool:
    """Whether y is a matrix of labels, several a row."""
    return bool(sp.issparse(y)) or type_of_target(y, input_name="y") == "multilabel-indicator"


def read_labels(y: Any) -> tuple[Array, Array]:
    """The classes, sorted, and the number of the class of each row (int32).

    Raises
    ------
    ValueError
        If y holds no labels, or those of one class only.
    """
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, index = np.unique(y, return_inverse=True)
    one_class(classes)
    return classes, np.ascontiguousarray(index.reshape(-1), np.int32)


def one_class(classes: Array) -> None:
    """Raise a ValueError where there is one class only."""
    if len(classes) < 2:
        only = classes[:1].tolist()[0]
        raise ValueError(f"y holds one class only ({only!r}); a classifier needs examples of at least 2 classes")


def read_indicator(y: Any) -> sp.csr_matrix[Any]:
    """The indicator as CSR whose stored values are all one.

    Raises
    ------
    ValueError
        If it holds other values than 0 and 1.
    """
    check_sparse(y, "y")
    labels = sp.csr_matrix(y)
    if labels.nnz and not np.all((labels.data == 1) | (labels.data == 0)):
        raise ValueError("a multi-label y holds only 0 and 1; other values were found")
    if not np.all(labels.data):
        labels = labels.copy()
        labels.eliminate_zeros()
    return labels


def coded(labels: Any, n_outputs: int, dtype: Any, *, signs: bool = False) -> Array:
    """Targets of least squares, (n, K): 1 where the row has the class and 0 elsewhere, or -1 for ``signs``.

    Parameters
    ----------
    labels : ndarray of int of shape (n,), or CSR indicator of shape (n, K)
    n_outputs : int
        K; 1 for the second of two classes alone.

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

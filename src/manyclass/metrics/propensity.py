"""The propensity model of the propensity-scored metrics: the probability that a relevant label is observed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import (
    LabelsLike,
    class_columns,
    first,
    indicator,
    is_indicator,
    label_vector,
    unique_classes,
)

__all__ = ["class_counts", "inverse_propensity"]


def inverse_propensity(
    label_counts: npt.ArrayLike, n_samples: int, *, A: float = 0.55, B: float = 1.5
) -> npt.NDArray[np.float64]:
    """The inverse propensity of each class: ``1 / p_c = 1 + C (N_c + B)^-A`` with ``C = (log N - 1) (B + 1)^A``.

    Parameters
    ----------
    label_counts : array of shape (K,)
        N_c, the number of training rows of each class: see `class_counts`.
    n_samples : int
        N, the number of training rows, >= 3 (with fewer rows the model gives rare classes less weight).
    A, B : float, default=0.55, 1.5
        Parameters of the model, > 0. 0.5 and 0.4 are used for Wikipedia, 0.6 and 2.6 for Amazon.

    Returns
    -------
    array of shape (K,), float64
        Inverse propensities, >= 1, larger for rarer classes.

    Raises
    ------
    ValueError
        If a count is negative, there are fewer than 3 rows, or A or B is not positive.

    References
    ----------
    H. Jain, Y. Prabhu, M. Varma, KDD 2016 (see `psp_at_k`), section 4.

    Examples
    --------
    >>> from manyclass.metrics import inverse_propensity
    >>> inverse_propensity([1000, 10, 0], n_samples=1010).round(2).tolist()
    [1.22, 3.56, 8.84]
    """
    counts = np.asarray(label_counts, dtype=np.float64)
    if counts.ndim != 1 or counts.size == 0:
        raise ValueError(f"label_counts has shape {counts.shape}; expected (K,), a count per class")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError("label_counts must have finite, non-negative numbers")
    if n_samples < 3:
        raise ValueError(f"n_samples is {n_samples}; propensities need at least 3 training rows")
    if not (A > 0 and B > 0):
        raise ValueError(f"A is {A} and B is {B}; both must be positive")
    scale = (np.log(n_samples) - 1.0) * (B + 1.0) ** A
    return np.asarray(1.0 + scale * (counts + B) ** -A, dtype=np.float64)


def class_counts(y: LabelsLike, classes: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]:
    """The number of rows of each class.

    Parameters
    ----------
    y : array of shape (n,), or 0/1 matrix of shape (n, K), dense or sparse
        Labels or their indicator.
    classes : array of shape (K,), optional
        With labels: the classes to count, in this order; by default 0 .. max(y). Not used with an indicator,
        whose columns are the classes.

    Returns
    -------
    array of shape (K,), int64
        Counts.

    Raises
    ------
    ValueError
        If the input is empty, or a label is none of the classes.

    Examples
    --------
    >>> from manyclass.metrics import class_counts
    >>> class_counts(["b", "a", "b"], classes=["a", "b", "c"]).tolist()
    [1, 2, 0]
    """
    if is_indicator("y", y):
        matrix = indicator("y", y)
        columns: npt.NDArray[Any] = matrix.indices
        n_classes: int = matrix.shape[1]
        if classes is not None:
            class_columns(classes, n_classes, "classes", unique_classes("classes", classes))
    else:
        labels = label_vector("y", y)
        if classes is not None:
            n_classes = unique_classes("classes", classes).size
        else:
            n_classes = int(labels.max()) + 1 if labels.dtype.kind == "i" else 0
        columns = class_columns(classes, n_classes, "y", labels)
        if (columns < 0).any():
            raise ValueError(f"y has the label {first(labels, columns < 0)}, which is none of the {n_classes} classes")
    return np.bincount(columns, minlength=n_classes).astype(np.int64, copy=False)

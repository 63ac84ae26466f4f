"""Log loss, without another array of rows times classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import class_columns, first, label_vector, row_weights, same_length

__all__ = ["log_loss"]


def log_loss(
    y_true: npt.ArrayLike,
    proba: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    normalize: bool = True,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """The negative log-likelihood of the true labels: ``mean_i -log proba[i, y_i]``.

    Reads one probability per row, in O(n + K) time and memory. For chunks of rows use ``normalize=False`` and add
    up the results. (scikit-learn's `log_loss`, which gives the same number, builds an n x K indicator of the
    labels.)

    Parameters
    ----------
    y_true : array of shape (n,)
        Integer or string labels.
    proba : array of shape (n, K)
        Probabilities; rows are not rescaled to sum to one.
    classes : array of shape (K,), optional
        The class of each column; 0 .. K-1 by default.
    normalize : bool, default=True
        Whether to divide the sum over the rows by their number (or by the sum of the weights).
    sample_weight : array of shape (n,), optional
        A non-negative weight per row.

    Returns
    -------
    float
        The loss in nats. Probabilities are clipped to ``[eps, 1 - eps]`` of the dtype of ``proba``, so that a
        probability of zero costs 36 nats in float64 and 16 in float32.

    Raises
    ------
    ValueError
        If the input is empty, lengths differ, a label is not a class, or the probability of a true label is not
        in [0, 1].

    Examples
    --------
    >>> from manyclass.metrics import log_loss
    >>> round(log_loss(["a", "b"], [[0.5, 0.5], [0.75, 0.25]], classes=["a", "b"]), 4)
    1.0397
    """
    labels = label_vector("y_true", y_true)
    table = np.asarray(proba)
    if table.ndim != 2:
        raise ValueError(f"proba has {table.ndim} dimensions; expected shape (n, K), a column per class")
    same_length("y_true", labels.size, "proba", table.shape[0])
    columns = class_columns(classes, table.shape[1], "y_true", labels)
    if (columns < 0).any():
        raise ValueError(
            f"y_true has the label {first(labels, columns < 0)}, which is none of the {table.shape[1]} classes; "
            "remove rows whose class has no column in proba"
        )
    picked = table[np.arange(labels.size), columns]
    if picked.dtype.kind != "f":
        picked = picked.astype(np.float64)
    if not ((picked >= 0) & (picked <= 1)).all():
        raise ValueError("proba has numbers that are not between 0 and 1; pass probabilities, not scores")
    eps = np.finfo(picked.dtype).eps
    losses = -np.log(np.clip(picked, eps, 1 - eps)).astype(np.float64)
    weights = row_weights(sample_weight, labels.size)
    if normalize:
        return float(np.average(losses, weights=weights))
    return float(losses.sum() if weights is None else losses @ weights)

"""How well probabilities agree with frequencies."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import row_weights, same_length

__all__ = ["Reliability", "expected_calibration_error", "reliability"]


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Reliability(NamedTuple):
    """Confidence and accuracy in the bins of a reliability diagram.

    Attributes
    ----------
    confidence, accuracy : ndarray of shape (n_bins,)
        Means over the predictions of each bin; NaN where there are none.
    weight : ndarray of shape (n_bins,)
        Sum of the weights of the predictions of each bin.
    """

    confidence: Array
    accuracy: Array
    weight: Array


def reliability(
    correct: npt.ArrayLike, confidence: npt.ArrayLike, *, n_bins: int = 15, sample_weight: npt.ArrayLike | None = None
) -> Reliability:
    """Mean confidence and accuracy of predictions in bins of equal width of their confidence.

    Parameters
    ----------
    correct : array of bool of shape (n,)
        Whether each prediction is right.
    confidence : array of shape (n,)
        The probabilities that the model gave to its predictions, in [0, 1].
    n_bins : int, default=15
        Number of bins, >= 1.
    sample_weight : array of shape (n,), optional
        A non-negative weight per prediction.

    Returns
    -------
    Reliability
        Confidence, accuracy and weight of each bin.

    Raises
    ------
    ValueError
        If lengths differ, there are no predictions, or a confidence is not in [0, 1].

    Examples
    --------
    >>> from manyclass.metrics import reliability
    >>> reliability([True, False, True], [0.9, 0.8, 0.2], n_bins=2)
    Reliability(confidence=array([0.2 , 0.85]), accuracy=array([1. , 0.5]), weight=array([1., 2.]))
    """
    right, given = np.asarray(correct, np.float64), np.asarray(confidence, np.float64)
    same_length("correct", right.size, "confidence", given.size)
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    if not given.size or not ((given >= 0) & (given <= 1)).all():
        raise ValueError("confidence must be at least one number, each in [0, 1]: pass probabilities, not scores")
    own = row_weights(sample_weight, given.size)
    weights = np.ones(given.size) if own is None else own
    place = np.minimum((given * n_bins).astype(np.int64), n_bins - 1)
    total = np.bincount(place, weights, n_bins)
    with np.errstate(invalid="ignore"):
        return Reliability(
            np.bincount(place, weights * given, n_bins) / total,
            np.bincount(place, weights * right, n_bins) / total,
            total,
        )


def expected_calibration_error(
    correct: npt.ArrayLike, confidence: npt.ArrayLike, *, n_bins: int = 15, sample_weight: npt.ArrayLike | None = None
) -> float:
    """Mean distance between confidence and accuracy over the bins of `reliability`, weighted by their predictions.

    Parameters
    ----------
    correct : array of bool of shape (n,)
        Whether each prediction is right.
    confidence : array of shape (n,)
        The probabilities that the model gave to its predictions, in [0, 1].
    n_bins : int, default=15
        Number of bins, >= 1.
    sample_weight : array of shape (n,), optional
        A non-negative weight per prediction.

    Returns
    -------
    float
        The error, in [0, 1].

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017, equation 3.

    Examples
    --------
    >>> from manyclass.metrics import expected_calibration_error
    >>> round(expected_calibration_error([True, False, True], [0.9, 0.8, 0.2], n_bins=2), 6)
    0.5
    """
    bins = reliability(correct, confidence, n_bins=n_bins, sample_weight=sample_weight)
    there = bins.weight > 0
    distance = np.abs(bins.confidence - bins.accuracy)[there]
    return float(np.average(distance, weights=bins.weight[there]))

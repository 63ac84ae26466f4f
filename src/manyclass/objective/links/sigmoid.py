"""The logistic link, one probability per output, and its normalized form for one-vs-rest classes."""

from __future__ import annotations

from typing import Any

from scipy.special import expit, log_expit

from manyclass.objective.links._arrays import Array, buffers, refuse_nan
from manyclass.objective.links.softmax import softmax

__all__ = ["normalized_sigmoid", "sigmoid"]


def sigmoid(scores: Any, out: Array | None = None) -> Array:
    """``1 / (1 + exp(-s))`` of each score, without overflow; infinities become 0 and 1.

    Parameters
    ----------
    scores : array of any shape
        float32 or float64; other dtypes are converted to float64.
    out : ndarray, optional
        Array for the result, of the shape and dtype of ``scores``; ``out=scores`` needs no extra memory.

    Returns
    -------
    ndarray
        Probabilities, of the shape of ``scores``.

    Raises
    ------
    ValueError
        If the scores are not real numbers or contain NaN, or ``out`` has another shape or dtype.

    Examples
    --------
    >>> sigmoid([[0.0, 1e4, -1e4]])
    array([[0.5, 1. , 0. ]])
    """
    array, out = buffers(scores, out)
    expit(array, out=out)
    refuse_nan(out)
    return out


def normalized_sigmoid(scores: Any, out: Array | None = None) -> Array:
    """Sigmoids of the K one-vs-rest scores in the last dimension, divided by their sum.

    Computed as the softmax of the logarithms of the sigmoids, so that rows in which every sigmoid underflows still sum
    to one.

    Parameters
    ----------
    scores : array of shape (..., K)
        float32 or float64; other dtypes are converted to float64.
    out : ndarray, optional
        Array for the result, of the shape and dtype of ``scores``; ``out=scores`` needs little extra memory.

    Returns
    -------
    ndarray
        Probabilities, of the shape of ``scores``; rows sum to one.

    Raises
    ------
    ValueError
        If the scores are not real numbers, contain NaN or a row of minus infinities, or ``out`` has another shape or
        dtype.

    Examples
    --------
    >>> normalized_sigmoid([[0.0, 1e4, -1e4], [-1e4, -1e4, -2e4]])
    array([[0.33333333, 0.66666667, 0.        ],
           [0.5       , 0.5       , 0.        ]])
    """
    array, out = buffers(scores, out)
    log_expit(array, out=out)
    return softmax(out, out=out)

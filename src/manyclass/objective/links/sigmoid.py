"""The logistic link, one probability per output, and its normalized form for one-vs-rest classes."""

from __future__ import annotations

from typing import Any

from scipy.special import expit, log_expit

from manyclass.objective.links._arrays import Array, buffers, refuse_nan
from manyclass.objective.links.softmax import softmax

__all__ = ["normalized_sigmoid", "sigmoid"]


def sigmoid(scores: Any, out: Array | None = None) -> Array:
    """``1 / (1 + exp(-s))`` of each score; never overflows, infinities become 0 and 1.

    Parameters
    ----------
    scores : array of any shape
        float32 stays float32; everything but float32 and float64 is taken as float64.
    out : ndarray, optional
        Where the result goes; ``out=scores`` needs no memory besides.

    Returns
    -------
    ndarray
        Of the shape of ``scores``.

    Raises
    ------
    ValueError
        If the scores are not real numbers, hold NaN, or ``out`` does not fit them.

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

    Computed as the softmax of their logarithms, so that rows in which every sigmoid is too small for a floating-point
    number still sum to one.

    Parameters
    ----------
    scores : array of shape (..., K)
        float32 stays float32; everything but float32 and float64 is taken as float64.
    out : ndarray, optional
        Where the result goes; ``out=scores`` needs little memory besides.

    Returns
    -------
    ndarray
        Of the shape of ``scores``.

    Raises
    ------
    ValueError
        If the scores are not real numbers, hold NaN or a row of minus infinities, or ``out`` does not fit them.

    Examples
    --------
    >>> normalized_sigmoid([[0.0, 1e4, -1e4], [-1e4, -1e4, -2e4]])
    array([[0.33333333, 0.66666667, 0.        ],
           [0.5       , 0.5       , 0.        ]])
    """
    array, out = buffers(scores, out)
    log_expit(array, out=out)
    return softmax(out, out=out)

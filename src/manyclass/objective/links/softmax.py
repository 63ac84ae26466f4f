"""The multinomial link."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.objective.links._arrays import Array, buffers

__all__ = ["softmax"]


def softmax(scores: Any, out: Array | None = None) -> Array:
    """``exp(s_k) / sum_j exp(s_j)`` over the last dimension; never overflows.

    Parameters
    ----------
    scores : array of shape (..., K)
        float32 stays float32; everything but float32 and float64 is taken as float64. Minus infinity is a class that
        is ruled out.
    out : ndarray, optional
        Where the result goes; ``out=scores`` needs little memory besides.

    Returns
    -------
    ndarray
        Of the shape of ``scores``; rows sum to one.

    Raises
    ------
    ValueError
        If the scores are not real numbers, a row has NaN or infinity or nothing but minus infinity, K is 0, or ``out``
        does not fit the scores.

    Examples
    --------
    >>> softmax([[0.0, 0.0], [1e4, -1e4]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    array, out = buffers(scores, out)
    if array.shape[-1] == 0:
        raise ValueError(f"scores must have at least one class, got shape {array.shape}")
    largest = np.max(array, axis=-1, keepdims=True)
    # NaN anywhere in a row is NaN here.
    if not np.all(np.isfinite(largest)):
        raise ValueError(
            "scores must have a finite maximum in each row, got NaN, infinity or a row of minus infinities: "
            "check the data and the weights for NaN and infinity"
        )
    with np.errstate(over="ignore"):  # a difference beyond the largest number is a probability of zero
        np.subtract(array, largest, out=out)
    np.exp(out, out=out)
    # In float64: a million float32 terms would lose digits of the sum.
    total = np.sum(out, axis=-1, keepdims=True, dtype=np.float64)
    np.divide(out, total.astype(out.dtype), out=out)
    return out

"""The multinomial link."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.objective.links._arrays import Array, buffers

__all__ = ["softmax"]


def softmax(scores: Any, out: Array | None = None) -> Array:
    """``exp(s_k) / sum_j exp(s_j)`` over the last dimension, without overflow.

    Parameters
    ----------
    scores : array of shape (..., K)
        float32 or float64; other dtypes are converted to float64. Minus infinity gives probability zero.
    out : ndarray, optional
        Array for the result, of the shape and dtype of ``scores``; ``out=scores`` needs little extra memory.

    Returns
    -------
    ndarray
        Probabilities, of the shape of ``scores``; rows sum to one.

    Raises
    ------
    ValueError
        If the scores are not real numbers, a row contains NaN or infinity or only minus infinity, K is 0, or ``out``
        has another shape or dtype than the scores.

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
    # The maximum of a row with NaN is NaN.
    if not np.all(np.isfinite(largest)):
        raise ValueError(
            "scores must have a finite maximum in each row, got NaN, infinity or a row of minus infinities: "
            "check the data and the weights for NaN and infinity"
        )
    with np.errstate(over="ignore"):  # a difference that overflows to minus infinity gives probability zero
        np.subtract(array, largest, out=out)
    np.exp(out, out=out)
    # In float64: a float32 sum of a million terms loses several digits.
    total = np.sum(out, axis=-1, keepdims=True, dtype=np.float64)
    np.divide(out, total.astype(out.dtype), out=out)
    return out

"""Euclidean projections of predictions: on the probability simplex, and on the hypercube."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.objective.links._arrays import Array, buffers, refuse_nan
from manyclass.runtime.threads import ranges

__all__ = ["onto_box", "onto_simplex"]

#: Number of rows sorted at a time, which bounds the memory for it.
_ROWS = 8192


def onto_simplex(scores: Any, out: Array | None = None) -> Array:
    """Euclidean projection of each row on the probability simplex {p >= 0, sum p = 1}, in O(K log K) per row.

    Parameters
    ----------
    scores : array of shape (..., K)
        float32 or float64; other dtypes are converted to float64. Minus infinity becomes zero.
    out : ndarray, optional
        Array for the result, of the shape and dtype of ``scores``; ``out=scores`` needs little extra memory.

    Returns
    -------
    ndarray
        The projections, of the shape of ``scores``.

    Raises
    ------
    ValueError
        If the scores are not real numbers, a row contains NaN or infinity or only minus infinity, K is 0, or ``out``
        has another shape or dtype than the scores.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball for learning in high
    dimensions", ICML 2008, figure 1.

    Examples
    --------
    >>> onto_simplex([[0.5, 0.5, 0.0], [3.0, 1.0, 2.5]])
    array([[0.5 , 0.5 , 0.  ],
           [0.75, 0.  , 0.25]])
    """
    array, out = buffers(scores, out)
    K = array.shape[-1]
    if K == 0:
        raise ValueError(f"scores must have at least one class, got shape {array.shape}")
    rows, results = array.reshape(-1, K), out.reshape(-1, K)
    counts = np.arange(1, K + 1)
    for begin, end in ranges(len(rows), _ROWS):
        part = rows[begin:end]
        largest = part.max(axis=1, keepdims=True)
        if not np.isfinite(largest).all():
            raise ValueError(
                "scores must have a finite maximum in each row, got NaN, infinity or a row of minus infinities: "
                "check the data and the weights for NaN and infinity"
            )
        # Only entries within 1 of the largest can be positive: relative to it, a large common shift costs no precision.
        with np.errstate(over="ignore"):
            near = np.maximum(part - largest, -1.0)
        down = -np.sort(-near, axis=1)
        excess = np.cumsum(down, axis=1, dtype=np.float64) - 1.0
        kept = np.count_nonzero(down * counts > excess, axis=1)
        threshold = np.take_along_axis(excess, kept[:, None] - 1, axis=1) / kept[:, None]
        results[begin:end] = np.maximum(near - threshold.astype(near.dtype), 0.0)
    if not np.shares_memory(results, out):
        np.copyto(out, results.reshape(out.shape))
    return out


def onto_box(scores: Any, out: Array | None = None) -> Array:
    """Euclidean projection of each row on the hypercube [0, 1]^K.

    Raises
    ------
    ValueError
        If the scores are not real numbers or contain NaN, or ``out`` has another shape or dtype.

    Examples
    --------
    >>> onto_box([[0.25, 7.0, -1.0]])
    array([[0.25, 1.  , 0.  ]])
    """
    array, out = buffers(scores, out)
    np.clip(array, 0.0, 1.0, out=out)
    refuse_nan(out)
    return out

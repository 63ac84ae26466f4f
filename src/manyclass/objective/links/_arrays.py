"""Checks of the arguments of links."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "as_float", "buffers", "refuse_nan"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def as_float(scores: Any) -> Array:
    """Scores as a float32 or float64 array; other dtypes are converted to float64.

    Raises
    ------
    ValueError
        If the scores are not real numbers with at least one dimension.
    """
    array = np.asarray(scores)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"scores must be an array of real numbers, got {array.ndim} dimensions of {array.dtype}: "
            "pass what decision_function returns"
        )
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def buffers(scores: Any, out: Array | None) -> tuple[Array, Array]:
    """Scores as `as_float` converts them, and the array for the result: ``out``, or a new one.

    Raises
    ------
    ValueError
        See `as_float`; or if ``out`` has another shape or dtype than the scores, or is read-only.
    """
    array = as_float(scores)
    if out is None:
        return array, np.empty_like(array, subok=False)
    if out.shape != array.shape or out.dtype != array.dtype or not out.flags.writeable:
        raise ValueError(
            f"out must be a writable {array.dtype} array of shape {array.shape}, got "
            f"{'a writable' if out.flags.writeable else 'a read-only'} {out.dtype} array of shape {out.shape}"
        )
    return array, out


def refuse_nan(probabilities: Array) -> None:
    """Raise a ValueError if the scores contained NaN, which every link propagates. Allocates no array."""
    if probabilities.size and np.isnan(np.max(probabilities)):
        raise ValueError("scores must not contain NaN: check the data and the weights for NaN and infinity")

"""What all links do with their arguments."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "as_float", "buffers", "refuse_nan"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def as_float(scores: Any) -> Array:
    """Scores as float32 or float64; whatever else they are becomes float64.

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
    """Scores as `as_float` gives them, and where the result goes.

    Raises
    ------
    ValueError
        As `as_float`, or if ``out`` does not fit the scores.
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
    """Raise if the scores had NaN: every link hands it on. Needs no memory besides."""
    if probabilities.size and np.isnan(np.max(probabilities)):
        raise ValueError("scores hold NaN: check the data and the weights for NaN and infinity")

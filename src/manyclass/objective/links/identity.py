"""The identity link: scores are what the model predicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.objective.links._arrays import Array, as_float, buffers

__all__ = ["identity"]


def identity(scores: Any, out: Array | None = None) -> Array:
    """The scores themselves, without a copy if they are float32 or float64 and ``out`` is None.

    Examples
    --------
    >>> identity([[1.0, -2.0]])
    array([[ 1., -2.]])
    """
    if out is None:
        return as_float(scores)
    array, out = buffers(scores, out)
    np.copyto(out, array)
    return out

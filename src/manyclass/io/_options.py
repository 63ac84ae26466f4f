"""The arguments that all readers share, checked before a file is opened."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import numpy.typing as npt

from .labels import TASKS

__all__ = ["checked_dtype"]


def checked_dtype(dtype: npt.DTypeLike, n_features: object, extra_features: str, task: str) -> np.dtype[Any]:
    """The type of the values, when all four arguments are what they may be.

    Raises
    ------
    ValueError
        That names the argument that is not.
    """
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype is {dtype!r}; expected float32 or float64")
    if n_features is not None and (not isinstance(n_features, numbers.Integral) or n_features < 0):
        raise ValueError(f"n_features is {n_features!r}; expected a whole number from 0 on, or None")
    if extra_features not in ("error", "ignore"):
        raise ValueError(f"extra_features is {extra_features!r}; expected 'error' or 'ignore'")
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; expected one of {', '.join(map(repr, TASKS))}")
    return kind

"""Arrays of other libraries: PyTorch, CuPy, and those that follow the array API standard.

Rows and features stay in their library and on their device, where products with them are computed. Arrays of the size
of the weights or of the scores are converted to NumPy, which solves linear systems in float64.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

__all__ = ["Array", "as_double", "is_foreign", "like", "plain_array", "to_numpy"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Libraries whose arrays lack ``__array_namespace__`` in some version, but have the functions used here.
_KNOWN = ("torch", "cupy")


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library than NumPy and SciPy."""
    if isinstance(X, (np.ndarray, np.generic)) or sp.issparse(X):
        return False
    return _library(X) in _KNOWN or hasattr(X, "__array_namespace__")


def to_numpy(array: Any) -> Array:
    """An array as a NumPy array, copied from its device if necessary."""
    if isinstance(array, np.ndarray):
        return array
    if _library(array) == "torch":
        held = array.detach().cpu()
        return np.asarray((held.float() if held.dtype == sys.modules["torch"].bfloat16 else held).numpy())
    if _library(array) == "cupy":
        return np.asarray(array.get())
    return np.asarray(np.from_dlpack(array))


def plain_array(array: Any) -> Any:
    """An array of another library as a NumPy array, a copy if it is on a device; anything else as it came.

    But float16 becomes float32: scikit-learn's checks would make it float64, with twice the bytes.
    """
    found = to_numpy(array) if is_foreign(array) else array
    return found.astype(np.float32) if isinstance(found, np.ndarray) and found.dtype == np.float16 else found


def like(array: Array, other: Any) -> Any:
    """A NumPy array converted to library, dtype and device of ``other``."""
    if isinstance(other, np.ndarray):
        return array.astype(other.dtype, copy=False)
    library = other.__array_namespace__() if hasattr(other, "__array_namespace__") else sys.modules[_library(other)]
    place = {} if _library(other) == "cupy" else {"device": other.device}
    return library.asarray(np.ascontiguousarray(array), dtype=other.dtype, **place)


def as_double(array: Any) -> Any:
    """An array converted to float64, on the same device."""
    if _library(array) == "torch":
        return array.double()
    if hasattr(array, "__array_namespace__"):
        library = array.__array_namespace__()
        return library.astype(array, library.float64)
    return array.astype(np.float64)


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]

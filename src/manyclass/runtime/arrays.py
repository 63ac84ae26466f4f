"""Arrays of other libraries: PyTorch, CuPy, and those that follow the array API standard.

`namespace` gives the functions of the library of an array under the names of the standard (data-apis.org/array-api):
code that calls these alone runs where the array lives. NumPy is converted to and from explicitly, because a library
whose device has other memory than the processor refuses to do it silently.

The arrays of PyTorch and of CuPy have no ``__array_namespace__``. Their functions under these names come from the
package array-api-compat, which is optional (``pip install manyclass[arrays]``), or else from the copy of it that
scikit-learn has from version 1.7 on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.runtime.threads import ranges

__all__ = [
    "Array",
    "as_double",
    "as_type",
    "copied",
    "detached",
    "entries",
    "has_short_products",
    "in_parts",
    "is_foreign",
    "is_half",
    "like",
    "namespace",
    "place",
    "plain_array",
    "products",
    "scores_there",
    "to_numpy",
    "type_of",
    "widest",
    "with_entries",
]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Scores, or numbers of rows, that are computed at a time.
_SCORES = 1 << 24
#: Libraries whose arrays lack ``__array_namespace__`` in some version, but have the functions used here.
_KNOWN = ("torch", "cupy")


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library than NumPy and SciPy."""
    if isinstance(X, (np.ndarray, np.generic)) or sp.issparse(X):
        return False
    return _library(X) in _KNOWN or hasattr(X, "__array_namespace__")


def is_half(X: Any) -> bool:
    """Whether X is a NumPy array of half precision: float16, or bfloat16 (of the package ml_dtypes)."""
    return isinstance(X, np.ndarray) and X.dtype.name in ("float16", "bfloat16")


def namespace(array: Any) -> Any:
    """The functions of the library of an array, under the names of the array API standard.

    Raises
    ------
    ImportError
        If the array is one of PyTorch or CuPy, and neither array-api-compat nor scikit-learn's copy of it is installed.
    """
    if isinstance(array, np.ndarray):  # of NumPy 1 too, which has fewer of the names
        return np
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return _names(_library(array))(array)


@cache
def _names(library: str) -> Callable[[Any], Any]:
    """What gives the namespace of an array of PyTorch or CuPy; searched for once."""
    for name in ("array_api_compat", "sklearn.externals.array_api_compat"):
        try:
            found: Callable[[Any], Any] = import_module(name).array_namespace
        except ImportError:
            continue
        return found
    raise ImportError(
        f"an array of {library} needs the package array-api-compat, which is not installed: run pip install "
        "manyclass[arrays], or pass a NumPy array"
    )


def type_of(array: Any) -> str:
    """The name of the type of the numbers of an array of any library, such as "float32" or "bfloat16"."""
    return str(array.dtype).rpartition(".")[2]


def copied(array: Any) -> Any:
    """A copy of an array, in its library and on its device."""
    return namespace(array).asarray(array, copy=True) if is_foreign(array) else np.array(array)


def detached(array: Any) -> Any:
    """The same array without the record of operations that PyTorch keeps for gradients."""
    return array.detach() if _library(array) == "torch" else array


def as_type(array: Any, name: str) -> Any:
    """An array converted to the type of this name, on the same device; itself if it has this type."""
    if type_of(array) == name:
        return array
    if isinstance(array, np.ndarray):
        return array.astype(name)
    library = namespace(array)
    return library.astype(array, getattr(library, name))


def place(array: Array, other: Any, name: str | None = None) -> Any:
    """A copy of a NumPy array in the library and on the device of ``other``, of its own type or that of this name."""
    if isinstance(other, np.ndarray):
        return array.astype(name or array.dtype, order="C")
    library = namespace(other)
    on_device = {} if _library(other) == "cupy" else {"device": other.device}
    return library.asarray(np.ascontiguousarray(array), dtype=getattr(library, name or array.dtype.name), **on_device)


def entries(array: Any, columns: Any) -> Any:
    """``array[i, columns[i]]`` for each row i, (m, 1); ``columns`` are int64 numbers (m,) in its library."""
    library = namespace(array)
    if hasattr(library, "take_along_axis"):
        return library.take_along_axis(array, columns[:, None], axis=1)
    return library.sum(library.where(_mask(array, columns), array, library.zeros_like(array)), axis=1, keepdims=True)


def with_entries(array: Any, columns: Any, values: Any) -> Any:
    """``array`` with ``values`` (m, 1) at ``array[i, columns[i]]``; in place where its library can do that."""
    if _library(array) == "torch":
        return array.scatter_(1, columns[:, None], values)
    if _library(array) == "cupy":
        array[namespace(array).arange(len(columns)), columns] = values[:, 0]
        return array
    return namespace(array).where(_mask(array, columns), values, array)


def _mask(array: Any, columns: Any) -> Any:
    return (
        namespace(array).arange(array.shape[1], dtype=columns.dtype, device=array.device)[None, :] == columns[:, None]
    )


def in_parts(array: Any) -> tuple[Any, Any]:
    """Two arrays of float32 that sum to this one: its first 11 bits, which products in TF32 do not round, and the rest.

    By Veltkamp's splitting, for numbers below 1e34.
    """
    larger = array * 8193.0  # 2^13 + 1
    first = larger - (larger - array)
    return first, array - first


def has_short_products(array: Any) -> bool:
    """Whether `products` can be ``short``: PyTorch's, on an Nvidia GPU."""
    return _library(array) == "torch" and array.device.type == "cuda"


@contextmanager
def products(array: Any, *, short: bool) -> Iterator[None]:
    """Matrix products of float32 in TF32, with 10 bits of each factor's fraction, or in float32, whatever is set.

    Changes what PyTorch has set for the process, and restores it; of other arrays than those of `has_short_products`
    nothing is changed.
    """
    if not has_short_products(array):
        yield
        return
    setting = sys.modules["torch"].backends.cuda.matmul
    # PyTorch before 2.9 has the other one, which raises an error where both were used.
    name: str = "allow_tf32"
    value: bool | str = short
    if hasattr(setting, "fp32_precision"):
        name, value = "fp32_precision", "tf32" if short else "ieee"
    before = getattr(setting, name)
    setattr(setting, name, value)
    try:
        yield
    finally:
        setattr(setting, name, before)


def scores_there(X: Any, W: Array, intercept: Array) -> Array:
    """``X W + intercept`` as a NumPy array, of the type of W, computed where the rows X are, some at a time."""
    there = place(W, X), place(intercept, X)
    size = max(1, _SCORES // max(W.shape))
    parts = (as_type(detached(X[begin:end, :]), W.dtype.name) for begin, end in ranges(int(X.shape[0]), size))
    return np.concatenate([to_numpy(part @ there[0] + there[1]) for part in parts])


def widest(array: Any, name: str) -> str:
    """The type in which sums are computed where an array lives: "float64", or ``name`` if the device has no such."""
    try:
        place(np.zeros(1), array, "float64")
    except (RuntimeError, TypeError, ValueError):
        return name
    return "float64"


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

    But half precision becomes float32: scikit-learn's checks would make it float64, with twice the bytes.
    """
    found = to_numpy(array) if is_foreign(array) else array
    return found.astype(np.float32) if is_half(found) else found


def like(array: Array, other: Any) -> Any:
    """A NumPy array converted to library, dtype and device of ``other``."""
    if isinstance(other, np.ndarray):
        return array.astype(other.dtype, copy=False)
    library = other.__array_namespace__() if hasattr(other, "__array_namespace__") else sys.modules[_library(other)]
    on_device = {} if _library(other) == "cupy" else {"device": other.device}
    return library.asarray(np.ascontiguousarray(array), dtype=other.dtype, **on_device)


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

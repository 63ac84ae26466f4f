"""Mutations of arrays, by name: wrong ones must be refused, odd ones give the same result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

#: What the cases write; removed when the process ends.
FOLDER = tempfile.TemporaryDirectory(prefix="manyclass-hostile-")


def _put(X: Any, part: str, place: int, value: Any, dtype: Any = None) -> Any:
    array = getattr(X, part).astype(dtype or getattr(X, part).dtype)
    array[place] = value
    return _with(X, **{part: array})


def _with(X: Any, **arrays: Any) -> Any:
    found = X.copy()
    for name, array in arrays.items():
        setattr(found, name, array)
    return found


def frozen(X: Any) -> Any:
    found = X.copy()
    for array in (found.data, found.indices, found.indptr) if sp.issparse(found) else (found,):
        array.flags.writeable = False
    return found


def strided(array: Any) -> Any:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def _reversed_rows(X: Any) -> Any:
    """The entries of each row in descending order."""
    order = np.concatenate([np.arange(e - 1, b - 1, -1) for b, e in zip(X.indptr[:-1], X.indptr[1:])])
    return _with(X, data=X.data[order], indices=X.indices[order], has_sorted_indices=False)


def _one_buffer(X: Any) -> Any:
    """Data, indices and row pointers in one piece of memory."""
    parts = [X.data, X.indices, X.indptr]
    ends = np.cumsum([0, *(-(-part.nbytes // 8) * 8 for part in parts)])
    buffer = np.zeros(ends[-1], np.uint8)
    views = [buffer[b : b + p.nbytes].view(p.dtype) for b, p in zip(ends, parts)]
    for view, part in zip(views, parts):
        view[:] = part
    return _with(X, data=views[0], indices=views[1], indptr=views[2])


#: Of a CSR matrix: what must be refused.
WRONG_SPARSE: dict[str, Callable[[Any], Any]] = {
    "index of the width": lambda X: _put(X, "indices", 7, X.shape[1]),
    "index far out": lambda X: _put(X, "indices", -1, 2**30),
    "negative index": lambda X: _put(X, "indices", 0, -1),
    "index beyond int32": lambda X: _put(X, "indices", 7, 2**32 + 1, np.int64),
    "negative row pointer": lambda X: _put(X, "indptr", 3, -7),
    "decreasing row pointers": lambda X: _put(X, "indptr", 3, int(X.indptr[5]) + 1),
    "first row pointer": lambda X: _put(X, "indptr", 0, 1),
    "last row pointer": lambda X: _put(X, "indptr", -1, int(X.indptr[-1]) + 5),
    "row pointer beyond int32": lambda X: _put(X, "indptr", 4, 2**33, np.int64),
    "row pointers one short": lambda X: _with(X, indptr=X.indptr[:-1].copy()),
    "row pointers one long": lambda X: _with(X, indptr=np.append(X.indptr, X.indptr[-1])),
    "no row pointers": lambda X: _with(X, indptr=X.indptr[:0]),
    "row pointers of two dimensions": lambda X: _with(X, indptr=X.indptr[None, :]),
    "data one short": lambda X: _with(X, data=X.data[:-1].copy()),
    "indices one short": lambda X: _with(X, indices=X.indices[:-1].copy()),
    "indices of two dimensions": lambda X: _with(X, indices=X.indices[:, None]),
    "indices of floats": lambda X: _with(X, indices=X.indices.astype(float)),
    "row pointers of floats": lambda X: _with(X, indptr=X.indptr.astype(float)),
    "data as text": lambda X: _with(X, data=X.data.astype(str)),
    "NaN": lambda X: _put(X, "data", 5, np.nan),
    "infinity": lambda X: _put(X, "data", -1, -np.inf),
}
#: Of a CSR matrix: what is odd, but must give the same result.
ODD_SPARSE: dict[str, Callable[[Any], Any]] = {
    "read-only": frozen,
    "64-bit indices": lambda X: _with(X, indices=X.indices.astype(np.int64), indptr=X.indptr.astype(np.int64)),
    "64-bit row pointers": lambda X: _with(X, indptr=X.indptr.astype(np.int64)),
    "strided": lambda X: _with(X, data=strided(X.data), indices=strided(X.indices), indptr=strided(X.indptr)),
    "descending": _reversed_rows,
    "one buffer": _one_buffer,
    "spare room": lambda X: _with(X, data=np.append(X.data, 0.0), indices=np.append(X.indices, np.int32(10**6))),
}
#: Of a float array of one or two dimensions.
WRONG_FLOATS: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda a: replaced(a, np.nan),
    "infinity": lambda a: replaced(a, np.inf),
    "one long": lambda a: np.concatenate([a, a[:1]]),
    "one short": lambda a: a[:-1].copy(),
    "three dimensions": lambda a: a.reshape(1, 1, -1),
    "text": lambda a: np.full(a.shape, "a"),
}
ODD_FLOATS: dict[str, Callable[[Any], Any]] = {
    "read-only": frozen,
    "strided": strided,
    "column-major": lambda a: np.asfortranarray(a),
}
#: Of an array of integers.
WRONG_INTEGERS: dict[str, Callable[[Any], Any]] = {
    "negative": lambda a: replaced(a, -7),
    "far out": lambda a: replaced(a, 2**31),
    "beyond int32": lambda a: replaced(a, 2**40),
    "one long": lambda a: np.concatenate([a, a[:1]]),
    "one short": lambda a: a[:-1].copy(),
    "floats": lambda a: a + 0.5,
    "two dimensions": lambda a: np.stack([a, a, a]),
}
ODD_INTEGERS: dict[str, Callable[[Any], Any]] = {
    "read-only": frozen,
    "strided": strided,
    "16 bits": lambda a: a.astype(np.int16),
    "unsigned": lambda a: a.astype(np.uint64),
}
#: Of class labels: any integer is one.
WRONG_LABELS = {name: WRONG_INTEGERS[name] for name in ("one long", "one short", "two dimensions")}
ODD_LABELS = {name: ODD_INTEGERS[name] for name in ("read-only", "strided", "16 bits")}
ODD_INDICATORS = {name: ODD_SPARSE[name] for name in ("read-only", "64-bit indices", "descending", "one buffer")}


def replaced(array: Any, value: Any) -> Any:
    found = array.astype(np.int64) if isinstance(value, int) else array.copy()
    found[(2,) * array.ndim] = value
    return found


def without(changes: dict[str, Callable[[Any], Any]], *names: str) -> dict[str, Callable[[Any], Any]]:
    return {name: change for name, change in changes.items() if name not in names}


class Input(NamedTuple):
    """A valid argument, the mutations of it that must be refused, and those that must not matter."""

    value: Any
    wrong: dict[str, Callable[[Any], Any]]
    odd: dict[str, Callable[[Any], Any]]


def sparse(value: Any) -> Input:
    """A CSR matrix."""
    return Input(value, WRONG_SPARSE, ODD_SPARSE)


def few(value: Any) -> Input:
    """A CSR matrix that is checked where others are that have all mutations."""
    names = ("index of the width", "negative index", "decreasing row pointers", "indices of floats", "NaN")
    return Input(value, {name: WRONG_SPARSE[name] for name in names}, {"64-bit indices": ODD_SPARSE["64-bit indices"]})


def floats(value: Any, *, rows: bool = True, **wrong: Callable[[Any], Any]) -> Input:
    """Numbers. ``rows``: whether another number of them is wrong."""
    kept = {name: change for name, change in WRONG_FLOATS.items() if rows or not name.startswith("one ")}
    return Input(value, {**kept, **wrong}, ODD_FLOATS)


def integers(value: Any) -> Input:
    """Integers within a range."""
    return Input(value, WRONG_INTEGERS, ODD_INTEGERS)

"""Data sets in memory: raw files are vectorized once and kept in benchmarks/cache, under a key of their content.

Only NumPy and SciPy are imported here, so that a peer's own environment can read what this one has prepared.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks import modules

__all__ = [
    "Data",
    "Missing",
    "Split",
    "compact",
    "default_folder",
    "encode",
    "locate",
    "read",
    "sample",
    "shrink",
    "validation",
]

CACHE = Path(__file__).parent / "cache"

#: Rows that are left of a data set by --quick.
QUICK_ROWS = 1200


class Missing(RuntimeError):
    """Raw files that are not there; the message says how to get them."""


class Split(NamedTuple):
    """What a file of `benchmarks.datasets` builds: training and test rows; y holds class numbers, or is 0/1 CSR."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


@dataclass(frozen=True)
class Data:
    """A data set, ready to fit.

    Attributes
    ----------
    name : str
    X, X_test : CSR matrix or 2-D array
    y, y_test : ndarray of int64, or CSR indicator of a multi-label problem
        The classes of test rows that training never saw have the numbers -1, -2, ...
    """

    name: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @property
    def multilabel(self) -> bool:
        return bool(sp.issparse(self.y))

    @property
    def n_classes(self) -> int:
        return int(self.y.shape[1]) if self.multilabel else int(self.y.max()) + 1

    @property
    def facts(self) -> dict[str, Any]:
        """Its sizes, as they go into every row of a result."""
        return {
            "data": self.name,
            "n": self.n,
            "d": int(self.X.shape[1]),
            "K": self.n_classes,
            "nnz": int(self.X.nnz) if sp.issparse(self.X) else int(self.X.size),
            "n_test": int(self.X_test.shape[0]),
        }

    def cast(self, dtype: str) -> Data:
        """The same with the values of X in ``dtype``."""
        return replace(self, X=self.X.astype(dtype, copy=False), X_test=self.X_test.astype(dtype, copy=False))


def default_folder() -> Path:
    """Where raw files are looked for: $MANYCLASS_DATA, else ../shared/data."""
    return Path(os.environ.get("MANYCLASS_DATA") or Path("..") / "shared" / "data")


def locate(name: str, folder: Path) -> Path:
    """The cache file of the data set ``name`` or ``name/variant``, built first where it is not there.

    Raises
    ------
    Missing
        If raw files are needed and are not in ``folder``.
    benchmarks.modules.Unknown
        If there is no such data set.
    """
    base, _, variant = name.partition("/")
    module = modules.module("datasets", base)
    variants = getattr(module, "VARIANTS", ("",))
    variant = variant or variants[0]
    if variant not in variants:
        raise modules.Unknown(f"there is no {name!r}; {base} comes as {', '.join(f'{base}/{v}' for v in variants)}")
    raw = [folder / file for file in module.FILES]
    absent = [file for file in module.FILES if not (folder / file).is_file()]
    if absent:
        raise Missing(
            f"{', '.join(absent)} not found in the data folder; {module.SOURCE}. Name the folder with --data-dir or "
            "the environment variable MANYCLASS_DATA"
        )
    digest = hashlib.sha256(variant.encode())
    for path in [
        Path(__file__),
        *sorted(Path(module.__file__ or "").parent.glob("_*.py")),
        Path(module.__file__ or ""),
        *getattr(module, "sources", list)(),
        *raw,
    ]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    target = CACHE / f"{base}{'-' + variant if variant else ''}-{digest.hexdigest()[:16]}.npz"
    if not target.exists():
        _write(target, module.build(folder, variant))
    return target


def read(path: Path, name: str, *, quick: bool = False) -> Data:
    """The data set kept in a cache file, shrunk if it is only to show that an experiment works."""
    with np.load(path, allow_pickle=False) as arrays:
        parts = {part: _unpack(arrays, part) for part in Split._fields}
    data = Data(name, **parts)
    return shrink(data, QUICK_ROWS) if quick else data


def shrink(data: Data, rows: int) -> Data:
    """About ``rows`` training rows: those of classes drawn at random, so that many classes stay many rows each.

    Columns that are empty then are left out.
    """
    if data.n <= rows:
        return data
    rng = np.random.default_rng(0)
    if data.multilabel or data.n_classes * 10 <= rows:
        kept, kept_test = (np.sort(rng.permutation(m)[:rows]) for m in (data.n, data.X_test.shape[0]))
        y, y_test = data.y[kept], data.y_test[kept_test]
        if data.multilabel:
            y, y_test = compact(y, y_test)
    else:
        order = rng.permutation(data.n_classes)
        sizes = np.bincount(data.y, minlength=data.n_classes)[order]
        classes = order[: max(3, int(np.searchsorted(np.cumsum(sizes), rows, side="right")))]
        kept, kept_test = (np.flatnonzero(np.isin(labels, classes)) for labels in (data.y, data.y_test))
        y, y_test = data.y[kept], data.y_test[kept_test]
    if not data.multilabel:
        y, y_test = encode(y, y_test)
    X, X_test = compact(data.X[kept], data.X_test[kept_test])
    return Data(data.name + " (quick)", X, y, X_test, y_test)


def sample(data: Data, rows: int) -> Data:
    """At most ``rows`` training rows, drawn at random, and the test rows of their classes; the columns stay."""
    if data.n <= rows:
        return data
    kept = np.sort(np.random.default_rng(0).permutation(data.n)[:rows])
    kept_test = np.flatnonzero(np.isin(data.y_test, data.y[kept]))
    y, y_test = encode(data.y[kept], data.y_test[kept_test])
    return Data(data.name, data.X[kept], y, data.X_test[kept_test], y_test)


def validation(data: Data, share: float = 0.2, group: int = 1, seed: int = 0) -> Data:
    """The same with a part of the training rows in the place of the test rows; the test rows are gone.

    Drawn class by class, so that every class keeps at least half of its rows for training. ``group`` rows in succession
    belong together (two texts of one thing, of one class) and stay together.
    """
    if data.multilabel or data.n % group:
        raise ValueError(f"expected one class a row and rows in groups of {group}, got {data.n} rows")
    rng = np.random.default_rng(seed)
    y = data.y[::group]
    # In random order within each class; of the groups of a class the first so many are held out, rounded at random.
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    sizes = np.bincount(y, minlength=data.n_classes)
    wanted = np.minimum(np.floor(share * sizes + rng.random(len(sizes))), sizes // 2).astype(np.int64)
    place = np.arange(len(y)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    out = np.zeros(len(y), bool)
    out[order[place < np.repeat(wanted, sizes)]] = True
    held = np.repeat(out, group)
    return Data(data.name, data.X[~held], data.y[~held], data.X[held], data.y[held])


def compact(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Both without the columns that are empty in X."""
    if not sp.issparse(X):
        return X, X_test
    used = np.unique(X.indices)
    return X[:, used].tocsr(), X_test[:, used].tocsr()


def encode(train: Any, test: Any) -> tuple[Any, Any]:
    """Labels as numbers 0 .. K - 1 in the order of their names; -1, -2, ... for those that training never saw."""
    classes, y = np.unique(train, return_inverse=True)
    names, which = np.unique(test, return_inverse=True)
    place = np.minimum(np.searchsorted(classes, names), len(classes) - 1)
    unseen = classes[place] != names
    place[unseen] = -1 - np.arange(unseen.sum())
    return y.astype(np.int64), place[which].astype(np.int64)


def _write(target: Path, split: Split) -> None:
    arrays: dict[str, Any] = {}
    for name, part in split._asdict().items():
        if sp.issparse(part):
            part.sort_indices()
            arrays |= {f"{name}.{field}": getattr(part, field) for field in ("data", "indices", "indptr")}
            arrays[f"{name}.shape"] = np.asarray(part.shape)
        else:
            arrays[name] = np.ascontiguousarray(part)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as handle:
        np.savez(handle, **arrays)
    os.replace(temporary, target)


def _unpack(arrays: Any, name: str) -> Any:
    if name in arrays:
        return arrays[name]
    data, indices, indptr = (arrays[f"{name}.{field}"] for field in ("data", "indices", "indptr"))
    return sp.csr_matrix((data, indices, indptr), shape=tuple(arrays[f"{name}.shape"]))

"""Writes row stores piece by piece; at most one shard is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, issparse

from manyclass.io._csr import row_pointers, row_ranges
from manyclass.io.dataset import Dataset
from manyclass.io.folder import write_manifest
from manyclass.io.labels import Targets
from manyclass.io.streams import StrPath
from manyclass.io.tensors import TensorFile, Written, write_arrays
from manyclass.kernels.rows import check_sparse
from manyclass.runtime.files import FolderWriter

from .rows import FACTS, ROWS
from .targets import GatheredTargets, split_targets

__all__ = ["SHARD_BYTES", "RowStoreWriter", "write_store"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Size of a shard: large enough for sequential reads at the speed of the disk, small enough for memory.
SHARD_BYTES = 1 << 28


class _Done(NamedTuple):
    """A shard on disk."""

    begin: int
    end: int
    stored: int
    file: Written


class RowStoreWriter(FolderWriter):
    """Writes a row store piece by piece. A context manager: the folder appears when the block ends without an error.

    Parameters
    ----------
    path : str or path
        The folder to create; it must not exist.
    n_features : int, default=None
        The number of columns; by default that of the widest piece.
    shard_rows : int >= 1, default=None
        Maximum number of rows of a shard; None: no limit but ``shard_bytes``.
    shard_bytes : int >= 1, default=2**28
        Approximate maximum size of a shard in bytes, and of the memory used for writing.

    Raises
    ------
    ValueError
        If ``path`` exists, or a limit is below 1.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from manyclass.io.store import RowStore, RowStoreWriter
    >>> path = os.path.join(tempfile.mkdtemp(), "made.store")
    >>> with RowStoreWriter(path, shard_rows=100) as writer:
    ...     for piece in range(3):
    ...         writer.add(np.full((60, 2), piece, np.float32), np.full(60, piece))
    >>> RowStore(path).shape, RowStore(path).n_shards
    ((180, 2), 2)
    """

    def __init__(
        self,
        path: StrPath,
        *,
        n_features: int | None = None,
        shard_rows: int | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        for name, limit in (("shard_rows", shard_rows), ("shard_bytes", shard_bytes)):
            if limit is not None and limit < 1:
                raise ValueError(f"{name} must be at least 1, got {limit!r}")
        super().__init__(path)
        self._n_features = n_features
        self._shard_rows = shard_rows or np.iinfo(np.int64).max
        self._shard_bytes = shard_bytes
        self._facts: dict[str, Any] = {
            "source": "", "source_format": "", "notes": [], "zero_based": None, "vectorizer": None,
            "table": None,
        }  # fmt: skip
        self._named: dict[str, Array] = {}
        self.reset()

    def reset(self) -> None:
        """Remove all rows, because the reader starts again."""
        self._waiting: list[dict[str, Array]] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._done: list[_Done] = []
        self._layout: str | None = None
        self._width = 0
        self._dtypes: set[np.dtype[Any]] = set()
        self._index_dtypes: set[np.dtype[Any]] = set()
        self._canonical = True
        self._targets = GatheredTargets()
        for file in self._folder.iterdir() if hasattr(self, "_folder") else ():
            file.unlink()

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(self, X: Any, y: Any = None, weights: Any = None) -> None:
        """Add rows.

        Parameters
        ----------
        X : CSR matrix or ndarray of shape (n, n_features)
            The features: float32 or float64, sparse in all calls or dense in all. A memory map is read in pieces.
        y : ndarray or CSR matrix, default=None
            Classes (integers or strings), numbers of a regression (floats) or a 0/1 indicator matrix; in all calls or
            in none.
        weights : ndarray of shape (n,), default=None
            Sample weights, >= 0; in all calls or in none.

        Raises
        ------
        ValueError
            If the rows differ in kind from those before, or the shapes do not fit.
        """
        check_sparse(X)
        layout = "csr" if issparse(X) else "dense"
        if X.ndim != 2 or X.dtype not in (np.float32, np.float64) or (layout == "csr" and X.format != "csr"):
            raise ValueError(
                f"X must be a CSR matrix or a 2-d array of float32 or float64, got {type(X).__name__} of {X.dtype} and "
                f"shape {X.shape}"
            )
        if self._layout not in (None, layout):
            raise ValueError(f"X is {layout}; expected {self._layout}, as the rows before are: convert it")
        if layout == "dense" and self._layout is not None and X.shape[1] != self._width:
            raise ValueError(f"X has {X.shape[1]} features; expected {self._width}, as the rows before have")
        self._targets.add(y, weights, X.shape[0])
        self._layout = layout
        self._width = max(self._width, X.shape[1])
        if layout == "dense":
            step = max(1, min(self._shard_bytes, 1 << 24) // max(1, X.shape[1] * X.dtype.itemsize))
            for begin in range(0, X.shape[0], step):
                self._gather({"x": np.array(X[begin : begin + step], order="C")})
        else:
            self._canonical = self._canonical and bool(X.has_canonical_format)
            for begin, end in self._csr_pieces(X.indptr):
                at = slice(X.indptr[begin], X.indptr[end])
                lengths = np.diff(X.indptr[begin : end + 1]).astype(np.int64)
                self._gather({"data": X.data[at].copy(), "indices": X.indices[at].copy(), "lengths": lengths})

    def add_csr(self, data: Array, indices: Array, lengths: Array) -> None:
        """Add CSR rows without targets; the arrays must not change until their shard is written."""
        self._layout = "csr"
        indptr = row_pointers(lengths)
        for begin, end in self._csr_pieces(indptr):
            at = slice(indptr[begin], indptr[end])
            self._gather({"data": data[at], "indices": indices[at], "lengths": np.diff(indptr[begin : end + 1])})

    def describe(self, data: Dataset) -> None:
        """Store the facts about a data set besides its rows and targets."""
        self._facts.update(
            source=data.source,
            source_format=data.format,
            notes=list(data.notes),
            zero_based=data.zero_based,
            table=None if data.layout is None else data.layout.to_dict(),
        )
        if data.vectorizer is not None:
            parameters, arrays = data.vectorizer.to_state()
            self._facts["vectorizer"] = parameters
            self._named.update({f"vectorizer.{name}": array for name, array in arrays.items()})

    def name_features(self, names: Array) -> None:
        """Store the names of the features."""
        self._named["feature_names"] = np.asarray(names, dtype=np.str_)

    def set_targets(self, targets: Targets) -> None:
        """Set the targets of all rows, in place of those given with the rows; sample weights stay."""
        weights, self._targets = self._targets.weights, GatheredTargets.whole(targets)
        self._targets.weights = weights

    def set_width(self, n_features: int) -> None:
        """Set the number of features."""
        self._n_features = n_features

    def rewrite(self, change: Callable[[dict[str, Array]], None]) -> None:
        """Apply ``change``, which modifies arrays in place, to every shard so far, one at a time."""
        for place, shard in enumerate(self._done):
            path = self._folder / shard.file.file
            with TensorFile(path, ROWS) as file:
                arrays = {name: file.read(name) for name in file.names}
            change(arrays)
            self._done[place] = shard._replace(file=write_arrays(path, ROWS, arrays))
        for arrays in self._waiting:
            change(arrays)

    # --- shards -----------------------------------------------------------------------------------------------------

    def _csr_pieces(self, indptr: Array) -> Iterator[tuple[int, int]]:
        """Ranges of rows of at most a quarter of a shard."""
        return row_ranges(indptr, max(1, self._shard_bytes // 48))

    def _gather(self, arrays: dict[str, Array]) -> None:
        """Add rows to the shard in memory, and write it when it is full."""
        rows = len(arrays["x" if "x" in arrays else "lengths"])
        begin = 0
        while rows - begin > self._shard_rows - self._waiting_rows:
            end = begin + self._shard_rows - self._waiting_rows
            self._wait(_part(arrays, begin, end), end - begin)
            self._flush()
            begin = end
        if rows > begin:
            part = arrays if begin == 0 else _part(arrays, begin, rows)
            size = sum(array.nbytes for array in part.values())
            if self._waiting_rows and self._waiting_bytes + size > self._shard_bytes:
                self._flush()
            self._wait(part, rows - begin)

    def _wait(self, arrays: dict[str, Array], rows: int) -> None:
        self._waiting.append(arrays)
        self._waiting_rows += rows
        self._waiting_bytes += sum(array.nbytes for array in arrays.values())

    def _flush(self) -> None:
        """Write the rows in memory as a shard."""
        if not self._waiting_rows:
            return
        waiting, rows = self._waiting, self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if self._layout == "dense":
            arrays: dict[str, Any] = {"x": _of_one_type([part["x"] for part in waiting])}
            stored = sum(part["x"].size for part in waiting)
            self._dtypes.add(arrays["x"][0].dtype)
        else:
            indptr = row_pointers(np.concatenate([part["lengths"] for part in waiting]))
            arrays = {
                "indptr": indptr,
                "data": _of_one_type([part["data"] for part in waiting]),
                "indices": _of_one_type([part["indices"] for part in waiting]),
            }
            stored = int(indptr[-1])
            self._dtypes.add(arrays["data"][0].dtype)
            self._index_dtypes.add(arrays["indices"][0].dtype)
        begin = self._done[-1].end if self._done else 0
        path = self._folder / f"rows-{len(self._done):05d}.safetensors"
        self._done.append(_Done(begin, begin + rows, stored, write_arrays(path, ROWS, arrays)))

    def finish(self) -> None:
        """Write the last shard, the targets and the manifest."""
        self._flush()
        if not self._done:
            raise ValueError(f"{self._path}: there are no rows to write; expected at least one: call add first")
        n = self._done[-1].end
        targets = self._targets.finish(n)
        width = self._width if self._n_features is None else self._n_features
        if self._layout == "dense" and width != self._width:
            raise ValueError(f"n_features is {width}; expected {self._width}, as the rows have")
        if targets.classes is not None:
            self._named["classes"] = targets.classes
        names = self._named.get("feature_names")
        if names is not None and names.shape != (width,):
            raise ValueError(f"feature_names has {len(names)} names; expected {width}, one for each feature")
        facts = None
        if self._named:
            facts = write_arrays(self._folder / FACTS, ROWS, self._named)._asdict()
        shards = []
        for number, shard in enumerate(self._done):
            beside = None
            arrays = split_targets(targets, shard.begin, shard.end)
            if arrays:
                beside = write_arrays(self._folder / f"targets-{number:05d}.safetensors", ROWS, arrays)._asdict()
            shards.append(
                {
                    "rows": [shard.begin, shard.end],
                    "stored": shard.stored,
                    "data": shard.file._asdict(),
                    "targets": beside,
                }
            )
        write_manifest(
            self._folder,
            ROWS.format,
            ROWS.version,
            {
                "shape": [n, int(width)],
                "layout": self._layout,
                "dtype": _widest(self._dtypes, np.float32).name,
                "index_dtype": _widest(self._index_dtypes, np.int32).name,
                "stored": sum(shard.stored for shard in self._done),
                "canonical": self._canonical,
                "targets": {"kind": targets.kind, "n_outputs": targets.n_outputs},
                "weighted": targets.weights is not None,
                **self._facts,
                "facts": facts,
                "shards": shards,
            },
        )


def _part(arrays: dict[str, Array], begin: int, end: int) -> dict[str, Array]:
    """Return a range of the rows."""
    if "x" in arrays:
        return {"x": arrays["x"][begin:end]}
    lengths = arrays["lengths"]
    low, high = int(lengths[:begin].sum()), int(lengths[:end].sum())
    return {"data": arrays["data"][low:high], "indices": arrays["indices"][low:high], "lengths": lengths[begin:end]}


def _widest(dtypes: set[np.dtype[Any]], usual: Any) -> np.dtype[Any]:
    return max(dtypes, key=lambda dtype: dtype.itemsize, default=np.dtype(usual))


def _of_one_type(pieces: list[Array]) -> list[Array]:
    widest = _widest({piece.dtype for piece in pieces}, np.float32)
    return [piece.astype(widest, copy=False) for piece in pieces]


def write_store(
    path: StrPath,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    label_names: Any = None,
    feature_names: Any = None,
    shard_rows: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write arrays as a row store, one shard at a time.

    Parameters
    ----------
    path : str or path
        The folder to create; it must not exist.
    X : CSR matrix or ndarray of shape (n_samples, n_features)
        The features: float32 or float64; may be memory-mapped.
    y : ndarray or CSR matrix, default=None
        Classes (integers or strings), numbers of a regression (floats) or a 0/1 indicator matrix.
    sample_weight : ndarray of shape (n_samples,), default=None
        Sample weights, >= 0.
    label_names : ndarray of shape (n_labels,), default=None
        The labels of the columns of an indicator matrix; by default their indices.
    feature_names : sequence of str, default=None
        The names of the features.
    shard_rows, shard_bytes
        See `RowStoreWriter`.

    Raises
    ------
    ValueError
        If ``path`` exists, or the arrays do not fit each other.
    """
    with RowStoreWriter(path, n_features=X.shape[1], shard_rows=shard_rows, shard_bytes=shard_bytes) as writer:
        writer.add(X, None if label_names is not None else y, sample_weight)
        if label_names is not None:
            writer.set_targets(Targets(csr_matrix(y), np.asarray(label_names)))
        if feature_names is not None:
            writer.name_features(feature_names)

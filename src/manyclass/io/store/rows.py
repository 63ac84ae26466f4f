"""Reads row stores: rows on disk, in a folder of shards that are mapped window by window."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from manyclass.io._csr import make_csr
from manyclass.io._layout import TableLayout
from manyclass.io.dataset import Dataset
from manyclass.io.errors import DataFormatError
from manyclass.io.folder import StoreError, open_file, read_manifest, verify_files
from manyclass.io.streams import StrPath
from manyclass.io.tensors import Kind, TensorFile, Written
from manyclass.runtime import memory

from .view import RowView

if TYPE_CHECKING:
    from manyclass.io.encoder import TableEncoder
    from manyclass.io.text import TextVectorizer

__all__ = ["FACTS", "ROWS", "RowStore"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ROWS = Kind(
    "manyclass-rows",
    1,
    "file of a row store",
    "copy the folder again, or write it again",
    "copy the folder again, or write it again",
    StoreError,
)
#: The file with the classes, the names of features and the arrays of a vectorizer.
FACTS = "facts.safetensors"

_KINDS = ("none", "classes", "labels", "numbers")


class _Shard(NamedTuple):
    """The entry of a shard in the manifest."""

    number: int
    begin: int
    end: int
    stored: int
    rows: Written
    targets: Written | None


class RowStore:
    """A data set on disk, of which any range of rows can be memory-mapped.

    Opening reads the manifest and the classes. Rows are mapped on access and unmapped when the last array that refers
    to them is deleted; no file stays open in between.

    Parameters
    ----------
    path : str or path
        The folder.

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and features.
    layout : {"csr", "dense"}
        Whether rows are sparse or dense.
    dtype, index_dtype : dtype
        The type of the values, and of the column indices of CSR rows.
    n_stored : int
        The number of stored values.
    kind : {"none", "classes", "labels", "numbers"}
        The kind of targets: none, one class for each row, sets of labels, numbers of a regression.
    n_outputs : int
        The number of classes, of labels, or of numbers for each row; 0 without targets.
    classes : ndarray of shape (n_outputs,) or None
        The classes or labels, ascending; targets are their indices.
    notes : tuple of str
        As in `Dataset`.
    table : TableLayout or None
        How the table of texts was read from which the rows were computed.
    feature_names : ndarray of str or None
        The names of the features.

    Raises
    ------
    OSError
        If the folder does not exist.
    StoreError
        If the folder is of another kind, damaged, or written by a newer version; a ValueError.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from manyclass.io.store import RowStore, write_store
    >>> path = os.path.join(tempfile.mkdtemp(), "eye.store")
    >>> write_store(path, np.eye(5, dtype=np.float32), np.array(list("abcab")), shard_rows=2)
    >>> store = RowStore(path)
    >>> store.shape, store.n_shards, store.classes.tolist()
    ((5, 5), 3, ['a', 'b', 'c'])
    >>> [(window.begin, window.y.tolist()) for window in store.rows(1, 4).windows()]
    [(1, [1]), (2, [2, 0])]
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        facts = read_manifest(path, ROWS.format, ROWS.version, "a row store")
        try:
            self._read(facts)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(path, f"its manifest is damaged ({error!r}): write the store again") from error
        self._files: dict[str, TensorFile] = {}
        named = self._named("classes", "feature_names")
        self.classes, self.feature_names = named.get("classes"), named.get("feature_names")
        if self.classes is not None and self.classes.shape != (self.n_outputs,):
            what = f"has {len(self.classes)} classes, expected {self.n_outputs}: write the store again"
            raise StoreError(self.path / FACTS, what)

    def _read(self, facts: dict[str, Any]) -> None:
        n, d = (operator.index(size) for size in facts["shape"])
        self.shape = n, d
        self.layout = str(facts["layout"])
        self.dtype = np.dtype(facts["dtype"])
        self.index_dtype = np.dtype(facts["index_dtype"])
        self.n_stored = operator.index(facts["stored"])
        self.kind = str(facts["targets"]["kind"])
        self.n_outputs = operator.index(facts["targets"]["n_outputs"])
        self.weighted = bool(facts["weighted"])
        self.canonical = bool(facts["canonical"])
        self.zero_based: bool | None = facts["zero_based"]
        self.source, self.source_format = str(facts["source"]), str(facts["source_format"])
        self.notes = tuple(str(note) for note in facts["notes"])
        self._vectorizer: dict[str, Any] | None = facts["vectorizer"]
        table = facts.get("table")  # missing in stores of earlier versions
        self.table = None if table is None else TableLayout.from_dict(table)
        self._facts_written = None if facts["facts"] is None else Written(**facts["facts"])
        self._shards = [_shard(number, entry) for number, entry in enumerate(facts["shards"])]
        if self.layout not in ("csr", "dense") or self.kind not in _KINDS:
            raise ValueError(f"layout {self.layout!r}, targets {self.kind!r}")
        if self.dtype not in (np.float32, np.float64) or self.index_dtype not in (np.int32, np.int64):
            raise ValueError(f"values of {self.dtype}, indices of {self.index_dtype}")
        if not (0 <= n < 2**63 and 0 <= d < 2**63 and 0 <= self.n_outputs < 2**63):
            raise ValueError(f"shape {(n, d)}, {self.n_outputs} targets")
        bounds = [0, *(shard.end for shard in self._shards)]
        if bounds[-1] != n or any(s.begin != b or s.end <= b for s, b in zip(self._shards, bounds)):
            raise ValueError("the rows of its shards do not add up to those of the store")
        if sum(shard.stored for shard in self._shards) != self.n_stored:
            raise ValueError("the stored values of its shards do not add up to those of the store")
        if self.kind != "none" and any(shard.targets is None for shard in self._shards):
            raise ValueError(f"a shard without targets, expected {self.kind}")
        self._bounds = np.array(bounds, np.int64)

    def _named(self, *prefixes: str) -> dict[str, Array]:
        if self._facts_written is None:
            return {}
        with open_file(self.path / FACTS, ROWS) as file:
            return {name: file.read(name) for name in file.names if name.startswith(prefixes)}

    # --- facts ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowStore({str(self.path)!r})"

    @property
    def n_shards(self) -> int:
        """The number of shards."""
        return len(self._shards)

    @property
    def shard_bounds(self) -> tuple[int, ...]:
        """The first row of each shard, followed by the number of rows."""
        return tuple(self._bounds.tolist())

    @property
    def files(self) -> list[Written]:
        """All files that the manifest names, with their sizes and checksums."""
        found = [] if self._facts_written is None else [self._facts_written]
        for shard in self._shards:
            found.append(shard.rows)
            if shard.targets is not None:
                found.append(shard.targets)
        return found

    @property
    def nbytes(self) -> int:
        """Bytes on disk, without the manifest."""
        return sum(file.bytes for file in self.files)

    @property
    def vectorizer(self) -> TextVectorizer | TableEncoder | None:
        """The fitted vectorizer or encoder that computed the rows from a table, or None."""
        if self._vectorizer is None or self._facts_written is None:
            return None
        arrays = self._named("vectorizer.")
        from manyclass.io.encoder import restore_vectorizer  # imports scikit-learn

        state = {name.removeprefix("vectorizer."): array for name, array in arrays.items()}
        try:
            return restore_vectorizer(self._vectorizer, state)
        except ValueError as error:
            raise StoreError(self.path, f"is damaged ({error}): write it again") from error

    def verify(self) -> None:
        """Compare every file with its checksum; a StoreError names the first file that is missing or differs."""
        verify_files(self.path, self.files)

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, begin: int = 0, end: int | None = None) -> RowView:
        """Return a view of rows ``begin`` to ``end - 1`` without reading them; a ValueError if they do not exist."""
        end = len(self) if end is None else end
        if not 0 <= begin <= end <= len(self):
            raise ValueError(
                f"begin, end are {begin}, {end}; expected a range within 0 to {len(self)}, the rows of the store"
            )
        return RowView(self, begin, end)

    def parts(self, rank: int, size: int) -> RowView:
        """Return the rows of one of ``size`` ranks: consecutive rows, with about equal numbers of stored values.

        If there are at least as many shards as ranks, they are whole shards, so that a rank needs only their files.

        Raises
        ------
        ValueError
            If ``rank`` is not 0 to ``size - 1``.
        """
        if not 0 <= rank < size:
            raise ValueError(f"rank must be 0 to {size - 1} for size={size}, got {rank}")
        if self.n_shards < size:
            return self.rows(len(self) * rank // size, len(self) * (rank + 1) // size)
        before = np.concatenate([[0], np.cumsum([shard.stored + shard.end - shard.begin for shard in self._shards])])
        cuts = [0]
        for part in range(1, size):
            nearest = int(np.argmin(np.abs(before - before[-1] * part / size)))
            # At least one shard for each rank.
            cuts.append(min(max(nearest, cuts[-1] + 1), self.n_shards - size + part))
        cuts.append(self.n_shards)
        return self.rows(int(self._bounds[cuts[rank]]), int(self._bounds[cuts[rank + 1]]))

    def fit_width(self, n_features: int | None, *, ignore: bool = False) -> None:
        """Set the number of features to that of a model, by adding columns of zeros to sparse rows.

        Raises
        ------
        DataFormatError
            If the store has more features, unless ``ignore`` says that the caller will slice them off, or if dense rows
            have fewer.
        """
        width = self.shape[1]
        if n_features is None or n_features == width or (ignore and width > n_features):
            return
        if width > n_features or self.layout == "dense":
            raise DataFormatError(self.path, f"has {width} features; expected {n_features}")
        self.shape = self.shape[0], int(n_features)

    def dataset(self, *, mapped: bool = False, end: int | None = None, rows: RowView | None = None) -> Dataset:
        """Return the store as a `Dataset`: mapped if it has a single shard, else read into memory.

        Parameters
        ----------
        mapped : bool, default=False
            If True, its `X` is a `RowView`, which is not read.
        end : int, optional
            Number of rows, the first ones; None: all.
        rows : RowView, optional
            The rows, in place of the first ones.

        Raises
        ------
        MemoryError
            If it has to be read and does not fit in memory.
        """
        everything = self.rows(end=end) if rows is None else rows
        room = memory.available()
        size = self.nbytes * len(everything) // max(1, len(self))
        if self.n_shards > 1 and not mapped and end is None and room is not None and size > room:
            raise MemoryError(
                f"{self.path} takes {memory.human(size)} in memory, and {memory.human(room)} are available: use "
                "its windows (store.rows().windows()), or fit the store itself (solver='out_of_core')"
            )
        y: Any = everything.targets()
        if self.kind == "classes" and self.classes is not None:
            y = self.classes[y]
        return Dataset(
            X=everything if mapped else everything[:],
            y=y,
            label_names=self.classes if self.kind == "labels" else None,
            source=self.path.name,
            format="store",
            notes=self.notes,
            vectorizer=self.vectorizer,
            zero_based=self.zero_based if self.source_format == "svmlight" else None,
            layout=self.table,
        )

    # --- one shard --------------------------------------------------------------------------------------------------

    def shard_of(self, row: int) -> int:
        """Return the number of the shard of a row."""
        return int(np.searchsorted(self._bounds, row, side="right")) - 1

    def _file(self, file: Written) -> TensorFile:
        if file.file not in self._files:
            with open_file(self.path / file.file, ROWS) as opened:
                self._files[file.file] = opened
        return self._files[file.file]

    def row_ends(self, number: int) -> Array:
        """Return the row pointers of a CSR shard: int64, mapped."""
        shard = self._shards[number]
        file = self._file(shard.rows)
        if file.shape("indptr") != (shard.end - shard.begin + 1,):
            raise file.damaged(f"{file.shape('indptr')[0]} row pointers, expected {shard.end - shard.begin + 1}")
        return file.window("indptr")

    def rows_of(self, number: int, first: int, last: int) -> Any:
        """Map rows ``first`` to ``last - 1`` of a shard; a StoreError if their row pointers or columns are invalid."""
        shard = self._shards[number]
        file = self._file(shard.rows)
        d = self.shape[1]
        if self.layout == "dense":
            if file.shape("x") != (shard.end - shard.begin, d):
                raise file.damaged(f"rows of shape {file.shape('x')}, expected {(shard.end - shard.begin, d)}")
            found = file.window("x", first, last)
            return found if found.dtype == self.dtype else found.astype(self.dtype)
        bounds = self.row_ends(number)[first : last + 1]
        low, high = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
        fits = 0 <= low <= high <= min(file.shape("indices")[0], file.shape("data")[0])
        if not fits or np.any(bounds[1:] < bounds[:-1]):
            raise file.damaged("row pointers that decrease, or beyond the stored values")
        indices, data = file.window("indices", low, high), file.window("data", low, high)
        # As unsigned integers, negative indices are very large.
        if len(indices) and indices.view(f"u{indices.itemsize}").max() >= d:
            raise file.damaged(f"columns beyond {d}")
        return make_csr(
            data.astype(self.dtype, copy=False),
            indices.astype(self.index_dtype, copy=False),
            (bounds - low).astype(self.index_dtype),
            d,
            self.canonical,
        )

    def targets_of(self, number: int, first: int, last: int) -> tuple[Any, Array | None]:
        """Map the targets and the sample weights of rows ``first`` to ``last - 1`` of a shard."""
        shard = self._shards[number]
        if shard.targets is None:
            return None, None
        file = self._file(shard.targets)
        weights = file.window("weights", first, last) if self.weighted else None
        if self.kind == "none":
            return None, weights
        if self.kind != "labels":
            y = file.window("y", first, last)
            if len(y) and self.kind == "classes" and not 0 <= y.min() <= y.max() < self.n_outputs:
                raise file.damaged(f"classes beyond {self.n_outputs}")
            return y, weights
        bounds = file.window("indptr", first, last + 1)
        columns = file.window("indices", int(bounds[0]), int(bounds[-1]))
        if np.any(bounds[1:] < bounds[:-1]) or (
            len(columns) and not 0 <= columns.min() <= columns.max() < self.n_outputs
        ):
            raise file.damaged(f"labels beyond {self.n_outputs}")
        ones = np.ones(len(columns), np.int8)
        index = np.int32 if len(columns) <= np.iinfo(np.int32).max else np.int64
        return make_csr(ones, columns.astype(index), (bounds - bounds[0]).astype(index), self.n_outputs, True), weights


def _shard(number: int, entry: dict[str, Any]) -> _Shard:
    begin, end = (operator.index(row) for row in entry["rows"])
    targets = None if entry["targets"] is None else Written(**entry["targets"])
    return _Shard(number, begin, end, operator.index(entry["stored"]), Written(**entry["data"]), targets)

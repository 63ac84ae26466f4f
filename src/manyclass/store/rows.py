"""Rows on disk: a folder of shards that is mapped window by window."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from manyclass.data.dataset import Dataset
from manyclass.data.errors import DataFormatError
from manyclass.data.streams import StrPath
from manyclass.data.text import TextVectorizer

from .container import Container, Written, unpack_strings
from .errors import StoreError
from .folder import read_manifest, verify_files

__all__ = ["FACTS", "FORMAT", "VERSION", "RowStore", "RowView", "Window", "open_store"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FORMAT, VERSION = "manyclass-rows", 1
#: The file of what belongs to no shard: classes, names of features, the arrays of a vectoriser.
FACTS = "facts.safetensors"
#: Bytes of rows that are mapped at a time, where nobody says otherwise.
WINDOW_BYTES = 1 << 26

_KINDS = ("none", "classes", "labels", "numbers")


class Window(NamedTuple):
    """Some rows of a store, mapped.

    Attributes
    ----------
    begin, end : int
        Their numbers in the store.
    X : csr_matrix or ndarray of shape (end - begin, n_features)
        Read-only.
    y : ndarray or csr_matrix or None
        Numbers of classes (int32), a 0/1 indicator (int8 CSR) or numbers to predict (float64).
    weights : ndarray of shape (end - begin,) or None
        float64.
    """

    begin: int
    end: int
    X: Any
    y: Any
    weights: Array | None


class _Shard(NamedTuple):
    """What the manifest says of a shard."""

    number: int
    begin: int
    end: int
    stored: int
    rows: Written
    targets: Written | None


class RowStore:
    """A data set on disk, of which any range of rows can be mapped.

    Opening reads the manifest and the classes; rows are mapped when they are asked for and unmapped when the last
    array over them goes. Nothing is held open in between.

    Parameters
    ----------
    path : path
        The folder.

    Attributes
    ----------
    shape : tuple of int
        Rows and features.
    layout : {"csr", "dense"}
    dtype, index_dtype : dtype
        Of the values; of the column numbers of CSR rows.
    n_stored : int
        Stored values.
    kind : {"none", "classes", "labels", "numbers"}
        What the targets are: none, a class a row, sets of labels, numbers to predict.
    n_outputs : int
        Classes, labels or numbers of a row; 0 without targets.
    classes : ndarray of shape (n_outputs,) or None
        What the numbers of the classes (or labels) stand for, ascending.
    n_shards : int
    notes : tuple of str
    feature_names : ndarray of str or None

    Raises
    ------
    OSError
        If there is no such folder.
    StoreError
        A ValueError: if it is another kind of folder, is damaged, or was written by a newer version.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from manyclass.store import RowStore, write_store
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
        facts = read_manifest(path, FORMAT, VERSION, "a row store")
        try:
            self._read(facts)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(path, f"its manifest is damaged ({error!r}): write the store again") from error
        self._containers: dict[str, Container] = {}
        self._facts: Container | None = None
        if self._facts_written is not None:
            self._facts = Container(self.path / FACTS)
        self.classes = self._named("classes")
        self.feature_names = self._named("feature_names")
        if self.classes is not None and self.classes.shape != (self.n_outputs,):
            raise StoreError(self.path / FACTS, f"holds {len(self.classes)} classes, expected {self.n_outputs}")

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
        self._facts_written = None if facts["facts"] is None else Written(**facts["facts"])
        self._shards = [_shard(number, entry) for number, entry in enumerate(facts["shards"])]
        if self.layout not in ("csr", "dense") or self.kind not in _KINDS:
            raise ValueError(f"layout {self.layout!r}, targets {self.kind!r}")
        if self.dtype not in (np.float32, np.float64) or self.index_dtype not in (np.int32, np.int64):
            raise ValueError(f"values of {self.dtype}, indices of {self.index_dtype}")
        bounds = [0, *(shard.end for shard in self._shards)]
        if bounds[-1] != n or any(s.begin != b or s.end <= b for s, b in zip(self._shards, bounds)):
            raise ValueError("the rows of its shards do not add up")
        if sum(shard.stored for shard in self._shards) != self.n_stored:
            raise ValueError("the stored values of its shards do not add up")
        self._bounds = np.array(bounds, np.int64)

    def _named(self, name: str) -> Array | None:
        names = [] if self._facts is None else self._facts.names
        if self._facts is None or not {name, f"{name}:text"} & {*names}:
            return None
        return unpack_strings(self._facts, name)

    # --- what it is -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowStore({str(self.path)!r})"

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self._shards)

    @property
    def shard_bounds(self) -> tuple[int, ...]:
        """The first row of each shard, and the number of rows."""
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
    def vectorizer(self) -> TextVectorizer | None:
        """What turned the texts of a table into the rows."""
        if self._vectorizer is None or self._facts is None:
            return None
        names = {name.partition(":")[0] for name in self._facts.names}
        arrays = {
            name.removeprefix("vectorizer."): unpack_strings(self._facts, name)
            for name in sorted(names)
            if name.startswith("vectorizer.")
        }
        return TextVectorizer.from_state(self._vectorizer, arrays)

    def verify(self, progress: Callable[[str], None] | None = None) -> None:
        """Read every file and compare it with its checksum; ``progress`` is told each file that is right.

        Raises
        ------
        StoreError
            That names the first file which is missing, has another size or other content.
        """
        verify_files(self.path, self.files, progress)

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, begin: int = 0, end: int | None = None) -> RowView:
        """The rows ``begin`` to ``end - 1``, of which nothing is read yet; they may span shards.

        Raises
        ------
        ValueError
            If there are no such rows.
        """
        end = len(self) if end is None else end
        if not 0 <= begin <= end <= len(self):
            raise ValueError(f"rows {begin} to {end} are asked for; expected a range within 0 to {len(self)}")
        return RowView(self, begin, end)

    def parts(self, rank: int, size: int) -> RowView:
        """The rows of one of ``size`` ranks: neighbours, with about as many stored values as the others have.

        Whole shards, as soon as there are as many shards as ranks: a rank then needs no other files than its own.

        Raises
        ------
        ValueError
            If ``rank`` is not 0 to ``size`` - 1.
        """
        if not 0 <= rank < size:
            raise ValueError(f"rank must be 0 to {size - 1}, one of {size}, got {rank}")
        if self.n_shards < size:
            return self.rows(len(self) * rank // size, len(self) * (rank + 1) // size)
        before = np.concatenate([[0], np.cumsum([shard.stored + shard.end - shard.begin for shard in self._shards])])
        cuts = [0]
        for part in range(1, size):
            nearest = int(np.argmin(np.abs(before - before[-1] * part / size)))
            # One shard for each rank at least.
            cuts.append(min(max(nearest, cuts[-1] + 1), self.n_shards - size + part))
        cuts.append(self.n_shards)
        return self.rows(int(self._bounds[cuts[rank]]), int(self._bounds[cuts[rank + 1]]))

    def fit_width(self, n_features: int | None, *, ignore: bool = False) -> None:
        """Have the rows be as wide as a model needs them: sparse ones are filled up with zeros.

        Raises
        ------
        DataFormatError
            If there are more features (unless they are to be ignored, by slicing), or fewer in dense rows.
        """
        width = self.shape[1]
        if n_features is None or n_features == width or (ignore and width > n_features):
            return
        if width > n_features or self.layout == "dense":
            raise DataFormatError(self.path, f"{width} features; expected {n_features}")
        self.shape = self.shape[0], int(n_features)

    def dataset(self) -> Dataset:
        """The store as a `Dataset`: mapped if it is a single shard, else read into memory.

        Raises
        ------
        MemoryError
            If it would have to be read and there is no room for it.
        """
        from manyclass.memory import human, require

        everything = self.rows()
        if self.n_shards > 1:
            try:
                require({"rows": self.nbytes}, "")
            except MemoryError as error:
                raise MemoryError(
                    f"{self.path} takes {human(self.nbytes)} in memory, more than there is: use its windows "
                    "(store.rows().windows()), or the out-of-core fit (`manyclass fit --method blocks`)"
                ) from error
        y: Any = everything.targets()
        if self.kind == "classes" and self.classes is not None:
            y = self.classes[y]
        return Dataset(
            X=everything[:],
            y=y,
            label_names=self.classes if self.kind == "labels" else None,
            source=self.path.name,
            format="store",
            notes=self.notes,
            vectorizer=self.vectorizer,
            zero_based=self.zero_based if self.source_format == "svmlight" else None,
        )

    # --- one shard --------------------------------------------------------------------------------------------------

    def shard_of(self, row: int) -> int:
        """The number of the shard that holds a row."""
        return int(np.searchsorted(self._bounds, row, side="right")) - 1

    def _container(self, file: Written) -> Container:
        if file.file not in self._containers:
            self._containers[file.file] = Container(self.path / file.file)
        return self._containers[file.file]

    def row_ends(self, number: int) -> Array:
        """The row pointers of a CSR shard, int64, mapped."""
        shard = self._shards[number]
        file = self._container(shard.rows)
        if file.shape("indptr") != (shard.end - shard.begin + 1,):
            raise StoreError(file.path, f"the shard has {file.shape('indptr')} row pointers: write the store again")
        return file.window("indptr")

    def rows_of(self, number: int, first: int, last: int) -> Any:
        """Rows of one shard, counted within it, mapped; checked to lie within the shard and its columns.

        Raises
        ------
        StoreError
            If the shard is damaged.
        """
        shard = self._shards[number]
        file = self._container(shard.rows)
        d = self.shape[1]
        if self.layout == "dense":
            if file.shape("x") != (shard.end - shard.begin, d):
                raise StoreError(file.path, f"the shard has shape {file.shape('x')}: write the store again")
            found = file.window("x", first, last)
            return found if found.dtype == self.dtype else found.astype(self.dtype)
        bounds = self.row_ends(number)[first : last + 1]
        low, high = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
        fits = 0 <= low <= high <= min(file.shape("indices")[0], file.shape("data")[0])
        if not fits or np.any(bounds[1:] < bounds[:-1]):
            raise StoreError(file.path, "the shard is damaged (its row pointers do not rise): write the store again")
        indices, data = file.window("indices", low, high), file.window("data", low, high)
        # Seen as unsigned, a negative number is a very large one.
        if len(indices) and indices.view(f"u{indices.itemsize}").max() >= d:
            raise StoreError(file.path, f"the shard is damaged (columns beyond {d}): write the store again")
        return make_csr(
            data.astype(self.dtype, copy=False),
            indices.astype(self.index_dtype, copy=False),
            (bounds - low).astype(self.index_dtype),
            d,
            self.canonical,
        )

    def targets_of(self, number: int, first: int, last: int) -> tuple[Any, Array | None]:
        """Targets and weights of rows of one shard, counted within it."""
        shard = self._shards[number]
        if shard.targets is None:
            return None, None
        file = self._container(shard.targets)
        weights = file.window("weights", first, last) if self.weighted else None
        if self.kind == "none":
            return None, weights
        if self.kind != "labels":
            y = file.window("y", first, last)
            if len(y) and self.kind == "classes" and not 0 <= y.min() <= y.max() < self.n_outputs:
                raise StoreError(file.path, f"classes beyond the {self.n_outputs} there are: write the store again")
            return y, weights
        bounds = file.window("indptr", first, last + 1)
        columns = file.window("indices", int(bounds[0]), int(bounds[-1]))
        if np.any(bounds[1:] < bounds[:-1]) or (
            len(columns) and not 0 <= columns.min() <= columns.max() < self.n_outputs
        ):
            raise StoreError(file.path, f"labels beyond the {self.n_outputs} there are: write the store again")
        ones = np.ones(len(columns), np.int8)
        index = np.int32 if len(columns) <= np.iinfo(np.int32).max else np.int64
        return make_csr(ones, columns.astype(index), (bounds - bounds[0]).astype(index), self.n_outputs, True), weights


class RowView:
    """A range of the rows of a store. Slicing gives rows: mapped within a shard, joined in memory across shards.

    Attributes
    ----------
    store : RowStore
    begin, end : int
    shape : tuple of int
    dtype : dtype
    """

    ndim = 2

    def __init__(self, store: RowStore, begin: int, end: int) -> None:
        self.store = store
        self.begin, self.end = begin, end

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.end - self.begin, self.store.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        dtype: np.dtype[Any] = self.store.dtype
        return dtype

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, rows: slice) -> Any:
        """The features of a range of rows, counted from the first of this view."""
        pieces = [self.store.rows_of(*piece) for piece in self._pieces(*self._range(rows))]
        if len(pieces) == 1:
            return pieces[0]
        if self.store.layout == "dense":
            return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *pieces])
        return _stacked(pieces, self.store)

    def targets(self, rows: slice = slice(None)) -> Any:
        """The targets of a range of rows, as in `Window.y`."""
        found = [self.store.targets_of(*piece)[0] for piece in self._pieces(*self._range(rows))]
        if self.store.kind == "none" or len(found) == 1:
            return found[0] if found else None
        if self.store.kind != "labels":
            return np.concatenate(found) if found else np.empty(0)
        from scipy.sparse import vstack

        return (
            csr_matrix(vstack(found, format="csr")) if found else csr_matrix((0, self.store.n_outputs), dtype=np.int8)
        )

    def cuts(self, nbytes: int = WINDOW_BYTES) -> list[tuple[int, int]]:
        """Ranges of rows of the store, in order, of about ``nbytes`` bytes each and of one shard, one row at least."""
        return [
            (begin + self.store.shard_bounds[number], end + self.store.shard_bounds[number])
            for number, first, last in self._pieces(self.begin, self.end)
            for begin, end in self._cuts(number, first, last, nbytes)
        ]

    def window(self, begin: int, end: int) -> Window:
        """The rows ``begin`` to ``end - 1`` of the store, of one shard, mapped.

        Raises
        ------
        ValueError
            If they are not in this view, or not of one shard.
        """
        number = self.store.shard_of(begin)
        low = self.store.shard_bounds[number]
        if not self.begin <= begin < end <= min(self.end, self.store.shard_bounds[number + 1]):
            raise ValueError(f"rows {begin} to {end} are not a range of one shard within {self.begin} to {self.end}")
        X = self.store.rows_of(number, begin - low, end - low)
        return Window(begin, end, X, *self.store.targets_of(number, begin - low, end - low))

    def windows(self, nbytes: int = WINDOW_BYTES, order: Iterable[int] | None = None) -> Iterator[Window]:
        """The rows in windows of about ``nbytes`` bytes of one shard each; at most two are mapped at a time.

        The next window is mapped, and the system told to read it, before the caller works on this one.

        Parameters
        ----------
        nbytes : int
            Bytes of a window.
        order : iterable of int, optional
            Which of the `cuts` to take, and in which order; by default all as they come.
        """
        cuts = self.cuts(nbytes)
        ahead: Window | None = None
        for place in range(len(cuts)) if order is None else order:
            window = self.window(*cuts[place])
            if ahead is not None:
                yield ahead
            ahead = window
            del window
        if ahead is not None:
            yield ahead

    def _cuts(self, number: int, first: int, last: int, nbytes: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows of a shard, of about so many bytes; one row at least."""
        store = self.store
        if store.layout == "dense":
            step = max(1, nbytes // max(1, store.shape[1] * store.dtype.itemsize))
            for begin in range(first, last, step):
                yield begin, min(begin + step, last)
            return
        ends = store.row_ends(number)
        room = max(1, nbytes // (store.dtype.itemsize + store.index_dtype.itemsize))
        while first < last:
            end = int(np.searchsorted(ends[first : last + 1], ends[first] + room, side="right")) - 1 + first
            end = min(max(end, first + 1), last, first + room)
            yield first, end
            first = end

    def _range(self, rows: slice) -> tuple[int, int]:
        if not isinstance(rows, slice):
            raise TypeError(f"rows of a store are taken by ranges, view[begin:end], got {rows!r}")
        begin, end, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows of a store are taken one after the other, got steps of {step}")
        return self.begin + begin, self.begin + max(begin, end)

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Number of a shard, and the range of its rows."""
        bounds = self.store.shard_bounds
        while begin < end:
            number = self.store.shard_of(begin)
            stop = min(end, bounds[number + 1])
            yield number, begin - bounds[number], stop - bounds[number]
            begin = stop


def open_store(path: StrPath) -> RowStore:
    """Open a row store; the same as `RowStore`."""
    return RowStore(path)


def make_csr(data: Array, indices: Array, indptr: Array, width: int, canonical: bool) -> Any:
    """A CSR matrix of these very arrays. (SciPy's constructor looks through the indices, and may convert them.)"""
    matrix = csr_matrix((len(indptr) - 1, width), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    if canonical:
        matrix.has_sorted_indices = True
        matrix.has_canonical_format = True
    return matrix


def _stacked(pieces: list[Any], store: RowStore) -> Any:
    """CSR matrices, one below the other, copied once."""
    nnz = sum(len(piece.data) for piece in pieces)
    data, indices = np.empty(nnz, store.dtype), np.empty(nnz, store.index_dtype)
    wide = store.index_dtype if nnz <= np.iinfo(store.index_dtype).max else np.dtype(np.int64)
    indptr = np.zeros(sum(piece.shape[0] for piece in pieces) + 1, wide)
    row = at = 0
    for piece in pieces:
        indptr[row + 1 : row + 1 + piece.shape[0]] = piece.indptr[1:].astype(wide) + at
        data[at : at + len(piece.data)] = piece.data
        indices[at : at + len(piece.data)] = piece.indices
        row += piece.shape[0]
        at += len(piece.data)
    return make_csr(data, indices.astype(wide, copy=False), indptr, store.shape[1], store.canonical)


def _shard(number: int, entry: dict[str, Any]) -> _Shard:
    begin, end = (operator.index(row) for row in entry["rows"])
    targets = None if entry["targets"] is None else Written(**entry["targets"])
    return _Shard(number, begin, end, operator.index(entry["stored"]), Written(**entry["data"]), targets)

"""Reads and writes NumPy and SciPy files, with the labels in a file next to that of the features."""

from __future__ import annotations

import errno
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.sparse import csr_matrix, issparse

from manyclass.kernels.rows import check_sparse, make_rows
from manyclass.kernels.scoring import row_fault

from ._archives import check_indices, check_sizes, read_csr_rows
from ._csr import make_csr, row_pointers
from ._together import Together, check_rows, row_range, rows_of
from .dataset import Dataset, check_shapes
from .errors import DataFormatError, counted
from .labels import Targets, Task, check_width, checked_dtype, indicator, number_targets, read_label_lines
from .streams import StrPath, atomic_files, check_regular

__all__ = ["read_labels", "read_npy", "read_npz", "write_npy", "write_npz"]

#: Suffixes of the files of labels that belong to a file of features.
_BESIDE = (".labels.npy", ".labels.npz", ".labels.txt", ".y.npy", ".y.npz", ".y.txt")
_NAMES = ".label_names.npy"

#: Errors of NumPy, SciPy and zipfile for files of other formats and for truncated, damaged or malicious ones.
_DAMAGE = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, NotImplementedError, RuntimeError,
    ArithmeticError, SyntaxError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip


@contextmanager
def _reading(path: StrPath, what: str) -> Iterator[None]:
    """Convert errors of NumPy, SciPy and zipfile to DataFormatErrors, and name the file in an OSError; refuse pipes."""
    check_regular(path)
    try:
        with np.errstate(over="ignore", invalid="raise"):  # sizes of a damaged header; NaN as an index
            yield
    except _DAMAGE as error:
        raise DataFormatError(path, f"cannot be read as {what} ({error}): copy or write it again") from error
    except MemoryError as error:
        # Arrays are allocated in the size given by the header, which may be damaged.
        said = str(error) or "out of memory"
        raise DataFormatError(path, f"cannot be read as {what}: it is damaged, or too large ({said})") from error
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno in (None, errno.EINVAL):
            # A damaged archive makes zipfile seek to invalid offsets; errors of bz2 have no errno.
            raise DataFormatError(path, f"cannot be read as {what} ({error}): copy or write it again") from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _beside(path: StrPath, suffix: str) -> Path:
    return Path(path).with_suffix("").with_name(Path(path).stem + suffix)


def _load_array(path: StrPath, what: str, **options: Any) -> npt.NDArray[Any]:
    with _reading(path, what):
        array = np.load(path, allow_pickle=False, **options)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an archive; expected one array")
    return array


def _load_sparse(path: StrPath, what: str) -> csr_matrix:
    # Opened here, because NumPy does not close a damaged archive.
    with _reading(path, what), open(path, "rb") as file:
        check_sizes(file)
        check_indices(file)
        matrix = scipy.sparse.load_npz(file)
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
            raise ValueError(
                f"it has {matrix.ndim} dimensions and type {matrix.dtype}; expected a matrix of real numbers"
            )
        if max(matrix.shape) > np.iinfo(np.int64).max:
            raise ValueError(f"it has the shape {matrix.shape}; expected sizes below 2^63")
        # Indices out of range would let compiled code access any memory. SciPy's own check_format misses row pointers
        # of which the differences overflow.
        check_sparse(matrix, "it")
        return csr_matrix(matrix)


def _load_rows(path: StrPath, what: str, comm: Together | None) -> tuple[csr_matrix, int]:
    """Load a sparse matrix, or the rows of this process; also return the number of all rows."""
    if comm is None:
        matrix = _load_sparse(path, what)
        return matrix, int(matrix.shape[0])
    with _reading(path, what):
        return read_csr_rows(path, comm.rank, comm.size)


def _rows(X: npt.NDArray[Any], what: str, notes: list[str]) -> npt.NDArray[Any]:
    """A matrix of numbers; of images, with two or three sides, a row for each."""
    if X.ndim not in (2, 3, 4) or X.dtype.kind not in "fiub":
        raise ValueError(f"{what} {X.ndim} dimensions and type {X.dtype}; expected a matrix of real numbers, or images")
    if X.ndim > 2:
        notes.append(f"images of shape {X.shape[1:]}: each is a row of {math.prod(X.shape[1:])} features")
        X = X.reshape(len(X), math.prod(X.shape[1:]))
    return X


def _load_named(path: StrPath, notes: list[str]) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None] | None:
    """The arrays X and y (or None) of an archive that numpy.savez wrote; None if SciPy wrote it."""
    with _reading(path, "a sparse matrix"), open(path, "rb") as file:
        check_sizes(file)
        archive = np.load(file, allow_pickle=False)
        if "format" in archive.files:
            return None
        if "X" not in archive.files:
            listed = ", ".join(map(repr, archive.files[:8])) or "none"
            raise ValueError(
                f"its arrays are {listed}; expected a sparse matrix of scipy.sparse.save_npz, or numpy.savez(path, "
                "X=X, y=y) with rows X and, optionally, labels y"
            )
        X, y = archive["X"], archive["y"] if "y" in archive.files else None
        if X.ndim == 0:
            raise ValueError("X is no array of numbers: numpy.savez keeps no sparse matrix, scipy.sparse.save_npz does")
        X = _rows(X, "X has", notes)
        if y is not None and y.shape[:1] != X.shape[:1]:
            raise ValueError(f"X has shape {X.shape}, and y {y.shape}; expected a label for each row")
        return X, y


def _refuse_not_finite(path: StrPath, values: npt.NDArray[Any], rows: npt.NDArray[Any] | None = None) -> None:
    """Raise a DataFormatError for NaN and infinity; ``rows`` is the indptr of a CSR matrix with these values."""
    finite = np.isfinite(values)
    if finite.all():
        return
    place = int(np.argmin(finite.reshape(values.shape[0], -1).all(axis=1)))
    row = place if rows is None else int(np.searchsorted(rows, place, side="right")) - 1
    raise DataFormatError(
        path, f"row {row} has a value that is not finite (as {values.dtype}); expected finite numbers"
    )


def _label_array(path: StrPath, y: npt.NDArray[Any], task: Task) -> Targets:
    """Convert an array to targets."""
    if y.dtype.kind == "S":
        with _reading(path, "labels"):
            y = np.char.decode(y, "utf-8")
    texts = y.dtype.kind == "U"
    # Texts without room for a character take no bytes: the header could announce any number of them.
    if y.ndim not in (1, 2) or y.dtype.kind not in "Ufiub" or (texts and (y.ndim == 2 or not y.dtype.itemsize)):
        what = f"has an array of {y.ndim} dimensions and type {y.dtype}; expected one label for each row"
        raise DataFormatError(path, f"{what}, a 0/1 matrix, or numbers of a regression")
    if y.dtype.kind == "f":
        _refuse_not_finite(path, y)
    if task == "regression":
        if y.dtype.kind == "U":
            raise DataFormatError(path, "has texts; expected numbers, as task='regression' needs")
        return Targets(y.astype(np.float64))
    if y.ndim == 1:
        ones = np.ones(y.size, dtype=np.int32)
        if y.dtype.kind == "f":
            targets = number_targets(y.astype(np.float64), ones, task)
            if targets is None:
                raise DataFormatError(
                    path, f"has numbers that are not integers; expected classes, as task={task!r} needs"
                )
            return targets
        if task == "multilabel":
            names, columns = np.unique(y, return_inverse=True)
            return Targets(indicator(columns, ones, names.size), names)
        return Targets(y.astype(np.int64) if y.dtype.kind == "b" else y)
    if y.dtype.kind == "f" and task == "auto":
        return Targets(y.astype(np.float64))
    return _label_matrix(path, csr_matrix(y), task)


def _label_matrix(path: StrPath, y: csr_matrix, task: Task) -> Targets:
    """Convert a 0/1 matrix to targets."""
    if task not in ("auto", "multilabel"):
        raise DataFormatError(path, f"has a matrix of labels; expected one for each row, as task={task!r} needs")
    check_width(path, y.shape[1])
    y.sum_duplicates()
    y.eliminate_zeros()
    if np.any(y.data != 1):
        raise DataFormatError(path, f"has the number {y.data[y.data != 1][0]}; expected a matrix of only 0 and 1")
    return Targets(y.astype(np.int8), np.arange(y.shape[1]))


def read_labels(
    path: StrPath,
    *,
    task: Task = "auto",
    separator: str | None = None,
    rows: int | None = None,
    comm: Together | None = None,
) -> Targets:
    """Read the labels of rows from a file of their own.

    Parameters
    ----------
    path : str or path
        ``.npy``: one label for each row, a 0/1 matrix, or numbers of a regression. ``.npz``: a sparse 0/1 matrix. Any
        other suffix: a UTF-8 text file with the label of one row on each line.
    task : {"auto", "classification", "multilabel", "regression"}, default="auto"
        As for `read_svmlight`.
    separator : str, default=None
        The separator of the labels of a row in a text file; None if each row has one label.
    rows : int, default=None
        With ``comm``, the number of rows of this process, of which the labels are read.
    comm : Communicator, default=None
        The processes that read the file together.

    Returns
    -------
    Targets
        ``(y, names)``, as `y` and `label_names` of a `Dataset`.

    Raises
    ------
    DataFormatError
        If the file has other content.
    """
    suffix = Path(path).suffix
    if suffix == ".npy":
        y = _load_array(path, "an array of labels", mmap_mode=None if comm is None else "r")
        if comm is not None:
            check_rows(path, len(y) if y.ndim else 0, comm, rows or 0)
            y = np.array(y[slice(*row_range(comm, rows or 0))])
        return _label_array(path, y, task)
    if suffix == ".npz":
        labels, n = _load_rows(path, "a sparse matrix of labels", comm)
        if comm is not None:
            check_rows(path, n, comm, rows or 0)
        return _label_matrix(path, labels, task)
    return read_label_lines(path, task, separator, rows, comm)


def _labels_beside(
    path: StrPath, task: Task, separator: str | None, rows: int, comm: Together | None
) -> tuple[Targets, str]:
    """Read the targets from the file next to ``path``; also return a note that names that file."""
    found = [beside for beside in (_beside(path, suffix) for suffix in _BESIDE) if beside.exists()]
    if len(found) > 1:
        listed = ", ".join(beside.name for beside in found)
        raise DataFormatError(
            path, f"there are several files of labels for it ({listed}); expected one: keep one, or pass it as labels="
        )
    if not found:
        return Targets(None), f"no labels: there is no {_beside(path, _BESIDE[0]).name}, .npz or .txt"
    y, names = read_labels(found[0], task=task, separator=separator, rows=rows, comm=comm)
    names_path = _beside(path, _NAMES)
    if names is not None and names_path.exists():
        given = _load_array(names_path, "an array of label names")
        if given.shape != names.shape or given.dtype.kind not in "Uiu":
            what = f"has shape {given.shape} and type {given.dtype}; expected one name for each of {names.size} labels"
            raise DataFormatError(names_path, what)
        names = given
    return Targets(y, names), f"labels from {found[0].name}"


def _dataset(
    path: StrPath,
    format: str,
    X: Any,
    notes: list[str],
    task: Task,
    find_labels: bool,
    separator: str | None,
    comm: Together | None,
    y: npt.NDArray[Any] | None = None,
) -> Dataset:
    targets = Targets(None)
    if find_labels and y is not None:
        targets = _label_array(path, y, task)
        notes.append("labels from its array y")
    elif find_labels:
        targets, note = _labels_beside(path, task, separator, X.shape[0], comm)
        notes.append(note)
    rows = 0 if targets.y is None else targets.y.shape[0]
    if targets.y is not None and rows != X.shape[0]:
        raise DataFormatError(
            path, f"has {counted(X.shape[0], 'row')}, but {rows} labels; expected a label for each row"
        )
    return Dataset(X, targets.y, targets.names, os.path.basename(path), format, tuple(notes))


def read_npz(
    path: StrPath,
    *,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    extra_features: Literal["error", "ignore"] = "error",
    task: Task = "auto",
    find_labels: bool = True,
    label_separator: str | None = None,
    comm: Together | None = None,
) -> Dataset:
    """Read a sparse matrix in SciPy's ``.npz`` format, or the arrays X and y of ``numpy.savez``.

    Parameters
    ----------
    path : str or path
        ``NAME.npz``. The labels are in ``NAME.labels`` or ``NAME.y`` with suffix ``.npy``, ``.npz`` or ``.txt`` (see
        `read_labels`), the names of the columns of an indicator matrix in ``NAME.label_names.npy``. An archive that
        ``numpy.savez(path, X=X, y=y)`` wrote has dense rows X, or images of shape (n, height, width) or (n, height,
        width, channels), which become rows, and, optionally, labels y.
    dtype, n_features, extra_features, task
        As for `read_svmlight`.
    find_labels : bool, default=True
        Whether to read the labels.
    label_separator : str, default=None
        The separator of the labels of a row in a text file of labels.
    comm : Communicator, default=None
        The processes that read the file together, each some consecutive rows.

    Returns
    -------
    Dataset

    Raises
    ------
    DataFormatError
        If the file is damaged or no sparse matrix of finite numbers, or the labels do not fit.
    """
    kind = checked_dtype(dtype, n_features, extra_features, task)
    notes: list[str] = []
    named = _load_named(path, notes)
    if named is not None:
        own = slice(*rows_of(comm, len(named[0])))
        X = _fitting(path, named[0][own], kind, n_features, extra_features, notes)
        y = None if named[1] is None else named[1][own]
        return _dataset(path, "npz", X, notes, task, find_labels, label_separator, comm, y)
    X, _ = _load_rows(path, "a sparse matrix", comm)
    if not X.has_canonical_format:
        before = X.nnz
        X.sum_duplicates()
        if X.nnz < before:
            notes.append(f"features repeated in a row were added up: {counted(before - X.nnz, 'value')}")
    with np.errstate(over="ignore"):  # an overflow is refused in the next line
        X = X.astype(kind, copy=False)
    _refuse_not_finite(path, X.data, X.indptr)
    if n_features is not None and n_features != X.shape[1]:
        extra = X.indices >= n_features
        if extra.any():
            if extra_features != "ignore":
                row = int(np.searchsorted(X.indptr, np.argmax(extra), side="right")) - 1
                what = f"row {row} has feature {X.indices[extra][0]}, counted from 0; expected {n_features} features"
                raise DataFormatError(path, what)
            notes.append(f"features beyond the first {n_features} ignored: {counted(int(extra.sum()), 'value')}")
            kept = ~extra
            X = make_csr(X.data[kept], X.indices[kept], row_pointers(kept)[X.indptr], X.shape[1], True)
        X = csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features), copy=False)
    return _dataset(path, "npz", X, notes, task, find_labels, label_separator, comm)


def _fitting(
    path: StrPath, X: npt.NDArray[Any], kind: Any, n_features: int | None, extra_features: str, notes: list[str]
) -> npt.NDArray[Any]:
    """Finite dense rows of this type and number of features."""
    with np.errstate(over="ignore"):
        X = np.ascontiguousarray(X, kind)
    _refuse_not_finite(path, X)
    if n_features is None or n_features == X.shape[1]:
        return X
    if n_features > X.shape[1]:
        return np.pad(X, ((0, 0), (0, n_features - X.shape[1])))
    if extra_features != "ignore":
        raise DataFormatError(path, f"has {counted(X.shape[1], 'feature')}; expected {n_features} features")
    notes.append(f"features beyond the first {n_features} ignored")
    return np.ascontiguousarray(X[:, :n_features])


def read_npy(
    path: StrPath,
    *,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    extra_features: Literal["error", "ignore"] = "error",
    task: Task = "auto",
    find_labels: bool = True,
    label_separator: str | None = None,
    comm: Together | None = None,
) -> Dataset:
    """Memory-map a dense matrix in NumPy's ``.npy`` format, read-only.

    Parameters
    ----------
    path : str or path
        ``NAME.npy``, a matrix or images as for `read_npz`, with files of labels as there.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type asked for. The file's own type is kept if it differs; `Dataset.notes` then says so.
    n_features, extra_features, task, find_labels, label_separator, comm
        As for `read_npz`, but missing columns are an error, because adding them would copy the matrix.

    Returns
    -------
    Dataset
        Its values are not checked to be finite.

    Raises
    ------
    DataFormatError
        If the file is damaged, no matrix of numbers, too narrow or too wide, or the labels do not fit.
    """
    kind = checked_dtype(dtype, n_features, extra_features, task)
    X = _load_array(path, "a dense matrix", mmap_mode="r")
    notes: list[str] = []
    try:
        X = _rows(X, "has an array of", notes)
    except ValueError as error:
        raise DataFormatError(path, str(error)) from None
    X = X[slice(*rows_of(comm, X.shape[0]))]
    if X.dtype != kind:
        notes.append(f"values are {X.dtype}, as in the file, which is memory-mapped")
    if n_features is not None and n_features != X.shape[1]:
        if n_features > X.shape[1] or extra_features != "ignore":
            raise DataFormatError(path, f"has {counted(X.shape[1], 'feature')}; expected {n_features}")
        notes.append(f"features beyond the first {n_features} ignored: {counted(X.shape[1] - n_features, 'column')}")
        X = X[:, :n_features]
    return _dataset(path, "npy", X, notes, task, find_labels, label_separator, comm)


def _write(path: StrPath, suffix: str, X: Any, y: Any, label_names: npt.NDArray[Any] | None) -> None:
    """Write the matrix, its labels and their names: all files or none."""
    if Path(path).suffix != suffix:
        raise ValueError(f"path is {os.fspath(path)!r}; expected a name that ends in {suffix!r}")
    check_shapes(X, y, label_names)
    arrays: dict[Path, Any] = {Path(path): X}
    if y is not None:
        arrays[_beside(path, ".labels.npz" if issparse(y) else ".labels.npy")] = y
    if label_names is not None:
        arrays[_beside(path, _NAMES)] = label_names
    for stale in (_beside(path, name) for name in (*_BESIDE, _NAMES)):
        if stale not in arrays and stale.exists():
            raise ValueError(f"{stale} would be read as labels of the new file: remove it first")
    with atomic_files(*arrays) as files:
        for file, array in zip(files, arrays.values()):
            if issparse(array):
                scipy.sparse.save_npz(file, csr_matrix(array), compressed=False)
            else:
                np.save(file, array, allow_pickle=False)


def _plain(array: Any) -> Any:
    """Return labels as an array that can be stored without pickle: objects that are texts become a text array."""
    if array is None or issparse(array):
        return array
    array = np.asarray(array)
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.flat):
            raise ValueError("y or label_names is an object array with other items than texts; expected only texts")
        array = array.astype(np.str_)
    return array


def write_npz(path: StrPath, X: Any, y: Any = None, *, label_names: Any = None) -> None:
    """Write a sparse matrix as ``NAME.npz``, and its labels to a file next to it.

    Parameters
    ----------
    path : str or path
        ``NAME.npz``.
    X : sparse matrix of shape (n_samples, n_features)
        The features.
    y : array, indicator matrix or None, default=None
        Written to ``NAME.labels.npy`` (an array) or ``NAME.labels.npz`` (a sparse matrix).
    label_names : array of shape (n_labels,), default=None
        The labels of the columns of an indicator matrix; written to ``NAME.label_names.npy``.

    Raises
    ------
    ValueError
        If a shape or type does not fit, X has NaN or infinity, or an existing file would be read as the labels of the
        new one.
    """
    if not issparse(X):
        raise ValueError(f"X is a {type(X).__name__}; expected a sparse matrix: write a dense one as .npy")
    check_sparse(X)
    check_sparse(y, "y")
    X = csr_matrix(X)
    fault = row_fault(make_rows(X), 0, *X.shape)
    if fault:
        raise ValueError(f"X has {fault}")
    _write(path, ".npz", X, _plain(y), _plain(label_names))


def write_npy(path: StrPath, X: Any, y: Any = None, *, label_names: Any = None) -> None:
    """Write a dense matrix as ``NAME.npy``, and its labels to a file next to it; parameters as of `write_npz`."""
    if issparse(X):
        raise ValueError("X is sparse; expected a dense matrix: write a sparse one as .npz")
    _write(path, ".npy", np.asanyarray(X), _plain(y), _plain(label_names))

"""NumPy and SciPy files, with the labels in a file beside."""

from __future__ import annotations

import errno
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

from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import Targets, Task, checked_dtype, indicator, number_targets, read_label_lines
from .streams import StrPath, atomic_files

__all__ = ["read_labels", "read_npy", "read_npz", "write_npy", "write_npz"]

#: Where labels are looked for, behind the name of the data without its suffix.
_BESIDE = (".labels.npy", ".labels.npz", ".labels.txt", ".y.npy", ".y.npz", ".y.txt")
_NAMES = ".label_names.npy"

#: What NumPy, SciPy and zipfile raise over a file that is not theirs, is cut short or was made to harm.
_DAMAGE = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, NotImplementedError, RuntimeError,
    OverflowError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip


@contextmanager
def _reading(path: StrPath, what: str) -> Iterator[None]:
    """Give errors of NumPy, SciPy and zipfile the name of the file.

    Raises
    ------
    DataFormatError
        If the file is damaged, or says of itself that it is larger than memory.
    OSError
        If the system could not open or read it.
    """
    try:
        yield
    except _DAMAGE as error:
        raise DataFormatError(path, f"cannot be read as {what} ({error})") from error
    except MemoryError as error:
        # What a damaged header promises is allocated before it is missed.
        said = str(error) or "out of memory"
        raise DataFormatError(path, f"cannot be read as {what}: it is damaged, or too large ({said})") from error
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno in (None, errno.EINVAL):
            # zipfile seeks where a damaged directory of the archive says; errors of the codec bz2 have no number.
            raise DataFormatError(path, f"cannot be read as {what} ({error})") from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _beside(path: StrPath, suffix: str) -> Path:
    return Path(path).with_suffix("").with_name(Path(path).stem + suffix)


def _load_array(path: StrPath, what: str, **options: Any) -> npt.NDArray[Any]:
    with _reading(path, what):
        array = np.load(path, allow_pickle=False, **options)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an archive")
    return array


def _load_sparse(path: StrPath, what: str) -> csr_matrix:
    # Opened here, because NumPy leaves a damaged archive open.
    with _reading(path, what), open(path, "rb") as file:
        matrix = scipy.sparse.load_npz(file)
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
            raise ValueError(f"it has {matrix.ndim} dimensions and numbers of type {matrix.dtype}")
        if hasattr(matrix, "check_format"):
            # Indices out of bounds would have compiled code read and write anywhere.
            matrix.check_format(full_check=True)
        return csr_matrix(matrix)


def _refuse_not_finite(path: StrPath, values: npt.NDArray[Any], rows: npt.NDArray[Any] | None = None) -> None:
    """Refuse NaN and infinity; `rows` are the bounds of the rows in `values`, by default its first axis."""
    finite = np.isfinite(values)
    if finite.all():
        return
    place = int(np.argmin(finite.reshape(values.shape[0], -1).all(axis=1)))
    row = place if rows is None else int(np.searchsorted(rows, place, side="right")) - 1
    raise DataFormatError(path, f"row {row} holds a value that is not finite (as {values.dtype})")


def _label_array(path: StrPath, y: npt.NDArray[Any], task: Task) -> Targets:
    """The targets that an array holds."""
    if y.dtype.kind == "S":
        with _reading(path, "labels"):
            y = np.char.decode(y, "utf-8")
    if y.ndim not in (1, 2) or y.dtype.kind not in "Ufiub" or (y.ndim == 2 and y.dtype.kind == "U"):
        what = f"an array of {y.ndim} dimensions and type {y.dtype} holds no labels; expected one label for each row"
        raise DataFormatError(path, f"{what}, a 0/1 matrix, or numbers to predict")
    if y.dtype.kind == "f":
        _refuse_not_finite(path, y)
    if task == "regression":
        if y.dtype.kind == "U":
            raise DataFormatError(path, "holds texts; expected numbers, as a regression needs them")
        return Targets(y.astype(np.float64))
    if y.ndim == 1:
        ones = np.ones(y.size, dtype=np.int32)
        if y.dtype.kind == "f":
            targets = number_targets(y.astype(np.float64), ones, task)
            if targets is None:
                raise DataFormatError(path, f"holds numbers that are not whole, and task={task!r} needs classes")
            return targets
        if task == "multilabel":
            names, columns = np.unique(y, return_inverse=True)
            return Targets(indicator(columns, ones, names.size), names)
        return Targets(y.astype(np.int64) if y.dtype.kind == "b" else y)
    if y.dtype.kind == "f" and task == "auto":
        return Targets(y.astype(np.float64))
    return _label_matrix(path, csr_matrix(y), task)


def _label_matrix(path: StrPath, y: csr_matrix, task: Task) -> Targets:
    """The targets that a 0/1 matrix holds."""
    if task not in ("auto", "multilabel"):
        raise DataFormatError(path, f"holds a matrix of labels; expected one for each row, as task={task!r} needs")
    y.sum_duplicates()
    y.eliminate_zeros()
    if np.any(y.data != 1):
        raise DataFormatError(path, f"holds the number {y.data[y.data != 1][0]}; expected only 0 and 1 in a 0/1 matrix")
    return Targets(y.astype(np.int8), np.arange(y.shape[1]))


def read_labels(path: StrPath, *, task: Task = "auto", separator: str | None = None) -> Targets:
    """Read the labels of rows that are in another file.

    Parameters
    ----------
    path : str or path
        ``.npy``: one label a row, or a 0/1 matrix, or numbers to predict. ``.npz``: a sparse 0/1 matrix. Any
        other name: text with the label of one row on each line.
    task : str
        As for `read_svmlight`.
    separator : str, optional
        What stands between the labels of a row, in a text file with several.

    Returns
    -------
    Targets
        ``(y, names)``, as `y` and `label_names` of a `Dataset`.

    Raises
    ------
    DataFormatError
        If the file holds something else.
    """
    suffix = Path(path).suffix
    if suffix == ".npy":
        return _label_array(path, _load_array(path, "an array of labels"), task)
    if suffix == ".npz":
        return _label_matrix(path, _load_sparse(path, "a sparse matrix of labels"), task)
    return read_label_lines(path, task, separator)


def _labels_beside(path: StrPath, task: Task, separator: str | None) -> tuple[Targets, str]:
    """The targets in a file beside, and a sentence on where they came from."""
    found = [beside for beside in (_beside(path, suffix) for suffix in _BESIDE) if beside.exists()]
    if len(found) > 1:
        listed = ", ".join(beside.name for beside in found)
        raise DataFormatError(path, f"there are several files of labels beside it ({listed}): keep or name one")
    if not found:
        return Targets(None), f"no labels: there is no {_beside(path, _BESIDE[0]).name} beside, nor one of its kind"
    y, names = read_labels(found[0], task=task, separator=separator)
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
) -> Dataset:
    targets = Targets(None)
    if find_labels:
        targets, note = _labels_beside(path, task, separator)
        notes.append(note)
    rows = 0 if targets.y is None else targets.y.shape[0]
    if targets.y is not None and rows != X.shape[0]:
        raise DataFormatError(path, f"has {counted(X.shape[0], 'row')}, but the labels beside it {rows}")
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
) -> Dataset:
    """Read a sparse matrix in SciPy's ``.npz`` format.

    Parameters
    ----------
    path : str or path
        ``NAME.npz``. Labels are looked for beside, in ``NAME.labels`` or ``NAME.y`` with ``.npy``, ``.npz``
        or ``.txt`` (see `read_labels`), the names of the columns of an indicator in ``NAME.label_names.npy``.
    dtype, n_features, extra_features, task
        As for `read_svmlight`.
    find_labels : bool
        Whether to look for labels.
    label_separator : str, optional
        What stands between labels in a text file of labels.

    Returns
    -------
    Dataset

    Raises
    ------
    DataFormatError
        If the file is damaged, holds something else, or values that are not finite; if the labels do not fit.
    """
    kind = checked_dtype(dtype, n_features, extra_features, task)
    X = _load_sparse(path, "a sparse matrix")
    notes: list[str] = []
    if not X.has_canonical_format:
        before = X.nnz
        X.sum_duplicates()
        if X.nnz < before:
            notes.append(f"features repeated in a row were added up: {counted(before - X.nnz, 'value')}")
    with np.errstate(over="ignore"):  # what overflows is refused in the next line
        X = X.astype(kind, copy=False)
    _refuse_not_finite(path, X.data, X.indptr)
    if n_features is not None and n_features != X.shape[1]:
        extra = X.indices >= n_features
        if extra.any():
            if extra_features != "ignore":
                row = int(np.searchsorted(X.indptr, np.argmax(extra), side="right")) - 1
                what = f"row {row} holds feature {X.indices[extra][0]}, counted from 0; expected {n_features} features"
                raise DataFormatError(path, what)
            notes.append(f"features beyond the first {n_features} ignored: {counted(int(extra.sum()), 'value')}")
            X = X[:, :n_features]
        X = csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features), copy=False)
    return _dataset(path, "npz", X, notes, task, find_labels, label_separator)


def read_npy(
    path: StrPath,
    *,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    extra_features: Literal["error", "ignore"] = "error",
    task: Task = "auto",
    find_labels: bool = True,
    label_separator: str | None = None,
) -> Dataset:
    """Map a dense matrix in NumPy's ``.npy`` format into memory, read-only and without a copy.

    Parameters
    ----------
    path : str or path
        ``NAME.npy``, with labels beside as for `read_npz`.
    dtype : float32 or float64
        What is wanted; the file's own type is kept all the same, and said in the notes.
    n_features, extra_features, task, find_labels, label_separator
        As for `read_npz`; but a matrix cannot be widened without a copy.

    Returns
    -------
    Dataset
        Its values have not been looked at: they may be anything.

    Raises
    ------
    DataFormatError
        If the file is damaged, is no matrix of numbers, or too narrow or too wide; if the labels do not fit.
    """
    kind = checked_dtype(dtype, n_features, extra_features, task)
    X = _load_array(path, "a dense matrix", mmap_mode="r")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        what = f"an array of {X.ndim} dimensions and type {X.dtype}; expected a matrix (rows, features) of numbers"
        raise DataFormatError(path, what)
    notes: list[str] = []
    if X.dtype != kind:
        notes.append(f"values are {X.dtype}, as in the file, which is mapped and not copied")
    if n_features is not None and n_features != X.shape[1]:
        if n_features > X.shape[1] or extra_features != "ignore":
            raise DataFormatError(path, f"{counted(X.shape[1], 'feature')}; expected {n_features}")
        notes.append(f"features beyond the first {n_features} ignored: {counted(X.shape[1] - n_features, 'column')}")
        X = X[:, :n_features]
    return _dataset(path, "npy", X, notes, task, find_labels, label_separator)


def _write(path: StrPath, suffix: str, X: Any, y: Any, label_names: npt.NDArray[Any] | None) -> None:
    """Write the matrix, its labels and their names: all files, or none."""
    if Path(path).suffix != suffix:
        raise ValueError(f"path ends in {Path(path).suffix!r}; expected {suffix!r}")
    arrays: dict[Path, Any] = {Path(path): X}
    if y is not None:
        if y.shape[:1] != X.shape[:1]:
            raise ValueError(f"y has shape {y.shape}; expected {X.shape[0]} rows, as X has")
        arrays[_beside(path, ".labels.npz" if issparse(y) else ".labels.npy")] = y
    if label_names is not None:
        if y is None or y.shape[1:] != label_names.shape:
            raise ValueError(f"label_names has shape {label_names.shape}; expected a name for each column of y")
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
    """Labels as an array of a type that can be stored: texts in an object array become an array of texts."""
    if array is None or issparse(array):
        return array
    array = np.asarray(array)
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.flat):
            raise ValueError("y or label_names is an object array; expected only texts in it")
        array = array.astype(np.str_)
    return array


def write_npz(path: StrPath, X: Any, y: Any = None, *, label_names: Any = None) -> None:
    """Write a sparse matrix as ``NAME.npz``, and labels beside.

    Parameters
    ----------
    path : str or path
    X : sparse matrix of shape (n_samples, n_features)
    y : array, indicator matrix or None
        Goes to ``NAME.labels.npy`` (an array) or ``NAME.labels.npz`` (a sparse matrix).
    label_names : array of shape (n_labels,), optional
        The labels of the columns of an indicator; goes to ``NAME.label_names.npy``.

    Raises
    ------
    ValueError
        If a shape or type does not fit, or a file beside would be taken for labels that it does not hold.
    """
    if not issparse(X):
        raise ValueError(f"X is a {type(X).__name__}; expected a sparse matrix, or write it as .npy")
    _write(path, ".npz", X, _plain(y), _plain(label_names))


def write_npy(path: StrPath, X: Any, y: Any = None, *, label_names: Any = None) -> None:
    """Write a dense matrix as ``NAME.npy``, and labels beside, as `write_npz` does.

    Raises
    ------
    ValueError
        As for `write_npz`.
    """
    X = np.asanyarray(X) if not issparse(X) else X
    if issparse(X) or X.ndim != 2:
        raise ValueError("X is sparse or no matrix; expected a dense one, or write it as .npz")
    _write(path, ".npy", X, _plain(y), _plain(label_names))

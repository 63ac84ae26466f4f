"""Writes the svmlight and XMC formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from manyclass.kernels.rows import check_sparse
from manyclass.runtime.threads import ranges

from ._csr import row_ranges
from .dataset import check_shapes
from .streams import StrPath, atomic_files

__all__ = ["write_svmlight", "write_xmc"]

#: Approximate number of values that are converted to text at a time.
_VALUES = 1 << 16

#: Characters at which a reader would end a label.
_FORBIDDEN = re.compile("[ \t\n\r\v\f,:#\ufeff]")


def _number_texts(values: npt.NDArray[Any]) -> list[str]:
    """Return the shortest texts from which the same numbers are read back."""
    if values.dtype.kind != "f":
        return [str(value) for value in values.astype(np.int64).tolist()]
    if values.dtype.itemsize > 4:
        return [repr(value) for value in values.astype(np.float64).tolist()]
    values = values.astype(np.float32, copy=False)
    texts = values.astype(np.str_)
    # Readers round to a double first, and rounding twice may give another float32.
    missed = texts.astype(np.float64).astype(np.float32) != values
    result: list[str] = texts.tolist()
    for place in np.flatnonzero(missed).tolist():
        result[place] = repr(float(values[place]))
    return result


def _csr_blocks(X: Any) -> Iterator[csr_matrix]:
    """Yield the rows in CSR pieces of about `_VALUES` stored values (sparse) or entries (dense)."""
    if issparse(X):
        X = X.tocsr()
        pieces: Iterable[tuple[int, int]] = row_ranges(X.indptr, _VALUES)
    else:
        pieces = ranges(X.shape[0], max(_VALUES // max(X.shape[1], 1), 1))
    for begin, end in pieces:
        yield csr_matrix(X[begin:end])


def _joined(texts: list[str], indptr: npt.NDArray[Any], separator: str) -> list[str]:
    """Join the texts of each row."""
    bounds = indptr.tolist()
    return [separator.join(texts[begin:end]) for begin, end in zip(bounds, bounds[1:])]


def _feature_texts(X: Any, first_index: int) -> Iterator[list[str]]:
    """Yield the texts of the features of the rows, one list for each piece of the matrix."""
    row = 0
    for block in _csr_blocks(X):
        finite = np.isfinite(block.data)
        if not finite.all():
            bad = row + int(np.searchsorted(block.indptr, np.argmin(finite), side="right")) - 1
            raise ValueError(
                f"X has a value that is not finite in row {bad}; expected finite numbers: remove or impute it"
            )
        indices = (block.indices.astype(np.int64) + first_index).tolist()
        pairs = [f"{index}:{value}" for index, value in zip(indices, _number_texts(block.data))]
        yield _joined(pairs, block.indptr, " ")
        row += block.shape[0]


def _name_texts(names: npt.NDArray[Any]) -> list[str]:
    """Return the labels as texts, each of which is read back as one label."""
    if names.dtype.kind == "f" and not np.isfinite(names).all():
        raise ValueError("y has a value that is not finite; expected finite numbers")
    if names.dtype.kind in "fbui":
        return _number_texts(names)
    texts = [str(name) for name in names.tolist()]
    for text in texts:
        if not text or _FORBIDDEN.search(text):
            raise ValueError(
                f"the label {text!r} cannot be written; expected a non-empty text without blanks or any of , : #"
            )
    return texts


def _label_texts(y: Any, label_names: npt.NDArray[Any] | None) -> list[str]:
    """Return the label field of each row."""
    indicator = issparse(y) or (y.ndim == 2 and y.dtype.kind != "f")
    if label_names is not None and not indicator:
        raise ValueError(
            f"label_names are for the columns of an indicator matrix, got y of shape {y.shape} and type {y.dtype}: "
            "pass the names as y itself (names[y]), or leave label_names out"
        )
    if not issparse(y) and y.ndim == 2 and y.dtype.kind == "f":
        indptr = np.arange(y.shape[0] + 1) * y.shape[1]
        return _joined(_name_texts(y.ravel()), indptr, ",")
    if not issparse(y) and y.ndim == 1:
        return _name_texts(y)
    y = csr_matrix(y, copy=issparse(y))
    y.sum_duplicates()
    y.eliminate_zeros()
    names = np.arange(y.shape[1]) if label_names is None else np.asarray(label_names)
    check_shapes(y, y, names)
    texts = _name_texts(names)
    return _joined([texts[column] for column in y.indices.tolist()], y.indptr, ",")


def _checked(X: Any, y: Any) -> tuple[Any, Any]:
    check_sparse(X)
    check_sparse(y, "y")
    X = X if issparse(X) else np.asanyarray(X)
    y = y if y is None or issparse(y) else np.asarray(y)
    check_shapes(X, y)
    return X, y


def _write(path: StrPath, head: str, features: Iterator[list[str]], labels: list[str], gap: str | None) -> None:
    """Write the lines; ``gap`` is written for a row that has neither labels nor features."""
    with atomic_files(path) as (file,):
        file.write(head.encode())
        row = 0
        for block in features:
            lines = []
            for label, pairs in zip(labels[row : row + len(block)], block):
                if not label and not pairs and gap is not None:
                    pairs = gap
                lines.append(f"{label} {pairs}\n" if pairs or not label else f"{label}\n")
            file.write("".join(lines).encode())
            row += len(block)


def write_svmlight(
    path: StrPath,
    X: Any,
    y: Any = None,
    *,
    label_names: npt.NDArray[Any] | None = None,
    zero_based: bool = False,
) -> None:
    """Write rows in svmlight format, from which `read_svmlight` reads exactly the same numbers.

    The write is atomic.

    Parameters
    ----------
    path : str or path
        The file. A name that ends in ``.gz`` or ``.zst`` is compressed.
    X : sparse matrix or array of shape (n_samples, n_features)
        The features: finite numbers.
    y : array, indicator matrix or None, default=None
        As in `Dataset`. A row without a label begins with a blank. If it has no features either, a zero is written,
        because empty lines are no rows.
    label_names : array of shape (n_labels,), default=None
        The labels to write for the columns of an indicator matrix; by default their indices.
    zero_based : bool, default=False
        Whether feature indices start at 0. Readers detect this reliably only for False.

    Raises
    ------
    ValueError
        If a shape does not fit, a number is not finite, or a label contains a blank, a comma, a colon or ``#``.

    Notes
    -----
    The format keeps neither types nor the number of columns: names that look like numbers are read back as numbers, and
    trailing columns of zeros are lost unless `n_features` is given when reading.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.svm")
    ...     write_svmlight(path, np.array([[0, 0.25], [3, 0]]), np.array(["ham", "spam"]))
    ...     path.read_text()
    'ham 2:0.25\\nspam 1:3.0\\n'
    """
    X, y = _checked(X, y)
    labels = [""] * X.shape[0] if y is None else _label_texts(y, label_names)
    if X.shape[1] == 0 and "" in labels:
        raise ValueError("X has no columns and y a row without a label; expected at least one column")
    first_index = 0 if zero_based else 1
    _write(path, "", _feature_texts(X, first_index), labels, gap=f"{first_index}:0")


def write_xmc(path: StrPath, X: Any, y: Any) -> None:
    """Write rows in the format of the extreme classification repository, atomically.

    Parameters
    ----------
    path : str or path
        The file. A name that ends in ``.gz`` or ``.zst`` is compressed.
    X : sparse matrix or array of shape (n_samples, n_features)
        The features: finite numbers.
    y : 0/1 matrix of shape (n_samples, n_labels)
        The labels of each row; the format keeps column indices and no names.

    Raises
    ------
    ValueError
        If a shape does not fit or a number is not finite.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.txt")
    ...     write_xmc(path, np.array([[0, 0.25], [3, 0]]), np.array([[1, 0, 1], [0, 0, 0]]))
    ...     path.read_text()
    '2 2 3\\n0,2 1:0.25\\n 0:3.0\\n'
    """
    X, y = _checked(X, y)
    if y is None or y.ndim != 2:
        raise ValueError("y is not a matrix; expected a 0/1 indicator matrix with a column for each label")
    head = f"{X.shape[0]} {X.shape[1]} {y.shape[1]}\n"
    y = y if issparse(y) else csr_matrix(np.asarray(y) != 0)
    _write(path, head, _feature_texts(X, 0), _label_texts(y, None), gap=None)

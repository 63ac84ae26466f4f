"""One door to all formats: tell the format of a file, and read or write it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ._lines import Spill
from ._write_lines import write_svmlight, write_xmc
from .arrays import read_labels, read_npy, read_npz, write_npy, write_npz
from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import Task, checked_dtype
from .streams import StrPath, open_bytes
from .svmlight import read_svmlight
from .tables import TableLayout, read_table
from .xmc import XMC_HEADER, read_xmc

if TYPE_CHECKING:
    from .text import TextVectorizer

__all__ = ["FORMATS", "Format", "detect_format", "named_format", "read", "write"]

Format: TypeAlias = Literal["svmlight", "xmc", "npz", "npy", "csv", "tsv", "store"]
FORMATS: tuple[str, ...] = get_args(Format)

_SUFFIXES: dict[str, Format] = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".xmc": "xmc",
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".store": "store",
}

_SVMLIGHT_LINE = re.compile(rb"(?:[^\s:#]+[ \t]|[ \t])[ \t]*(?:[0-9]+|qid):[^\s]+(?:[\s#]|\Z)")


def _suffix(path: StrPath) -> str:
    """The suffix of the name, behind which the suffix of a compression may stand."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix in (".gz", ".zst") else name).suffix.lower()


def named_format(path: StrPath) -> Format | None:
    """The format that the name of a file says, compressed or not; None if it says none.

    Examples
    --------
    >>> named_format("train.svm.gz"), named_format("train.txt")
    ('svmlight', None)
    """
    return _SUFFIXES.get(_suffix(path))


def detect_format(path: StrPath) -> Format:
    """The format of a file, by its first bytes and its name.

    Raises
    ------
    DataFormatError
        If it is none of `FORMATS`, or empty.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     _ = path.write_text("2 3 4\\n0,3 0:1 2:0.5\\n 1:2\\n")
    ...     detect_format(path)
    'xmc'
    """
    if os.path.isdir(path):
        return "store"  # whatever else it may be is said when it is opened
    with open_bytes(path) as source:
        head = source.read(1 << 16)
    if not head:
        raise DataFormatError(path, "the file is empty")
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    known = named_format(path)
    if known in ("csv", "tsv"):
        return known
    if XMC_HEADER.match(head):
        return "xmc"
    if known in ("svmlight", "xmc"):
        return known
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    first = next((line for line in lines if line.partition(b"#")[0].strip()), b"")
    if _SVMLIGHT_LINE.match(first):
        return "svmlight"
    raise DataFormatError(
        path, f"its format is none of {', '.join(FORMATS)}, as far as its start tells: name it (format=)"
    )


def read(
    path: StrPath,
    *,
    format: Format | None = None,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    extra_features: Literal["error", "ignore"] = "error",
    zero_based: bool | Literal["auto"] = "auto",
    task: Task = "auto",
    labels: StrPath | None = None,
    label_separator: str | None = None,
    text_column: str | int | None = None,
    label_column: str | int | None = None,
    delimiter: str | None = None,
    quote: str | None = "auto",
    header: bool | None = None,
    layout: TableLayout | None = None,
    with_labels: bool = True,
    vectorizer: TextVectorizer | Mapping[str, Any] | None = None,
    spill: Spill | None = None,
) -> Dataset:
    """Read a file of any known format.

    Parameters
    ----------
    path : str or path
        The file. Text formats may be compressed (gzip, Zstandard).
    format : str, optional
        One of `FORMATS`; by default told from the content and the name.
    dtype : float32 or float64
        The type of the features. (A dense ``.npy`` is mapped and keeps its own.)
    n_features : int, optional
        The number of features to have, as a model needs it: fewer in the file are filled up with zeros.
    extra_features : {"error", "ignore"}
        What to do with features beyond `n_features`.
    zero_based : bool or "auto"
        Whether a svmlight file counts features from 0.
    task : {"auto", "classification", "multilabel", "regression"}
        What the labels are; see `read_svmlight` for what is made of them by default.
    labels : str or path, optional
        Another file with the labels (see `read_labels`), instead of those in or beside the file.
    label_separator : str, optional
        What stands between the labels of a row, in a table or a text file of labels.
    text_column, label_column, delimiter, quote, header
        Of tables only: see `read_table`.
    layout : TableLayout, optional
        Used for tables only: that of a table read before, to read this one in the same way.
    with_labels : bool
        Used for tables only: whether to read the labels in it.
    vectorizer : TextVectorizer or mapping, optional
        Used for tables only: a fitted one, or the parameters of a new one.
    spill : Spill, optional
        Of svmlight and XMC files only: see `read_svmlight`.

    Returns
    -------
    Dataset

    Raises
    ------
    DataFormatError
        With the line, if the file is not what it should be.
    ValueError
        If an argument is wrong, or does not fit the format.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.csv")
    ...     _ = path.write_text("text,category\\nwhere is my card?,card\\nwhat is my balance?,account\\n")
    ...     data = read(path)
    >>> data.format, data.X.shape, data.y.tolist(), data.notes
    ('csv', (2, 6), ['card', 'account'], ("texts from column 'text', labels from 'category'",))
    """
    checked_dtype(dtype, n_features, extra_features, task)
    if format is None:
        format = detect_format(path)
    elif format not in FORMATS:
        raise ValueError(f"format is {format!r}; expected one of {', '.join(map(repr, FORMATS))}")
    columns: dict[str, Any] = {
        "text_column": text_column,
        "label_column": label_column,
        "delimiter": delimiter,
        "header": header,
    }
    if format not in ("csv", "tsv"):
        given = [name for name, value in columns.items() if value is not None]
        if given:
            raise ValueError(f"{given[0]} is {columns[given[0]]!r}, but {os.fspath(path)} is {format}, and no table")
    own_task: Task = task if labels is None else "auto"
    common: dict[str, Any] = {"dtype": dtype, "n_features": n_features}
    if format == "svmlight":
        data = read_svmlight(
            path, **common, extra_features=extra_features, zero_based=zero_based, task=own_task, spill=spill
        )
    elif format == "xmc":
        data = read_xmc(path, **common, extra_features=extra_features, spill=spill)
    elif format == "store":
        from manyclass.io.store.reading import read_store

        data = read_store(path, n_features=n_features, extra_features=extra_features, task=own_task)
    elif format in ("csv", "tsv"):
        if labels is None:
            columns.update(task=task, label_separator=label_separator)
        options: dict[str, Any] = {"quote": quote, "layout": layout, "with_labels": with_labels and labels is None}
        data = read_table(path, format=format, **common, **options, vectorizer=vectorizer, **columns)
    else:
        load = read_npz if format == "npz" else read_npy
        beside: dict[str, Any] = {"find_labels": labels is None, "label_separator": label_separator}
        data = load(path, **common, extra_features=extra_features, task=task, **beside)
    if labels is None:
        return data
    y, names = read_labels(labels, task=task, separator=label_separator)
    rows = 0 if y is None else y.shape[0]
    if rows != data.n_samples:
        raise DataFormatError(
            labels, f"has {counted(rows, 'label')}; expected {data.n_samples}, one for each row of data"
        )
    return replace(data, y=y, label_names=names, notes=(*data.notes, f"labels from {os.path.basename(labels)}"))


def write(path: StrPath, data: Dataset, *, format: Format | None = None) -> None:
    """Write a data set; the file takes its name only when it is complete.

    Parameters
    ----------
    path : str or path
        The name says the format unless `format` does: ``.svm``, ``.svmlight``, ``.libsvm``, ``.xmc`` (each
        with ``.gz`` or ``.zst`` behind, for compression), ``.npz``, ``.npy``, ``.store`` (a folder).
    data : Dataset
    format : {"svmlight", "xmc", "npz", "npy", "store"}, optional
        The format, if the name does not say it.

    Raises
    ------
    ValueError
        If the format is not known, or cannot hold these data.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "data.svm")
    ...     write(path, Dataset(np.array([[0.5, 0.0]]), np.array([3])))
    ...     path.read_text()
    '3 1:0.5\\n'
    """
    if format is None:
        format = named_format(path)
    if format == "svmlight":
        write_svmlight(path, data.X, data.y, label_names=data.label_names)
    elif format == "xmc":
        write_xmc(path, data.X, data.y)
    elif format in ("npz", "npy"):
        put = write_npz if format == "npz" else write_npy
        put(path, data.X, data.y, label_names=data.label_names)
    elif format == "store":
        from manyclass.io.store.reading import store_dataset

        store_dataset(path, data)
    else:
        which = "the name does not say" if format is None else repr(format)
        raise ValueError(
            f"format: {which}; expected 'svmlight', 'xmc', 'npz', 'npy' or 'store' (features cannot become texts)"
        )

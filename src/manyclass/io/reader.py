"""Reads and writes files of all formats."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ._joined import Joined
from ._layout import listed
from ._lines import Spill
from ._together import Together, counts_of, largest
from ._write_lines import write_svmlight, write_xmc
from .arrays import read_labels, read_npy, read_npz, write_npy, write_npz
from .dataset import Dataset
from .errors import DataFormatError, counted
from .formats import FORMATS, TABLES, Format, check_joinable, detect_format, joined, named_format
from .labels import Task, checked_dtype
from .streams import StrPath
from .svmlight import read_svmlight
from .tables import TableLayout, read_table
from .xmc import read_xmc

if TYPE_CHECKING:
    from .encoder import TableEncoder
    from .text import TextVectorizer

__all__ = ["read", "write"]


def read(
    path: StrPath | Sequence[StrPath],
    *,
    format: Format | None = None,
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    extra_features: Literal["error", "ignore"] = "error",
    zero_based: bool | Literal["auto"] = "auto",
    task: Task = "auto",
    labels: StrPath | None = None,
    label_separator: str | None = None,
    text_column: str | int | Sequence[str | int] | None = None,
    number_columns: str | Sequence[str | int] | None = None,
    category_columns: str | Sequence[str | int] | None = None,
    ignore_columns: str | Sequence[str | int] | None = None,
    label_column: str | int | None = None,
    delimiter: str | None = None,
    quote: str | None = "auto",
    header: bool | None = None,
    layout: TableLayout | None = None,
    with_labels: bool = True,
    unlabeled: Literal["error", "skip"] = "error",
    vectorizer: TextVectorizer | TableEncoder | Mapping[str, Any] | None = None,
    spill: Spill | None = None,
    comm: Together | None = None,
) -> Dataset:
    """Read a file of any known format, or several of the same format as one.

    Parameters
    ----------
    path : str, path or sequence of them
        The file. Text files may be compressed (gzip, Zstandard). Several files of svmlight or of tables are one data
        set, their rows one after another: a sequence in its order; the files in a folder, or of a pattern such as
        ``"part-*.parquet"`` (``**``: in all folders below), by name. All tables have the same columns, and CSV files
        all have a header or none.
    format : str, default=None
        One of `FORMATS`; by default detected from the content and the name.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the features. A dense ``.npy`` file is memory-mapped and keeps its own type.
    n_features : int >= 0, default=None
        The number of columns of `X`, for example that of a model: missing columns are filled with zeros. By default the
        file decides.
    extra_features : {"error", "ignore"}, default="error"
        Whether features beyond the first `n_features` raise an error or are left out.
    zero_based : bool or "auto", default="auto"
        For svmlight: whether feature indices start at 0; see `read_svmlight`.
    task : {"auto", "classification", "multilabel", "regression"}, default="auto"
        The kind of targets; see `read_svmlight` for how "auto" chooses.
    labels : str or path, default=None
        Another file with the labels (see `read_labels`), used in place of the labels in or next to the file.
    label_separator : str, default=None
        The separator of the labels of a row, in a table or a text file of labels.
    text_column, number_columns, category_columns, ignore_columns, label_column, delimiter, quote, header
        For tables: see `read_table`.
    layout : TableLayout, default=None
        For tables: the layout of a table read before (`Dataset.layout`), to read this one in the same way.
    with_labels : bool, default=True
        For tables: whether to read labels.
    unlabeled : {"error", "skip"}, default="error"
        For tables: whether a row without a label raises an error, or is left out and counted in `Dataset.notes`.
    vectorizer : TextVectorizer, TableEncoder or mapping, default=None
        For tables: a fitted vectorizer or encoder, or the parameters of a new vectorizer.
    spill : Spill, default=None
        For svmlight and XMC: see `read_svmlight`.
    comm : Communicator, default=None
        The processes that read the file together (`manyclass.distributed`): each gets some consecutive rows and reads
        nothing else, except in compressed files. All agree on the features and on the type of the labels. Not for
        tables.

    Returns
    -------
    Dataset
        All rows, or those of this process.

    Raises
    ------
    DataFormatError
        If the file does not conform to its format; the message names the file and the line.
    ValueError
        If an argument is invalid or does not apply to the format, or a file is named twice.
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
    path = joined(path)
    if format is None:
        format = detect_format(path)
    elif format not in FORMATS:
        raise ValueError(f"format is {format!r}; expected one of {', '.join(map(repr, FORMATS))}")
    check_joinable(path, format)
    columns: dict[str, Any] = {
        "text_column": text_column,
        "number_columns": number_columns,
        "category_columns": category_columns,
        "ignore_columns": ignore_columns,
        "label_column": label_column,
        "delimiter": delimiter,
        "header": header,
    }
    if format not in TABLES:
        given = {**columns, "layout": layout, "vectorizer": vectorizer}
        given = {name: value for name, value in given.items() if value is not None}
        given |= {} if quote == "auto" else {"quote": quote}
        given |= {} if with_labels else {"with_labels": with_labels}
        given |= {} if unlabeled == "error" else {"unlabeled": unlabeled}
        for name, value in given.items():
            what = f"{name} is {value!r}, but {os.fspath(path)} has the format {format!r}"
            raise ValueError(f"{what}; expected a table ({', '.join(TABLES)}): leave {name} out")
    if comm is not None and comm.size == 1:
        comm = None
    if comm is not None and format in TABLES:
        raise ValueError(
            f"{os.fspath(path)} is a table, which several processes do not read together, as its vocabulary is that of "
            "all rows: write it as a row store first, with  manyclass convert TABLE -o NAME.store"
        )
    if comm is not None and isinstance(path, Joined):
        raise ValueError(
            f"{path} has {len(path.files)} files, which several processes do not read together: write them as a row "
            "store first, with  manyclass convert FILE... -o NAME.store"
        )
    own_task: Task = task if labels is None else "auto"
    common: dict[str, Any] = {"dtype": dtype, "n_features": n_features}
    shared: dict[str, Any] = {"comm": comm}
    if format == "svmlight":
        data = read_svmlight(
            path, **common, extra_features=extra_features, zero_based=zero_based, task=own_task, spill=spill, **shared
        )
    elif format == "xmc":
        data = read_xmc(path, **common, extra_features=extra_features, spill=spill, **shared)
    elif format == "store":
        from manyclass.io.store.reading import read_store

        data = read_store(path, n_features=n_features, extra_features=extra_features, task=own_task, **shared)
    elif format in TABLES:
        if labels is None:
            columns.update(task=task, label_separator=label_separator)
        options: dict[str, Any] = {"quote": quote, "layout": layout, "with_labels": with_labels and labels is None}
        options["unlabeled"] = unlabeled
        data = read_table(path, format=format, **common, **options, vectorizer=vectorizer, **columns)  # type: ignore[arg-type]
    else:
        load = read_npz if format == "npz" else read_npy
        beside: dict[str, Any] = {"find_labels": labels is None, "label_separator": label_separator}
        data = load(path, **common, extra_features=extra_features, task=task, **beside, **shared)
    _, n = counts_of(comm, data.n_samples)
    if comm is not None and (n < comm.size or not largest(comm, -data.n_samples) < 0):
        raise DataFormatError(path, f"has {counted(n, 'row')}, too few for {comm.size} processes: start fewer")
    if isinstance(path, Joined):
        other = f"; not read: {listed(path.left)}" if path.left else ""
        data = replace(
            data, notes=(f"{len(path.files)} files, {path.files[0]} to {path.files[-1]}{other}", *data.notes)
        )
    if labels is None:
        return data
    y, names = read_labels(labels, task=task, separator=label_separator, rows=data.n_samples, comm=comm)
    rows = 0 if y is None else y.shape[0]
    if rows != data.n_samples:
        raise DataFormatError(
            labels, f"has {counted(rows, 'label')}; expected {data.n_samples}, one for each row of {os.fspath(path)}"
        )
    return replace(data, y=y, label_names=names, notes=(*data.notes, f"labels from {os.path.basename(labels)}"))


def write(path: StrPath, data: Dataset, *, format: Format | None = None) -> None:
    """Write a data set to a file, atomically.

    Parameters
    ----------
    path : str or path
        The file. Unless `format` is given, the suffix decides the format: ``.svm``, ``.svmlight``, ``.libsvm``,
        ``.xmc`` (each may be followed by ``.gz`` or ``.zst``, for compression), ``.npz``, ``.npy``, ``.store`` (a
        folder).
    data : Dataset
        The data.
    format : {"svmlight", "xmc", "npz", "npy", "store"}, default=None
        The format, if the suffix of the name does not give it.

    Raises
    ------
    ValueError
        If the format is not known or cannot hold these data.

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
        which = f"not given, and {os.fspath(path)} has no known suffix" if format is None else repr(format)
        raise ValueError(f"format is {which}; expected 'svmlight', 'xmc', 'npz', 'npy' or 'store'")

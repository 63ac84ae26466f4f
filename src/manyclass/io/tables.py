"""Reads CSV and TSV files with a column of texts and an optional column of labels."""

from __future__ import annotations

import csv
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import LabelColumn, Task, checked_dtype
from .streams import StrPath, open_bytes
from .typed import TYPED, typed_rows

if TYPE_CHECKING:
    from .text import TextVectorizer

__all__ = ["TableLayout", "read_table"]

#: Names of columns of texts and of labels; earlier names take precedence.
_TEXT_NAMES = ("text", "document", "content", "body", "description", "sentence", "utterance", "query", "message")
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "code", "topic", "tag", "tags", "intent", "y")

#: Names of columns that do not hold labels.
_OTHER_NAMES = ("id", "idx", "index", "")

#: Delimiters that are detected.
_MARKS = (",", "\t", ";")

#: Number of rows from which columns are detected.
_SAMPLE = 100


@dataclass(frozen=True)
class TableLayout:
    """How a table was read: header, columns, delimiter and quoting.

    Attributes
    ----------
    header : bool
        Whether the first line names the columns.
    columns : int
        The number of columns.
    text_column : str or int
        The column of the texts: its name in the header, or its index from 0 if there is no header or the name is not
        unique.
    label_column : str, int or None
        The column of the labels; None if no labels were read from the table.
    delimiter : str
        The character between fields.
    quote : str or None
        The quotation mark around fields that contain delimiters or line ends; None if quotes are part of the texts.
    label_separator : str or None
        The separator of the labels of a row; None if each row has one label.

    Examples
    --------
    >>> layout = TableLayout(True, 2, "title", "queue", ",", '"', None)
    >>> TableLayout.from_dict(layout.to_dict()) == layout
    True
    """

    header: bool
    columns: int
    text_column: str | int
    label_column: str | int | None
    delimiter: str
    quote: str | None
    label_separator: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> TableLayout:
        """Return the layout of a dict that `to_dict` returned; a ValueError if it is damaged."""
        try:
            layout = cls(**facts)
        except TypeError as error:
            raise ValueError(
                f"the layout of the table is damaged ({error}): write the model or row store again"
            ) from error
        damaged = f"the layout of the table is damaged ({layout!r}): write the model or row store again"
        for name, kind in get_type_hints(cls).items():
            if type(getattr(layout, name)) not in (get_args(kind) or (kind,)):
                raise ValueError(damaged)
        names = {type(layout.text_column), type(layout.label_column)}
        positions = [place for place in (layout.text_column, layout.label_column) if isinstance(place, int)]
        if (str in names and not layout.header) or not all(0 <= place < layout.columns for place in positions):
            raise ValueError(damaged)
        if len(layout.delimiter) != 1 or (layout.quote is not None and len(layout.quote) != 1):
            raise ValueError(damaged)
        return layout


class _Record(NamedTuple):
    fields: list[str]
    line: int  # the first, since fields may contain line ends


class _LongFields:
    """Raises the csv module's limit of 128 KiB for a field while a table is read.

    The limit is global: the first reader of any thread raises it, and the last one restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._readers == 0:
                self._before = csv.field_size_limit(2**31 - 1)
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                csv.field_size_limit(self._before)


_long_fields = _LongFields()


def _delimiter_of(first: str, format: str, layout: TableLayout | None) -> str:
    """Detect the delimiter from the first line, the format and the layout of the table read before."""
    if format == "tsv":
        return "\t"
    counts = {mark: first.count(mark) for mark in _MARKS}
    # Without a header a wrong guess would go unnoticed: texts contain commas and semicolons too.
    if layout is not None and (not layout.header or layout.delimiter in first or not any(counts.values())):
        return layout.delimiter
    return "," if counts[","] else max(counts, key=counts.__getitem__)


def _records(lines: Iterator[str], path: StrPath, delimiter: str, quote: str | None) -> Iterator[_Record]:
    """Yield the rows of a table without empty lines."""
    quoting: Literal[0, 3] = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, quoting=quoting, strict=True)
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield _Record(fields, begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        advice = "" if quote is None else ": if quotes are part of the text, pass quote=None"
        raise DataFormatError(path, f"{error}{advice}", begin) from error


def _listed(names: list[str]) -> str:
    """List the first fields of a line for a message, shortened, because they may be texts."""
    shown = [repr(name if len(name) <= 40 else f"{name[:37]}...") for name in names[:20]]
    return ", ".join(shown) + (", ..." if len(names) > 20 else "")


def _named(names: list[str], wanted: str) -> list[int]:
    """Return the columns of this name; if there are none, ignore case and surrounding blanks."""
    folded = [name.strip().casefold() for name in names]
    for known, name in ((names, wanted), (folded, wanted.strip().casefold())):
        if name in known:
            return [place for place, each in enumerate(known) if each == name]
    return []


def _position(path: StrPath, argument: str, column: str | int, names: list[str], has_header: bool) -> int:
    """Return the index of a column that is given by name or by index."""
    if isinstance(column, str):
        found = _named(names, column) if has_header else []
        if len(found) > 1:
            places = ", ".join(map(str, found))
            raise ValueError(
                f"{argument} is {column!r}; {os.fspath(path)} has {len(found)} columns of that name: pass the index of "
                f"one ({places})"
            )
        if found:
            return found[0]
        if not column.isdecimal():
            listed = _listed(names) if has_header else f"0 to {len(names) - 1}, no names: the table has no header"
            raise ValueError(f"{argument} is {column!r}; expected a column of {os.fspath(path)} ({listed})")
        column = int(column)
    if not 0 <= column < len(names):
        raise ValueError(f"{argument} is {column}; expected 0 to {len(names) - 1}, the columns of {os.fspath(path)}")
    return column


def _again(path: StrPath, argument: str, layout: TableLayout, names: list[str], has_header: bool) -> int:
    """Return the index of the column that held the texts, or the labels, in the table read before."""
    column, what = getattr(layout, argument), f"{argument.partition('_')[0]}s"
    if isinstance(column, str) and has_header:
        found = _named(names, column)
        if len(found) == 1:
            return found[0]
        held = f"has {len(found)} columns {column!r}" if found else f"has {_listed(names)}"
        raise DataFormatError(
            path,
            f"the first line {held}; expected a header with one column {column!r} of {what}, as in the training data: "
            f"pass the name of another ({argument}=), or its index if there is no header ({argument}=0, header=False)",
            1,
        )
    if what == "texts" and len(names) == 1:
        return 0
    if isinstance(column, int) and len(names) == layout.columns:
        return column
    given, expected = counted(len(names), "column"), str(layout.columns)
    if isinstance(column, str):
        given, expected = f"{given} without a header", f"{expected} with one"
    expected = f"expected {expected}, as in the training data, whose {what} are in column {column!r}"
    raise DataFormatError(path, f"{given}; {expected}: pass the index of the column here ({argument}=)", 1)


def _check_single(path: StrPath, sample: list[_Record], delimiter: str, layout: TableLayout) -> None:
    """Raise a DataFormatError for a table that has one column only because the delimiter is wrong."""
    for mark in set(_MARKS) - {delimiter}:
        if all(record.fields[0].count(mark) == layout.columns - 1 for record in sample):
            what = f"1 column with delimiter {delimiter!r}; expected {layout.columns}, as in the training data"
            raise DataFormatError(path, f"{what} and with delimiter {mark!r}: pass delimiter=", 1)


def _known(names: list[str], wanted: tuple[str, ...], taken: int | None) -> int | None:
    """Return the column with the first of the wanted names that occurs."""
    folded = [name.strip().casefold() for name in names]
    for name in wanted:
        if name in folded and folded.index(name) != taken:
            return folded.index(name)
    return None


def _choose(
    path: StrPath, sample: list[_Record], has_header: bool, text: int | None, label: int | None, with_labels: bool
) -> tuple[int, int | None]:
    """Choose the columns of the texts and of the labels that were not given."""
    names = sample[0].fields
    if len(names) == 1 and not with_labels:
        return 0, None
    if has_header:
        text = _known(names, _TEXT_NAMES, label) if text is None else text
        label = _known(names, _LABEL_NAMES, text) if label is None else label
    if text is None:
        if len(names) == 1 and label is None:
            text = 0
        elif len(names) == 1:
            listed = repr(names[0]) if has_header else "0"
            what = f"its only column, {listed}, is taken for labels; expected a column of texts"
            raise DataFormatError(path, f"{what}: if it has the texts, pass it as text_column=", 1)
        elif len(names) == 2 and label is not None:
            text = 1 - label
        elif len(names) == 2 and not has_header:
            lengths = [
                sum(len(record.fields[column]) for record in sample if len(record.fields) == 2) for column in (0, 1)
            ]
            text = int(np.argmax(lengths))
        else:
            listed = ", ".join(map(repr, names)) if has_header else f"{len(names)}, without a header"
            raise DataFormatError(
                path, f"the column of texts is not known (columns: {listed}): pass its name or index as text_column=", 1
            )
    if label is None and len(names) == 2 and not (has_header and names[1 - text].strip().casefold() in _OTHER_NAMES):
        label = 1 - text
    return text, label


def _is_header(
    fields: list[str], header: bool | None, columns: list[str | int | None], layout: TableLayout | None
) -> bool:
    if header is not None:
        return header
    if any(isinstance(column, str) and not column.isdecimal() for column in columns):
        return True
    if layout is not None:
        return layout.header
    return any(field.strip().casefold() in (*_TEXT_NAMES, *_LABEL_NAMES) for field in fields)


def read_table(
    path: StrPath,
    *,
    format: Literal["csv", "tsv", "jsonl", "parquet", "arrow"] = "csv",
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    task: Task = "auto",
    text_column: str | int | None = None,
    label_column: str | int | None = None,
    label_separator: str | None = None,
    delimiter: str | None = None,
    quote: str | None = "auto",
    header: bool | None = None,
    layout: TableLayout | None = None,
    with_labels: bool = True,
    vectorizer: TextVectorizer | Mapping[str, Any] | None = None,
) -> Dataset:
    """Read a table with a column of texts, and convert the texts to features.

    Parameters
    ----------
    path : str or path
        The table: UTF-8, plain or compressed.
    format : {"csv", "tsv", "jsonl", "parquet", "arrow"}, default="csv"
        The fields of ``"tsv"`` are separated by tabs. ``"jsonl"`` has an object on each line; the keys of the first are
        the columns. ``"parquet"`` and ``"arrow"`` need pyarrow (extra ``manyclass[arrow]``). The columns of these three
        have names; a list of labels needs `label_separator`.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the features, unless a fitted `vectorizer` or its parameters give one.
    n_features : int >= 0, default=None
        The number of columns expected from a fitted vectorizer.
    task : {"auto", "classification", "multilabel", "regression"}, default="auto"
        The kind of targets, as for `read_svmlight`.
    text_column, label_column : str or int, default=None
        A name in the header, or an index from 0; a name implies that there is a header. By default those of `layout`,
        or else columns with certain names (text, document, ...; label, class, category, target, code, ...). In a table
        of two columns the other one has the labels; without a header, the texts are in the one with longer fields.
    label_separator : str, default=None
        The separator of the labels of a row, if rows may have several or none.
    delimiter : str, default=None
        The character between fields. By default a comma, tab or semicolon, detected from the first line, or that of
        `layout` if there is no header.
    quote : str or None, default="auto"
        The quotation mark around fields that contain delimiters or line ends; None if quotes are part of the texts.
        ``"auto"`` is that of `layout`, or ``"``.
    header : bool, default=None
        Whether the first line has the names of the columns. By default as in `layout`, or else whether the line has one
        of the names above.
    layout : TableLayout, default=None
        The layout of a table read before (`Dataset.layout`), to read this one in the same way: columns have the same
        names or, without a header, the same indices, and are not detected. With ``with_labels=False`` a table that has
        only the texts can be read too.
    with_labels : bool, default=True
        Whether to read labels, if there are any.
    vectorizer : TextVectorizer or mapping, default=None
        A fitted vectorizer is used as it is. Otherwise one is fitted to these texts, with these parameters.

    Returns
    -------
    Dataset
        Its `vectorizer` is the fitted one.

    Raises
    ------
    DataFormatError
        If a row is invalid; the message names the line.
    ValueError
        If an argument is invalid or does not fit the table.

    Warns
    -----
    UserWarning
        If no text has a term that the vectorizer knows.
    """
    checked_dtype(dtype, n_features, "error", task)
    if vectorizer is None or isinstance(vectorizer, Mapping):
        from .text import TextVectorizer  # imports scikit-learn

        vectorizer = TextVectorizer(**{"dtype": dtype, **(vectorizer or {})})
        vectorizer.check()  # before a long file is read
    if n_features is not None and vectorizer.__sklearn_is_fitted__() and vectorizer.n_columns != n_features:
        raise ValueError(f"n_features is {n_features}; expected {vectorizer.n_columns}, the columns of the vectorizer")
    if quote == "auto":
        quote = '"' if layout is None else layout.quote
    if label_separator is None and layout is not None:
        label_separator = layout.label_separator
    given = delimiter
    if format in TYPED and delimiter is not None:
        raise ValueError(f"delimiter is {delimiter!r}, but {os.fspath(path)} has the format {format!r}: leave it out")
    with ExitStack() as stack:
        if format in TYPED:
            delimiter, header = ",", True
            records: Iterator[_Record] = (
                _Record(*row) for row in stack.enter_context(typed_rows(path, format, label_separator))
            )
        else:
            stack.enter_context(_long_fields)
            lines = stack.enter_context(open_bytes(path)).text_lines()
            first = next(lines, "")
            delimiter = _delimiter_of(first, format, layout) if given is None else given
            records = _records(chain([first], lines), path, delimiter, quote)
        sample = list(islice(records, _SAMPLE))
        if not sample:
            raise DataFormatError(path, "it has no rows; expected a text and a label on each line")
        names = sample[0].fields
        has_header = _is_header(names, header, [text_column, label_column], layout)
        text = None if text_column is None else _position(path, "text_column", text_column, names, has_header)
        label = None if label_column is None else _position(path, "label_column", label_column, names, has_header)
        if layout is None:
            text, label = _choose(path, sample, has_header, text, label, with_labels)
        else:
            if text is None:
                text = _again(path, "text_column", layout, names, has_header)
                if given is None and not has_header and len(names) == 1 < layout.columns:
                    _check_single(path, sample, delimiter, layout)
            if label is None and with_labels and layout.label_column is not None:
                label = _again(path, "label_column", layout, names, has_header)
        if not with_labels:
            label = None
        if text == label:
            raise ValueError(f"text_column and label_column are both column {text}; expected two different columns")
        rows = chain(sample[has_header:], records)
        labels = LabelColumn(path, task, label_separator)
        blank = 0

        def texts() -> Iterator[str]:
            nonlocal blank
            for fields, line in rows:
                if len(fields) != len(names):
                    raise DataFormatError(
                        path, f"{len(fields)} fields; expected {len(names)}, as in the first line", line
                    )
                if label is not None:
                    labels.add(fields[label], line)
                blank += not fields[text].strip()
                yield fields[text]

        if has_header and len(sample) == 1:
            raise DataFormatError(path, "it has no rows below the header; if there is no header, pass header=False", 1)
        try:
            X = (
                vectorizer.transform(texts())
                if vectorizer.__sklearn_is_fitted__()
                else vectorizer.fit_transform(texts())
            )
        except DataFormatError:
            raise
        except ValueError as error:  # of scikit-learn: no text has a term
            raise DataFormatError(
                path, f"the texts give no features ({error}): check text_column and the parameters of vectorizer"
            ) from error
    y, label_names = labels.targets()
    called = [repr(name) for name in names] if has_header else [str(place) for place in range(len(names))]
    notes = [f"texts from column {called[text]}"]
    if label is not None:
        notes[0] += f", labels from {called[label]}"
    elif with_labels:
        notes[0] += ", no labels"
    if not has_header:
        notes[0] += "; no header: the first line is a row"
    unknown = int(np.count_nonzero(np.diff(X.indptr) == 0))
    if unknown:
        held = f"{counted(unknown, 'text')} of {X.shape[0]} without a term that the vectorizer knows"
        notes.append(f"{held}, {blank} of them empty" if blank else held)
    if unknown == X.shape[0]:
        warnings.warn(
            f"no text in column {called[text]} of {os.fspath(path)} has a term that the vectorizer knows: all rows are "
            "empty; expected texts like those of the training data: check text_column and the language",
            stacklevel=2,
        )
    found = TableLayout(
        header=has_header,
        columns=len(names),
        text_column=_lasting(names, text, has_header),
        label_column=None if label is None else _lasting(names, label, has_header),
        delimiter=delimiter,
        quote=quote,
        label_separator=label_separator,
    )
    return Dataset(X, y, label_names, os.path.basename(path), format, tuple(notes), vectorizer, layout=found)


def _lasting(names: list[str], column: int, has_header: bool) -> str | int:
    """Return by what the column is found in another table: its name if that is unique, else its index."""
    return names[column] if has_header and names.count(names[column]) == 1 else column

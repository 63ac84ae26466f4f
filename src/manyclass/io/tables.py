"""CSV and TSV files with a column of texts and, perhaps, one of labels."""

from __future__ import annotations

import csv
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import LabelColumn, Task, checked_dtype
from .streams import StrPath, open_bytes

if TYPE_CHECKING:
    from .text import TextVectorizer

__all__ = ["TableLayout", "read_table"]

#: Names by which columns are known, the surest first.
_TEXT_NAMES = ("text", "document", "content", "body", "description", "sentence", "utterance", "query", "message")
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "code", "topic", "tag", "tags", "intent", "y")

#: Names of columns that are surely no labels.
_OTHER_NAMES = ("id", "idx", "index", "")

#: What may stand between fields.
_MARKS = (",", "\t", ";")

#: How many rows a guess about columns looks at.
_SAMPLE = 100


@dataclass(frozen=True)
class TableLayout:
    """The header, the columns and the quoting of a table that was read.

    Attributes
    ----------
    header : bool
        Whether the first line names the columns.
    columns : int
        The number of columns.
    text_column : str or int
        The column of the texts: its name in the header; its position from 0 where there is no header, or where the
        name is not unique.
    label_column : str, int or None
        The column of the labels; None if no labels were read from the table.
    delimiter : str
        What stands between fields.
    quote : str or None
        What surrounds fields that hold delimiters or line ends.
    label_separator : str or None
        What stands between the labels of a row, where it may have several.

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
        """The attributes, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> TableLayout:
        """The layout whose `to_dict` this is.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        try:
            layout = cls(**facts)
        except TypeError as error:
            raise ValueError(f"the layout of the table is damaged ({error})") from error
        damaged = f"the layout of the table is damaged: {layout!r}"
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
    line: int  # where it begins


class _LongFields:
    """Lets fields be longer than the csv module's 128 KiB while any table is read.

    The limit is one of the process, not of a reader: the first reader raises it, and the last one to end, in whatever
    thread, puts it back.
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
    """What stands between the fields, told from the first line, the format and the table read before."""
    if format == "tsv":
        return "\t"
    counts = {mark: first.count(mark) for mark in _MARKS}
    # Without a header nothing tells a wrong guess: texts hold commas and semicolons too.
    if layout is not None and (not layout.header or layout.delimiter in first or not any(counts.values())):
        return layout.delimiter
    return "," if counts[","] else max(counts, key=counts.__getitem__)


def _records(lines: Iterator[str], path: StrPath, delimiter: str, quote: str | None) -> Iterator[_Record]:
    """The rows of a table, empty lines left out."""
    quoting: Literal[0, 3] = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, quoting=quoting, strict=True)
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield _Record(fields, begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        advice = "" if quote is None else " (if quotes are part of the text, read it with quote=None)"
        raise DataFormatError(path, f"{error}{advice}", begin) from error


def _listed(names: list[str]) -> str:
    """The first fields of a line, shortened: it may be one of texts."""
    shown = [repr(name if len(name) <= 40 else f"{name[:37]}...") for name in names[:20]]
    return ", ".join(shown) + (", ..." if len(names) > 20 else "")


def _named(names: list[str], wanted: str) -> list[int]:
    """The columns of this name; if there is none, those whose names differ in case or in blanks around."""
    folded = [name.strip().casefold() for name in names]
    for known, name in ((names, wanted), (folded, wanted.strip().casefold())):
        if name in known:
            return [place for place, each in enumerate(known) if each == name]
    return []


def _position(path: StrPath, argument: str, column: str | int, names: list[str], has_header: bool) -> int:
    """The position of a column that was asked for by name or by position."""
    if isinstance(column, str):
        found = _named(names, column) if has_header else []
        if len(found) > 1:
            places = ", ".join(map(str, found))
            raise ValueError(
                f"{argument} is {column!r}; {os.fspath(path)} has {len(found)} columns of that name: give the number "
                f"of one ({places})"
            )
        if found:
            return found[0]
        if not column.isdecimal():
            listed = _listed(names) if has_header else "no names: the first line is no header"
            raise ValueError(f"{argument} is {column!r}; expected a column of {os.fspath(path)} ({listed})")
        column = int(column)
    if not 0 <= column < len(names):
        raise ValueError(f"{argument} is {column}; expected 0 to {len(names) - 1}, the columns of {os.fspath(path)}")
    return column


def _again(path: StrPath, argument: str, layout: TableLayout, names: list[str], has_header: bool) -> int:
    """The position of the column that the table read before had its texts, or its labels, in."""
    column, what = getattr(layout, argument), f"{argument.partition('_')[0]}s"
    alone = what == "texts" and len(names) == 1
    if isinstance(column, str) and has_header:
        found = _named(names, column)
        if len(found) == 1:
            return found[0]
        held = f"has {len(found)} columns {column!r}" if found else f"has {_listed(names)}"
        raise DataFormatError(
            path,
            f"the first line {held}; expected a header with one column {column!r} of {what}, as in the data of the "
            f"fit: name another ({argument}=), or its number if there is no header ({argument}=0, header=False)",
            1,
        )
    if alone:
        return 0
    if isinstance(column, str):
        what = f"{counted(len(names), 'column')} without a header; the {what} of the fit are in column {column!r}"
        raise DataFormatError(path, f"{what}: give the number of the column here ({argument}=)", 1)
    if len(names) != layout.columns:
        expected = f"expected {layout.columns}, as in the data of the fit, whose {what} are in column {column}"
        raise DataFormatError(
            path, f"{counted(len(names), 'column')}; {expected}: give the number of the column here ({argument}=)", 1
        )
    return int(column)


def _check_single(path: StrPath, sample: list[_Record], delimiter: str, layout: TableLayout) -> None:
    """Refuse a table that has one column only because its fields are separated otherwise."""
    for mark in set(_MARKS) - {delimiter}:
        if all(record.fields[0].count(mark) == layout.columns - 1 for record in sample):
            what = f"one column, and {layout.columns} if its fields were separated by {mark!r} and not {delimiter!r}"
            raise DataFormatError(path, f"{what}, as in the data of the fit: say what separates them (delimiter=)", 1)


def _known(names: list[str], wanted: tuple[str, ...], taken: int | None) -> int | None:
    """The column with the surest of the wanted names."""
    folded = [name.strip().casefold() for name in names]
    for name in wanted:
        if name in folded and folded.index(name) != taken:
            return folded.index(name)
    return None


def _choose(
    path: StrPath, sample: list[_Record], has_header: bool, text: int | None, label: int | None, with_labels: bool
) -> tuple[int, int | None]:
    """The columns of the texts and of the labels, as far as they were not asked for."""
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
            what = f"its only column, {listed}, is taken for that of the labels"
            raise DataFormatError(path, f"{what}; expected a column of texts: if it is that, name it (text_column=)", 1)
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
                path, f"which column holds the texts? Name it with text_column (columns: {listed})", 1
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
    format: Literal["csv", "tsv"] = "csv",
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
    """Read a table with a column of texts, and turn the texts into features.

    Parameters
    ----------
    path : str or path
        UTF-8, plain or compressed.
    format : {"csv", "tsv"}
        ``"tsv"`` has tabs between the fields.
    dtype : float32 or float64
        The type of the features, unless `vectorizer` has its own.
    n_features : int, optional
        What the vectorizer is expected to give.
    task : str
        What the labels are, as for `read_svmlight`.
    text_column, label_column : str or int, optional
        A name in the header, or a position from 0; a name says that there is a header. By default those of
        `layout`; without it, columns are known by their names (text, document, ...; label, class, category,
        target, code, ...). In a table of two columns the other one is the label; without a header, the texts are
        in the longer one.
    label_separator : str, optional
        What stands between the labels of a row, if it may have several or none.
    delimiter : str, optional
        What stands between fields; by default a comma, tab or semicolon, as the first line has it (that of
        `layout`, if this has no header).
    quote : str or None
        What surrounds fields that hold delimiters or line ends; None if quotes are part of the texts. By default
        (``"auto"``) as in `layout`, or the quotation mark.
    header : bool, optional
        Whether the first line has the names of the columns; by default as in `layout`, or, without it, if it has
        one of those above.
    layout : TableLayout, optional
        That of a table read before (`Dataset.layout`), to read this one in the same way: columns are found under
        the same names or, without a header, at the same positions; nothing is guessed. A table of texts alone is
        read as well, if `with_labels` is False.
    with_labels : bool
        Whether to read labels, if there are any.
    vectorizer : TextVectorizer or mapping, optional
        A fitted one is used as it is. Otherwise one is fitted on these texts, with the parameters in the
        mapping.

    Returns
    -------
    Dataset
        With the fitted `vectorizer`.

    Raises
    ------
    DataFormatError
        With the line, where a row is wrong.
    ValueError
        If an argument is wrong or does not fit the table.

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
        raise ValueError(f"n_features is {n_features}; the vectorizer gives {vectorizer.n_columns}")
    if quote == "auto":
        quote = '"' if layout is None else layout.quote
    if label_separator is None and layout is not None:
        label_separator = layout.label_separator
    with _long_fields, open_bytes(path) as source:
        lines = source.text_lines()
        first = next(lines, "")
        given = delimiter
        delimiter = _delimiter_of(first, format, layout) if given is None else given
        records = _records(chain([first], lines), path, delimiter, quote)
        sample = list(islice(records, _SAMPLE))
        if not sample:
            raise DataFormatError(path, "there is no row in it; expected a text and a label on each")
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
            raise ValueError(f"text_column and label_column are both column {text}; expected two columns")
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
            raise DataFormatError(path, "there is no row below the header", 1)
        try:
            X = (
                vectorizer.transform(texts())
                if vectorizer.__sklearn_is_fitted__()
                else vectorizer.fit_transform(texts())
            )
        except DataFormatError:
            raise
        except ValueError as error:  # scikit-learn has found no term in the texts
            raise DataFormatError(path, f"the texts give no features ({error})") from error
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
            "empty. Is it the right column (text_column), and of the same language?",
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
    """By what the column will be found in another table: its name, if it is the only one to have it."""
    return names[column] if has_header and names.count(names[column]) == 1 else column

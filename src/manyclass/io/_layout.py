"""Which columns of a table are read, and how it was read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from ._columns import kind_of
from .errors import DataFormatError, counted
from .streams import StrPath

__all__ = [
    "Record",
    "TableLayout",
    "again",
    "choose",
    "find_names",
    "is_header",
    "known_label",
    "lasting",
    "listed",
    "position",
]

#: Names of columns of texts and of labels; earlier names take precedence.
_TEXT_NAMES = ("text", "document", "content", "body", "description", "sentence", "utterance", "query", "message")
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "code", "topic", "tag", "tags", "intent", "y")

#: Further names, which are taken for such only where a header has two columns and both are known.
_MORE_TEXT_NAMES = ("question", "comment", "review", "title", "subject", "summary", "phrase", "word", "term", "name")
_MORE_LABEL_NAMES = ("language", "lang", "queue", "department", "product", "type", "genre", "sentiment", "author")

#: Names of columns that do not hold labels.
_OTHER_NAMES = ("id", "idx", "index", "")


class Record(NamedTuple):
    """A row: its fields, which are texts in CSV, and its first line, since fields may contain line ends."""

    fields: list[Any]
    line: int


@dataclass(frozen=True)
class TableLayout:
    """How a table was read: header, columns, delimiter and quoting.

    Attributes
    ----------
    header : bool
        Whether the first line names the columns.
    columns : int
        The number of columns.
    text_column : str, int or None
        The column of the texts: its name in the header, or its index from 0 if there is no header or the name is not
        unique. None for a table of several columns, whose `TableEncoder` knows their names.
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
    text_column: str | int | None
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


def listed(names: Sequence[str]) -> str:
    """List the first fields of a line for a message, shortened, because they may be texts."""
    shown = [repr(name if len(name) <= 40 else f"{name[:37]}...") for name in names[:20]]
    return ", ".join(shown) + (", ..." if len(names) > 20 else "")


def find_names(names: Sequence[str], wanted: str) -> list[int]:
    """Return the columns of this name; if there are none, ignore case and surrounding blanks."""
    folded = [name.strip().casefold() for name in names]
    for known, name in ((names, wanted), (folded, wanted.strip().casefold())):
        if name in known:
            return [place for place, each in enumerate(known) if each == name]
    return []


def position(path: StrPath, argument: str, column: str | int, names: list[str], has_header: bool) -> int:
    """Return the index of a column that is given by name or by index."""
    if isinstance(column, str):
        found = find_names(names, column) if has_header else []
        if len(found) > 1:
            places = ", ".join(map(str, found))
            raise ValueError(
                f"{argument} is {column!r}; {os.fspath(path)} has {len(found)} columns of that name: pass the index of "
                f"one ({places})"
            )
        if found:
            return found[0]
        if not column.isdecimal():
            known = listed(names) if has_header else f"0 to {len(names) - 1}, no names: the table has no header"
            raise ValueError(f"{argument} is {column!r}; expected a column of {os.fspath(path)} ({known})")
        column = int(column)
    if not 0 <= column < len(names):
        raise ValueError(f"{argument} is {column}; expected 0 to {len(names) - 1}, the columns of {os.fspath(path)}")
    return column


def again(path: StrPath, argument: str, layout: TableLayout, names: list[str], has_header: bool) -> int:
    """Return the index of the column that held the texts, or the labels, in the table read before."""
    column, what = getattr(layout, argument), f"{argument.partition('_')[0]}s"
    if isinstance(column, str) and has_header:
        found = find_names(names, column)
        if len(found) == 1:
            return found[0]
        held = f"has {len(found)} columns {column!r}" if found else f"has {listed(names)}"
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


def _known(names: list[str], wanted: tuple[str, ...], taken: int | None) -> int | None:
    """Return the column with the first of the wanted names that occurs."""
    folded = [name.strip().casefold() for name in names]
    for name in wanted:
        if name in folded and folded.index(name) != taken:
            return folded.index(name)
    return None


def choose(
    path: StrPath, sample: list[Record], has_header: bool, text: int | None, label: int | None, with_labels: bool
) -> tuple[int | None, int | None]:
    """Choose the columns of the texts and of the labels that were not given; no texts: a table of other columns."""
    names = sample[0].fields
    if len(names) == 1 and not with_labels:
        return 0, None
    if has_header:
        pair = len(names) == 2
        text = _known(names, _TEXT_NAMES + _MORE_TEXT_NAMES * pair, label) if text is None else text
        label = _known(names, _LABEL_NAMES + _MORE_LABEL_NAMES * pair, text) if label is None else label
    if text is None:
        if len(names) == 1 and label is None:
            text = 0
        elif len(names) == 1:
            only = repr(names[0]) if has_header else "0"
            what = f"its only column, {only}, is taken for labels; expected a column of texts"
            raise DataFormatError(path, f"{what}: if it has the texts, pass it as text_column=", 1)
        elif len(names) == 2 and label is not None:
            other = [record.fields[1 - label] for record in sample[has_header:] if len(record.fields) == 2]
            if kind_of(other, typed=not all(isinstance(value, str) for value in other)) in ("number", "date"):
                return None, label
            text = 1 - label
        elif len(names) == 2 and not has_header:
            text = _texts_of_two([record.fields for record in sample if len(record.fields) == 2])
        elif label is None and with_labels:
            shown = listed(names) if has_header else f"{len(names)}, without a header"
            raise DataFormatError(
                path,
                f"the column of texts is not known, nor that of labels (columns: {shown}): pass the name or index of "
                "the texts as text_column=, or of the labels as label_column= where there are numbers and categories",
                1,
            )
        else:
            return None, label
    if label is None and len(names) == 2 and not (has_header and names[1 - text].strip().casefold() in _OTHER_NAMES):
        label = 1 - text
    return text, label


def _texts_of_two(rows: list[list[str]]) -> int:
    """Return the column that is rather texts than labels: labels recur in other rows, and are shorter."""
    different = [len({fields[column] for fields in rows}) for column in (0, 1)]
    if abs(different[0] - different[1]) > 0.1 * len(rows):
        return int(np.argmax(different))
    return int(np.argmax([sum(len(fields[column]) for fields in rows) for column in (0, 1)]))


def known_label(names: list[str], taken: Sequence[int]) -> int | None:
    """Return the column with a name of labels, if it is not taken."""
    free = ["" if place in taken else name for place, name in enumerate(names)]
    return _known(free, _LABEL_NAMES, None)


def is_header(
    sample: list[Record],
    header: bool | None,
    columns: Sequence[str | int | None],
    layout: TableLayout | None,
    may_be_texts: bool,
) -> bool:
    """Return whether the first line names the columns, some of which may be given."""
    if header is not None:
        return header
    if any(isinstance(column, str) and not column.isdecimal() for column in columns):
        return True
    if layout is not None:
        return layout.header
    first = sample[0].fields
    folded = [field.strip().casefold() for field in first]
    if any(name in (*_TEXT_NAMES, *_LABEL_NAMES) for name in folded):
        return True
    if len(first) == 2 and any(
        folded[text] in _MORE_TEXT_NAMES and folded[1 - text] in _MORE_LABEL_NAMES for text in (0, 1)
    ):
        return True
    if may_be_texts or len(sample) < 3:
        return False
    # A name above numbers.
    whole = [record.fields for record in sample[1:] if len(record.fields) == len(first)]
    return any(
        kind_of([name], False) == "category" and kind_of([fields[place] for fields in whole], False) == "number"
        for place, name in enumerate(first)
    )


def lasting(names: list[str], column: int, has_header: bool) -> str | int:
    """Return by what the column is found in another table: its name if that is unique, else its index."""
    return names[column] if has_header and names.count(names[column]) == 1 else column

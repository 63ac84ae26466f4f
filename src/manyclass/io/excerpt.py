"""Some rows of a table that has been read, as they stand in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any, Literal

from ._csv_rows import FirstRows, csv_records, long_fields
from ._layout import Record, TableLayout, again
from .streams import StrPath
from .typed import TYPED, as_text, typed_rows

__all__ = ["excerpt"]


def excerpt(
    path: StrPath,
    rows: Sequence[int],
    *,
    format: str,
    layout: TableLayout,
    unlabeled: Literal["error", "skip"] = "error",
) -> list[dict[str, Any]]:
    """Return the values of some rows of a table by the names of the columns.

    The file is read again up to the last of the rows.

    Parameters
    ----------
    path : str or path
        The table, or the files of it that `joined` found.
    rows : sequence of int
        The numbers of the rows, ascending, from 0, as in the data set that was read.
    format : str
        The format of the table.
    layout : TableLayout
        That of the data set. Columns without a name are numbered from 0.
    unlabeled : {"error", "skip"}, default="error"
        As for the data set: whether rows without a label were left out.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from manyclass.io import read
    >>> path = pathlib.Path(tempfile.mkdtemp(), "t.csv")
    >>> _ = path.write_text("text,label\\nhello,a\\ngood bye,b\\n")
    >>> excerpt(path, [1], format="csv", layout=read(path).layout)
    [{'text': 'good bye', 'label': 'b'}]
    """
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        if format in TYPED:
            records: Iterator[Record] = (Record(*row) for row in stack.enter_context(typed_rows(path, format)))
        else:
            stack.enter_context(long_fields)
            firsts = FirstRows(layout.header)
            records = stack.enter_context(closing(csv_records(path, layout.delimiter, layout.quote, firsts)))
        first = next(records)
        names = first.fields if layout.header else [str(place) for place in range(len(first.fields))]
        label = None
        if unlabeled == "skip" and layout.label_column is not None and layout.label_separator is None:
            label = again(path, "label_column", layout, names, layout.header)
        number, left = 0, list(rows)
        for fields, line in records if layout.header else chain([first], records):
            if not left:
                break
            if label is not None and not as_text(path, names[label], fields[label], None, line).strip():
                continue
            if number == left[0]:
                found.append(dict(zip(names, fields)))
                del left[0]
            number += 1
    return found

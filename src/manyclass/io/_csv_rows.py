"""Reads the rows of CSV files, of which several can be one table."""

from __future__ import annotations

import csv
import threading
from collections.abc import Generator, Iterator
from typing import Literal

from ._joined import Joined
from ._layout import Record, TableLayout
from .errors import DataFormatError
from .streams import StrPath, open_bytes
from .typed import other_columns

__all__ = ["MARKS", "FirstRows", "LongFields", "csv_records", "delimiter_of", "long_fields"]

#: Delimiters that are detected.
MARKS = (",", "\t", ";")


class LongFields:
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


long_fields = LongFields()


def delimiter_of(path: StrPath, format: str, layout: TableLayout | None) -> str:
    """Detect the delimiter from the first line, the format and the layout of the table read before."""
    if format == "tsv":
        return "\t"
    first = next(_lines(path), "")
    counts = {mark: first.count(mark) for mark in MARKS}
    # Without a header a wrong guess would go unnoticed: texts contain commas and semicolons too.
    if layout is not None and (not layout.header or layout.delimiter in first or not any(counts.values())):
        return layout.delimiter
    return "," if counts[","] else max(counts, key=counts.__getitem__)


def _records(lines: Iterator[str], path: StrPath, delimiter: str, quote: str | None) -> Iterator[Record]:
    """Yield the rows of a table without empty lines."""
    quoting: Literal[0, 3] = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, quoting=quoting, strict=True)
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield Record(fields, begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        advice = "" if quote is None else ": if quotes are part of the text, pass quote=None"
        raise DataFormatError(path, f"{error}{advice}", begin) from error


def _lines(path: StrPath) -> Iterator[str]:
    """The lines of a file, or of several."""
    for file in path.files if isinstance(path, Joined) else [path]:
        with open_bytes(file) as source:
            yield from source.text_lines()


class FirstRows:
    """The first rows of all files but the first: the header again, which is left out, or rows like others.

    Parameters
    ----------
    header : bool or None
        Whether the files have headers; None if rows will tell.
    """

    def __init__(self, header: bool | None) -> None:
        self._header = header
        self._same = self._other = ""  # files that begin with the same row as the first, or with another
        self._what = ""

    def is_row(self, file: str, fields: list[str], expected: list[str], of: str) -> bool:
        """Whether the first row of a file is no header, given that of the first file."""
        if self._header is False:
            return True
        if fields == expected:
            self._same = self._same or file
            return False
        if not self._other:
            self._other, self._what = file, other_columns(fields, expected, of)
        if self._header:
            raise DataFormatError(self._other, self._what, 1)
        return True

    def settle(self, header: bool) -> None:
        """Take notice of whether there are headers, and raise a DataFormatError for a file that is unlike that."""
        if header and self._other:
            raise DataFormatError(self._other, self._what, 1)
        if self._same and not header:
            what = "the first line is that of the first file, but does not look like names of columns; expected either"
            raise DataFormatError(self._same, f"{what}: pass header=True or header=False", 1)
        self._header = header


def csv_records(path: StrPath, delimiter: str, quote: str | None, firsts: FirstRows) -> Generator[Record, None, None]:
    """Yield the rows of a table without empty lines."""
    if not isinstance(path, Joined):
        yield from _records(_lines(path), path, delimiter, quote)
        return
    expected: list[str] = []
    of, before = "", 0
    for place, file in enumerate(path.files):
        path.begin(before, first=not place)
        line = 0
        for number, (fields, line) in enumerate(_records(_lines(file), file, delimiter, quote)):
            if not expected:
                expected, of = fields, file
            elif not number and not firsts.is_row(file, fields, expected, of):
                continue
            yield Record(fields, before + line)
        before += line

"""CSV and TSV files with a column of texts and, perhaps, one of labels."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import LabelColumn, Targets, Task
from .streams import Source, StrPath, open_bytes
from .text import TextVectorizer

__all__ = ["read_table"]

#: Names by which columns are known, the surest first.
_TEXT_NAMES = ("text", "document", "content", "body", "description", "sentence", "utterance", "query", "message")
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "code", "topic", "tag", "tags", "intent", "y")

#: How many rows a guess about columns looks at.
_SAMPLE = 100


class _Record(NamedTuple):
    fields: list[str]
    line: int  # where it begins


class _Columns(NamedTuple):
    text: int
    label: int | None
    width: int


def _decoded(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines(), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            what = f"not UTF-8 text ({error.reason}): convert the file to UTF-8"
            raise DataFormatError(source.path, what, number) from error


def _records(source: Source, delimiter: str | None, quote: str | None) -> Iterator[_Record]:
    """The rows of a table, empty lines left out."""
    lines = _decoded(source)
    if delimiter is None:
        first = next(lines, "")
        counts = {mark: first.count(mark) for mark in ",\t;"}
        delimiter = "," if counts[","] else max(counts, key=counts.__getitem__)
        lines = chain([first], lines)
    quoting = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, quoting=quoting, strict=True)
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield _Record(fields, begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        advice = "" if quote is None else " (if quotes are part of the text, read it with quote=None)"
        raise DataFormatError(source.path, f"{error}{advice}", begin) from error

"""Reads the rows of JSON lines, Parquet and Arrow files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._joined import Joined
from .errors import DataFormatError
from .streams import StrPath, check_regular, open_bytes, refuse_bomb

__all__ = ["TYPED", "arrow_values", "as_text", "pyarrow", "typed_rows"]

#: Formats of tables whose columns have names and types.
TYPED = ("jsonl", "parquet", "arrow")


def pyarrow(what: str) -> Any:
    """The optional package pyarrow; a ValueError that says how to install it if it is missing."""
    try:
        import pyarrow
    except ImportError:
        raise ValueError(
            f"{what} needs the package 'pyarrow': install it with  python -m pip install 'manyclass[arrow]'"
        ) from None
    return pyarrow


@contextmanager
def typed_rows(path: StrPath, format: str) -> Iterator[Iterator[tuple[list[Any], int]]]:
    """The names of the columns, then the values of the rows, each with its number from 1; None is a missing value."""
    if isinstance(path, Joined):
        rows = _json_rows(path, path.joined_lines(_lines_of_each(path))) if format == "jsonl" else _joined(path, format)
        yield rows
    elif format == "jsonl":
        with open_bytes(path) as source:
            yield _json_rows(path, source.text_lines())
    else:
        yield _arrow_rows(path, format)


def _lines_of_each(path: Joined) -> Iterator[Iterator[str]]:
    for file in path.files:
        with open_bytes(file) as source:
            yield source.text_lines()


def _joined(path: Joined, format: str) -> Iterator[tuple[list[Any], int]]:
    """The rows of several files, whose columns must have the same names."""
    names: list[Any] = []
    before = 0
    for place, file in enumerate(path.files):
        path.begin(before, first=not place)
        number = 0
        for at, (row, number) in enumerate(_arrow_rows(file, format)):
            if at or not place:
                names = names if at or place else row
                yield row, before + number
            elif row != names:
                raise DataFormatError(file, other_columns(row, names, path.files[0]))
        before += number


def other_columns(names: list[Any], expected: list[Any], of: str) -> str:
    """The message on a file whose columns are not those of the first file."""
    return (
        f"its columns are {', '.join(map(repr, names))}; expected {', '.join(map(repr, expected))}, as in {of}: read "
        "files of the same columns as one"
    )


def _json_rows(path: StrPath, lines: Iterator[str]) -> Iterator[tuple[list[Any], int]]:
    names: list[str] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataFormatError(path, f"is no JSON ({error}); expected an object on each line", number) from error
        if not isinstance(row, dict):
            raise DataFormatError(path, f"has a JSON {type(row).__name__}; expected an object on each line", number)
        if names is None:
            names = list(row)
            yield names, number
        yield [row.get(name) for name in names], number


def _arrow_rows(path: StrPath, format: str) -> Iterator[tuple[list[Any], int]]:
    check_regular(path)
    arrow = pyarrow(f"{os.fspath(path)} has the format {format!r}, which")
    number, made, size = 0, 0, os.path.getsize(path)
    try:
        for place, (names, batch) in enumerate(_batches(path, format)):
            if place == 0:
                yield names, 1
            batch.validate(full=True)  # pyarrow trusts offsets: wrong ones end the process
            for row in zip(*map(arrow_values, batch.columns)):
                number += 1
                made += sum(map(_size, row))
                refuse_bomb(path, size, made)
                yield list(row), number
    except DataFormatError:
        raise
    except (arrow.ArrowException, ArithmeticError, MemoryError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of the content
            raise
        told = error if str(error) else type(error).__name__
        raise DataFormatError(path, f"cannot be read as {format} ({told}): copy or write it again") from error


def arrow_values(column: Any) -> list[Any]:
    """The values of a column; those of a dictionary, which are categories, as texts."""
    values: list[Any] = column.to_pylist()
    if not str(column.type).startswith("dictionary"):
        return values
    return [None if value is None else str(value) for value in values]


def _size(value: Any) -> int:
    """About the bytes of a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return sum(map(_size, value), 8)
    return len(value) + 1 if isinstance(value, str | bytes) else 8


def _batches(path: StrPath, format: str) -> Iterator[tuple[list[str], Any]]:
    """The batches of rows, and the names of their columns."""
    if format == "parquet":
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            refuse_bomb(path, os.path.getsize(path), sum(file.metadata.row_group(k).total_byte_size for k in groups))
            for batch in file.iter_batches():
                yield batch.schema.names, batch
        return
    from pyarrow import ipc

    with open(path, "rb") as raw:
        whole = raw.read(6) == b"ARROW1"  # a file with an index, or a stream
        raw.seek(0)
        reader = ipc.open_file(raw) if whole else ipc.open_stream(raw)
        for batch in (reader.get_batch(k) for k in range(reader.num_record_batches)) if whole else reader:
            yield batch.schema.names, batch


def as_text(path: StrPath, name: str, value: Any, separator: str | None, number: int) -> str:
    """A value as a text: what is missing is empty, and a list is joined by ``separator``, which it needs."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        if separator is None:
            raise DataFormatError(
                path, f"{name!r} has a list; expected one value: pass label_separator= for lists of labels", number
            )
        return separator.join(as_text(path, name, each, None, number) for each in value)
    return json.dumps(value, default=str) if isinstance(value, dict) else str(value)

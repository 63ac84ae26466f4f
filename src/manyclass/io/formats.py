"""The formats of files of data, and how a file tells its own."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from ._joined import Joined
from .errors import DataFormatError
from .folder import MANIFEST
from .streams import StrPath, open_bytes
from .typed import TYPED
from .xmc import XMC_HEADER

__all__ = [
    "FORMATS",
    "JOINABLE",
    "SUFFIXES",
    "TABLES",
    "Format",
    "check_joinable",
    "detect_format",
    "joined",
    "named_format",
]

Format: TypeAlias = Literal["svmlight", "xmc", "npz", "npy", "csv", "tsv", "jsonl", "parquet", "arrow", "store"]
FORMATS: tuple[str, ...] = get_args(Format)

#: Formats of tables.
TABLES = ("csv", "tsv", *TYPED)

#: Formats of which several files can be read as one.
JOINABLE = ("svmlight", *TABLES)

SUFFIXES: dict[str, Format] = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".xmc": "xmc",
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".store": "store",
}

_SVMLIGHT_LINE = re.compile(rb"(?:[^\s:#]+[ \t]|[ \t])[ \t]*(?:[0-9]+|qid):[^\s]+(?:[\s#]|\Z)")


def _suffix(path: StrPath) -> str:
    """The suffix of a name in lower case, without that of a compression."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix in (".gz", ".zst") else name).suffix.lower()


def named_format(path: StrPath) -> Format | None:
    """Return the format that the suffix of a file name stands for, compressed or not; None if it stands for none.

    Examples
    --------
    >>> named_format("train.svm.gz"), named_format("train.txt")
    ('svmlight', None)
    """
    return SUFFIXES.get(_suffix(path))


def detect_format(path: StrPath) -> Format:
    """Detect the format of a file from its first bytes and its name.

    Parameters
    ----------
    path : str or path
        A file, compressed or not, or a folder; files that `joined` has found must all have the same format.

    Returns
    -------
    str
        One of `FORMATS`.

    Raises
    ------
    DataFormatError
        If the file is empty or has none of the `FORMATS`.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     _ = path.write_text("2 3 4\\n0,3 0:1 2:0.5\\n 1:2\\n")
    ...     detect_format(path)
    'xmc'
    """
    if isinstance(path, Joined):
        return _format_of_all(path)
    if os.path.isdir(path):
        return "store"  # opening it refuses any other folder
    with open_bytes(path) as source:
        head = source.read(1 << 16)
    if not head:
        raise DataFormatError(path, "the file is empty; expected at least one row")
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PAR1"):
        return "parquet"
    known = named_format(path)
    if head.startswith(b"ARROW1"):
        return "arrow"
    if known in TABLES:
        return known
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b'{"'):
        return "jsonl"
    if XMC_HEADER.match(head):
        return "xmc"
    if known in ("svmlight", "xmc"):
        return known
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    first = next((line for line in lines if line.partition(b"#")[0].strip()), b"")
    if _SVMLIGHT_LINE.match(first):
        return "svmlight"
    raise DataFormatError(
        path, f"its format cannot be detected from its start and name: pass format=, one of {', '.join(FORMATS)}"
    )


def _format_of_all(path: Joined) -> Format:
    """The format of several files; files of no bytes, which have no rows, may be among them."""
    found: dict[Format, str] = {}
    for file, size in zip(path.files, path.sizes()):
        if size:
            kind = detect_format(file)
            first, of = next(iter(found.items()), (kind, file))
            if kind != first:
                raise DataFormatError(
                    file,
                    f"has the format {kind!r}, and {of} has {first!r}; expected files of one format: read one kind",
                )
            found[kind] = of
    if not found:
        raise DataFormatError(path, "all files are empty; expected at least one row")
    return next(iter(found))


def check_joinable(path: StrPath, format: Format) -> None:
    """Raise a DataFormatError for several files of a format that is read from a single file."""
    if isinstance(path, Joined) and format not in JOINABLE:
        raise DataFormatError(
            path,
            f"has several files of the format {format!r}; expected one file, or several of {', '.join(JOINABLE)}: join "
            "the arrays, or read the files one after another",
        )


def joined(path: StrPath | Sequence[StrPath]) -> StrPath:
    """Return what is to be read: a path as it is, or a `Joined` that stands for several files.

    Parameters
    ----------
    path : str, path or sequence of them
        A file; a folder, whose files with the suffix of a format are taken by name, unless it is a folder of this
        package; a pattern such as ``"part-*.csv"`` (``**``: in all folders below), whose files are taken by name; or
        several of these, in the order given.

    Raises
    ------
    OSError
        If no file matches a pattern.
    ValueError
        If a file occurs twice, or there is none.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("part-1.csv", "part-0.csv", "README"):
    ...         _ = pathlib.Path(folder, name).write_text("text,label\\nhello,a\\n")
    ...     found = joined(folder)
    >>> [os.path.basename(file) for file in found.files], found.left
    (['part-0.csv', 'part-1.csv'], ('README',))
    """
    if isinstance(path, str | os.PathLike):
        return _files_of(path)
    parts = [_files_of(each) for each in path]
    files = [file for part in parts for file in (part.files if isinstance(part, Joined) else [os.fspath(part)])]
    if not files:
        raise ValueError("no file is given; expected one or more to read")
    seen: set[str] = set()
    for file in files:
        real = os.path.realpath(file)
        if real in seen:
            raise ValueError(f"{file} is given twice; expected different files: leave one out")
        seen.add(real)
    if len(parts) == 1:
        return parts[0]
    name = f"{os.fspath(parts[0])} and {len(parts) - 1} more"
    return Joined(name, files, [other for part in parts if isinstance(part, Joined) for other in part.left])


def _files_of(path: StrPath) -> StrPath:
    """The files in a folder or of a pattern; any other path as it is."""
    if isinstance(path, Joined):
        return path
    left: list[str] = []
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, MANIFEST)):
            return path
        names = sorted(name for name in os.listdir(path) if name[0] not in "._")
        taken = [name for name in names if named_format(name) and os.path.isfile(os.path.join(path, name))]
        left = [name for name in names if name not in {*taken}]
        files = [os.path.join(path, name) for name in taken]
    elif glob.has_magic(os.fspath(path)) and not os.path.lexists(path):
        files = [file for file in sorted(glob.glob(os.fspath(path), recursive=True)) if not os.path.isdir(file)]
        if not files:
            raise FileNotFoundError(errno.ENOENT, "no file matches this pattern", os.fspath(path))
    else:
        return path
    if not files:
        return path  # reading it says what is wrong
    return files[0] if len(files) == 1 else Joined(os.fspath(path), files, left)

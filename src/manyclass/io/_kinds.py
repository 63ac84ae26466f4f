"""Kinds of files of arrays, the entry of a file in a manifest, and the error of a damaged file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["FileError", "Kind", "Written"]


class FileError(ValueError):
    """A file is not of the expected kind, or it is damaged.

    Parameters
    ----------
    path : str or os.PathLike
        The file or folder.
    what : str
        What is wrong, what was expected and what to do.

    Examples
    --------
    >>> print(FileError("m.model", "not a model file"))
    m.model: not a model file
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        # The base class gets both, because pickling (in worker processes) passes its arguments to __init__.
        super().__init__(os.fspath(path), what)
        self.path = os.fspath(path)
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class Kind(NamedTuple):
    """A kind of file, and the texts of its messages.

    Attributes
    ----------
    format : str
        As in the header; an empty text stands for any format.
    version : int
        The newest version that can be read.
    name : str
        The name of such a file in messages.
    source : str
        The end of the message about a file of another kind: what to do.
    remedy : str
        The end of the message about a damaged file: what to do.
    error : type
        The exception to raise.
    facts : mapping
        The other entries that the header must have -> their types.
    """

    format: str
    version: int
    name: str
    source: str
    remedy: str
    error: type[FileError] = FileError
    facts: Mapping[str, type | tuple[type, ...]] = {}


class Written(NamedTuple):
    """The entry of a file in a manifest."""

    file: str
    bytes: int
    sha256: str

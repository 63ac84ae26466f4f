"""The error that readers raise for an invalid file."""

from __future__ import annotations

import os

from ._joined import Joined

__all__ = ["DataFormatError", "counted"]


def counted(number: int, noun: str) -> str:
    """A number with its noun, singular or plural: ``1 row``, ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class DataFormatError(ValueError):
    """A file does not conform to its format, or not to what was asked for.

    Parameters
    ----------
    path : str or os.PathLike
        The file; of several that are read as one, the line tells which.
    what : str
        What is wrong, what was expected and what to do.
    line : int, default=None
        The number of the line, from 1, in the decompressed file.

    Examples
    --------
    >>> print(DataFormatError("train.svm", "no number after the colon", 3))
    train.svm, line 3: no number after the colon
    """

    def __init__(self, path: str | os.PathLike[str], what: str, line: int | None = None) -> None:
        if isinstance(path, Joined):
            path, line = path.located(line)
        # The base class gets all three, because pickling (in worker processes) passes its arguments to __init__.
        super().__init__(os.fspath(path), what, line)
        self.path = os.fspath(path)
        self.what = what
        self.line = line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"{place}: {self.what}"

"""What reading a wrong file raises."""

from __future__ import annotations

import os

__all__ = ["DataFormatError", "counted"]


def counted(number: int, noun: str) -> str:
    """A number of things, in words: ``1 row``, ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class DataFormatError(ValueError):
    """A file does not hold what its format promises.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    what : str
        What is wrong, and what was expected.
    line : int, optional
        The line, counted from 1, in the file as its reader sees it (after decompression).

    Examples
    --------
    >>> print(DataFormatError("train.svm", "no number after the colon", 3))
    train.svm, line 3: no number after the colon
    """

    def __init__(self, path: str | os.PathLike[str], what: str, line: int | None = None) -> None:
        # All three are handed to the base class so that the exception survives pickling (a worker process).
        super().__init__(os.fspath(path), what, line)
        self.path = os.fspath(path)
        self.what = what
        self.line = line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"{place}: {self.what}"

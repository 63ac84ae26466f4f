"""Several files that are read as one."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence

__all__ = ["Joined"]


class Joined(os.PathLike[str]):
    """Several files of one format, in the order in which they are read as one.

    It stands in place of a path: readers open its `files` one after another, count their lines on, and say where each
    begins, so that an error names the file and the line in it.

    Parameters
    ----------
    name : str
        The files as they were asked for: a folder, a pattern or a list.
    files : sequence of str
        The files.
    left : sequence of str
        The names of the entries of the folder that are none of them.
    """

    def __init__(self, name: str, files: Sequence[str], left: Sequence[str] = ()) -> None:
        self.name, self.files, self.left = name, tuple(files), tuple(left)
        self._begins: list[int] = []  # lines before each file that has been opened

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    def begin(self, lines: int, *, first: bool) -> None:
        """Note that the next file, or the ``first``, begins after this number of lines of those before."""
        self._begins = [lines] if first else [*self._begins, lines]

    def located(self, line: int | None) -> tuple[str, int | None]:
        """Return the file of a line and the number of the line in it; of no line, the name of all files."""
        if line is None or not self._begins:
            return self.name, line
        place = max(bisect_left(self._begins, line) - 1, 0)
        return self.files[place], line - self._begins[place]

    def sizes(self) -> list[int]:
        """Return the bytes of each file."""
        return [os.path.getsize(file) for file in self.files]

    def joined_lines(self, lines: Iterator[Iterator[str]]) -> Iterator[str]:
        """Yield the lines of all files, given those of each."""
        before = 0
        for place, own in enumerate(lines):
            self.begin(before, first=not place)
            for line in own:
                before += 1
                yield line

"""Reading one file by several processes: each reads consecutive rows, and they agree on what holds for the whole file.

Every function here is called by all processes, in the same order. Without a communicator there is one process.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from .errors import DataFormatError, counted
from .streams import BLOCK_BYTES, Block, StrPath, compression, line_blocks

__all__ = ["PartOfLines", "Together", "any_of", "check_rows", "counts_of", "largest", "row_range", "rows_of"]


class Together(Protocol):
    """The processes that read a file together; `manyclass.distributed.Communicator` is one."""

    rank: int
    size: int

    def allreduce(self, x: Any, op: Literal["sum", "max"] = "sum") -> npt.NDArray[Any]:
        """See `manyclass.distributed.Communicator.allreduce`."""


def largest(comm: Together | None, value: int) -> int:
    """Return the largest value of all processes."""
    return value if comm is None else int(comm.allreduce(np.array([value], np.int64), "max")[0])


def any_of(comm: Together | None, flag: bool) -> bool:
    """Return whether the flag is set in any process."""
    return bool(largest(comm, int(flag)))


def counts_of(comm: Together | None, own: int) -> tuple[int, int]:
    """Return the sums of a count over the processes before this one, and over all."""
    if comm is None:
        return 0, own
    counts = np.zeros(comm.size, np.int64)
    counts[comm.rank] = own
    counts = comm.allreduce(counts)
    return int(counts[: comm.rank].sum()), int(counts.sum())


def rows_of(comm: Together | None, n: int) -> tuple[int, int]:
    """Return the range of n rows that is this process's."""
    return (0, n) if comm is None else (n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)


def row_range(comm: Together, own: int) -> tuple[int, int]:
    """Return the range of this process's rows, of which it has ``own``, among those of all processes."""
    before, _ = counts_of(comm, own)
    return before, before + own


def check_rows(path: StrPath, n: int, comm: Together, own: int) -> None:
    """Raise a DataFormatError unless a file of n labels has one for each row of all processes."""
    total = counts_of(comm, own)[1]
    if n != total:
        raise DataFormatError(path, f"has {counted(n, 'label')}; expected {total}, one for each row")


class PartOfLines:
    """The lines of a text file that this process reads.

    Of an uncompressed file these are the lines that begin in one of equal ranges of its bytes, and nothing else is
    read. A compressed file is decompressed by every process, from the start, and most of it is dropped.

    Parameters
    ----------
    path : str or path
        The file.
    comm : Together
        The processes.
    start : int, default=0
        Number of bytes before the first line, those of a header.
    """

    def __init__(self, path: StrPath, comm: Together, start: int = 0) -> None:
        self._path, self._comm, self._start = path, comm, start
        self._plain = compression(path) is None
        self._skipped = 0  # lines of a compressed file

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Generator[Block, None, None]:
        """Yield the lines in blocks, see `manyclass.io.streams.line_blocks`."""
        return self._ranged(block_bytes) if self._plain else self._sieved(block_bytes)

    def _bounds(self, size: int) -> tuple[int, int]:
        rank, of = self._comm.rank, self._comm.size
        return self._start + (size - self._start) * rank // of, self._start + (size - self._start) * (rank + 1) // of

    def _ranged(self, block_bytes: int) -> Generator[Block, None, None]:
        with open(self._path, "rb") as file:
            begin, end = self._bounds(file.seek(0, 2))
            at = _next_line(file, begin, self._start)
            while at < end:
                data = file.read(min(block_bytes, end - at))
                if not data.endswith(b"\n"):
                    data += file.readline()
                first, at = at == 0, at + len(data)
                data = data.removeprefix(b"\xef\xbb\xbf") if first else data
                yield Block(data if data.endswith(b"\n") else data + b"\n", min(1.0, (at - begin) / (end - begin)))

    def _sieved(self, block_bytes: int) -> Generator[Block, None, None]:
        rank, of, before, self._skipped = self._comm.rank, self._comm.size, 0.0, 0
        left = self._start
        # Several blocks for each process, also of a small file.
        block_bytes = max(256, min(block_bytes, os.path.getsize(self._path) // (8 * of)))
        for data, fraction in line_blocks(self._path, block_bytes):
            owner, before = min(int(before * of), of - 1), fraction
            cut, left = min(left, len(data)), max(0, left - len(data))
            if owner == rank and len(data) > cut:
                yield Block(data[cut:], min(1.0, max(fraction * of - rank, 1e-9)))
            elif owner < rank:
                self._skipped += data.count(b"\n", cut)

    def lines_before(self) -> int:
        """Return the number of lines before those of this process, without a header; for messages."""
        if not self._plain:
            return self._skipped
        with open(self._path, "rb") as file:
            begin, _ = self._bounds(file.seek(0, 2))
            end = _next_line(file, begin, self._start)
            file.seek(self._start)
            found, left = 0, end - self._start
            while left > 0 and (chunk := file.read(min(1 << 20, left))):
                found += chunk.count(b"\n")
                left -= len(chunk)
            return found


def _next_line(file: Any, begin: int, start: int) -> int:
    """Move to the first line that begins at ``begin`` or later; return its offset."""
    if begin > start:
        file.seek(begin - 1)
        file.readline()
    else:
        file.seek(begin)
    return int(file.tell())

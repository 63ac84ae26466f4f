"""Arrays of any size as MPI messages, whose length must be less than 2 GiB; shared memory of MPICH; used buffers."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["AllOf", "Pool", "raw", "receive_parts", "send_parts", "shared_files"]

#: Maximum size of a message in bytes. MPI counts bytes in 32 bits, before version 4 and in many of its libraries.
LIMIT = 1 << 30
#: Number of unused buffers of one size that are kept.
_KEPT = 8


class AllOf:
    """Several requests as one."""

    def __init__(self, requests: list[Any]) -> None:
        self._left = requests

    def Test(self) -> bool:
        """Whether all are complete."""
        self._left = [request for request in self._left if not request.Test()]
        return not self._left


def _parts(data: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    return [data[begin : begin + LIMIT] for begin in range(0, data.size, LIMIT)]


def send_parts(comm: Any, data: NDArray[np.uint8], kind: Any, dest: int, tag: int) -> list[Any]:
    """Start sending bytes; the messages from one rank to another arrive in order."""
    return [comm.Isend([part, kind], dest, tag) for part in _parts(data)]


def receive_parts(comm: Any, data: NDArray[np.uint8], kind: Any, source: int, tag: int) -> AllOf:
    """Start receiving as many bytes, sent by `send_parts`."""
    return AllOf([comm.Irecv([part, kind], source, tag) for part in _parts(data)])


def raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array."""
    return array.reshape(-1).view(np.uint8)


def shared_files() -> list[str]:
    """The shared memory files that MPICH removes at the end of a job, except if the job is killed."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}
    except OSError:  # not Linux
        return []
    return sorted(path for path in paths if os.path.exists(path))


class Pool:
    """Buffers that have been sent, for blocks of the same size that arrive: the memory is mapped already."""

    def __init__(self) -> None:
        self._unused: defaultdict[int, list[NDArray[np.uint8]]] = defaultdict(list)

    def take(self, size: int) -> NDArray[np.uint8]:
        """So many bytes."""
        try:
            return self._unused[size].pop()
        except IndexError:
            return np.empty(size, np.uint8)

    def give(self, buffer: NDArray[Any]) -> None:
        """Keep a contiguous buffer that nobody uses any more."""
        unused = self._unused[buffer.nbytes]
        if buffer.nbytes and buffer.flags.writeable and len(unused) < _KEPT:
            unused.append(raw(buffer))

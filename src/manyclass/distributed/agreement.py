"""What has to be the same on every rank is compared before the work: the version of manyclass, and parameters."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from manyclass._version import __version__
from manyclass.distributed.communicator import Communicator

__all__ = ["require_same"]

#: Characters of a value that an error shows.
_SHOWN = 60


def require_same(comm: Communicator, facts: Mapping[str, Any]) -> None:
    """Raise a ValueError, on every rank, if a fact or the version of manyclass differs between ranks.

    Parameters
    ----------
    comm : Communicator
        Every rank calls this.
    facts : mapping of str to object
        By their names; compared, and shown in the error, as ``repr`` writes them. A rank may lack some.

    Raises
    ------
    ValueError
        The message has the name of the first fact that differs, and its values on rank 0 and on the first other rank.

    Examples
    --------
    >>> from manyclass.distributed import run_threads
    >>> def work(comm):
    ...     try:
    ...         require_same(comm, {"alpha": 0.1 if comm.rank < 2 else 0.2})
    ...     except ValueError as error:
    ...         return str(error)
    >>> print(run_threads(3, work)[1])
    alpha must be the same in every process, got 0.1 in rank 0 and 0.2 in rank 2: start all with the same
    """
    if comm.size == 1:
        return
    lines = [f"the version of manyclass\t{__version__}", *(f"{name}\t{value!r}" for name, value in facts.items())]
    own = "\n".join(line.replace("\n", " ") for line in lines)
    marks = np.zeros(comm.size, np.int64)
    marks[comm.rank] = zlib.crc32(own.encode())
    marks = comm.allreduce(marks)
    if (marks == marks[0]).all():
        return
    rank = int(np.argmax(marks != marks[0]))
    first, second = (dict(line.split("\t", 1) for line in _of(comm, own, root).split("\n")) for root in (0, rank))
    name = next(name for name in {**first, **second} if first.get(name) != second.get(name))
    shown = [textwrap.shorten(found.get(name, "nothing"), _SHOWN, placeholder=" ...") for found in (first, second)]
    raise ValueError(
        f"{name} must be the same in every process, got {shown[0]} in rank 0 and {shown[1]} in rank {rank}: "
        "start all with the same"
    )


def _of(comm: Communicator, text: str, root: int) -> str:
    """The text of a rank."""
    content = np.frombuffer(text.encode(), np.uint8)
    size = int(comm.broadcast(np.array([len(content)]), root)[0])
    return bytes(comm.broadcast(content if comm.rank == root else np.zeros(size, np.uint8), root)).decode()

"""How the workers of one job speak to each other: one interface for one process, threads and MPI.

An algorithm is written once, against `Communicator`. Blocks travel point to point (`post`, `poll`) and never block;
scalars and small arrays are combined by collectives, whose order of summation is fixed: the same bits on every rank, on
threads as with MPI. Every wait has a deadline, and an error names rank, host, epoch and step.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "DTYPES",
    "AbortedError",
    "Communicator",
    "CommunicatorError",
    "DeadlineError",
    "Header",
    "Message",
    "PeerLostError",
    "Reduction",
    "SerialCommunicator",
    "Traffic",
    "check_reduction",
]

T = TypeVar("T")
C = TypeVar("C", bound="Communicator")
Header: TypeAlias = NDArray[np.int64]
Buffer: TypeAlias = NDArray[Any]
#: How the arrays of the ranks are combined.
Reduction: TypeAlias = Literal["sum", "max"]

#: What blocks may be made of.
DTYPES = tuple(np.dtype(name).str for name in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"))


def check_reduction(op: str) -> None:
    """Raise a ValueError for what is no way to combine arrays."""
    if op not in ("sum", "max"):
        raise ValueError(f"op must be 'sum' or 'max', got {op!r}")


class CommunicatorError(RuntimeError):
    """The job cannot go on: a rank is lost, late, or has given up."""


class AbortedError(CommunicatorError):
    """Another rank has given up; its reason is in the message."""


class DeadlineError(CommunicatorError):
    """Something awaited from another rank did not come in time."""


class PeerLostError(CommunicatorError):
    """A rank gives no sign of life any more: killed, frozen or cut off."""


class Message(NamedTuple):
    """What `Communicator.poll` returns: whole numbers about a block, and the block."""

    header: Header
    buffer: Buffer


@dataclass
class Traffic:
    """What a rank has sent and received; headers count as well as payloads.

    Attributes
    ----------
    messages, bytes : int
        Posted to other ranks. What a rank posts to itself goes nowhere, and is not counted.
    largest : int
        Bytes of the largest message posted to another rank.
    received, bytes_received : int
        Messages from other ranks that `Communicator.poll` gave out, and their bytes.
    collectives, collective_bytes : int
        Calls of collectives, and the bytes that this rank put in.
    """

    messages: int = 0
    bytes: int = 0
    largest: int = 0
    received: int = 0
    bytes_received: int = 0
    collectives: int = 0
    collective_bytes: int = 0


class Communicator(ABC):
    """One rank's end of the connections between the ranks of a job.

    Parameters
    ----------
    rank, size : int
        This rank, ``0 <= rank < size``, and the number of ranks.
    timeout : float
        Seconds that any wait for another rank may take.

    Attributes
    ----------
    host : str
        The machine.
    where : tuple of int
        Epoch and step that the algorithm is at. It writes them here; errors name them.
    traffic : Traffic
        What went out and came in.
    interrupted : bool
        To be set where the user asks for an early end; see `heed`.

    Notes
    -----
    Ownership passes with a message: after ``post(header, buffer, dest)`` neither array may be read or written by the
    sender, who may get them back in other messages. On threads the receiver gets the very array.
    """

    def __init__(self, rank: int, size: int, timeout: float = 600.0) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        self.rank = rank
        self.size = size
        self.timeout = float(timeout)
        self.host = socket.gethostname()
        self.where: tuple[int, int] = (0, 0)
        self.interrupted = False
        self.traffic = Traffic()

    def __deepcopy__(self, memo: dict[int, Any]) -> Communicator:
        """Itself: the clone of a solver talks to the same ranks."""
        return self

    # --- blocks --------------------------------------------------------------------------------------------------

    def post(self, header: ArrayLike, buffer: Buffer, dest: int) -> None:
        """Send a block on its way, and return at once.

        Parameters
        ----------
        header : array-like of int64, one-dimensional
            What the receiver has to know of the block: its number, hops, epoch...
        buffer : ndarray, C-contiguous
            The block. It belongs to the receiver from now on.
        dest : int
            The receiver; this rank itself is one.

        Raises
        ------
        ValueError
            If an array has another form, or there is no such rank.
        """
        header = np.ascontiguousarray(header, dtype=np.int64)
        if header.ndim != 1:
            raise ValueError(f"header must have one dimension, got {header.ndim}")
        if not isinstance(buffer, np.ndarray) or not buffer.flags.c_contiguous or buffer.dtype.str not in DTYPES:
            what = f"{buffer.dtype} array" if isinstance(buffer, np.ndarray) else type(buffer).__name__
            raise ValueError(
                f"buffer must be a C-contiguous array of real numbers, got a {what}: make a copy that is one"
            )
        if not 0 <= dest < self.size:
            raise ValueError(f"dest must be one of the {self.size} ranks, got {dest}")
        if dest != self.rank:
            size = header.nbytes + buffer.nbytes
            self.traffic.messages += 1
            self.traffic.bytes += size
            self.traffic.largest = max(self.traffic.largest, size)
        self._post(header, buffer, dest)

    def poll(self) -> Message | None:
        """The next block that has arrived, from whichever rank, or None; never waits. In order for each sender."""
        self.progress()
        found = self._poll()
        if found is None:
            return None
        source, message = found
        if source != self.rank:
            self.traffic.received += 1
            self.traffic.bytes_received += message.header.nbytes + message.buffer.nbytes
        return message

    def receive(self) -> Message:
        """The next block; waits for it.

        Raises
        ------
        DeadlineError
            If none comes within `timeout` seconds.
        """
        return self._wait(self.poll, lambda: "a block from any rank")

    @abstractmethod
    def progress(self) -> None:
        """Let transfers go on, and see whether the job still does. Cheap: call it every few milliseconds of work.

        Raises
        ------
        CommunicatorError
            If another rank has given up or is lost.
        """

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything posted has left this rank."""

    # --- collectives: every rank calls the same ones in the same order ---------------------------------------------

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank is here."""

    @abstractmethod
    def allreduce(self, x: ArrayLike, op: Reduction = "sum") -> NDArray[Any]:
        """Combine an array over the ranks; ``x`` is left as it is.

        Parameters
        ----------
        x : array-like
            Of the same shape and type on every rank.
        op : {"sum", "max"}

        Returns
        -------
        ndarray
            Of the shape of ``x``, a new one. Ranks are combined one after the other from 0 on, so that it has the same
            bits on every rank, and whatever the ranks run on.
        """

    @abstractmethod
    def broadcast(self, x: ArrayLike, root: int = 0) -> NDArray[Any]:
        """The root's array on every rank; elsewhere ``x`` only says shape and type. Returns a new array."""

    @abstractmethod
    def gather(self, x: ArrayLike, root: int = 0) -> list[NDArray[Any]] | None:
        """The arrays of all ranks, in the order of the ranks, at the root; None elsewhere.

        They may differ in length, not in the number of their dimensions and their type.
        """

    # --- the end -------------------------------------------------------------------------------------------------

    def heed(self) -> None:
        """End together, between two epochs: every rank calls this.

        Raises
        ------
        KeyboardInterrupt
            On all ranks, if one of them or more have been `interrupted`.
        """
        if self.size == 1:
            asked = self.interrupted
        else:
            asked = bool(self.allreduce(np.array([self.interrupted], np.int64), "max")[0])
        if asked:
            self.interrupted = False
            raise KeyboardInterrupt

    @abstractmethod
    def abort(self, reason: str | BaseException) -> None:
        """End the job on every rank, and say why; with MPI, the processes.

        Raises
        ------
        AbortedError
            On this rank, unless the reason is an error that is being raised already.
        """

    def close(self) -> None:
        """Give back what the communicator holds; every rank calls it, after everything posted has been polled."""
        self.flush()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.size}"

    def place(self) -> str:
        """Rank, host, epoch and step, for messages."""
        epoch, step = self.where
        return f"rank {self.rank} of {self.size} on {self.host} (epoch {epoch}, step {step})"

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort(error)

    # --- what the kinds of communicator supply -----------------------------------------------------------------------

    @abstractmethod
    def _post(self, header: Header, buffer: Buffer, dest: int) -> None: ...

    @abstractmethod
    def _poll(self) -> tuple[int, Message] | None:
        """Source and message."""

    @abstractmethod
    def _pause(self, idle: int) -> None:
        """Between two looks, the ``idle``-th time in a row that there was nothing."""

    def _wait(self, look: Callable[[], T | None], what: Callable[[], str]) -> T:
        """Look until there is something, with a deadline."""
        deadline, idle = 0.0, 0
        while True:
            found = look()
            if found is not None:
                return found
            self.progress()
            if not deadline:
                deadline = time.monotonic() + self.timeout
            elif time.monotonic() > deadline:
                raise DeadlineError(
                    f"{self.place()} waited {self.timeout:g} s for {what()}: give a larger timeout if this was no fault"
                )
            self._pause(idle)
            idle += 1

    def _count(self, size: int) -> None:
        self.traffic.collectives += 1
        self.traffic.collective_bytes += size


class SerialCommunicator(Communicator):
    """The communicator of a single rank: what it posts comes back to it.

    Examples
    --------
    >>> import numpy as np
    >>> comm = SerialCommunicator()
    >>> comm.post([7], np.ones(3), dest=0)
    >>> header, block = comm.poll()
    >>> int(header[0]), float(comm.allreduce(block.sum()))
    (7, 3.0)
    """

    def __init__(self, timeout: float = 600.0) -> None:
        super().__init__(0, 1, timeout)
        self._messages: deque[Message] = deque()

    def progress(self) -> None:
        """Nothing to do."""

    def flush(self) -> None:
        """Nothing to wait for."""

    def barrier(self) -> None:
        """Nobody to wait for."""
        self._count(0)

    def allreduce(self, x: ArrayLike, op: Reduction = "sum") -> NDArray[Any]:
        """A copy."""
        check_reduction(op)
        return self._copied(x)

    def broadcast(self, x: ArrayLike, root: int = 0) -> NDArray[Any]:
        """A copy."""
        return self._copied(x)

    def gather(self, x: ArrayLike, root: int = 0) -> list[NDArray[Any]] | None:
        """A copy."""
        return [self._copied(x)]

    def _copied(self, x: ArrayLike) -> NDArray[Any]:
        copy = np.array(x, order="C")
        self._count(copy.nbytes)
        return copy

    def abort(self, reason: str | BaseException) -> None:
        """Raise the reason, if it is not being raised already."""
        if not isinstance(reason, BaseException):
            raise AbortedError(f"{self.place()} gave up: {reason}")

    def _post(self, header: Header, buffer: Buffer, dest: int) -> None:
        self._messages.append(Message(header, buffer))

    def _poll(self) -> tuple[int, Message] | None:
        return (0, self._messages.popleft()) if self._messages else None

    def _pause(self, idle: int) -> None:
        time.sleep(0.001)

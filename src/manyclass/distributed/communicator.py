"""`Communicator`, the interface for communication between the workers (ranks) of one job: one process, threads, MPI.

Arrays with a header ("blocks") are sent point to point by non-blocking calls (`post`, `poll`). Scalars and small arrays
are combined by collectives in a fixed order of summation: every rank gets the same bits, with threads as with MPI.
Every wait has a timeout, and error messages name rank, host, epoch and step.
"""

from __future__ import annotations

import socket
import time
import zlib
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
#: Operations by which the arrays of the ranks are combined.
Reduction: TypeAlias = Literal["sum", "max"]

#: Types of arrays that can be sent.
DTYPES = tuple(np.dtype(name).str for name in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"))


def check_reduction(op: str) -> None:
    """Raise a ValueError if ``op`` is not a `Reduction`."""
    if op not in ("sum", "max"):
        raise ValueError(f"op must be 'sum' or 'max', got {op!r}")


class CommunicatorError(RuntimeError):
    """The job cannot continue: a rank is lost, too late, or was aborted."""


class AbortedError(CommunicatorError):
    """Another rank was aborted; the message contains its reason."""


class DeadlineError(CommunicatorError):
    """A message from another rank did not arrive within the timeout."""


class PeerLostError(CommunicatorError):
    """A rank no longer sends heartbeats: it was killed, is suspended, or its network connection is down."""


class Message(NamedTuple):
    """A block with its header, as `Communicator.poll` returns it."""

    header: Header
    buffer: Buffer


@dataclass
class Traffic:
    """Counts of the messages and bytes that a rank has sent and received, with headers.

    Attributes
    ----------
    messages, bytes : int
        Messages posted to other ranks, not to the rank itself, and their bytes.
    largest : int
        Bytes of the largest message posted to another rank.
    received, bytes_received : int
        Messages from other ranks that `Communicator.poll` returned, and their bytes.
    collectives, collective_bytes : int
        Calls of collectives, and the bytes of this rank's arrays.
    """

    messages: int = 0
    bytes: int = 0
    largest: int = 0
    received: int = 0
    bytes_received: int = 0
    collectives: int = 0
    collective_bytes: int = 0


class Communicator(ABC):
    """Base class of communicators, the interface of one rank to the other ranks of its job.

    Parameters
    ----------
    rank, size : int
        This rank, ``0 <= rank < size``, and the number of ranks.
    timeout : float, default=600.0
        Maximum duration of a wait for another rank in seconds, > 0.

    Attributes
    ----------
    host : str
        Name of the machine.
    where : tuple of int
        Current epoch and step, set by the algorithm and named in error messages.
    traffic : Traffic
        Counts of messages and bytes.
    interrupted : bool
        Set it to True to end the fit early, see `heed`.

    Notes
    -----
    After ``post(header, buffer, dest)`` the arrays belong to the receiver: the sender must not read or write them. With
    threads the receiver gets the same array, not a copy.
    """

    def __init__(self, rank: int, size: int, timeout: float = 600.0) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.rank = rank
        self.size = size
        self.timeout = float(timeout)
        self.host = socket.gethostname()
        self.where: tuple[int, int] = (0, 0)
        self.interrupted = False
        self.traffic = Traffic()

    def __deepcopy__(self, memo: dict[int, Any]) -> Communicator:
        """The same object: the clone of a solver communicates with the same ranks."""
        return self

    # --- blocks --------------------------------------------------------------------------------------------------

    def post(self, header: ArrayLike, buffer: Buffer, dest: int) -> None:
        """Start sending a block, and return without waiting.

        Parameters
        ----------
        header : array-like of int64, one-dimensional
            Integers that describe the block to the receiver: its number, epoch, ...
        buffer : ndarray, C-contiguous
            The block. It belongs to the receiver from now on.
        dest : int
            Rank of the receiver; may be this rank.

        Raises
        ------
        ValueError
            If an array has the wrong shape or dtype, or ``dest`` is not a rank.
        """
        header = np.ascontiguousarray(header, dtype=np.int64)
        if header.ndim != 1:
            raise ValueError(f"header must have one dimension, got {header.ndim} dimensions")
        if not isinstance(buffer, np.ndarray) or not buffer.flags.c_contiguous or buffer.dtype.str not in DTYPES:
            what = f"{buffer.dtype} array" if isinstance(buffer, np.ndarray) else type(buffer).__name__
            raise ValueError(
                f"buffer must be a C-contiguous array of real numbers, got a {what}: pass np.ascontiguousarray(buffer)"
            )
        if not 0 <= dest < self.size:
            raise ValueError(f"dest must be a rank from 0 to {self.size - 1}, got {dest}")
        if dest != self.rank:
            size = header.nbytes + buffer.nbytes
            self.traffic.messages += 1
            self.traffic.bytes += size
            self.traffic.largest = max(self.traffic.largest, size)
        self._post(header, buffer, dest)

    def poll(self) -> Message | None:
        """The next block that has arrived from any rank, or None; does not wait. Keeps the order of each sender."""
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
        """Wait for the next block from any rank.

        Raises
        ------
        DeadlineError
            If none arrives within `timeout` seconds.
        """
        return self._wait(self.poll, lambda: "a block from any rank")

    @abstractmethod
    def progress(self) -> None:
        """Advance transfers, and check the state of the job. Cheap: call it every few milliseconds.

        Raises
        ------
        CommunicatorError
            If another rank was aborted or is lost.
        """

    @abstractmethod
    def flush(self) -> None:
        """Wait until all posted blocks have been sent."""

    # --- collectives: every rank calls the same ones in the same order ---------------------------------------------

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank has called this."""

    @abstractmethod
    def allreduce(self, x: ArrayLike, op: Reduction = "sum") -> NDArray[Any]:
        """Combine the arrays of all ranks elementwise.

        Parameters
        ----------
        x : array-like
            Of the same shape and dtype on every rank; not changed.
        op : {"sum", "max"}, default="sum"
            The operation.

        Returns
        -------
        ndarray
            A new array of the shape of ``x``. Arrays are combined in the order of the ranks, so that the result has the
            same bits on every rank and for every kind of communicator.
        """

    @abstractmethod
    def broadcast(self, x: ArrayLike, root: int = 0) -> NDArray[Any]:
        """The root's array on every rank, as a new array; on other ranks ``x`` only gives the shape and dtype."""

    @abstractmethod
    def gather(self, x: ArrayLike, root: int = 0) -> list[NDArray[Any]] | None:
        """The arrays of all ranks, in the order of the ranks, on the root; None on other ranks.

        The arrays may differ in shape, but not in the number of dimensions and the dtype.
        """

    def broadcast_bytes(self, data: bytes) -> bytes:
        """The bytes of rank 0 on every rank; ``data`` of other ranks is ignored."""
        size = int(self.broadcast(np.array([len(data)]))[0])
        own = np.frombuffer(data, np.uint8) if self.rank == 0 else np.zeros(size, np.uint8)
        return bytes(self.broadcast(own))

    def neighbours(self) -> int:
        """The number of ranks on the host of this rank, with it; every rank calls this."""
        hosts = np.zeros(self.size, np.int64)
        hosts[self.rank] = 1 + zlib.crc32(self.host.encode())
        return int(np.count_nonzero(self.allreduce(hosts) == hosts[self.rank]))

    # --- end of a job ----------------------------------------------------------------------------------------------

    def heed(self) -> None:
        """End the fit on all ranks together if one was interrupted: every rank calls this between two epochs.

        Raises
        ------
        KeyboardInterrupt
            On all ranks, if at least one of them is `interrupted`.
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
        """End the job on every rank and report the reason; with MPI, this ends the processes.

        Raises
        ------
        AbortedError
            On this rank, unless ``reason`` is an exception that is being raised already.
        """

    def close(self) -> None:
        """Release the resources of the communicator; every rank calls this, after it has polled all blocks."""
        self.flush()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.size}"

    def place(self) -> str:
        """Rank, host, epoch and step, for error messages."""
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

    # --- implemented by subclasses -----------------------------------------------------------------------------------

    @abstractmethod
    def _post(self, header: Header, buffer: Buffer, dest: int) -> None: ...

    @abstractmethod
    def _poll(self) -> tuple[int, Message] | None:
        """The source and the message that arrived next, or None."""

    @abstractmethod
    def _pause(self, idle: int) -> None:
        """Pause between two attempts of `_wait`; ``idle`` counts the unsuccessful ones."""

    def _wait(self, look: Callable[[], T | None], what: Callable[[], str]) -> T:
        """Call ``look`` until it returns something, at most for `timeout` seconds."""
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
                    f"{self.place()} waited {self.timeout:g} s for {what()}: if that rank is only slow, pass a larger "
                    "timeout"
                )
            self._pause(idle)
            idle += 1

    def _count(self, size: int) -> None:
        self.traffic.collectives += 1
        self.traffic.collective_bytes += size


class SerialCommunicator(Communicator):
    """The communicator of a job with one rank, which receives its own messages.

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
        """Do nothing: there are no transfers."""

    def flush(self) -> None:
        """Do nothing: posted blocks can be polled at once."""

    def barrier(self) -> None:
        """Do nothing: there are no other ranks."""
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
        """Raise an `AbortedError`, unless ``reason`` is an exception that is being raised already."""
        if not isinstance(reason, BaseException):
            raise AbortedError(f"{self.place()} gave up: {reason}")

    def _post(self, header: Header, buffer: Buffer, dest: int) -> None:
        self._messages.append(Message(header, buffer))

    def _poll(self) -> tuple[int, Message] | None:
        return (0, self._messages.popleft()) if self._messages else None

    def _pause(self, idle: int) -> None:
        time.sleep(0.001)

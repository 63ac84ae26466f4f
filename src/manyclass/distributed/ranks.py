"""Communication between threads of one process; blocks are passed without a copy."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from manyclass.distributed.communicator import (
    AbortedError,
    Buffer,
    Communicator,
    CommunicatorError,
    Header,
    Message,
    SerialCommunicator,
)
from manyclass.distributed.exchange import ExchangingCommunicator

__all__ = ["ThreadCommunicator", "run_threads"]

T = TypeVar("T")


class _Mailbox:
    """The messages to one rank."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.changes = 0
        self.blocks: deque[tuple[int, Message]] = deque()
        self.parcels: defaultdict[int, deque[Buffer]] = defaultdict(deque)

    def notify(self) -> None:
        """Wake the receiving rank; the caller must hold the lock."""
        self.changes += 1
        self.changed.notify_all()


class _Job:
    """The state that the ranks of a job share."""

    def __init__(self, size: int) -> None:
        self.mailboxes = [_Mailbox() for _ in range(size)]
        self.lock = threading.Lock()
        self.failure: tuple[int, str, BaseException | None] | None = None

    def fail(self, rank: int, said: str, error: BaseException | None) -> None:
        """Record the first failure, and wake all ranks."""
        with self.lock:
            if self.failure is None:
                self.failure = (rank, said, error)
        for mailbox in self.mailboxes:
            with mailbox.changed:
                mailbox.notify()


class ThreadCommunicator(ExchangingCommunicator):
    """The communicator of one thread among several, created by `run_threads` or by `ThreadCommunicator.create`.

    The receiver of a block gets the same array, without a copy.
    """

    _shares_memory = True

    def __init__(self, job: _Job, rank: int, timeout: float = 600.0) -> None:
        super().__init__(rank, len(job.mailboxes), timeout)
        self._job = job
        self._mailbox = job.mailboxes[rank]
        self._seen = 0

    @classmethod
    def create(cls, size: int, timeout: float = 600.0) -> list[ThreadCommunicator]:
        """The communicators of ``size`` ranks, one for each thread."""
        job = _Job(size)
        return [cls(job, rank, timeout) for rank in range(size)]

    def progress(self) -> None:
        """Raise an `AbortedError` if another rank was aborted."""
        failure = self._job.failure
        if failure is not None and failure[0] != self.rank:
            raise AbortedError(failure[1])

    def flush(self) -> None:
        """Do nothing: posted blocks have arrived."""

    def abort(self, reason: str | BaseException) -> None:
        """Make every other rank raise an `AbortedError` at its next call or in its current wait."""
        if isinstance(reason, BaseException):
            said = f"{self.place()} gave up: {type(reason).__name__}: {reason}"
            self._job.fail(self.rank, said, reason)
        else:
            said = f"{self.place()} gave up: {reason}"
            self._job.fail(self.rank, said, None)
            raise AbortedError(said)

    def _post(self, header: Header, buffer: Buffer, dest: int) -> None:
        mailbox = self._job.mailboxes[dest]
        with mailbox.changed:
            mailbox.blocks.append((self.rank, Message(header, buffer)))
            mailbox.notify()

    def _poll(self) -> tuple[int, Message] | None:
        self._seen = self._mailbox.changes  # read before the queue, so that `_pause` notices a message that comes later
        blocks = self._mailbox.blocks
        return blocks.popleft() if blocks else None  # no lock: only this thread removes messages

    def _send(self, array: Buffer, dest: int) -> None:
        mailbox = self._job.mailboxes[dest]
        with mailbox.changed:
            mailbox.parcels[self.rank].append(array)
            mailbox.notify()

    def _expect(self, source: int, like: Buffer) -> int:
        return source

    def _ready(self, parcel: Any) -> Buffer | None:
        with self._mailbox.changed:
            self._seen = self._mailbox.changes
            waiting = self._mailbox.parcels[parcel]
            return waiting.popleft() if waiting else None

    def _settle(self, sent: list[Any]) -> None: ...

    def _pause(self, idle: int) -> None:
        with self._mailbox.changed:
            if self._mailbox.changes == self._seen:
                self._mailbox.changed.wait(min(0.1, self.timeout))


def run_threads(size: int, function: Callable[[Communicator], T], timeout: float = 600.0) -> list[T]:
    """``[function(comm) for each rank]``, with one thread per rank; rank 0 runs in the caller's thread.

    Parameters
    ----------
    size : int
        Number of ranks, >= 1.
    function : callable
        Takes the `Communicator` of its rank. Kernels that it calls should release the GIL.
    timeout : float, default=600.0
        Maximum duration of a wait between ranks in seconds, > 0.

    Returns
    -------
    list
        The values returned by the ranks, in their order.

    Raises
    ------
    Exception
        The exception of the first rank that failed. The other ranks are ended: no thread is running afterwards.

    Examples
    --------
    >>> import numpy as np
    >>> run_threads(3, lambda comm: float(comm.allreduce(np.float64(comm.rank))))
    [3.0, 3.0, 3.0]
    """
    if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
        raise ValueError(f"size must be an integer of at least 1, the number of ranks, got {size!r}")
    if size == 1:
        return [function(SerialCommunicator(timeout))]
    job = _Job(size)
    results: list[Any] = [None] * size

    def work(rank: int) -> None:
        comm = ThreadCommunicator(job, rank, timeout)
        try:
            results[rank] = function(comm)
        except BaseException as error:  # raised by the caller's thread, below
            comm.abort(error)

    threads = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(1, size)]
    try:
        for thread in threads:
            thread.start()
        work(0)
    except BaseException as error:
        job.fail(-1, f"the job was ended: {type(error).__name__}", error)
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt as error:
                job.fail(-1, "the job was interrupted", error)
    if job.failure is not None:
        _, said, failure = job.failure
        if failure is None:
            raise AbortedError(said)
        if not isinstance(failure, CommunicatorError):  # which name it themselves
            failure.__notes__ = [*getattr(failure, "__notes__", []), said]  # Python 3.10 has no add_note
        raise failure
    return results

"""What communicators between processes share: heartbeats, the reports of failures, and the end of a job.

A thread sends heartbeats (see `gossip`), which distinguish a rank with a long computation from a lost one; a monitor
process (see `guard`) reports a rank that was killed. Subclasses transport messages.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from abc import abstractmethod
from collections.abc import Callable
from typing import NoReturn, TypeVar

import numpy as np

from manyclass.distributed._parts import shared_files
from manyclass.distributed.activity import Activity
from manyclass.distributed.communicator import AbortedError, CommunicatorError, PeerLostError
from manyclass.distributed.exchange import ExchangingCommunicator
from manyclass.distributed.gossip import Gossip
from manyclass.distributed.guard import Guard

__all__ = ["ProcessCommunicator"]

T = TypeVar("T")

_GRACE = 2.0  # seconds for the main thread to notice that the job was aborted, and for the transport to end it


class ProcessCommunicator(ExchangingCommunicator):
    """Base class of the communicators between processes.

    Parameters
    ----------
    rank, size : int
        This rank, ``0 <= rank < size``, and the number of ranks.
    timeout : float, default=600.0
        Maximum duration of a wait for another rank in seconds, > 0.
    silence : float, default=8.0
        Seconds without a heartbeat after which a rank counts as lost, > 0.
    stall : float, optional
        Seconds after which a wait ends if no process has worked in them, which finds processes that are stuck but send
        heartbeats; > 0. None: waits end after ``timeout`` only.

    Raises
    ------
    ValueError
        If a duration is not positive.
    """

    def __init__(
        self, rank: int, size: int, timeout: float = 600.0, silence: float = 8.0, stall: float | None = None
    ) -> None:
        for name, value in (("silence", silence), ("stall", stall)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
        super().__init__(rank, size, timeout)
        self.silence = float(silence)
        self.stall = stall
        self._activity = Activity()
        self._lock = threading.Lock()  # around the heartbeats; with MPI, around every call of MPI
        self._failure: CommunicatorError | None = None
        self._live = self._ended = self._closed = False
        self._stopping = threading.Event()
        self._gossip: Gossip | None = None
        self._guard: Guard | None = None

    def _begin(self, guard: bool) -> None:
        """Start the heartbeats, and with ``guard`` the monitor process; messages can be sent from now on."""
        self._live = self.size > 1
        self._hosts = self._names()
        if self.size > 1:
            job = self.broadcast(np.frombuffer(os.urandom(8), np.int64))
            if guard:
                name = f"{int(job[0]) & (1 << 64) - 1:016x}"
                self._guard = Guard(self.rank, self.size, self.host, name, 2 * self.silence)
                for path in shared_files():
                    self._guard.remove(path)
            self._gossip = Gossip(self.rank, self.size, min(0.5, self.silence / 8))
            self._begin_beats(self._gossip)
            self._thread = threading.Thread(target=self._beat_on, name="manyclass heartbeat", daemon=True)
            self._thread.start()
        if self.exits:
            atexit.register(self._at_exit)

    def _names(self) -> list[str]:
        name = np.frombuffer(self.host.encode()[:64].ljust(64), np.uint8)
        table = np.zeros((self.size, 64), np.uint8)
        table[self.rank] = name
        return [bytes(row).decode(errors="replace").strip() for row in self.allreduce(table, "max")]

    # --- implemented by subclasses -----------------------------------------------------------------------------------

    #: Whether `abort` ends this process; False where the process serves others as well.
    exits = True
    #: Whether `_quit` of one rank has the launcher end all others.
    _launcher_ends = False
    #: Exceptions of the transport when a connection breaks.
    _breaks: tuple[type[BaseException], ...] = ()

    @abstractmethod
    def _begin_beats(self, gossip: Gossip) -> None:
        """Prepare to send and receive heartbeats."""

    @abstractmethod
    def _beat(self, elapsed: float) -> None:
        """Receive heartbeats, and send one; called with the lock, ``elapsed`` seconds after the last call."""

    @abstractmethod
    def _part(self, gossip: Gossip) -> None:
        """Wait until every rank has said goodbye, so that no message is in transit when the communicator is closed."""

    @abstractmethod
    def _tell(self, said: str) -> None:
        """Send the reason to the other ranks, and wait briefly for it to be sent; never raises."""

    @abstractmethod
    def _quit(self) -> None:
        """End all processes of the job, as far as the transport can."""

    @abstractmethod
    def _free(self) -> None:
        """Release the connections."""

    # --- waits -------------------------------------------------------------------------------------------------------

    def _wait(self, look: Callable[[], T | None], what: Callable[[], str]) -> T:
        before, self._activity.waiting = self._activity.waiting, True
        try:
            return super()._wait(look, what)
        finally:
            self._activity.waiting = before

    def _broken(self, error: BaseException) -> NoReturn:
        """Raise a `PeerLostError` for an error of the transport."""
        if self._failure is None:
            self._failure = PeerLostError(f"{self.place()}: a connection broke: {error}")
        raise self._failure from error

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def _beat_on(self) -> None:
        """The main function of the heartbeat thread."""
        gossip = self._gossip
        assert gossip is not None
        last, told = time.monotonic(), (0, 0)
        while not self._stopping.wait(gossip.tick):
            now = time.monotonic()
            try:
                with self._lock:
                    self._beat(now - last)
            except self._breaks as error:
                self._lose(PeerLostError(f"{self.place()}: a connection broke: {error}"), 0.0)
                return
            last = now
            if self._guard is not None:
                self._guard.beat()
                if told != self.where:
                    told = self.where
                    self._guard.at(*told)
            silent = gossip.silent(self.silence)
            if silent:
                lost = gossip.silent(0.75 * self.silence)
                said = ", ".join(f"{self._seen(r)} has sent no heartbeat for {age:.1f} s" for r, age in lost)
                left = min(set(range(self.size)) - {r for r, _ in lost})
                # The first of the remaining ranks reports; the others wait in case it cannot.
                why = "killed, suspended or disconnected"
                self._lose(PeerLostError(f"{self.place()}: {said}: {why}"), 0.0 if left == self.rank else 1.0)
                return
            stuck = None if self.stall is None else gossip.stuck(self.stall)
            if stuck is not None and self._activity.waiting:
                said = ", ".join(f"{self._seen(r, '')} has done nothing for {age:.0f} s" for r, age in stuck)
                said = f"{said}, while the others wait" if said else "all processes wait for each other"
                left = min(set(range(self.size)) - {r for r, _ in stuck}, default=self.rank)
                self._lose(PeerLostError(f"{self.place()}: {said}"), 0.0 if left == self.rank else 1.0)
                return

    def _seen(self, rank: int, how: str = "last seen ") -> str:
        """Another rank, its host, and where it was by its last heartbeat."""
        assert self._gossip is not None
        _, epoch, step, _ = self._gossip.known[rank].tolist()
        return f"rank {rank} on {self._hosts[rank]} ({how}at epoch {epoch}, step {step})"

    def _lose(self, failure: CommunicatorError, wait: float) -> None:
        """Record that the job failed, for the main thread to raise; if that is busy, this thread ends the process."""
        if self._stopping.wait(wait):
            return
        if self._failure is None:
            self._failure = failure
        if self.exits and not self._stopping.wait(_GRACE) and not self._ended:
            self._end("" if isinstance(self._failure, AbortedError) else str(self._failure))

    # --- end of a job ------------------------------------------------------------------------------------------------

    def abort(self, reason: str | BaseException) -> None:
        """Print the reason to standard error, and end all processes of the job; if not `exits`, as `run_threads`."""
        if not self.exits:
            return self._abandon(reason)
        if not isinstance(reason, CommunicatorError):
            reason = self._first_to_say(reason)
        if isinstance(reason, AbortedError):  # the rank that was aborted first prints the reason
            if self._launcher_ends:
                if self._guard is not None:
                    self._guard.end(_GRACE)
                time.sleep(_GRACE)
            self._end("")
        if isinstance(reason, CommunicatorError):
            self._end(str(reason))
        if isinstance(reason, BaseException):
            trace = "".join(traceback.format_exception(type(reason), reason, reason.__traceback__))
            # The last line contains the whole message, even if that has several lines.
            self._end(f"{trace}{self.place()} gave up: {type(reason).__name__}: {' '.join(str(reason).split())}")
        self._end(f"{self.place()} gave up: {reason}")

    def _abandon(self, reason: str | BaseException) -> None:
        """End the job in all processes, which go on without it."""
        said = f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else reason
        said = f"{self.place()} gave up: {said}"
        if not (self._ended or self._closed):
            self._ended = True
            self._stopping.set()
            if not isinstance(reason, AbortedError):
                self._tell(said if not isinstance(reason, CommunicatorError) else str(reason))
            self._quit()
        if not isinstance(reason, BaseException):
            raise AbortedError(said)

    def _first_to_say(self, reason: str | BaseException) -> str | BaseException:
        """An error that several ranks raise at the same time is printed by the first of them only."""
        deadline = time.monotonic() + (min(0.5 + 0.02 * self.rank, 1.0) if self.rank else 0.0)
        while time.monotonic() < deadline:
            try:
                self.progress()
            except CommunicatorError as error:
                return error
            time.sleep(0.01)
        return reason

    def _end(self, said: str) -> NoReturn:
        if self._ended:  # the other thread is ending the job
            time.sleep(2 * _GRACE)
            os._exit(1)
        self._ended = True
        if said:
            *before, last = said.split("\n")
            sys.stderr.write("".join(f"{line}\n" for line in before) + f"manyclass: error: {last}\n")
            sys.stderr.flush()
        if self._guard is not None:
            self._guard.end(_GRACE)  # the next calls may never return where the network is gone
        if self._lock.acquire(timeout=1.0):
            self._lock.release()
            if said:
                self._tell(said.rsplit("\n", 1)[-1])
        self._quit()
        os._exit(1)

    def close(self) -> None:
        """Wait for all ranks, and release the connections."""
        if self._closed:
            return
        self.flush()
        self.barrier()
        if self._gossip is not None:
            self._stopping.set()
            self._thread.join()
            self._gossip.leave()
            self.timeout = self.silence  # every rank has called this, and has nothing else to do
            self._part(self._gossip)
        if self._guard is not None:
            self._guard.release()
        self._live, self._closed = False, True
        atexit.unregister(self._at_exit)
        self._free()

    def _at_exit(self) -> None:
        """Report, at the exit of the process, that its communicator was not closed."""
        if self._ended or self._closed:
            return
        self._ended = True
        if self._guard is not None:
            sys.stderr.write(f"manyclass: error: {self.place()} ended before the others\n")
            self._guard.release()

"""Communication between processes, on one machine or several, by MPI (mpi4py, imported on first use).

No call blocks inside MPI: every wait polls, with a timeout. A block is sent as two messages, a header and the bytes,
directly from and into arrays. A thread sends heartbeats (see `gossip`), which distinguish a rank with a long
computation from a lost one; a monitor process (see `guard`) reports a rank that was killed.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed._parts import AllOf, raw, receive_parts, send_parts, shared_files
from manyclass.distributed.activity import Activity
from manyclass.distributed.communicator import (
    DTYPES,
    AbortedError,
    Buffer,
    CommunicatorError,
    Header,
    Message,
    PeerLostError,
)
from manyclass.distributed.exchange import ExchangingCommunicator
from manyclass.distributed.gossip import Gossip
from manyclass.distributed.guard import Guard

__all__ = ["INSTALL", "MPICommunicator", "require_mpi"]

INSTALL = (
    "several processes need MPI: install it with\n"
    "    python -m pip install 'manyclass[mpi]'\n"
    "    mpiexec -n 4 python -m mpi4py -m manyclass fit ...     # or with the MPI of your site"
)

T = TypeVar("T")

_HEADER, _PAYLOAD, _BEAT, _COLLECTIVE = 1, 2, 3, 4
_NOTE = -1  # in place of the dtype in a header: the payload is the reason why the sender was aborted
_GRACE = 2.0  # seconds for the main thread to notice that the job was aborted, and for MPI to end it
_KEPT = 8  # number of free buffers of one size that are kept


def require_mpi() -> Any:
    """The module ``mpi4py.MPI``.

    Raises
    ------
    ImportError
        If mpi4py or an MPI library is missing; the message says what to install.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"{INSTALL}\n({type(error).__name__}: {error})") from error
    return MPI


@dataclass
class _Incoming:
    """A block that is being received."""

    header: Header
    request: Any
    buffer: Buffer | None = None
    message: Message | None = None
    note: bool = False


class MPICommunicator(ExchangingCommunicator):
    """The communicator of one process of a job started by ``mpiexec``.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        The participating processes, each of which must create its communicator; by default all processes of the job.
        It is duplicated, so that messages do not mix with the caller's own.
    timeout : float, default=600.0
        Maximum duration of a wait for another rank in seconds, > 0.
    silence : float, default=8.0
        Seconds without a heartbeat after which a rank counts as lost, > 0.
    stall : float, optional
        Seconds after which a wait ends if no process has worked in them, which finds processes that are stuck but send
        heartbeats; > 0. None: waits end after ``timeout`` only.
    guard : bool, default=True
        Whether to start the monitor process that reports this process if it is killed.

    Raises
    ------
    ImportError
        If mpi4py or an MPI library is missing.
    """

    def __init__(
        self,
        comm: Any = None,
        timeout: float = 600.0,
        silence: float = 8.0,
        guard: bool = True,
        stall: float | None = None,
    ) -> None:
        self._mpi = MPI = require_mpi()
        for name, value in (("silence", silence), ("stall", stall)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise CommunicatorError(
                "MPI must be initialized with threads, MPI_THREAD_SERIALIZED or more, got less: import manyclass "
                "before MPI is initialized, or set mpi4py.rc.thread_level"
            )
        given = MPI.COMM_WORLD if comm is None else comm
        super().__init__(given.Get_rank(), given.Get_size(), timeout)
        self.silence = float(silence)
        self.stall = stall
        self._activity = Activity()
        self._lock = threading.Lock()  # around every call of MPI
        self._failure: CommunicatorError | None = None
        self._ended = self._closed = False
        self._incoming: defaultdict[int, deque[_Incoming]] = defaultdict(deque)
        self._arrived: deque[tuple[int, Message]] = deque()
        self._sending: list[tuple[list[Any], list[Buffer]]] = []
        self._free: defaultdict[int, list[NDArray[np.uint8]]] = defaultdict(list)
        self._live = False
        self._gossip: Gossip | None = None
        self._guard: Guard | None = None
        self._comm, request = given.Idup()
        self._finish_request(request, "all ranks to begin")
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._live = self.size > 1
        self._hosts = self._names()
        if self.size > 1:
            self._start(guard)
        atexit.register(self._at_exit)

    def _start(self, guard: bool) -> None:
        job = self.broadcast(np.frombuffer(os.urandom(8), np.int64))
        if guard:
            self._guard = Guard(self.rank, self.size, self.host, f"{int(job[0]) & (1 << 64) - 1:016x}")
            for path in shared_files():
                self._guard.remove(path)
        self._gossip = Gossip(self.rank, self.size, min(0.5, self.silence / 8))
        self._beats_out: dict[int, Any] = dict.fromkeys(self._gossip.sends_to, (self._mpi.REQUEST_NULL, None))
        self._beats_in = {source: self._hear(source) for source in self._gossip.hears_from}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="manyclass heartbeat", daemon=True)
        self._thread.start()

    def _names(self) -> list[str]:
        name = np.frombuffer(self.host.encode()[:64].ljust(64), np.uint8)
        table = np.zeros((self.size, 64), np.uint8)
        table[self.rank] = name
        return [bytes(row).decode(errors="replace").strip() for row in self.allreduce(table, "max")]

    # --- blocks --------------------------------------------------------------------------------------------------

    def progress(self) -> None:
        """Advance transfers; raises an error if another rank was aborted or is lost."""
        if self._failure is not None:
            raise self._failure
        if not self._live:
            return
        self._activity.count += not self._activity.waiting
        MPI = self._mpi
        status = MPI.Status()
        try:
            with self._lock:
                while (found := self._comm.Improbe(MPI.ANY_SOURCE, _HEADER, status)) is not None:
                    header = np.empty(status.Get_count(MPI.INT64_T), np.int64)
                    queue = self._incoming[status.Get_source()]
                    queue.append(_Incoming(header, found.Irecv([header, MPI.INT64_T])))
                for source, queue in self._incoming.items():
                    if queue:
                        self._advance(source, queue)
                if self._sending:
                    self._sending = [entry for entry in self._sending if not self._gone_out(*entry)]
        except MPI.Exception as error:
            self._broken(error)
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Wait until all posted blocks have been sent."""
        self._wait(lambda: None if self._sending else True, lambda: "its own blocks to leave")

    def _post(self, header: Header, buffer: Buffer, dest: int) -> None:
        if dest == self.rank:
            self._arrived.append((self.rank, Message(header, buffer)))
            return
        preamble = np.array([DTYPES.index(buffer.dtype.str), buffer.ndim, *buffer.shape], np.int64)
        self._ship(np.concatenate([preamble, header]), buffer, dest)

    def _ship(self, header: Header, buffer: Buffer, dest: int) -> None:
        MPI = self._mpi
        try:
            with self._lock:
                requests = [self._comm.Isend([header, MPI.INT64_T], dest, _HEADER)]
                requests += send_parts(self._comm, raw(buffer), MPI.BYTE, dest, _PAYLOAD)
        except MPI.Exception as error:
            self._broken(error)
        self._sending.append((requests, [header, buffer]))

    def _poll(self) -> tuple[int, Message] | None:
        return self._arrived.popleft() if self._arrived else None

    def _advance(self, source: int, queue: deque[_Incoming]) -> None:
        """Receive the payloads of one source in the order of their headers, which MPI keeps."""
        for entry in queue:
            if entry.buffer is None:
                if not entry.request.Test():
                    break
                self._ask(entry, source)
            if entry.message is None and entry.request.Test():
                start = 2 + int(entry.header[1])
                assert entry.buffer is not None
                entry.message = Message(entry.header[start:], entry.buffer)
        while queue and queue[0].message is not None:
            entry = queue.popleft()
            assert entry.message is not None
            if entry.note:
                self._failure = AbortedError(bytes(entry.message.buffer).decode(errors="replace"))
            else:
                self._arrived.append((source, entry.message))

    def _ask(self, entry: _Incoming, source: int) -> None:
        kind, ndim = int(entry.header[0]), int(entry.header[1])
        shape = tuple(int(n) for n in entry.header[2 : 2 + ndim])
        entry.note = kind == _NOTE
        dtype = np.dtype(np.uint8 if entry.note else DTYPES[kind])
        data = self._buffer(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        entry.buffer = data.view(dtype).reshape(shape)
        entry.request = receive_parts(self._comm, data, self._mpi.BYTE, source, _PAYLOAD)

    def _buffer(self, size: int) -> NDArray[np.uint8]:
        free = self._free[size]
        return free.pop() if free else np.empty(size, np.uint8)

    def _gone_out(self, requests: list[Any], arrays: list[Buffer]) -> bool:
        if not all(request.Test() for request in requests):
            return False
        buffer = arrays[1]
        free = self._free[buffer.nbytes]
        if buffer.nbytes and buffer.flags.writeable and len(free) < _KEPT:
            free.append(raw(buffer))
        return True

    # --- collectives ---------------------------------------------------------------------------------------------

    def _send(self, array: Buffer, dest: int) -> Any:
        array = np.ascontiguousarray(array)
        try:
            with self._lock:
                return AllOf(send_parts(self._comm, raw(array), self._mpi.BYTE, dest, _COLLECTIVE)), array
        except self._mpi.Exception as error:
            self._broken(error)

    def _expect(self, source: int, like: Buffer) -> Any:
        array = np.empty(like.shape, like.dtype)
        try:
            with self._lock:
                return receive_parts(self._comm, raw(array), self._mpi.BYTE, source, _COLLECTIVE), array
        except self._mpi.Exception as error:
            self._broken(error)

    def _ready(self, parcel: Any) -> Buffer | None:
        request, array = parcel
        found: Buffer | None = array if self._test(request) else None
        return found

    def _settle(self, sent: list[Any]) -> None:
        for request, _ in sent:
            self._finish_request(request, "a rank to take its part of a sum")

    def _finish_request(self, request: Any, what: str) -> None:
        self._wait(lambda: True if self._test(request) else None, lambda: what)

    def _test(self, request: Any) -> bool:
        try:
            with self._lock:
                return bool(request.Test())
        except self._mpi.Exception as error:
            self._broken(error)

    def _pause(self, idle: int) -> None:
        # Yield first, because there may be more ranks than cores; then sleep, because the wait may be long.
        time.sleep(0.0 if idle < 200 else 1e-4 if idle < 2000 else 1e-3)

    def _broken(self, error: BaseException) -> NoReturn:
        """Raise a `PeerLostError` for an error of MPI."""
        if self._failure is None:
            self._failure = PeerLostError(f"{self.place()}: a connection broke: {error}")
        raise self._failure from error

    # --- heartbeats ----------------------------------------------------------------------------------------------

    def _hear(self, source: int) -> tuple[Any, NDArray[np.int64]]:
        rows = np.empty((self.size, 4), np.int64)
        return self._comm.Irecv([rows, self._mpi.INT64_T], source, _BEAT), rows

    def _beat_on(self) -> None:
        """The main function of the heartbeat thread."""
        assert self._gossip is not None
        last, told = time.monotonic(), (0, 0)
        while not self._stopping.wait(self._gossip.tick):
            now = time.monotonic()
            try:
                with self._lock:
                    self._beat(now - last)
            except self._mpi.Exception as error:
                self._lose(f"{self.place()}: a connection broke: {error}", 0.0)
                return
            last = now
            if self._guard is not None and told != self.where:
                told = self.where
                self._guard.at(*told)
            silent = self._gossip.silent(self.silence)
            if silent:
                lost = self._gossip.silent(0.75 * self.silence)
                said = ", ".join(
                    f"rank {r} on {self._hosts[r]} (last seen at epoch {self._gossip.known[r, 1]}, step "
                    f"{self._gossip.known[r, 2]}) has sent no heartbeat for {age:.1f} s"
                    for r, age in lost
                )
                left = min(set(range(self.size)) - {r for r, _ in lost})
                # The first of the remaining ranks reports; the others wait in case it cannot.
                why = "killed, suspended or disconnected"
                self._lose(f"{self.place()}: {said}: {why}", 0.0 if left == self.rank else 1.0)
                return
            stuck = None if self.stall is None else self._gossip.stuck(self.stall)
            if stuck is not None and self._activity.waiting:
                said = ", ".join(
                    f"rank {r} on {self._hosts[r]} (at epoch {self._gossip.known[r, 1]}, step "
                    f"{self._gossip.known[r, 2]}) has done nothing for {age:.0f} s"
                    for r, age in stuck
                )
                said = f"{said}, while the others wait" if said else "all processes wait for each other"
                left = min(set(range(self.size)) - {r for r, _ in stuck}, default=self.rank)
                self._lose(f"{self.place()}: {said}", 0.0 if left == self.rank else 1.0)
                return

    def _wait(self, look: Callable[[], T | None], what: Callable[[], str]) -> T:
        before, self._activity.waiting = self._activity.waiting, True
        try:
            return super()._wait(look, what)
        finally:
            self._activity.waiting = before

    def _beat(self, elapsed: float) -> None:
        gossip = self._gossip
        assert gossip is not None
        self._listen(gossip)
        rows = gossip.beat(self.where, elapsed, self._activity.sample(elapsed))
        for dest in gossip.sends_to:
            # At most one pending message per rank: messages to a dead rank must not accumulate.
            if self._beats_out[dest][0].Test():
                self._beats_out[dest] = self._comm.Isend([rows, self._mpi.INT64_T], dest, _BEAT), rows

    def _listen(self, gossip: Gossip) -> None:
        for source, (request, rows) in list(self._beats_in.items()):
            if request.Test():
                gossip.hear(rows)
                if gossip.is_last(source, rows):
                    del self._beats_in[source]
                else:
                    self._beats_in[source] = self._hear(source)

    def _say_goodbye(self, gossip: Gossip, told: set[int]) -> bool | None:
        """Send and receive the last heartbeats, so that no message is in transit when the communicator is closed."""
        with self._lock:
            self._listen(gossip)
            rows = gossip.beat(self.where, 0.0)
            for dest, (request, _) in list(self._beats_out.items()):
                if request.Test():
                    if dest in told:
                        del self._beats_out[dest]
                    else:
                        told.add(dest)
                        self._beats_out[dest] = self._comm.Isend([rows, self._mpi.INT64_T], dest, _BEAT), rows
        return None if self._beats_in or self._beats_out else True

    def _lose(self, said: str, wait: float) -> None:
        """Record that the job failed, for the main thread to raise; if that is busy, this thread ends the process."""
        if self._stopping.wait(wait):
            return
        if self._failure is None:
            self._failure = PeerLostError(said)
        if not self._stopping.wait(_GRACE) and not self._ended:
            self._end(str(self._failure))

    # --- end of a job ----------------------------------------------------------------------------------------------

    def abort(self, reason: str | BaseException) -> NoReturn:
        """Print the reason to standard error, and end all processes of the job."""
        if not isinstance(reason, CommunicatorError):
            reason = self._first_to_say(reason)
        if isinstance(reason, AbortedError):  # the rank that was aborted first prints the reason and ends this one
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
            self._guard.end(_GRACE)  # MPI_Abort may never return where the network is gone
        if self._lock.acquire(timeout=1.0):
            self._lock.release()
            if said:
                self._tell(said.rsplit("\n", 1)[-1])
        self._comm.Abort(1)
        os._exit(1)

    def _tell(self, said: str) -> None:
        """Send the reason to the other ranks, and wait up to a fifth of a second for it to be sent."""
        note = np.frombuffer(said.encode(), np.uint8)
        header = np.array([_NOTE, 1, note.size], np.int64)
        try:
            for dest in range(self.size):
                if dest != self.rank:
                    self._ship(header, note, dest)
            deadline = time.monotonic() + 0.2
            while time.monotonic() < deadline:
                with self._lock:
                    self._sending = [entry for entry in self._sending if not self._gone_out(*entry)]
                time.sleep(0.01)
        except (CommunicatorError, self._mpi.Exception):
            pass

    def close(self) -> None:
        """Wait for all ranks, and free the MPI communicator."""
        if self._closed:
            return
        self.flush()
        self.barrier()
        if self._gossip is not None:
            self._stopping.set()
            self._thread.join()
            self._gossip.leave()
            self.timeout = self.silence  # every rank has called this, and has nothing else to do
            gossip, told = self._gossip, set[int]()
            self._wait(
                lambda: self._say_goodbye(gossip, told),
                lambda: f"ranks {sorted({*self._beats_in, *self._beats_out})} to say goodbye",
            )
        if self._guard is not None:
            self._guard.release()
        self._live, self._closed = False, True
        self._comm.Free()

    def _at_exit(self) -> None:
        """Report, at the exit of the process, that its communicator was not closed."""
        if self._ended or self._closed:
            return
        self._ended = True
        if self._guard is not None:
            sys.stderr.write(f"manyclass: error: {self.place()} ended before the others\n")
            self._guard.release()

"""Communication between processes, on one machine or several, by MPI (mpi4py, imported on first use).

No call blocks inside MPI: every wait polls, with a timeout. A block is sent as two messages, a header and the bytes,
directly from and into arrays.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed._parts import AllOf, Pool, raw, receive_parts, send_parts
from manyclass.distributed.communicator import (
    DTYPES,
    AbortedError,
    Buffer,
    CommunicatorError,
    Header,
    Message,
)
from manyclass.distributed.gossip import Gossip
from manyclass.distributed.processes import ProcessCommunicator

__all__ = ["INSTALL", "MPICommunicator", "require_mpi"]

INSTALL = (
    "several processes need MPI: install it with\n"
    "    python -m pip install 'manyclass[mpi]'\n"
    "    mpiexec -n 4 python -m mpi4py -m manyclass fit ...     # or with the MPI of your site"
)

_HEADER, _PAYLOAD, _BEAT, _COLLECTIVE = 1, 2, 3, 4
_NOTE = -1  # in place of the dtype in a header: the payload is the reason why the sender was aborted
#: Lets other processes of the machine run: in a microsecond, where ``time.sleep(0)`` of Linux takes more than fifty.
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


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


class MPICommunicator(ProcessCommunicator):
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

    _launcher_ends = True

    def __init__(
        self,
        comm: Any = None,
        timeout: float = 600.0,
        silence: float = 8.0,
        guard: bool = True,
        stall: float | None = None,
    ) -> None:
        self._mpi = MPI = require_mpi()
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise CommunicatorError(
                "MPI must be initialized with threads, MPI_THREAD_SERIALIZED or more, got less: import manyclass "
                "before MPI is initialized, or set mpi4py.rc.thread_level"
            )
        given = MPI.COMM_WORLD if comm is None else comm
        super().__init__(given.Get_rank(), given.Get_size(), timeout, silence, stall)
        self._breaks = (MPI.Exception,)
        self._incoming: defaultdict[int, deque[_Incoming]] = defaultdict(deque)
        self._arrived: deque[tuple[int, Message]] = deque()
        self._sending: list[tuple[list[Any], list[Buffer]]] = []
        self._pool = Pool()
        self._comm, request = given.Idup()
        self._finish_request(request, "all ranks to begin")
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._begin(guard)

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
        data = self._pool.take(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        entry.buffer = data.view(dtype).reshape(shape)
        entry.request = receive_parts(self._comm, data, self._mpi.BYTE, source, _PAYLOAD)

    def _gone_out(self, requests: list[Any], arrays: list[Buffer]) -> bool:
        if not all(request.Test() for request in requests):
            return False
        self._pool.give(arrays[1])
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
        if idle < 2000:
            _yield()
        else:
            time.sleep(1e-4 if idle < 4000 else 1e-3)

    # --- heartbeats, and the end of a job --------------------------------------------------------------------------

    def _begin_beats(self, gossip: Gossip) -> None:
        self._beats_out: dict[int, Any] = dict.fromkeys(gossip.sends_to, (self._mpi.REQUEST_NULL, None))
        self._beats_in = {source: self._hear(source) for source in gossip.hears_from}

    def _hear(self, source: int) -> tuple[Any, NDArray[np.int64]]:
        rows = np.empty((self.size, 4), np.int64)
        return self._comm.Irecv([rows, self._mpi.INT64_T], source, _BEAT), rows

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

    def _part(self, gossip: Gossip) -> None:
        told = set[int]()
        self._wait(
            lambda: self._say_goodbye(gossip, told),
            lambda: f"ranks {sorted({*self._beats_in, *self._beats_out})} to say goodbye",
        )

    def _say_goodbye(self, gossip: Gossip, told: set[int]) -> bool | None:
        """Send and receive the last heartbeats; True when all are done."""
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

    def _tell(self, said: str) -> None:
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

    def _quit(self) -> None:
        self._comm.Abort(1)

    def _free(self) -> None:
        self._comm.Free()

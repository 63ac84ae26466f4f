"""Communication over one ordered connection between each pair of processes, for transports whose calls block.

For each other rank one thread sends and one receives, so that no call of the communicator blocks. A frame is a fixed
number of integers that tell its kind and size, then the bytes, in pieces: after each piece but the last come the
sender's newest heartbeats, so that a rank that sends a large block over a slow network does not seem lost.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed._parts import Pool, raw
from manyclass.distributed.communicator import (
    DTYPES,
    AbortedError,
    Buffer,
    CommunicatorError,
    Header,
    Message,
    PeerLostError,
)
from manyclass.distributed.gossip import Gossip
from manyclass.distributed.processes import ProcessCommunicator

__all__ = ["Link", "StreamCommunicator"]

T = TypeVar("T")

_BLOCK, _PARCEL, _BEAT, _NOTE, _BYE = range(5)
_HEAD = 32  # integers before the bytes of each frame: kind, bytes, number of further integers, and the first of these
_PIECE = 1 << 22  # bytes between two heartbeats within a frame
_TELL = 0.5  # seconds for the reason of an abort to be sent
_NOTHING = np.empty(0, np.uint8)


class Link(ABC):
    """An ordered connection to another rank. Its calls block; one thread sends, another receives."""

    #: Exceptions that the calls raise when the connection breaks.
    breaks: ClassVar[tuple[type[BaseException], ...]] = (OSError, EOFError)

    @abstractmethod
    def send(self, parts: list[NDArray[np.uint8]]) -> None:
        """Send the arrays of bytes, one after the other."""

    @abstractmethod
    def receive(self, into: NDArray[np.uint8]) -> None:
        """Fill the array with what the other rank has sent; it sent a part of this size."""

    @abstractmethod
    def shut(self) -> None:
        """End the connection."""


class _Frame:
    """What is sent at a time."""

    __slots__ = ("data", "done", "kind", "meta")

    def __init__(self, kind: int, meta: list[int], data: Buffer) -> None:
        self.kind, self.data, self.done = kind, raw(data), False
        self.meta = np.zeros(max(_HEAD, 3 + len(meta)), np.int64)
        self.meta[: 3 + len(meta)] = kind, data.nbytes, len(meta), *meta


class StreamCommunicator(ProcessCommunicator):
    """Base class of communicators that send by blocking calls, in threads; subclasses connect the processes.

    Parameters
    ----------
    rank, size : int
        This rank, ``0 <= rank < size``, and the number of ranks.
    timeout : float, default=600.0
        Maximum duration of a wait for another rank in seconds, > 0.
    silence : float, default=8.0
        Seconds without a heartbeat after which a rank counts as lost, > 0.
    stall : float, optional
        Seconds after which a wait ends if no process has worked in them; > 0.
    """

    def __init__(
        self, rank: int, size: int, timeout: float = 600.0, silence: float = 8.0, stall: float | None = None
    ) -> None:
        super().__init__(rank, size, timeout, silence, stall)
        self._changed = threading.Condition()
        self._changes = self._seen_changes = 0
        self._arrived: deque[tuple[int, Message]] = deque()
        self._parcels: defaultdict[int, deque[NDArray[np.uint8]]] = defaultdict(deque)
        self._pool = Pool()
        self._rows = np.zeros((size, 4), np.int64)  # the newest heartbeats
        self._beats: dict[int, _Frame] = {}
        self._gone: set[int] = set()  # ranks that have said goodbye

    def _connect(self, links: dict[int, Link], guard: bool) -> None:
        """Start the threads of the connections to all other ranks."""
        self._links = links
        self._queues: dict[int, deque[_Frame]] = {r: deque() for r in links}
        self._queued = {r: threading.Condition() for r in links}
        self._threads = [
            threading.Thread(target=work, args=(r,), name=f"manyclass {name} {r}", daemon=True)
            for r in links
            for name, work in (("to rank", self._send_on), ("from rank", self._receive_on))
        ]
        for thread in self._threads:
            thread.start()
        self._begin(guard)

    # --- threads -----------------------------------------------------------------------------------------------------

    def _send_on(self, dest: int) -> None:
        """The main function of the thread that sends to a rank."""
        link, queue, queued = self._links[dest], self._queues[dest], self._queued[dest]
        kind = -1
        while kind != _BYE:
            with queued:
                while not queue:
                    queued.wait()
                frame = queue[0]  # it stays there until it is sent: see `flush`
            kind, meta, data = frame.kind, frame.meta, frame.data
            try:
                link.send([raw(meta[:_HEAD]), raw(meta[_HEAD:]), data[:_PIECE]])
                for begin in range(_PIECE, data.size, _PIECE):
                    link.send([raw(self._rows), data[begin : begin + _PIECE]])
            except link.breaks:  # the thread that receives reports it
                return
            if kind == _BLOCK:
                self._pool.give(data)
            frame.done = True
            with queued:
                if queue and queue[0] is frame:
                    queue.popleft()
            self._notify()

    def _receive_on(self, source: int) -> None:
        """The main function of the thread that receives from a rank."""
        link = self._links[source]
        head, rows, kind = np.empty(_HEAD, np.int64), np.empty((self.size, 4), np.int64), -1
        try:
            while kind != _BYE:
                link.receive(raw(head))
                kind, size, count = head[:3].tolist()
                meta = np.empty(max(_HEAD, 3 + count), np.int64)
                meta[:_HEAD] = head
                link.receive(raw(meta[_HEAD:]))
                data = self._pool.take(size)
                for begin in range(0, size, _PIECE):
                    if begin:
                        link.receive(raw(rows))
                        self._hear(rows)
                    link.receive(data[begin : begin + _PIECE])
                self._deliver(source, kind, meta[3 : 3 + count], data)
        except link.breaks:
            self._cut(source)

    def _deliver(self, source: int, kind: int, meta: Header, data: NDArray[np.uint8]) -> None:
        if kind == _BLOCK:
            ndim = int(meta[1])
            shape = meta[2 : 2 + ndim].tolist()
            buffer = data.view(DTYPES[int(meta[0])]).reshape(shape)
            self._arrived.append((source, Message(meta[2 + ndim :], buffer)))
        elif kind == _PARCEL:
            self._parcels[source].append(data)
        elif kind == _NOTE:
            self._lose(AbortedError(bytes(data).decode(errors="replace")), 0.0)
        else:
            self._hear(data.view(np.int64).reshape(self.size, 4))
            if kind == _BYE:
                self._gone.add(source)
        self._notify()

    def _hear(self, rows: NDArray[np.int64]) -> None:
        with self._lock:
            if self._gossip is not None:
                self._gossip.hear(rows)

    def _cut(self, source: int) -> None:
        """The connection to a rank has ended, without a goodbye."""
        if self._stopping.is_set() or self._ended:
            return
        him = f"rank {source}" if self._gossip is None else self._seen(source)
        said = f"{self.place()}: the connection to {him} has ended: killed, or its host or network has failed"
        # The first of the others reports, unless a note comes with the reason.
        self._lose(PeerLostError(said), 0.3 if self.rank == (source == 0) else 1.3)

    def stop(self, reason: str) -> None:
        """Have this rank raise an `AbortedError` at its next call; called by another thread."""
        if self._failure is None:
            self._failure = AbortedError(reason)
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    # --- blocks and collectives --------------------------------------------------------------------------------------

    def progress(self) -> None:
        """Check the state of the job; raises an error if another rank was aborted or is lost."""
        if self._failure is not None:
            raise self._failure
        self._activity.count += not self._activity.waiting

    def flush(self) -> None:
        """Wait until all posted blocks have been sent."""
        self._wait(lambda: None if any(self._queues.values()) else True, lambda: "its own blocks to leave")

    def _put(self, frame: _Frame, dest: int) -> _Frame:
        with self._queued[dest]:
            self._queues[dest].append(frame)
            self._queued[dest].notify()
        return frame

    def _post(self, header: Header, buffer: Buffer, dest: int) -> None:
        if dest == self.rank:
            self._arrived.append((dest, Message(header, buffer)))
        else:
            meta = [DTYPES.index(buffer.dtype.str), buffer.ndim, *buffer.shape, *header.tolist()]
            self._put(_Frame(_BLOCK, meta, buffer), dest)

    def _poll(self) -> tuple[int, Message] | None:
        return self._arrived.popleft() if self._arrived else None

    def _send(self, array: Buffer, dest: int) -> _Frame:
        return self._put(_Frame(_PARCEL, [], np.ascontiguousarray(array)), dest)

    def _expect(self, source: int, like: Buffer) -> tuple[int, Buffer]:
        return source, like

    def _ready(self, parcel: Any) -> Buffer | None:
        source, like = parcel
        waiting = self._parcels[source]
        if not waiting:
            return None
        data = waiting.popleft()
        if data.size != like.nbytes:
            raise CommunicatorError(
                f"{self.place()} expected {like.nbytes} bytes of rank {source} in a collective and got {data.size}: "
                "every rank must call the same ones, with arrays of the same shape and dtype"
            )
        found: Buffer = data.view(like.dtype).reshape(like.shape)
        return found

    def _settle(self, sent: list[Any]) -> None:
        self._wait(lambda: all(frame.done for frame in sent) or None, lambda: "a rank to take its part of a sum")

    def _wait(self, look: Callable[[], T | None], what: Callable[[], str]) -> T:
        def look_again() -> T | None:
            self._seen_changes = self._changes  # before it looks, so that `_pause` notices what comes later
            return look()

        return super()._wait(look_again, what)

    def _pause(self, idle: int) -> None:
        with self._changed:
            if self._changes == self._seen_changes:
                self._changed.wait(min(0.05, self.timeout))

    # --- heartbeats, and the end of a job ----------------------------------------------------------------------------

    def _begin_beats(self, gossip: Gossip) -> None: ...

    def _beat(self, elapsed: float) -> None:
        gossip = self._gossip
        assert gossip is not None
        self._rows = gossip.beat(self.where, elapsed, self._activity.sample(elapsed))
        for dest in gossip.sends_to:
            # At most one pending frame per rank: frames to a dead rank must not accumulate.
            if dest not in self._beats or self._beats[dest].done:
                self._beats[dest] = self._put(_Frame(_BEAT, [], self._rows), dest)

    def _part(self, gossip: Gossip) -> None:
        rows = gossip.beat(self.where, 0.0)
        for dest in self._links:
            self._put(_Frame(_BYE, [], rows), dest)
        self.flush()
        self._wait(
            lambda: self._gone == self._links.keys() or None,
            lambda: f"ranks {sorted(self._links.keys() - self._gone)} to say goodbye",
        )
        for thread in self._threads:
            thread.join()

    def _tell(self, said: str) -> None:
        frames = []
        for dest, queue in self._queues.items():
            with self._queued[dest]:
                while len(queue) > 1:  # the first is being sent
                    queue.pop()
            frames.append(self._put(_Frame(_NOTE, [], np.frombuffer(said.encode() or b" ", np.uint8)), dest))
        deadline = time.monotonic() + _TELL
        while time.monotonic() < deadline and not all(frame.done for frame in frames):
            time.sleep(0.01)
        time.sleep(0.1)  # for the others to read it before the connections end

    def _quit(self) -> None:
        self._free()
        for dest in self._links:  # to wake the threads that send: they find that the connection has ended
            self._put(_Frame(_BYE, [], self._rows), dest)

    def _free(self) -> None:
        for link in self._links.values():
            link.shut()

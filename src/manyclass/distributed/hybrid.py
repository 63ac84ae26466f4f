"""Threads within processes: each thread of each process is a rank; threads of a process exchange blocks in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyclass.distributed.communicator import Buffer, Communicator, Header, Message, Reduction
from manyclass.distributed.ranks import run_threads

__all__ = ["HybridCommunicator", "HybridJob"]

T = TypeVar("T")


class _Gate:
    """The communicator between processes, with a lock: one thread of the process may use it at a time."""

    def __init__(self, outer: Communicator, threads: int) -> None:
        self.outer = outer
        self.lock = threading.Lock()
        self.waiting: list[deque[Message]] = [deque() for _ in range(threads)]
        self.gathered: list[NDArray[Any]] = []

    def fetch(self) -> None:
        """Deliver blocks from other processes to the threads, unless another thread is doing this already."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            while (message := self.outer.poll()) is not None:
                *header, thread, source = message.header.tolist()
                kept = np.array([*header, source], np.int64)
                self.waiting[thread].append(Message(kept, message.buffer))
        finally:
            self.lock.release()


class HybridCommunicator(Communicator):
    """The communicator of one thread among the threads of all processes; its rank is ``process * threads + thread``.

    Consecutive ranks are mostly threads of one process: a block that is passed from rank to rank visits all threads of
    a process before it moves to the next one. Blocks between threads are not copied. Collectives combine the threads of
    a process first, then the processes: rounding depends on the number of threads per process, unless all summands but
    one are zero.

    Parameters
    ----------
    gate : _Gate
        The communicator between processes.
    inner : Communicator
        The communicator between the threads of this process.
    """

    def __init__(self, gate: _Gate, inner: Communicator) -> None:
        outer = gate.outer
        super().__init__(outer.rank * inner.size + inner.rank, outer.size * inner.size, inner.timeout)
        self._gate = gate
        self._inner = inner

    def progress(self) -> None:
        self._inner.progress()
        if self._gate.lock.acquire(blocking=False):
            try:
                if self._inner.rank == 0:  # epoch and step for the messages of the process
                    self._gate.outer.where = self.where
                self._gate.outer.progress()
            finally:
                self._gate.lock.release()

    def flush(self) -> None:
        self._inner.flush()
        with self._gate.lock:
            self._gate.outer.flush()

    def barrier(self) -> None:
        self._count(0)
        self._inner.barrier()
        self._outer(lambda outer: outer.barrier())
        self._inner.barrier()

    def allreduce(self, x: ArrayLike, op: Reduction = "sum") -> NDArray[Any]:
        x = np.asarray(x)
        self._count(x.nbytes)
        within = self._inner.allreduce(x, op)
        found = self._outer(lambda outer: outer.allreduce(within, op))
        return self._inner.broadcast(within if found is None else found)

    def broadcast(self, x: ArrayLike, root: int = 0) -> NDArray[Any]:
        x = np.array(x, order="C")
        process, thread = divmod(root, self._inner.size)
        if self._gate.outer.rank == process:
            x = self._inner.broadcast(x, thread)
        found = self._outer(lambda outer: outer.broadcast(x, process))
        return self._inner.broadcast(x if found is None else found)

    def gather(self, x: ArrayLike, root: int = 0) -> list[NDArray[Any]] | None:
        process, thread = divmod(root, self._inner.size)
        here = self._inner.gather(x)
        if here is not None:  # on the first thread, which passes them on in the order of the ranks
            with self._gate.lock:
                found = [self._gate.outer.gather(part, process) for part in here]
            self._gate.gathered = [part for parts in zip(*[f for f in found if f is not None]) for part in parts]
        self._inner.barrier()
        gathered = self._gate.gathered if self._inner.rank == thread else None
        self._inner.barrier()
        return gathered if self._gate.outer.rank == process else None

    def abort(self, reason: str | BaseException) -> None:
        self._inner.abort(reason)

    def _outer(self, call: Callable[[Communicator], Any]) -> Any:
        """The result of a collective of the processes on their first threads; None on the others, which wait."""
        if self._inner.rank:
            return None
        with self._gate.lock:
            return call(self._gate.outer)

    def _post(self, header: Header, buffer: Buffer, dest: int) -> None:
        process, thread = divmod(dest, self._inner.size)
        if process == self._gate.outer.rank:
            self._inner.post(header, buffer, thread)
            return
        with self._gate.lock:
            self._gate.outer.post([*header.tolist(), thread, self.rank], buffer, process)

    def _poll(self) -> tuple[int, Message] | None:
        self._gate.fetch()
        mine = self._gate.waiting[self._inner.rank]
        if mine:
            message = mine.popleft()
            return int(message.header[-1]), Message(message.header[:-1], message.buffer)
        found = self._inner._poll()
        return None if found is None else (self._gate.outer.rank * self._inner.size + found[0], found[1])

    def _pause(self, idle: int) -> None:
        if idle > 10:
            threading.Event().wait(1e-4)


class HybridJob:
    """Runs functions on threads of all processes; blocks that arrive between two calls of `run` are kept.

    Parameters
    ----------
    outer : Communicator
        The communicator between the processes.
    threads : int
        Number of threads, the same in every process.
    """

    def __init__(self, outer: Communicator, threads: int) -> None:
        self.outer = outer
        self.threads = threads
        self._gate = _Gate(outer, threads)

    def run(self, function: Callable[[Communicator], T]) -> list[T]:
        """``[function(comm) for each thread of this process]``, where comm connects the threads of all processes.

        Every process must call this. With one thread per process, the function runs in the caller's thread with the
        communicator between the processes.
        """
        if self.threads == 1:
            return [function(self.outer)]
        if self.outer.size == 1:
            return run_threads(self.threads, function, self.outer.timeout)
        gate = self._gate
        return run_threads(self.threads, lambda inner: function(HybridCommunicator(gate, inner)), self.outer.timeout)

"""Collectives implemented by messages between pairs of ranks, for communicators of threads and of MPI processes.

MPI's own collectives are not used: they guarantee no order of summation, so that the results of threads and processes
would differ in the last bits, and an error message could not name the rank that a collective waits for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyclass.distributed.communicator import Buffer, Communicator, Reduction, check_reduction

__all__ = ["ExchangingCommunicator"]

#: Arrays up to this size in bytes are reduced by rank 0; larger ones are divided, and every rank reduces a part.
_SMALL = 1 << 15


class ExchangingCommunicator(Communicator):
    """Base class that implements the collectives by exchanging arrays between pairs of ranks."""

    #: Whether a rank receives the array that another has sent, not a copy of it.
    _shares_memory = False

    def barrier(self) -> None:
        """See `Communicator.barrier`."""
        self._count(0)
        self._reduce(np.zeros(1, np.int8), "max")

    def allreduce(self, x: ArrayLike, op: Reduction = "sum") -> NDArray[Any]:
        """See `Communicator.allreduce`: each rank reduces a part of a large array, rank 0 reduces small arrays."""
        check_reduction(op)
        x = np.asarray(x)
        self._count(x.nbytes)
        return self._reduce(np.ascontiguousarray(x).reshape(-1), op).reshape(x.shape)

    def _reduce(self, flat: Buffer, op: Reduction) -> Buffer:
        owners = 1 if flat.nbytes <= _SMALL else self.size
        parts = {k: flat[flat.size * k // owners : flat.size * (k + 1) // owners] for k in range(owners)}
        takers = range(self.size if self.rank < owners else 0)
        addends = list(self._exchange(parts, dict.fromkeys(takers, parts.get(self.rank, flat))).values())
        total = np.array(addends[0]) if addends else flat
        for part in addends[1:]:
            (np.add if op == "sum" else np.maximum)(total, part, out=total)
        combined = dict.fromkeys(takers, total)
        return np.concatenate(list(self._exchange(combined, parts).values()))

    def broadcast(self, x: ArrayLike, root: int = 0) -> NDArray[Any]:
        """See `Communicator.broadcast`: the root sends its array to every rank."""
        x = np.array(x, order="C") if self.rank == root else np.asarray(x)
        self._count(x.nbytes if self.rank == root else 0)
        found = self._exchange(dict.fromkeys(range(self.size), x) if self.rank == root else {}, {root: x})[root]
        return (np.array(found) if self._shares_memory else found).reshape(x.shape)

    def gather(self, x: ArrayLike, root: int = 0) -> list[NDArray[Any]] | None:
        """The arrays of all ranks, in the order of the ranks, at the root; None elsewhere."""
        x = np.array(x, order="C")  # as in `broadcast`
        self._count(x.nbytes)
        shapes = np.zeros((self.size, x.ndim), np.int64)
        shapes[self.rank] = x.shape
        shapes = self.allreduce(shapes)
        like = {r: np.empty(tuple(shape), x.dtype) for r, shape in enumerate(shapes) if self.rank == root}
        found = self._exchange({root: x}, like)
        return [np.array(part).reshape(like[r].shape) for r, part in found.items()] if self.rank == root else None

    def _exchange(self, parts: Mapping[int, Buffer], like: Mapping[int, Buffer]) -> dict[int, Buffer]:
        """Send ``parts[r]`` to rank r, and receive from each rank r in ``like`` an array of that shape and dtype."""
        sent = [self._send(part, r) for r, part in parts.items() if r != self.rank]
        parcels = {r: self._expect(r, array) for r, array in like.items() if r != self.rank}
        found = {r: parts[r] if r == self.rank else self._finish(parcels[r], r) for r in like}
        self._settle(sent)
        return found

    # --- implemented by subclasses; messages between a pair of ranks arrive in order ----------------------------------

    @abstractmethod
    def _send(self, array: Buffer, dest: int) -> Any:
        """Start sending an array, which must not change until `_settle` is called with the result."""

    @abstractmethod
    def _expect(self, source: int, like: Buffer) -> Any:
        """Start receiving an array of the shape and dtype of ``like``."""

    @abstractmethod
    def _ready(self, parcel: Any) -> Buffer | None:
        """The array of a call of `_expect` if it has arrived, else None."""

    @abstractmethod
    def _settle(self, sent: list[Any]) -> None:
        """Wait until the arrays of these calls of `_send` may be changed."""

    def _finish(self, parcel: Any, source: int) -> Buffer:
        return self._wait(lambda: self._ready(parcel), lambda: f"rank {source}")

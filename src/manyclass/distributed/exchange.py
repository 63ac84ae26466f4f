"""Collectives made of messages between pairs of ranks: what kinds of communicator share that have such messages."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyclass.distributed.communicator import Buffer, Communicator, Reduction, check_reduction

__all__ = ["ExchangingCommunicator"]

#: Arrays of so many bytes or less are reduced by rank 0; of larger ones every rank reduces a part.
_SMALL = 1 << 15

#: What a message of a collective is, so that none is taken for another.
_BARRIER, _PART, _WHOLE, _BROADCAST, _GATHER = range(1, 6)


class ExchangingCommunicator(Communicator):
    """A communicator whose ranks exchange arrays in pairs; it makes the collectives of these."""

    def barrier(self) -> None:
        """Wait until every rank is here. Dissemination barrier (Hensgen, Finkel and Manber 1988): log2(size) rounds."""
        self._count(0)
        token, reach = np.zeros(1, np.int64), 1
        while reach < self.size:
            dest, source = (self.rank + reach) % self.size, (self.rank - reach) % self.size
            sent = self._send(token, dest, _BARRIER)
            self._finish(self._expect(source, _BARRIER, token), source)
            self._settle([sent])
            reach *= 2

    def allreduce(self, x: ArrayLike, op: Reduction = "sum") -> NDArray[Any]:
        """Each rank combines a part of the array and sends it round; small arrays are combined by rank 0."""
        check_reduction(op)
        x = np.asarray(x)
        self._count(x.nbytes)
        flat = np.ascontiguousarray(x).reshape(-1)
        owners = 1 if flat.nbytes <= _SMALL else self.size
        parts = [slice(flat.size * k // owners, flat.size * (k + 1) // owners) for k in range(owners)]
        sent = [self._send(flat[parts[k]], k, _PART) for k in range(owners) if k != self.rank]
        others = [r for r in range(self.size) if r != self.rank]
        result = np.empty_like(flat)
        if self.rank < owners:
            own = flat[parts[self.rank]]
            parcels = {r: self._expect(r, _PART, own) for r in others}
            total = np.array(own if self.rank == 0 else self._finish(parcels[0], 0))
            for r in range(1, self.size):
                part = own if r == self.rank else self._finish(parcels[r], r)
                (np.add if op == "sum" else np.maximum)(total, part, out=total)
            sent += [self._send(total, r, _WHOLE) for r in others]
            result[parts[self.rank]] = total
        coming = {k: self._expect(k, _WHOLE, flat[parts[k]]) for k in range(owners) if k != self.rank}
        for k, parcel in coming.items():
            result[parts[k]] = self._finish(parcel, k)
        self._settle(sent)
        return result.reshape(x.shape)

    def broadcast(self, x: ArrayLike, root: int = 0) -> NDArray[Any]:
        """The root's array on every rank, along a binomial tree."""
        x = np.asarray(x)
        self._count(x.nbytes if self.rank == root else 0)
        given = np.array(x, order="C")
        # Ranks are counted from the root.
        place, sent, reach = (self.rank - root) % self.size, [], 1
        while reach < self.size:
            if place < reach and place + reach < self.size:
                sent.append(self._send(given, (self.rank + reach) % self.size, _BROADCAST))
            elif reach <= place < 2 * reach:
                source = (self.rank - reach) % self.size
                given = np.array(self._finish(self._expect(source, _BROADCAST, given), source)).reshape(x.shape)
            reach *= 2
        self._settle(sent)
        return np.array(given)  # on threads, what was sent is being read elsewhere

    def gather(self, x: ArrayLike, root: int = 0) -> list[NDArray[Any]] | None:
        """The arrays of all ranks, in the order of the ranks, at the root; None elsewhere."""
        x = np.array(x, order="C")  # its own: on threads it is read elsewhere after this has returned
        self._count(x.nbytes)
        shapes = np.zeros((self.size, x.ndim), np.int64)
        shapes[self.rank] = x.shape
        shapes = self.allreduce(shapes)
        if self.rank != root:
            self._settle([self._send(x, root, _GATHER)])
            return None
        like = [np.empty(tuple(shape), x.dtype) for shape in shapes]
        parcels = {r: self._expect(r, _GATHER, like[r]) for r in range(self.size) if r != root}
        found = [x if r == root else self._finish(parcels[r], r) for r in range(self.size)]
        return [np.array(part).reshape(like[r].shape) for r, part in enumerate(found)]

    # --- what the kinds of communicator supply -----------------------------------------------------------------------

    @abstractmethod
    def _send(self, array: Buffer, dest: int, tag: int) -> Any:
        """Start sending; the array stays as it is until `_settle` of what this returns."""

    @abstractmethod
    def _expect(self, source: int, tag: int, like: Buffer) -> Any:
        """Start receiving an array of this size and type."""

    @abstractmethod
    def _ready(self, parcel: Any) -> Buffer | None:
        """The array that `_expect` waits for, once it is there."""

    @abstractmethod
    def _settle(self, sent: list[Any]) -> None:
        """Wait until the arrays may be changed."""

    def _finish(self, parcel: Any, source: int) -> Buffer:
        return self._wait(lambda: self._ready(parcel), lambda: f"rank {source}")

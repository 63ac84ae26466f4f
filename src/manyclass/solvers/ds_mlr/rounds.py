"""Rounds, in which every block of classes is processed once with every shard of rows, by ring or by queue."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

import numpy as np

from manyclass.distributed import Communicator
from manyclass.distributed.communicator import DeadlineError
from manyclass.objective.problem import Array
from manyclass.solvers.ds_mlr.grid import Grid

__all__ = ["Rounds", "Visit"]

#: The work for a block at a shard: ``visit(shard, block, payload)``; it may change the payload.
Visit = Callable[[int, int, Array], None]


class Rounds:
    """The part of one worker in the rounds of a job.

    Between rounds every block is at the worker that owns it. In a round each worker sends the payloads of its own
    blocks, and ends the round when they have returned. There is no barrier at the end: blocks of the next round that
    arrive early are stored.

    Parameters
    ----------
    comm : Communicator
        The workers.
    grid : Grid
        The partition of rows and classes.

    Attributes
    ----------
    skipped : int
        Number of blocks that were sent on without a visit.
    seed : int, optional
        With a queue, each block takes the workers in a random order, another one in each round; the same seed for all
        workers. None: from its owner on, in the order of their ranks.
    """

    def __init__(self, comm: Communicator, grid: Grid) -> None:
        self.comm = comm
        self.grid = grid
        self.skipped = 0
        self.seed: int | None = None
        self._round = 0
        self._early: dict[int, list[tuple[int, int, Array]]] = {}

    def ring(self, payloads: Mapping[int, Array], visit: Visit) -> dict[int, Array]:
        """A round in a fixed order, the same for any number of workers (algorithm 1, lines 6 - 10).

        Parameters
        ----------
        payloads : mapping of int to ndarray
            The array to send for each block that this worker owns; not to be used before this returns.
        visit : callable
            The work for each block at each shard, see `Visit`.

        Returns
        -------
        dict
            The payloads after all visits.
        """
        comm, grid = self.comm, self.grid
        held = dict(payloads)
        self._begin(held)
        for step, (shard, block) in enumerate(grid.meetings(comm.rank)):
            comm.where = (self._round, step)
            payload = self._await(held, block)
            visit(shard, block, payload)
            onward = grid.worker_of(shard - 1)
            if onward == comm.rank:
                held[block] = payload
            else:
                comm.post([self._round, block, 0], payload, onward)
                comm.progress()
        return {block: self._await(held, block) for block in payloads}

    def queue(
        self,
        payloads: Mapping[int, Array],
        visit: Visit,
        missed: Counter[int] | None = None,
        patience: int = 0,
    ) -> dict[int, Array]:
        """A round in which workers process blocks as they arrive (algorithm 2; NOMAD).

        A block visits all shards of a worker, and is then sent to the next worker, see ``seed``.

        Parameters
        ----------
        payloads, visit
            As in `ring`.
        missed : Counter, optional
            For each block, how often it was sent on without a visit since its last visit; updated. None: no block is
            sent on without a visit.
        patience : int, default=0
            Number of waiting blocks from which a block is sent on without a visit, so that a slow worker does not delay
            the others.

        Returns
        -------
        dict
            The payloads after all visits.
        """
        comm, grid = self.comm, self.grid
        shards = grid.shards_of(comm.rank)
        waiting: deque[tuple[int, int, Array]] = deque()
        self._round += 1
        for block, payload in payloads.items():
            self._send(waiting, block, 0, payload)
        waiting.extend(self._early.pop(self._round, []))
        back: dict[int, Array] = {}
        seen = 0
        while seen < grid.n_blocks or len(back) < len(payloads):
            self._take(waiting, wait=not waiting)
            if not waiting:
                continue
            block, hops, payload = waiting.popleft()
            if hops == comm.size:
                back[block] = payload
                continue
            comm.where = (self._round, seen)
            seen += 1
            if missed is not None and comm.size > 1 and len(waiting) >= patience:
                missed[block] += 1
                self.skipped += 1
            else:
                for shard in shards:
                    visit(shard, block, payload)
                if missed is not None:
                    missed[block] = 0
            self._send(waiting, block, hops + 1, payload)
        return {block: back[block] for block in payloads}

    def _send(self, waiting: deque[tuple[int, int, Array]], block: int, hops: int, payload: Array) -> None:
        """Send a block that has visited ``hops`` workers to the next one, at the end to its owner."""
        comm, owner = self.comm, self.grid.worker_of(self.grid.first_shard(block))
        onward = owner
        if hops < comm.size:
            onward = (owner + hops) % comm.size
            if self.seed is not None:
                onward = int(np.random.default_rng([self.seed, self._round, block]).permutation(comm.size)[hops])
        if onward == comm.rank:
            waiting.append((block, hops, payload))
        else:
            comm.post([self._round, block, hops], payload, onward)
            comm.progress()

    def _begin(self, held: dict[int, Array]) -> None:
        self._round += 1
        held.update({block: payload for block, _, payload in self._early.pop(self._round, [])})

    def _await(self, held: dict[int, Array], block: int) -> Array:
        """Remove a block from those held and return it; waits until it has arrived."""
        while block not in held:
            arrived: deque[tuple[int, int, Array]] = deque()
            self._take(arrived, wait=True)
            held.update({number: payload for number, _, payload in arrived})
        return held.pop(block)

    def _take(self, into: deque[tuple[int, int, Array]], *, wait: bool) -> None:
        """Move the blocks of this round that have arrived into a deque; with ``wait``, wait for a message first."""
        while True:
            message = self.comm.poll()
            if message is None and wait:
                try:
                    message = self.comm.receive()
                except DeadlineError as error:
                    raise DeadlineError(f"{error}; it waited for a block of round {self._round}") from error
            if message is None:
                return
            wait = False
            number, block, hops = (int(part) for part in message.header[:3])
            parcel = (block, hops, message.buffer)
            if number == self._round:
                into.append(parcel)
            else:
                self._early.setdefault(number, []).append(parcel)

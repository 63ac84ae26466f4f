"""Rounds: every block of classes meets every shard of rows once, by ring or by queue."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from manyclass.distributed import Communicator
from manyclass.distributed.communicator import DeadlineError
from manyclass.objective.problem import Array
from manyclass.solvers.ds_mlr.grid import Grid

__all__ = ["Rounds", "Visit"]

#: What is done where a block meets a shard: ``visit(shard, block, payload)``; it may change the payload.
Visit = Callable[[int, int, Array], None]


class Rounds:
    """One worker's part in the rounds of a job.

    Between rounds every block is with its worker. A round is begun by every worker with the payloads of its own blocks,
    and ends when these are back. Nobody waits for the others at its end: a block of the next round that comes early is
    kept.

    Parameters
    ----------
    comm : Communicator
    grid : Grid

    Attributes
    ----------
    waited : float
        Seconds that this worker had nothing to do in rounds.
    skipped : int
        Blocks that a queue has sent on unvisited.
    """

    def __init__(self, comm: Communicator, grid: Grid) -> None:
        self.comm = comm
        self.grid = grid
        self.waited = 0.0
        self.skipped = 0
        self._round = 0
        self._early: dict[int, list[tuple[int, int, Array]]] = {}

    def ring(self, payloads: Mapping[int, Array], visit: Visit) -> dict[int, Array]:
        """A round in the order of the ring, the same for any number of workers (algorithm 1, lines 6 - 10).

        Parameters
        ----------
        payloads : mapping of int to ndarray
            For each block at home here, what travels. It is not to be used before it is back.
        visit : callable

        Returns
        -------
        dict
            The same payloads, back.
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
        """A round in which each worker takes what has come (algorithm 2; NOMAD).

        A block stays with a worker for all its shards, then goes on to the next worker.

        Parameters
        ----------
        payloads, visit
            As in `ring`.
        missed : Counter, optional
            How often each block has been sent on unvisited since its last visit; kept by this. Without it every block
            is visited.
        patience : int
            Blocks that may wait here, before further ones are sent on unvisited: a slow worker then does not keep the
            others waiting.

        Returns
        -------
        dict
            The same payloads, back.
        """
        comm, grid = self.comm, self.grid
        shards = grid.shards_of(comm.rank)
        waiting: deque[tuple[int, int, Array]] = deque((block, 0, payload) for block, payload in payloads.items())
        self._round += 1
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
            onward = (comm.rank + 1) % comm.size
            if onward == comm.rank:
                waiting.append((block, hops + 1, payload))
            else:
                comm.post([self._round, block, hops + 1], payload, onward)
                comm.progress()
        return {block: back[block] for block in payloads}

    def _begin(self, held: dict[int, Array]) -> None:
        self._round += 1
        held.update({block: payload for block, _, payload in self._early.pop(self._round, [])})

    def _await(self, held: dict[int, Array], block: int) -> Array:
        """A block out of those held, once it is there."""
        while block not in held:
            arrived: deque[tuple[int, int, Array]] = deque()
            self._take(arrived, wait=True)
            held.update({number: payload for number, _, payload in arrived})
        return held.pop(block)

    def _take(self, into: deque[tuple[int, int, Array]], *, wait: bool) -> None:
        """What has arrived of this round; waits for a message, of whichever round, if it is to."""
        while True:
            message = self.comm.poll()
            if message is None and wait:
                begun = time.perf_counter()
                try:
                    message = self.comm.receive()
                except DeadlineError as error:
                    raise DeadlineError(f"{error}; it waited for a block of round {self._round}") from error
                self.waited += time.perf_counter() - begun
            if message is None:
                return
            wait = False
            number, block, hops = (int(part) for part in message.header[:3])
            parcel = (block, hops, message.buffer)
            if number == self._round:
                into.append(parcel)
            else:
                self._early.setdefault(number, []).append(parcel)

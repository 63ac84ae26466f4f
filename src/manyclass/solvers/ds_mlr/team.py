"""The workers of one process, and facts about the whole problem."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from manyclass.distributed import Communicator
from manyclass.distributed.hybrid import HybridJob
from manyclass.kernels.rows import n_stored
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import State
from manyclass.solvers.ds_mlr.grid import Grid, make_grid
from manyclass.solvers.ds_mlr.views import Kept, Made, Scores
from manyclass.solvers.ds_mlr.worker import Share, Worker

__all__ = ["Extent", "Team"]

T = TypeVar("T")


class Extent:
    """Facts about the whole problem, of which each process has some rows; the processes create it together.

    Parameters
    ----------
    problem : Problem
        The problem of the rows of this process.
    comm : Communicator
        The processes.
    threads : int
        Workers per process, >= 1.
    scale : float
        Mean of the sample weights of this process, where those of all processes have mean 1.
    block_classes, n_shards, each
        See `make_grid`.

    Attributes
    ----------
    grid : Grid
        The partition.
    share : Share
        The rows of this process.
    curvature : float
        The mean of (||x||^2 + constant^2) / 2, a bound on the trace of the Hessian.
    largest : float
        The maximum of c_i (||x_i||^2 + constant^2).
    ranks : range
        The workers of this process.
    n : int
        Number of rows of all processes.
    neighbours : int
        Number of processes on this host.
    """

    def __init__(
        self,
        problem: Problem,
        comm: Communicator,
        threads: int,
        scale: float,
        block_classes: int | None,
        n_shards: int | None,
        each: int = 1,
    ) -> None:
        assert isinstance(problem.targets, ClassTargets)
        weights = np.asarray(problem.sample_weight, np.float64) * scale
        counts = np.zeros((comm.size, 4))
        counts[comm.rank] = len(weights), n_stored(problem.rows), float(weights @ problem.norms), weights.sum()
        counts = comm.allreduce(counts)
        n = int(counts[:, 0].sum())
        mean = float(counts[:, 2].sum() / counts[:, 3].sum())
        constant = (math.sqrt(mean) or 1.0) if problem.intercept else 0.0
        self.grid: Grid = make_grid(
            counts[:, 0].astype(int).tolist(),
            problem.n_outputs,
            comm.size * threads,
            block_classes=block_classes,
            n_shards=n_shards,
            each=each,
        )
        self.share = Share(
            rows=problem.rows,
            y=problem.targets.y,
            weights=np.asarray(problem.sample_weight if scale == 1.0 else weights, problem.dtype),
            norms=problem.norms,
            first=int(counts[: comm.rank, 0].sum()),
            lam=float(problem.lam),
            constant=constant,
            dtype=problem.dtype,
            stored=float(counts[:, 1].sum()) / max(n, 1),
        )
        self.curvature = 0.5 * (mean + constant**2)
        sizes = weights * (problem.norms + constant**2)
        self.largest = float(comm.allreduce(np.array([sizes.max(initial=0.0)]), "max")[0])
        self.ranks = range(comm.rank * threads, (comm.rank + 1) * threads)
        self.n = n
        self.neighbours = comm.neighbours()

    @property
    def blocks(self) -> list[int]:
        """The blocks that the workers of this process own."""
        return [block for rank in self.ranks for block in self.grid.blocks_of(rank)]


class Team:
    """The workers of this process, which use the arrays of a state.

    Parameters
    ----------
    extent : Extent
        The whole problem.
    state : State
        Its ``lse``, ``total``, ``scores`` and ``own`` are changed in place.
    comm : Communicator
        The processes.
    queue : bool
        Whether the schedule is a queue.
    slow : sequence of float
        `Worker.slow` by rank; 0 beyond its end.
    """

    def __init__(self, extent: Extent, state: State, comm: Communicator, queue: bool, slow: Sequence[float]) -> None:
        self.job = HybridJob(comm, len(extent.ranks))
        self.extent = extent
        # If all workers are in one process, blocks of a queue wait for the next free worker.
        self._pool: deque[tuple[int, Array]] | None = None
        if queue and comm.size == 1 and len(extent.ranks) > 1:
            self._pool = deque()
        self._lse: dict[int, Array] = {}
        self._total: dict[int, Array] = {}
        moved: dict[int, Array] = {}
        self.workers = [
            Worker(
                *(extent.share, extent.grid, rank, queue, self._lse, self._total, moved, self._pool),
                slow=slow[rank] if rank < len(slow) else 0.0,
            )
            for rank in extent.ranks
        ]
        self._S: dict[int, Array] = {}
        self._T: dict[int, Array] = {}
        keep = state["scores"].shape[0] > 0
        self.scores: list[Scores] = [Kept(w, self._S, self._T) if keep else Made(w) for w in self.workers]
        self.attach(state)

    def attach(self, state: State) -> None:
        """Use the arrays of this state from now on."""
        for worker, scores in zip(self.workers, self.scores):
            for shard in worker.shards:
                begin, end = worker.local(shard)
                self._lse[shard] = state["lse"][begin:end]
                self._total[shard] = state["total"][begin:end]
                if isinstance(scores, Kept):
                    S: Array = state["scores"][begin:end]
                    self._S[shard] = S
                    if shard not in self._T:
                        self._T[shard] = np.zeros_like(S)
                elif isinstance(scores, Made):
                    scores.own[shard] = state["own"][begin:end]

    def run(self, work: Callable[[Worker, Scores], T]) -> list[T]:
        """Call ``work`` for every worker, concurrently; returns the results."""
        first = self.extent.ranks[0]
        if self._pool is not None:
            self._pool.clear()  # an interrupt may have left blocks

        def each(comm: Communicator) -> T:
            worker = self.workers[comm.rank - first]
            worker.join(comm)
            return work(worker, self.scores[comm.rank - first])

        return self.job.run(each)

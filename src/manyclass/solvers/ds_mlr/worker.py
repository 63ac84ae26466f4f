"""A worker: its rows, and the operations on blocks at its shards."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from manyclass.distributed import Communicator
from manyclass.kernels import ds_mlr as kernels
from manyclass.kernels.rows import Rows
from manyclass.objective.problem import Array
from manyclass.runtime.threads import ranges
from manyclass.solvers.base import PLAIN
from manyclass.solvers.ds_mlr.grid import Grid
from manyclass.solvers.ds_mlr.rounds import Rounds, Visit

__all__ = ["Share", "Worker"]

#: Multiply-adds after which a kernel returns to Python, which sends messages and handles Ctrl-C.
_WORK = 5e7
#: Least fraction of the sum of exponentials that blocks other than one are taken to have: the rounding of the sum.
_LEAST = 1e-15


@dataclass(frozen=True)
class Share:
    """The rows of a process, and constants of the problem.

    Attributes
    ----------
    rows : CSRRows or DenseRows
        The features.
    y, weights, norms : ndarray
        Class, sample weight (with mean 1 over all processes) and squared norm of each row.
    first : int
        Index of the first of these rows among those of all processes.
    lam, constant : float
        Strength of the penalty; value of the constant feature of the intercept, 0 without an intercept.
    dtype : dtype
        Type of the weights.
    stored : float
        Mean number of stored values per row, over all processes.
    """

    rows: Rows
    y: Array
    weights: Array
    norms: Array
    first: int
    lam: float
    constant: float
    dtype: np.dtype[np.floating]
    stored: float


@dataclass
class Worker:
    """A worker, with arrays for the rows of its shards.

    The dictionaries, by shard, may be shared by all workers of a process. Each uses its own shards, but in
    `shared_round` a worker may do visits of another.

    Attributes
    ----------
    share, grid, rank, queue
        The rows of the process; the partition; number of this worker; whether the schedule is a queue.
    lse : dict of ndarray of shape (rows, n_sums)
        Log-sum-exp of the scores in each block of classes, in float64; or a running sum, see `Grid.n_sums`.
    total : dict of ndarray of shape (rows,)
        Log-sum-exp of all scores.
    moved : dict of ndarray of shape (rows,)
        Probability that balancing removes from the classes of a row, see `pull_block`.
    pool : deque, optional
        Blocks that the next free worker takes, if all workers are in one process.
    missed : Counter
        For each block, how often it was sent on without a visit since its last stochastic steps here.
    slow : float
        After each visit the worker sleeps this many times its duration: simulates a slow machine.
    seed : int, optional
        See `Rounds`.
    """

    share: Share
    grid: Grid
    rank: int
    queue: bool
    lse: dict[int, Array] = field(default_factory=dict)
    total: dict[int, Array] = field(default_factory=dict)
    moved: dict[int, Array] = field(default_factory=dict)
    pool: deque[tuple[int, Array]] | None = None
    missed: Counter[int] = field(default_factory=Counter)
    slow: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for shard in self.shards:
            begin, end = self.grid.rows(shard)
            self.moved[shard] = np.zeros(end - begin)

    def join(self, comm: Communicator) -> None:
        """Use ``comm`` from now on."""
        self.comm = comm
        if not hasattr(self, "rounds"):
            self.rounds = Rounds(comm, self.grid)
        self.rounds.seed = self.seed
        self.rounds.comm = comm  # the rest remains: blocks of the next round may have arrived already

    @property
    def shards(self) -> range:
        return self.grid.shards_of(self.rank)

    @property
    def blocks(self) -> list[int]:
        return self.grid.blocks_of(self.rank)

    # --- rounds and sums --------------------------------------------------------------------------------------------

    def round(self, payloads: Mapping[int, Array], visit: Visit) -> dict[int, Array]:
        """A round: every block visits every shard."""
        return (self.rounds.queue if self.queue else self.rounds.ring)(payloads, self.paced(visit))

    def shared_round(self, payloads: Mapping[int, Array], visit: Visit) -> dict[int, Array]:
        """A round whose visits any worker of the process may do; they must change only their payload or their block.

        With a queue and one process, each worker takes the next block and does all its visits. The result does not
        depend on which worker takes a block, and a slow worker takes fewer.
        """
        if self.pool is None:
            return self.round(payloads, visit)
        paced = self.paced(visit)
        self.pool.extend(payloads.items())
        self.comm.barrier()  # all blocks, and the data that visits read, are available
        while True:
            try:
                block, payload = self.pool.popleft()
            except IndexError:
                break
            for shard in range(self.grid.n_shards):
                paced(shard, block, payload)
        self.comm.barrier()
        return dict(payloads)

    def paced(self, visit: Visit) -> Visit:
        """The visit, delayed if the worker is `slow`."""
        if not self.slow:
            return visit

        def slowly(shard: int, block: int, payload: Array) -> None:
            begun = time.perf_counter()
            visit(shard, block, payload)
            time.sleep(self.slow * (time.perf_counter() - begun))

        return slowly

    def by_shard(self, parts: Mapping[int, Array | float | list[float]], width: int = 1) -> Array:
        """The sum of ``parts``, by shard, over all shards; the same bits for any number of workers."""
        return self._total(parts, self.grid.n_shards, width)

    def by_block(self, parts: Mapping[int, Array], width: int) -> Array:
        """The sum of ``parts``, by block, over all blocks; the same bits for any number of workers."""
        return self._total(parts, self.grid.n_blocks, width)

    def _total(self, parts: Mapping[int, Array | float | list[float]], places: int, width: int) -> Array:
        table = np.zeros((places, width))
        for place, part in parts.items():
            table[place] = part
        whole = self.comm.allreduce(table)
        total: Array = whole.sum(axis=0)
        return total

    def local(self, shard: int) -> tuple[int, int]:
        """First and last + 1 of the rows of a shard, as indices into the rows of the process."""
        begin, end = self.grid.rows(shard)
        return begin - self.share.first, end - self.share.first

    def pieces(self, shard: int, width: int) -> Iterator[tuple[int, int, slice]]:
        """Ranges of the rows of a shard, as indices into those of the process and as slices of the shard.

        Messages are sent after each range.
        """
        begin, end = self.local(shard)
        size = max(64, int(_WORK / max(1.0, self.share.stored * width)))
        for at, stop in ranges(end - begin, size):
            yield begin + at, begin + stop, slice(at, stop)
            self.comm.progress()

    # --- log-sum-exps -----------------------------------------------------------------------------------------------

    def begin_sums(self) -> None:
        """Prepare for `add_sums` of all blocks at all shards."""
        if not self.grid.by_block:
            for shard in self.shards:
                self.lse[shard][:, 0] = -np.inf

    def add_sums(self, shard: int, part: slice, block: int, S: Array, lo: int, hi: int) -> None:
        """Take the log-sum-exps of a block, whose scores are in the columns lo to hi - 1 of S, for some rows."""
        lse = self.lse[shard][part]
        if self.grid.by_block:
            kernels.block_logsumexp(S, lo, hi, lse, block)
        else:
            kernels.block_logsumexp(S, lo, hi, lse, 1)
            np.logaddexp(lse[:, 0], lse[:, 1], out=lse[:, 0])

    def end_sums(self) -> None:
        """Compute the log-sum-exps of all scores from those of the blocks."""
        for shard in self.shards:
            if self.grid.by_block:
                kernels.logsumexp_rows(self.lse[shard], self.total[shard])
            else:
                self.total[shard][:] = self.lse[shard][:, 0]

    def others(self, shard: int, W: Array) -> Array:
        """The log-sum-exps over all other blocks, where ``total`` includes this block at the weights W."""
        own = np.empty((len(self.total[shard]), 1))
        for begin, end, part in self.pieces(shard, W.shape[1]):
            S = np.empty((end - begin, W.shape[1]), W.dtype)
            kernels.block_scores(self.share.rows, begin, end, W, W.dtype.type(self.share.constant), PLAIN, S, 0)
            kernels.block_logsumexp(S, 0, W.shape[1], own[part], 0)
        # Where the block has nearly all of the sum, rounding may leave nothing, or less, for the others.
        rest = -np.expm1(np.minimum(own[:, 0] - self.total[shard], 0.0))
        return np.asarray(self.total[shard] + np.log(np.maximum(rest, _LEAST)))

    # --- visits -----------------------------------------------------------------------------------------------------

    def score(self, payloads: Mapping[int, Array], into: dict[int, Array]) -> dict[int, Array]:
        """Set ``into[shard]`` to the scores X W, where the payloads are the blocks of W."""

        def visit(shard: int, block: int, W: Array) -> None:
            self.score_block(shard, W, into[shard], self.grid.classes(block)[0])

        return self.shared_round(payloads, visit)

    def score_block(self, shard: int, W: Array, S: Array, at: int) -> None:
        """Write the scores of a block at a shard to the columns of S from ``at`` on."""
        for begin, end, part in self.pieces(shard, W.shape[1]):
            kernels.block_scores(self.share.rows, begin, end, W, W.dtype.type(self.share.constant), PLAIN, S[part], at)

    def pull_block(self, shard: int, block: int, S: Array, at: int, G: Array, moving: tuple[Array, Array]) -> None:
        """Add the part of a shard in sum_i c_i (p_i - e_y) x_i^T to G.

        ``moving`` balances the p_i: the fraction of its probability that each class loses, and its share of what is
        removed in a row (`moved`).
        """
        share = self.share
        remove, shares = moving
        lo = self.grid.classes(block)[0]
        for begin, end, part in self.pieces(shard, G.shape[1]):
            kernels.block_gradient(
                share.rows,
                begin,
                end,
                S[part],
                at,
                share.y,
                share.weights,
                self.total[shard][part],
                remove,
                self.moved[shard][part],
                shares,
                lo,
                G.dtype.type(share.constant),
                G,
            )

    def bend_block(self, shard: int, S: Array, at: int, H: Array) -> None:
        """Add the part of a shard in sum_i c_i p_ik (1 - p_ik) x_ij^2 to H."""
        share = self.share
        for begin, end, part in self.pieces(shard, H.shape[1]):
            total = self.total[shard][part]
            constant = H.dtype.type(share.constant)
            kernels.block_curvature(share.rows, begin, end, S[part], at, share.weights, total, constant, H)

    def unbalanced(self) -> tuple[Array, Array]:
        """The argument ``moving`` of `pull_block` without balancing; sets `moved` to 0."""
        for shard in self.shards:
            self.moved[shard][:] = 0.0
        nothing = np.zeros(self.grid.n_classes)
        return nothing, nothing

"""One worker: its rows, and what it does to the blocks that visit it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from manyclass.distributed import Communicator
from manyclass.kernels import ds_mlr as kernels
from manyclass.kernels.rows import Rows
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Array
from manyclass.runtime.threads import ranges
from manyclass.solvers.ds_mlr.grid import Grid
from manyclass.solvers.ds_mlr.rounds import Rounds, Visit

__all__ = ["Share", "Worker"]

_PLAIN = L2()
#: Multiply-adds after which a kernel returns, so that messages go on their way and Ctrl-C is heard.
_WORK = 5e7


@dataclass(frozen=True)
class Share:
    """The rows of one process, and what is the same for all.

    Attributes
    ----------
    rows : CSRRows or DenseRows
    y, weights, norms : ndarray
        Class, sample weight (of mean 1 over all processes) and squared norm of each row.
    first : int
        Number of the first of these rows among those of all processes.
    lam, constant : float
        Strength of the penalty; value of the feature that carries the intercept, 0 without one.
    dtype : dtype
    stored : float
        Stored values of a row, on average.
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
    """Arrays with a row for each sample of a shard, by shard; and the rounds.

    The dictionaries may be those of all workers of a process, of which each works on its own shards; what visits do
    they may do for each other (see `shared_round`).

    Attributes
    ----------
    lse : dict of ndarray, n_v x n_blocks
        Log-sum-exp of each block of classes, in float64.
    total : dict of ndarray, n_v
        Log-sum-exp of all.
    moved : dict of ndarray, n_v
        Mass that the certificate takes from the classes of a row; see `pull_block`.
    pool : deque, optional
        Blocks that whichever worker is free takes next, where one process has all workers.
    missed : Counter
        How often each block has been sent on unvisited since its last stochastic steps here.
    slow : float
        Sleep so many times as long as each visit has taken: to see what a slow worker does to the others.
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

    def __post_init__(self) -> None:
        for shard in self.shards:
            begin, end = self.grid.rows(shard)
            self.lse[shard] = np.zeros((end - begin, self.grid.n_blocks))
            self.total[shard] = np.zeros(end - begin)
            self.moved[shard] = np.zeros(end - begin)
        for block in range(self.grid.n_blocks):
            lo, hi = self.grid.classes(block)
            for shard in self.shards:
                self.lse[shard][:, block] = np.log(hi - lo)
        for shard in self.shards:
            self.total[shard][:] = np.log(self.grid.n_classes)

    def join(self, comm: Communicator) -> None:
        """Go on over ``comm``."""
        self.comm = comm
        if not hasattr(self, "rounds"):
            self.rounds = Rounds(comm, self.grid)
        self.rounds.comm = comm  # the rest stays: blocks of the next round may be here before this worker

    @property
    def shards(self) -> range:
        return self.grid.shards_of(self.rank)

    @property
    def blocks(self) -> list[int]:
        return self.grid.blocks_of(self.rank)

    # --- rounds and sums ----------------------------------------------------------------------------------------------

    def round(self, payloads: Mapping[int, Array], visit: Visit) -> dict[int, Array]:
        """A round in which every block meets every shard."""
        return (self.rounds.queue if self.queue else self.rounds.ring)(payloads, self.paced(visit))

    def shared_round(self, payloads: Mapping[int, Array], visit: Visit) -> dict[int, Array]:
        """A round whose visits any worker of the process may do: each must change its payload, or what is of its block
        alone.

        By queue, within one process, a worker takes a block through all shards, then the next that nobody has taken: a
        slow worker takes fewer, and what comes out is the same whoever takes them.
        """
        if self.pool is None:
            return self.round(payloads, visit)
        paced = self.paced(visit)
        self.pool.extend(payloads.items())
        self.comm.barrier()  # all blocks are there, and all that visits read
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
        """The visit at the pace of a worker that is `slow`."""
        if not self.slow:
            return visit

        def slowly(shard: int, block: int, payload: Array) -> None:
            begun = time.perf_counter()
            visit(shard, block, payload)
            time.sleep(self.slow * (time.perf_counter() - begun))

        return slowly

    def by_shard(self, parts: Mapping[int, Array | float | list[float]], width: int = 1) -> Array:
        """The sum over all shards of what each contributes, the same for any number of workers."""
        return self._total(parts, self.grid.n_shards, width)

    def by_block(self, parts: Mapping[int, Array], width: int) -> Array:
        """The sum over all blocks of what each contributes, the same for any number of workers."""
        return self._total(parts, self.grid.n_blocks, width)

    def _total(self, parts: Mapping[int, Array | float | list[float]], places: int, width: int) -> Array:
        table = np.zeros((places, width))
        for place, part in parts.items():
            table[place] = part
        whole = self.comm.allreduce(table)
        total: Array = whole.sum(axis=0)
        return total

    def local(self, shard: int) -> tuple[int, int]:
        """The rows of a shard, as the process numbers them."""
        begin, end = self.grid.rows(shard)
        return begin - self.share.first, end - self.share.first

    def pieces(self, shard: int, width: int) -> Iterator[tuple[int, int, slice]]:
        """The rows of a shard, a few at a time, and where they are within it; lets messages go on in between."""
        begin, end = self.local(shard)
        size = max(64, int(_WORK / max(1.0, self.share.stored * width)))
        for at, stop in ranges(end - begin, size):
            yield begin + at, begin + stop, slice(at, stop)
            self.comm.progress()

    # --- what visits do -----------------------------------------------------------------------------------------------

    def score(self, payloads: Mapping[int, Array], into: dict[int, Array]) -> dict[int, Array]:
        """``into[shard]`` becomes X W for the W that the payloads are blocks of."""

        def visit(shard: int, block: int, W: Array) -> None:
            self.score_block(shard, W, into[shard], self.grid.classes(block)[0])

        return self.shared_round(payloads, visit)

    def score_block(self, shard: int, W: Array, S: Array, at: int) -> None:
        """The scores of a block on a shard, into columns ``at`` and on."""
        for begin, end, part in self.pieces(shard, W.shape[1]):
            kernels.block_scores(self.share.rows, begin, end, W, W.dtype.type(self.share.constant), _PLAIN, S[part], at)

    def pull_block(self, shard: int, block: int, S: Array, at: int, G: Array, moving: tuple[Array, Array]) -> None:
        """Add the shard's part of sum_i c_i (p_i - e_y) x_i^T to G.

        ``moving``: the part of each class that is removed from the p_i, and its share of what is removed (`moved`).
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
        """Add the shard's part of sum_i c_i p_ik (1 - p_ik) x_ij^2 to H."""
        share = self.share
        for begin, end, part in self.pieces(shard, H.shape[1]):
            total = self.total[shard][part]
            constant = H.dtype.type(share.constant)
            kernels.block_curvature(share.rows, begin, end, S[part], at, share.weights, total, constant, H)

    def still(self) -> tuple[Array, Array]:
        """What `pull_block` takes where no mass is moved between the classes."""
        for shard in self.shards:
            self.moved[shard][:] = 0.0
        nothing = np.zeros(self.grid.n_classes)
        return nothing, nothing

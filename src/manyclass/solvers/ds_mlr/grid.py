"""The partition of rows into shards and of classes into blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Grid", "cuts", "make_grid"]

#: Default number of shards: 1, 2, 3, 4, 6 or 12 workers get equal numbers of them.
_SHARDS = 12
#: Minimum number of classes per block, if there are enough: whole SIMD registers and cache lines.
_WIDTH = 16


@dataclass(frozen=True)
class Grid:
    """The shards and blocks of each worker, and the order in which blocks visit shards.

    The shards form a ring: at step s a block is at the shard ``s`` below its first one, so that two blocks are never at
    the same shard, and every block has visited every shard after ``n_shards`` steps. This order does not depend on the
    number of workers, each of which has consecutive shards.

    Attributes
    ----------
    edges : tuple of int
        First row of each shard, and the number of all rows.
    n_classes, n_blocks : int
        Number of classes and of blocks.
    size : int
        Number of workers, at most the number of shards.
    """

    edges: tuple[int, ...]
    n_classes: int
    n_blocks: int
    size: int

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return self.edges[-1]

    @property
    def n_shards(self) -> int:
        """Number of shards of all workers."""
        return len(self.edges) - 1

    @property
    def by_block(self) -> bool:
        """Whether a row stores the log-sum-exp of its scores in each block; if not, only that of all scores.

        With a block for each of many workers these would be about as many numbers per worker as there are rows.
        """
        return self.n_blocks <= _SHARDS

    @property
    def n_sums(self) -> int:
        """Number of log-sum-exps per row: those of the blocks, or a running sum over blocks and its next summand."""
        return self.n_blocks if self.by_block else 2

    def rows(self, shard: int) -> tuple[int, int]:
        """First row of a shard, and last row + 1."""
        return self.edges[shard], self.edges[shard + 1]

    def classes(self, block: int) -> tuple[int, int]:
        """First class of a block, and last class + 1."""
        return self.n_classes * block // self.n_blocks, self.n_classes * (block + 1) // self.n_blocks

    def shards_of(self, worker: int) -> range:
        """The shards of a worker."""
        return range(
            -(-self.n_shards * worker // self.size),
            -(-self.n_shards * (worker + 1) // self.size),
        )

    def rows_of(self, worker: int) -> tuple[int, int]:
        """First row of a worker, and last row + 1."""
        shards = self.shards_of(worker)
        return self.rows(shards[0])[0], self.rows(shards[-1])[1]

    def worker_of(self, shard: int) -> int:
        """The worker that has a shard."""
        return shard % self.n_shards * self.size // self.n_shards

    def first_shard(self, block: int) -> int:
        """The shard that a block visits first in a round; these are spaced evenly."""
        return block * self.n_shards // self.n_blocks

    def blocks_of(self, worker: int) -> list[int]:
        """The blocks that a worker owns, which has their first shard."""
        return [block for block in range(self.n_blocks) if self.worker_of(self.first_shard(block)) == worker]

    def meetings(self, worker: int) -> Iterator[tuple[int, int]]:
        """The pairs ``(shard, block)`` of a round of the ring, in the order in which a worker processes them."""
        at = {self.first_shard(block): block for block in range(self.n_blocks)}
        for step in range(self.n_shards):
            for shard in self.shards_of(worker):
                block = at.get((shard + step) % self.n_shards)
                if block is not None:
                    yield shard, block


def make_grid(
    n_rows: int | Sequence[int],
    n_classes: int,
    size: int,
    *,
    block_classes: int | None = None,
    n_shards: int | None = None,
    each: int = 1,
) -> Grid:
    """The `Grid` for ``size`` workers.

    Parameters
    ----------
    n_rows : int, or sequence of int
        Number of rows, or of those of each process.
    n_classes, size : int
        Number of classes and of workers, >= 1.
    block_classes : int, optional
        Maximum number of classes per block, >= 1. None: at most 12 blocks of at least 16 classes, or ``each`` blocks
        per worker if that is more.
    n_shards : int, optional
        Number of shards, at least that of the workers and of the blocks. None: 12, or more if necessary.
    each : int, default=1
        Minimum number of blocks per worker if ``block_classes`` is None and there are enough classes.

    Returns
    -------
    Grid
        The partition.

    Raises
    ------
    ValueError
        If a number is below 1, or there are fewer shards than workers or blocks.

    Examples
    --------
    >>> grid = make_grid(1200, 63, 2)
    >>> grid.n_shards, grid.n_blocks, grid.rows_of(1), grid.blocks_of(0)
    (12, 3, (600, 1200), [0, 1])
    """
    n_blocks, n_shards = cuts(n_classes, size, block_classes, n_shards, each)
    processes = [n_rows] if isinstance(n_rows, int) else [int(n) for n in n_rows]
    whole = sum(processes)
    even = [whole * shard // n_shards for shard in range(n_shards + 1)]
    edges = list(even)
    first = 0
    for number, rows in enumerate(processes):
        # No shard has rows of two processes. If processes have the rows of whole shards, the edges do not change.
        begin, end = (-(-n_shards * at // len(processes)) for at in (number, number + 1))
        if (even[begin], even[end]) != (first, first + rows):
            edges[begin : end + 1] = [first + rows * at // (end - begin) for at in range(end - begin + 1)]
        first += rows
    return Grid(tuple(edges), int(n_classes), int(n_blocks), int(size))


def cuts(
    n_classes: int, size: int, block_classes: int | None = None, n_shards: int | None = None, each: int = 1
) -> tuple[int, int]:
    """The numbers of blocks and shards of `make_grid`, which do not depend on the rows; raises its errors."""
    for name, value in (("block_classes", block_classes), ("n_shards", n_shards), ("size", size)):
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < 1):
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    if block_classes is None:
        n_blocks = min(max(1, min(n_classes // _WIDTH, _SHARDS), each * size), n_classes)
    else:
        n_blocks = -(-n_classes // int(block_classes))
    if n_shards is None:
        n_shards = max(_SHARDS, n_blocks, size)
        n_shards = -(-n_shards // size) * size if n_shards > _SHARDS else n_shards
    if n_shards < max(n_blocks, size):
        raise ValueError(
            f"n_shards must be at least the number of workers ({size}) and of blocks of classes ({n_blocks}), "
            f"got {n_shards}: leave n_shards=None, lower n_workers, or raise block_classes"
        )
    return n_blocks, int(n_shards)

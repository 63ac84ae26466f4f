"""The grid: rows cut in shards, classes in blocks, both cut the same whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Grid", "cuts", "make_grid"]

#: Shards that there are at least: 1, 2, 3, 4, 6 and 12 workers then take equal parts of them.
_SHARDS = 12
#: Classes that make a block, where workers leave the choice: whole vectors of numbers, and of the cache's lines.
_WIDTH = 16


@dataclass(frozen=True)
class Grid:
    """Who holds which rows, where blocks of classes are at home, and how they go round.

    Shards are the places of a ring: at step s a block is ``s`` shards below its home, so that no two blocks meet and
    every block has been with every shard after ``n_shards`` steps. The order in which a block meets the rows does not
    depend on the number of workers, which only says how many neighboring shards one of them has.

    Attributes
    ----------
    edges : tuple of int
        Row at which each shard begins, and the number of all rows.
    n_classes, n_blocks : int
    size : int
        Workers; there are at least as many shards, and as many blocks where classes allow.
    """

    edges: tuple[int, ...]
    n_classes: int
    n_blocks: int
    size: int

    @property
    def n_rows(self) -> int:
        """Of all workers."""
        return self.edges[-1]

    @property
    def n_shards(self) -> int:
        """Of all workers."""
        return len(self.edges) - 1

    def rows(self, shard: int) -> tuple[int, int]:
        """First row of a shard and the one past its last."""
        return self.edges[shard], self.edges[shard + 1]

    def classes(self, block: int) -> tuple[int, int]:
        """First class of a block and the one past its last."""
        return self.n_classes * block // self.n_blocks, self.n_classes * (block + 1) // self.n_blocks

    def shards_of(self, worker: int) -> range:
        """The shards of a worker."""
        return range(
            -(-self.n_shards * worker // self.size),
            -(-self.n_shards * (worker + 1) // self.size),
        )

    def rows_of(self, worker: int) -> tuple[int, int]:
        """The rows of a worker: those of its shards."""
        shards = self.shards_of(worker)
        return self.rows(shards[0])[0], self.rows(shards[-1])[1]

    def worker_of(self, shard: int) -> int:
        """Who has the shard."""
        return shard % self.n_shards * self.size // self.n_shards

    def home(self, block: int) -> int:
        """The shard where a block rests; homes are spread evenly."""
        return block * self.n_shards // self.n_blocks

    def blocks_of(self, worker: int) -> list[int]:
        """The blocks that are at home with a worker."""
        return [block for block in range(self.n_blocks) if self.worker_of(self.home(block)) == worker]

    def meetings(self, worker: int) -> Iterator[tuple[int, int]]:
        """``(shard, block)`` of one round of the ring, in the order in which a worker is to take them."""
        at = {self.home(block): block for block in range(self.n_blocks)}
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
    """The grid for ``size`` workers.

    Parameters
    ----------
    n_rows : int, or sequence of int
        Of the whole problem; or of each process, where the workers are spread over some.
    n_classes, size : int
    block_classes : int, optional
        Most classes of a block. None: blocks of 16 classes or more, up to 12 of them; or ``each`` for each worker,
        where that is more.
    n_shards : int, optional
        None: 12, or for more workers one each; never fewer than the blocks.
    each : int
        Blocks for each worker, at least, where ``block_classes`` is None and there are classes enough.

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
    edges = [whole * shard // n_shards for shard in range(n_shards + 1)]
    first = 0
    for number, rows in enumerate(processes):
        # Where processes have cut the rows as the shards do, these are the same edges.
        begin, end = (-(-n_shards * at // len(processes)) for at in (number, number + 1))
        if (edges[begin], edges[end]) != (first, first + rows):
            edges[begin : end + 1] = [first + rows * at // (end - begin) for at in range(end - begin + 1)]
        first += rows
    return Grid(tuple(edges), int(n_classes), int(n_blocks), int(size))


def cuts(
    n_classes: int, size: int, block_classes: int | None = None, n_shards: int | None = None, each: int = 1
) -> tuple[int, int]:
    """The numbers of blocks and shards of `make_grid`, or its refusal: no rows are needed to know them."""
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

"""The memory of a process in a DS-MLR fit, and the number of processes that a fit needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from manyclass.distributed import Communicator
from manyclass.models.splitting import BLOCK_BYTES
from manyclass.runtime import memory
from manyclass.solvers.ds_mlr.grid import make_grid
from manyclass.solvers.ds_mlr.metric import CHUNK

if TYPE_CHECKING:
    from manyclass.solvers.ds_mlr.solver import DSMLR

__all__ = ["Job", "needs", "refuse"]

#: Step sizes that a line search evaluates together if scores are not kept, and numbers per row for each of them.
_CANDIDATES = 8 * 4
#: Maximum number of processes that is proposed.
_MOST = 1 << 20


class Job(NamedTuple):
    """The size of a fit.

    Attributes
    ----------
    rows, features, classes : int
        Of all processes.
    row_bytes : int
        Bytes of all rows in memory, 0 if they are there already.
    itemsize : int
        Bytes of a weight.
    """

    rows: int
    features: int
    classes: int
    row_bytes: int
    itemsize: int


def needs(solver: DSMLR, job: Job, processes: int, kind: str, keeps: bool) -> dict[str, int]:
    """Bytes by purpose that each of so many processes needs at most, through all phases.

    ``kind`` is the preconditioner, and ``keeps`` says whether scores are kept.
    """
    each = solver.blocks_each(processes)
    grid = make_grid(
        job.rows,
        job.classes,
        processes * solver.n_workers,
        block_classes=solver.block_classes,
        n_shards=solver.n_shards,
        each=each,
    )
    # Shards and blocks are spread evenly, so that the largest process has at most the next whole number of them.
    rows = -(-job.rows * -(-grid.n_shards // processes) // grid.n_shards)
    widest = -(-job.classes // grid.n_blocks)
    classes = min(job.classes, -(-grid.n_blocks // processes) * widest)
    block = (job.features + 1) * job.itemsize
    vectors = 5 + 2 * solver.history_size if solver.algorithm == "two_phase" else 2
    vectors += kind == "diagonal"
    # Rounds send copies, and the sums come back; pairs of arrays if scores are recomputed or sums are not by block.
    pairs = not keeps or not grid.by_block
    sent = {
        f"blocks of {classes} classes (weights, and {vectors - 1} more)": vectors * classes * block,
        "blocks in transit": (2 if pairs else 1) * (classes + 2 * solver.n_workers * widest) * block,
        "log-sum-exps": 8 * rows * (2 * grid.n_sums + 6 + (0 if keeps else _CANDIDATES)),
        "labels, weights and norms of rows": 8 * rows * 5,
        "a part of a block, to be written": min(BLOCK_BYTES, widest * block),
    }
    if job.row_bytes:
        sent = {"rows": -(-job.row_bytes * rows // max(1, job.rows)), **sent}
    if kind == "spectrum":
        width = job.features + 1
        # The sums, in transit or with their vectors, and a chunk of rows, as it is and weighted.
        sent["second moments of the features"] = 8 * (4 * width**2 + 2 * min(CHUNK, rows * width))
    if keeps:
        sent["scores (none with keep_scores=False)"] = 2 * rows * job.classes * job.itemsize
    else:
        sent["scores of a block"] = 2 * solver.n_workers * -(-job.rows // grid.n_shards) * widest * job.itemsize
    return sent


def refuse(
    solver: DSMLR, job: Job, comm: Communicator, kind: str, keeps: bool, more: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Raise a MemoryError, in all processes, if the job does not fit; it names the number of processes that would.

    The memory that is free on a host is divided among its processes.
    """
    there = memory.available()
    unknown = np.iinfo(np.int64).max
    free = np.array([-(unknown if there is None else there // comm.neighbours())], np.int64)
    room = -int(comm.allreduce(free, "max")[0])
    wanted = {**needs(solver, job, comm.size, kind, keeps), **more}
    total = sum(wanted.values())
    if total <= room:
        return
    parts = ", ".join(f"{name} {memory.human(size)}" for name, size in wanted.items())
    where = "" if comm.size == 1 else f" in each of {comm.size} processes"
    enough = _enough(solver, job, comm.size, room, kind)
    remedy = "fewer features (hashing), or dtype=np.float32"
    if enough is not None:
        remedy = f"{enough} processes with as much memory for each, {remedy}"
    data = "with its rows" if job.row_bytes else "besides the data"
    raise MemoryError(
        f"this fit needs {memory.human(total)} {data}{where} ({parts}), and {memory.human(room)} are available"
        f"{' to each' if comm.size > 1 else ''}; to make it fit: {remedy}"
    )


def _enough(solver: DSMLR, job: Job, processes: int, room: int, kind: str) -> int | None:
    """The smallest number of processes, above ``processes``, that fit; None if there is none."""

    def fits(count: int) -> bool:
        return sum(needs(solver, job, count, kind, bool(solver.keep_scores)).values()) <= room

    high = 2 * processes
    limit = min(_MOST, job.rows)
    if solver.n_shards is not None:
        limit = min(limit, solver.n_shards // solver.n_workers)
    while high <= limit and not fits(high):
        high *= 2
    low, high = max(processes, high // 2), min(high, limit)
    if high <= low or not fits(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high

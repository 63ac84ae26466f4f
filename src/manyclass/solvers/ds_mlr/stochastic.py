"""The first phase of DS-MLR: stochastic steps on blocks with exact normalizers; and the published algorithms."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from manyclass.kernels import ds_mlr as kernels
from manyclass.kernels.literal import literal_steps
from manyclass.objective.problem import Array
from manyclass.solvers.base import PLAIN
from manyclass.solvers.ds_mlr.rounds import Visit
from manyclass.solvers.ds_mlr.worker import Worker

__all__ = ["fresh_epoch", "literal_epoch", "printed_epoch"]

#: Maximum change of the scores of a row by its own step, in units of its residual: above 1 it overshoots.
_MOST = 1.0
#: The same for the published update, large enough to leave it unchanged, but finite to prevent NaN.
_MOST_PRINTED = 1e3
#: Maximum factor by which steps are longer after skipped visits.
_CATCH_UP = 2.0


def fresh_epoch(worker: Worker, weights: Mapping[int, Array], eta: float, seed: int, epoch: int) -> None:
    """Visit every shard with every block once, with exact normalizers.

    With up to 12 blocks, the log-sum-exp of a block is that of its last visit, also within the iteration. With more,
    which would take as many numbers per row, those of the others are as at the begin of the iteration, and a second
    round takes the new ones.

    With a queue a worker skips visits if too many blocks wait. Its steps at the next visit of a skipped block are
    longer, so that its rows keep their influence.

    Parameters
    ----------
    worker : Worker
        This worker.
    weights : mapping of int to ndarray of shape (d + 1, K_b)
        The blocks that it owns; changed in place.
    eta : float
        Step size, > 0.
    seed, epoch : int
        Determine, with shard and block, the order of the rows.
    """
    grid = worker.grid

    def visit(shard: int, block: int, sent: Array) -> None:
        longer = eta * min(_CATCH_UP, 1.0 + worker.missed[block])
        if grid.by_block:
            _take_steps(worker, shard, block, sent, longer, seed, epoch, (worker.lse[shard], block))
        else:
            others = worker.others(shard, sent[0])
            sums = np.stack([others, np.empty_like(others)], axis=1)
            _take_steps(worker, shard, block, sent[1], longer, seed, epoch, (sums, 1))

    # Without sums by block, the weights at the begin of the iteration, to which `total` belongs, are sent as well.
    sent = {b: W.copy() if grid.by_block else np.stack([W, W]) for b, W in weights.items()}
    if worker.queue:
        # If most blocks wait at this worker, the others are idle.
        patience = max(-(-grid.n_blocks // grid.size) + 1, 3 * grid.n_blocks // 4)
        back = worker.rounds.queue(sent, worker.paced(visit), worker.missed, patience)
    else:
        back = worker.round(sent, visit)
    if grid.by_block:
        _copy_back(weights, back)
    else:
        _copy_back(weights, {block: pair[1] for block, pair in back.items()})
        worker.begin_sums()
        worker.round(_copies(weights), _count(worker))
    worker.end_sums()


def printed_epoch(
    worker: Worker, weights: Mapping[int, Array], eta: float, seed: int, epoch: int, literal: bool = False
) -> None:
    """One outer iteration of the published algorithms, which update the normalizers once, at its end.

    By ring (algorithm 1) in a second round with fixed weights; by queue (algorithm 2) from partial sums, each computed
    at a visit of the only round. ``literal``: equation (13) as it is printed, see `literal_epoch`.
    """
    multipliers = {shard: -worker.total[shard] for shard in worker.shards}
    if literal and epoch == 0:
        for b in multipliers.values():
            b[:] = 1.0 / worker.grid.n_classes

    def visit(shard: int, block: int, W: Array) -> None:
        take = _take_literal_steps if literal else _take_steps
        take(worker, shard, block, W, eta, seed, epoch, multipliers[shard])
        if worker.queue:
            count(shard, block, W)

    count = _count(worker)
    worker.begin_sums()
    _copy_back(weights, worker.round(_copies(weights), visit))
    if not worker.queue:
        worker.round(_copies(weights), count)
    worker.end_sums()


def literal_epoch(worker: Worker, weights: Mapping[int, Array], eta: float, seed: int, epoch: int) -> None:
    """`printed_epoch` with b = 1/K at first, the factor K, a penalty in each step, and exponents without a bound.

    Raises
    ------
    ValueError
        In all workers, if weights of one are too large for their type.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        printed_epoch(worker, weights, eta, seed, epoch, literal=True)
    limit = float(np.finfo(worker.share.dtype).max) ** 0.25  # of their squares and sums the objective remains finite
    bounded = all(np.all(np.abs(W) <= limit) for W in weights.values())
    if worker.comm.allreduce(np.array([not bounded], np.int64), "max")[0]:
        raise ValueError(
            f"algorithm='literal' has diverged: after {epoch + 1} iterations weights exceed {limit:.0e}. Give a "
            "smaller eta0 (a tenth), or algorithm='printed', which bounds the exponents, or leave the default"
        )


def _count(worker: Worker) -> Visit:
    """The visits that take the log-sum-exps at fixed weights."""
    share = worker.share

    def count(shard: int, block: int, W: Array) -> None:
        for begin, end, part in worker.pieces(shard, W.shape[1]):
            S = np.empty((end - begin, W.shape[1]), W.dtype)
            kernels.block_scores(share.rows, begin, end, W, W.dtype.type(share.constant), PLAIN, S, 0)
            worker.add_sums(shard, part, block, S, 0, W.shape[1])

    return count


def _take_steps(
    worker: Worker,
    shard: int,
    block: int,
    W: Array,
    eta: float,
    seed: int,
    epoch: int,
    normalizer: Array | tuple[Array, int],
) -> None:
    """Take a step on each row of a shard, in random order.

    The normalizer has the multipliers b_i of the published update; or log-sum-exps by row, and the column of the block.
    """
    share = worker.share
    begin, end = worker.local(shard)
    if end == begin:
        return
    order = _order(end - begin, seed, epoch, shard, block)
    # (1 + eta lam)^-n, the decay of n implicit steps, is between 0 and 1 for any eta.
    decay = math.exp(-(end - begin) * math.log1p(eta * share.lam))
    lo = worker.grid.classes(block)[0]
    constant = W.dtype.type(share.constant)
    for _, _, part in worker.pieces(shard, 2 * W.shape[1]):
        rows = (share.rows, begin, order[part], share.y, share.weights, share.norms)
        step = (lo, W, constant, eta, decay)
        if isinstance(normalizer, tuple):
            kernels.fresh_steps(*rows, *normalizer, *step, _MOST, PLAIN)
        else:
            kernels.multiplier_steps(*rows, normalizer, *step, _MOST_PRINTED, PLAIN)
        decay = 1.0


def _take_literal_steps(
    worker: Worker, shard: int, block: int, W: Array, eta: float, seed: int, epoch: int, multipliers: Array
) -> None:
    """`_take_steps` by equation (13) as it is printed."""
    share = worker.share
    begin, end = worker.local(shard)
    order = _order(end - begin, seed, epoch, shard, block)
    eta *= worker.grid.n_classes
    lo, constant = worker.grid.classes(block)[0], W.dtype.type(share.constant)
    for _, _, part in worker.pieces(shard, 2 * W.shape[1]):
        rows = (share.rows, begin, order[part], share.y, share.weights)
        literal_steps(*rows, multipliers, lo, W, constant, eta, 1.0 - eta * share.lam, PLAIN)


def _order(size: int, seed: int, epoch: int, shard: int, block: int) -> Array:
    """The order in which a block visits the rows of a shard."""
    return np.random.default_rng([seed, epoch, shard, block]).permutation(size).astype(np.int32)


def _copies(weights: Mapping[int, Array]) -> dict[int, Array]:
    """Copies of the blocks to send, so that the state is consistent if the round is interrupted."""
    return {block: W.copy() for block, W in weights.items()}


def _copy_back(weights: Mapping[int, Array], back: Mapping[int, Array]) -> None:
    for block, W in weights.items():
        W[:] = back[block]

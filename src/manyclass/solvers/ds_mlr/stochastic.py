"""The first phase: stochastic steps on blocks, with fresh normalizers; and the algorithms as they were printed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from manyclass.kernels import ds_mlr as kernels
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Array
from manyclass.solvers.ds_mlr.worker import Worker

__all__ = ["fresh_epoch", "printed_epoch"]

_PLAIN = L2()
#: What a step may move a sample's own scores by, in units of its residual: beyond 1 it overshoots.
_MOST = 1.0
#: The same for the printed update, which is to show what it does; finite, so that no step size makes NaN.
_MOST_PRINTED = 1e3
#: Steps after meetings that were left out are so much longer, at most.
_CATCH_UP = 2.0


def fresh_epoch(worker: Worker, weights: Mapping[int, Array], eta: float, seed: int, epoch: int) -> None:
    """Every block meets every shard once, in place; log-sum-exps of blocks are those of their last meeting.

    By queue a worker may leave meetings out where blocks pile up with it; its steps at the next meeting with the same
    block are then longer, so that its rows keep their weight.

    Parameters
    ----------
    worker : Worker
    weights : mapping of int to ndarray of shape (d + 1, K_b)
        The blocks at home here.
    eta : float
        Length of the steps.
    seed, epoch : int
        The order of the rows comes from these, the shard and the block.
    """
    grid = worker.grid

    def visit(shard: int, block: int, W: Array) -> None:
        longer = min(_CATCH_UP, 1.0 + worker.missed[block])
        _walk(worker, shard, block, W, eta * longer, seed, epoch, None)

    if worker.queue:
        # Most blocks wait here: the other workers have next to nothing to do.
        patience = max(-(-grid.n_blocks // grid.size) + 1, 3 * grid.n_blocks // 4)
        _home(weights, worker.rounds.queue(_sent(weights), worker.paced(visit), worker.missed, patience))
    else:
        _home(weights, worker.round(_sent(weights), visit))
    for shard in worker.shards:
        kernels.logsumexp_rows(worker.lse[shard], worker.total[shard])


def printed_epoch(worker: Worker, weights: Mapping[int, Array], eta: float, seed: int, epoch: int) -> None:
    """One outer iteration as printed: normalizers are refreshed once, at its end.

    By ring (algorithm 1) in a second round over the weights at rest; by queue (algorithm 2) from the partial sums of
    the only round, each taken at its meeting.
    """
    multipliers = {shard: -worker.total[shard] for shard in worker.shards}

    def visit(shard: int, block: int, W: Array) -> None:
        _walk(worker, shard, block, W, eta, seed, epoch, multipliers[shard])
        if worker.queue:
            count(shard, block, W)

    def count(shard: int, block: int, W: Array) -> None:
        for begin, end, part in worker.pieces(shard, W.shape[1]):
            S = np.empty((end - begin, W.shape[1]), W.dtype)
            kernels.block_scores(share.rows, begin, end, W, W.dtype.type(share.constant), _PLAIN, S, 0)
            kernels.block_logsumexp(S, 0, W.shape[1], worker.lse[shard][part], block)

    share = worker.share
    _home(weights, worker.round(_sent(weights), visit))
    if not worker.queue:
        _home(weights, worker.round(_sent(weights), count))
    for shard in worker.shards:
        kernels.logsumexp_rows(worker.lse[shard], worker.total[shard])


def _walk(
    worker: Worker,
    shard: int,
    block: int,
    W: Array,
    eta: float,
    seed: int,
    epoch: int,
    multiplier: Array | None,
) -> None:
    """Steps on the rows of a shard, in random order."""
    share = worker.share
    begin, end = worker.local(shard)
    if end == begin:
        return
    order = np.random.default_rng([seed, epoch, shard, block]).permutation(end - begin).astype(np.int32)
    # (1 + eta lam)^-n is the decay of n implicit steps: it is between 0 and 1 whatever eta.
    decay = math.exp(-(end - begin) * math.log1p(eta * share.lam))
    lo = worker.grid.classes(block)[0]
    constant = W.dtype.type(share.constant)
    for _, _, part in worker.pieces(shard, 2 * W.shape[1]):
        common = (lo, W, constant, eta, decay)
        if multiplier is None:
            kernels.fresh_steps(
                share.rows,
                begin,
                order[part],
                share.y,
                share.weights,
                share.norms,
                worker.lse[shard],
                block,
                *common,
                _MOST,
                _PLAIN,
            )
        else:
            kernels.multiplier_steps(
                share.rows,
                begin,
                order[part],
                share.y,
                share.weights,
                share.norms,
                multiplier,
                *common,
                _MOST_PRINTED,
                _PLAIN,
            )
        decay = 1.0


def _sent(weights: Mapping[int, Array]) -> dict[int, Array]:
    """Copies that travel: what is in the state stays there until the round is over, and is whole after an interrupt."""
    return {block: W.copy() for block, W in weights.items()}


def _home(weights: Mapping[int, Array], back: Mapping[int, Array]) -> None:
    for block, W in weights.items():
        W[:] = back[block]

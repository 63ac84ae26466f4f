"""The duality gap of partitioned rows and classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from manyclass.kernels import ds_mlr as kernels
from manyclass.objective.problem import Array, Certificate, balancing
from manyclass.solvers.ds_mlr.deterministic import _penalized, _square
from manyclass.solvers.ds_mlr.views import Scores
from manyclass.solvers.ds_mlr.worker import Worker

__all__ = ["certify"]


def certify(worker: Worker, scores: Scores, weights: Mapping[int, Array], n: int) -> Certificate:
    """P at the weights, whose scores are known, and D at their softmax probabilities.

    With an intercept the probabilities are first balanced (see `Problem.balance`), which takes an all-reduce of 2 K
    numbers. One round computes the dual image X^T (c * a) / (lam n), of which every worker gets its blocks.
    """
    share = worker.share
    moving = worker.unbalanced()
    if share.constant:
        moving = _balanced(worker, scores, weights)
    remove, shares = moving
    conjugates = dict.fromkeys(worker.shards, 0.0)

    def see(shard: int, S: Array, lo: int) -> None:
        conjugates[shard] += kernels.conjugate_rows(
            S, worker.local(shard)[0], share.weights, worker.total[shard], remove, worker.moved[shard], shares, lo
        )

    scores.each(weights, see)
    conjugate = float(worker.by_shard(conjugates)[0])
    losses = scores.losses()
    parts = {}
    for block, G in scores.pull(weights, moving).items():
        parts[block] = np.array([_square(_penalized(weights[block])), _square(_penalized(G))])
    ww, gg = worker.by_block(parts, 2).tolist()
    return Certificate(
        primal=losses / n + 0.5 * share.lam * ww,
        dual=-conjugate / n - 0.5 * gg / (share.lam * n * n),
        resolution=32.0 * float(np.finfo(share.dtype).eps),
    )


def _balanced(worker: Worker, scores: Scores, weights: Mapping[int, Array]) -> tuple[Array, Array]:
    share, K = worker.share, worker.grid.n_classes
    table = np.zeros((2, K))

    def count(shard: int, S: Array, lo: int) -> None:
        begin = worker.local(shard)[0]
        kernels.masses(S, begin, share.y, share.weights, worker.total[shard], lo, table[0], table[1])

    scores.each(weights, count)
    moving = balancing(*worker.comm.allreduce(table))
    if moving is None:
        return worker.unbalanced()

    def give(shard: int, S: Array, lo: int) -> None:
        kernels.moved_mass(S, worker.total[shard], moving[0], lo, worker.moved[shard])

    scores.each(weights, give)
    return moving

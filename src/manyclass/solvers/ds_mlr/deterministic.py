"""The second phase of DS-MLR: L-BFGS with weights, gradients and pairs partitioned by classes, and scores by rows.

The two-loop recursion computes coefficients: a direction is a combination of 2 m + 1 vectors, and only their inner
products are needed. Each worker computes those of its blocks; one small all-reduce per iteration sums them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from manyclass.kernels import ds_mlr as kernels
from manyclass.objective.problem import Array
from manyclass.solvers.ds_mlr.metric import Metric
from manyclass.solvers.ds_mlr.views import Line, Scores
from manyclass.solvers.ds_mlr.worker import Worker
from manyclass.solvers.primal.descent import rounding

__all__ = ["Blocks", "Memory", "begin", "descend", "two_loop"]


class Memory(NamedTuple):
    """What every worker knows about the pairs.

    Attributes
    ----------
    gram : ndarray of shape (2m + 1, 2m + 1)
        Inner products of the m moves (changes of the weights), the m turns (changes of the gradient), and the gradient.
    pairs : int
        Number of pairs so far; the newest is in slot (pairs - 1) % m.
    value : float
        Objective at the weights.
    """

    gram: Array
    pairs: int
    value: float


class Blocks(NamedTuple):
    """Arrays of shape (d + 1, K_b) for the blocks of one worker; ``stack`` has the m moves, then the m turns."""

    weights: Mapping[int, Array]
    gradient: Mapping[int, Array]
    stack: Mapping[int, Array]


def begin(worker: Worker, scores: Scores, blocks: Blocks, n: int, m: int) -> Memory:
    """Compute gradient and objective at the weights, whose scores are known; returns a `Memory` without pairs."""
    _gradient(worker, scores, blocks, n)
    losses = scores.losses()
    parts = {}
    for block, W in blocks.weights.items():
        w, g = _penalized(W), blocks.gradient[block].reshape(-1)
        out = np.zeros((3, 3))
        kernels.block_dots(np.zeros((0, g.size), g.dtype), g, g, g, out)
        parts[block] = np.array([_square(w), out[2, 2]])
    ww, gg = worker.by_block(parts, 2).tolist()
    gram = np.zeros((2 * m + 1, 2 * m + 1))
    gram[-1, -1] = gg
    return Memory(gram, 0, losses / n + 0.5 * worker.share.lam * ww)


def descend(
    worker: Worker,
    scores: Scores,
    blocks: Blocks,
    memory: Memory,
    n: int,
    first: float,
    metric: Metric | None = None,
) -> Memory:
    """One iteration of L-BFGS; ``first`` is the step size along the gradient without pairs and metric."""
    gram, pairs, value = memory
    m = len(gram) // 2
    shares = two_loop(gram, pairs, first)
    fall = _along(shares, gram[:, -1])
    ends: Mapping[int, Array] = blocks.gradient  # the vectors of the last coefficient
    if metric is not None:
        ends, shares, fall = _through(worker, blocks, memory, metric)
    if not fall < 0:
        return Memory(gram, 0, value)
    directions, parts = {}, {}
    for block, W in blocks.weights.items():
        D = np.empty_like(W)
        stack = blocks.stack[block]
        kernels.combine(stack.reshape(len(stack), W.size), ends[block].reshape(-1), shares, D.reshape(-1))
        directions[block] = D
        parts[block] = _quadratic(_penalized(W), _penalized(D))
    ww, wd, dd = worker.by_block(parts, 3).tolist()
    noise = rounding(worker.share.dtype, value)
    found = scores.search(blocks.weights, directions, Line(n, worker.share.lam, value, fall, ww, wd, dd, noise))
    if not found.step:
        # The limit of rounding, or a bad approximation of the Hessian: restart from the gradient.
        return Memory(gram, 0, value)
    slot = pairs % m
    for block, W in blocks.weights.items():
        move, turn = blocks.stack[block][slot], blocks.stack[block][m + slot]
        np.multiply(directions[block], W.dtype.type(found.step), out=move)
        W += move
        np.negative(blocks.gradient[block], out=turn)
    del directions
    _gradient(worker, scores, blocks, n)
    sums = {}
    for block, W in blocks.weights.items():
        stack, g = blocks.stack[block], blocks.gradient[block]
        stack[m + slot] += g
        out = np.zeros((3, 2 * m + 3))
        flat = stack.reshape(2 * m, W.size)
        kernels.block_dots(flat, flat[slot], flat[m + slot], g.reshape(-1), out)
        sums[block] = out.reshape(-1)
    table = worker.by_block(sums, 3 * (2 * m + 3)).reshape(3, 2 * m + 3)
    gram = gram.copy()
    for row, at in enumerate((slot, m + slot, 2 * m)):
        gram[at, : 2 * m] = gram[: 2 * m, at] = table[row, : 2 * m]
    for row, at in enumerate((slot, m + slot, 2 * m)):
        gram[at, 2 * m] = gram[2 * m, at] = table[row, 2 * m + 2]
    return Memory(gram, pairs + 1 if gram[slot, m + slot] > 0 else 0, found.value)


def two_loop(gram: Array, pairs: int, first: float) -> Array:
    """Coefficients of the direction -H g (Liu & Nocedal 1989) with respect to moves, turns and gradient.

    Parameters
    ----------
    gram : ndarray of shape (2m + 1, 2m + 1)
        See `Memory`.
    pairs : int
        See `Memory`.
    first : float
        Without pairs, H is this times the identity.
    """
    m = len(gram) // 2
    slots = [pair % m for pair in range(max(0, pairs - m), pairs)]
    shares, kept = _backward(gram, slots)
    if slots:
        shares *= gram[slots[-1], m + slots[-1]] / gram[m + slots[-1], m + slots[-1]]
    else:
        shares *= first
    for slot in slots:
        shares[slot] += kept[slot] - _along(shares, gram[:, m + slot]) / gram[slot, m + slot]
    return shares


def _through(worker: Worker, blocks: Blocks, memory: Memory, metric: Metric) -> tuple[dict[int, Array], Array, float]:
    """The two-loop recursion with a metric: its product with the vector between the loops, by block; coefficients of
    the moves and of that product; and the slope along the direction."""
    gram, pairs, _ = memory
    m = len(gram) // 2
    slots = [pair % m for pair in range(max(0, pairs - m), pairs)]
    shares, kept = _backward(gram, slots)
    ends, sums = {}, {}
    for block, W in blocks.weights.items():
        flat, Q = blocks.stack[block].reshape(2 * m, W.size), np.empty_like(W)
        g = blocks.gradient[block].reshape(-1)
        kernels.combine(flat, g, shares, Q.reshape(-1))
        ends[block] = metric.times(Q, block, worker.grid.classes(block)[0])
        out, r = np.zeros((3, 2 * m + 3)), ends[block].reshape(-1)
        kernels.block_dots(flat, r, r, g, out)
        sums[block] = np.append(out[0, : 2 * m], out[0, 2 * m + 2])
    products = worker.by_block(sums, 2 * m + 1)
    found = np.zeros(len(gram))
    found[-1] = 1.0
    for slot in slots:
        along = float(products[m + slot]) + _along(found[:-1], gram[:-1, m + slot])
        found[slot] = kept[slot] - along / gram[slot, m + slot]
    return ends, found, float(products[-1]) + _along(found[:-1], gram[:-1, -1])


def _backward(gram: Array, slots: list[int]) -> tuple[Array, dict[int, float]]:
    """The first of the two loops: coefficients of the vector between the loops, and the alphas by slot."""
    m = len(gram) // 2
    shares = np.zeros(len(gram))
    shares[-1] = -1.0
    kept = {}
    for slot in reversed(slots):
        kept[slot] = _along(shares, gram[:, slot]) / gram[slot, m + slot]
        shares[m + slot] -= kept[slot]
    return shares, kept


def _along(shares: Array, products: Array) -> float:
    """The inner product, summed in order: with BLAS rounding may depend on the alignment of the arrays."""
    return float(sum(a * b for a, b in zip(shares.tolist(), products.tolist())))


def _gradient(worker: Worker, scores: Scores, blocks: Blocks, n: int) -> None:
    """Write the gradient of P at the weights to ``blocks.gradient``."""
    for block, G in scores.pull(blocks.weights, worker.unbalanced()).items():
        W, gradient = blocks.weights[block], blocks.gradient[block]
        np.multiply(G, W.dtype.type(1.0 / n), out=gradient)
        gradient[:-1] += W.dtype.type(worker.share.lam) * W[:-1]


def _penalized(W: Array) -> Array:
    return W[:-1].reshape(-1)


def _square(w: Array) -> float:
    return float(_quadratic(w, w)[0])


def _quadratic(w: Array, d: Array) -> Array:
    """The inner products <w, w>, <w, d> and <d, d>, in float64."""
    out = np.zeros((3, 3))
    kernels.block_dots(np.zeros((0, w.size), w.dtype), w, d, d, out)
    return np.array([out[0, 0], out[0, 1], out[1, 1]])

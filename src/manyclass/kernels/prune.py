"""Exact search over sparse weights stored by feature, pruned by upper bounds.

A block is a range of consecutive class numbers. The largest positive weight of each feature in each block is stored:
for a non-negative row, one short pass over the features gives an upper bound on the score of every class of a block (0
for blocks without such a weight). Blocks are scored exactly, the highest bound first, until the next
bound is below the k-th best score: block-max pruning (Mallia, Suel and Tonellotto, Faster learned sparse retrieval with
block-max pruning, SIGIR 2024), here with weights of both signs.

A bound is summed in the order of the features, as a score is, and each addition is monotone in floating point. A
computed bound is therefore never below a computed score: no tolerance is needed, and the result equals that of scoring
all classes to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.predict import sort_heap
from manyclass.kernels.search import offer, start

__all__ = ["BLOCK", "Blocks", "block_bounds", "count_blocks", "pruned_best"]

# mypy: disable-error-code="no-untyped-def"

#: Classes in a block. Smaller blocks give tighter bounds and more of them.
BLOCK = 16


class Blocks(NamedTuple):
    """The bounds of sparse weights.

    Segment s holds the weights ``segment_begin[s] <= t < segment_begin[s + 1]`` of one feature and of the block
    ``segment_block[s]``; feature j has the segments from ``segment_ptr[j]`` on, and from ``bound_ptr[j]`` on the
    blocks with a positive weight, ``bound_block``, and the largest of each, ``bound``.
    """

    segment_ptr: np.ndarray[Any, Any]
    segment_block: np.ndarray[Any, Any]
    segment_begin: np.ndarray[Any, Any]
    bound_ptr: np.ndarray[Any, Any]
    bound_block: np.ndarray[Any, Any]
    bound: np.ndarray[Any, Any]


@jit
def count_blocks(weights, segment_ptr, bound_ptr):
    """The first sweep: how many segments and bounds each feature has, as pointers."""
    segments = 0
    bounds = 0
    for j in range(weights.indptr.shape[0] - 1):
        segment_ptr[j] = segments
        bound_ptr[j] = bounds
        block = -1
        positive = False
        for t in range(weights.indptr[j], weights.indptr[j + 1]):
            if weights.indices[t] // BLOCK != block:
                block = weights.indices[t] // BLOCK
                positive = False
                segments += 1
            if weights.data[t] > 0 and not positive:
                positive = True
                bounds += 1
    segment_ptr[weights.indptr.shape[0] - 1] = segments
    bound_ptr[weights.indptr.shape[0] - 1] = bounds


@jit
def block_bounds(weights, blocks):
    """The second sweep: fill the arrays."""
    segments = 0
    bounds = 0
    for j in range(weights.indptr.shape[0] - 1):
        block = -1
        positive = False
        for t in range(weights.indptr[j], weights.indptr[j + 1]):
            w = weights.data[t]
            if weights.indices[t] // BLOCK != block:
                block = weights.indices[t] // BLOCK
                positive = False
                blocks.segment_block[segments] = block
                blocks.segment_begin[segments] = t
                segments += 1
            if w > 0 and not positive:
                positive = True
                blocks.bound_block[bounds] = block
                blocks.bound[bounds] = w
                bounds += 1
            elif w > 0:
                blocks.bound[bounds - 1] = max(blocks.bound[bounds - 1], w)
    blocks.segment_begin[segments] = weights.indptr[weights.indptr.shape[0] - 1]


@inline
def _add(total, x, w):
    # Used for scores and for bounds: compiled differently, a bound could be rounded below a score.
    return total + x * w


@inline
def _sift(heap, key, size, p):
    # Restore the heap property: move the block at position p below those with higher bounds.
    block = heap[p]
    child = 2 * p + 1
    while child < size:
        if child + 1 < size and key[heap[child + 1]] > key[heap[child]]:
            child += 1
        if key[heap[child]] <= key[block]:
            break
        heap[p] = heap[child]
        p = child
        child = 2 * p + 1
    heap[p] = block


@inline
def _segment(blocks, j, block):
    # The segment of feature j and the block, -1 if there is none. A binary search without a branch on the values read,
    # because a mispredicted branch costs more than a step.
    first = blocks.segment_ptr[j]
    left = blocks.segment_ptr[j + 1] - first
    if left == 0:
        return -1
    while left > 1:
        half = left // 2
        first += half * (blocks.segment_block[first + half] <= block)
        left -= half
    return first if blocks.segment_block[first] == block else -1


@jit
def pruned_best(rows, weights, blocks, alive, exclude, prune, values, numbers, work):
    """The k best classes of each row among those with ``alive``, without ``exclude[i]``; work[i] counts multiply-adds.

    All classes are scored for a row with a negative value, for one whose k-th best score is not positive (classes that
    share no feature with it have score 0), and for all rows if ``prune`` is false.
    """
    outputs = alive.shape[0]
    size = values.shape[1]
    n_blocks = (outputs + BLOCK - 1) // BLOCK
    real = values.dtype
    key = np.zeros(n_blocks, real)
    heap = np.empty(n_blocks, np.int64)
    score = np.zeros(BLOCK, real)
    full = np.zeros(outputs, real)
    for i in range(values.shape[0]):
        where = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        x = rows.data[rows.indptr[i] : rows.indptr[i + 1]]
        count = where.shape[0]
        value = values[i]
        number = numbers[i]
        banned = exclude[i]
        start(value, number, size)
        done = 0
        pruned = prune
        for t in range(count):
            if x[t] < 0:
                pruned = False
        if pruned:
            touched = 0
            for t in range(count):
                for e in range(blocks.bound_ptr[where[t]], blocks.bound_ptr[where[t] + 1]):
                    block = blocks.bound_block[e]
                    before = key[block]
                    key[block] = _add(before, x[t], blocks.bound[e])
                    # A product can be rounded to zero.
                    if before == 0 and key[block] > 0:
                        heap[touched] = block
                        touched += 1
                done += blocks.bound_ptr[where[t] + 1] - blocks.bound_ptr[where[t]]
            # The block with the highest bound first: its scores rule out most of the other blocks.
            highest = 0
            for p in range(1, touched):
                if key[heap[p]] > key[heap[highest]]:
                    highest = p
            left = touched
            while left > 0:
                block = heap[highest]
                left -= 1
                heap[highest] = heap[left]
                heap[left] = block
                first = block * BLOCK
                for t in range(count):
                    s = _segment(blocks, where[t], block)
                    if s >= 0:
                        for e in range(blocks.segment_begin[s], blocks.segment_begin[s + 1]):
                            k = weights.indices[e] - first
                            score[k] = _add(score[k], x[t], weights.data[e])
                        done += blocks.segment_begin[s + 1] - blocks.segment_begin[s]
                for k in range(min(BLOCK, outputs - first)):
                    if alive[first + k] and first + k != banned:
                        offer(value, number, size, score[k], first + k)
                    score[k] = 0
                if left == touched - 1:
                    # Until k classes have been found the worst score is NaN, and the comparison false.
                    p = 0
                    while p < left:
                        if key[heap[p]] < value[0]:
                            left -= 1
                            heap[p], heap[left] = heap[left], heap[p]
                        else:
                            p += 1
                    for p in range(left // 2 - 1, -1, -1):
                        _sift(heap, key, left, p)
                    highest = 0
                else:
                    _sift(heap, key, left, 0)
                if left > 0 and key[heap[0]] < value[0]:
                    left = 0
            for p in range(touched):
                key[heap[p]] = 0
            if not value[0] > 0:
                pruned = False
                start(value, number, size)
        if not pruned:
            for t in range(count):
                for e in range(weights.indptr[where[t]], weights.indptr[where[t] + 1]):
                    k = weights.indices[e]
                    full[k] = _add(full[k], x[t], weights.data[e])
                done += weights.indptr[where[t] + 1] - weights.indptr[where[t]]
            for k in range(outputs):
                if alive[k] and k != banned:
                    offer(value, number, size, full[k], k)
                full[k] = 0
        sort_heap(value, number, size)
        work[i] = done

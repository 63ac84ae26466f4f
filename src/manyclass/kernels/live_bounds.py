"""Upper bounds on the scores of blocks of classes, updated while the weights of a `WeightTable` change.

A block is a range of consecutive class numbers. For a feature with weights in many classes, the largest positive weight
in each block is stored. The sum of these over the features of a row, plus the exact sums over its other features,
bounds all scores of a block. An entry that grows raises its bound; one that shrinks leaves the bound too high until the
bounds are recomputed. A row whose true class leads by more than the margin is thus decided by one sum of K / `BLOCK`
numbers per feature; for the other rows few blocks have to be scored. `manyclass.kernels.prune` does the same for
weights that do not change, without copies of them.

Values of rows must be non-negative. Rounding: let g be the number of values of a row times the unit roundoff, P the sum
of the positive terms of a score and N that of the negative ones. The computed score is at most
P - N + g (P + N) <= (1 + g) P and the computed bound at least (1 - g) P, in any order of summation: a bound that is
multiplied by 1 + 4 g is never below the score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.search import offer, start
from manyclass.kernels.table import WeightTable, add_run, soft, weight_at

__all__ = [
    "BLOCK",
    "LiveBounds",
    "Scratch",
    "bounded_best",
    "follow",
    "make_bounds",
    "make_scratch",
    "no_bounds",
    "soften_bounds",
]

# mypy: disable-error-code="no-untyped-def"

#: Classes in a block. Smaller blocks give tighter bounds and more of them.
BLOCK = 16
#: A feature with weights in more than K / 128 classes has bounds: to sum them is faster than to read its list of
#: weights.
_LISTED = 128
#: One with weights in more than K / 32 classes is also copied as a dense row of K numbers, read without a search.
_COPIED = 32
#: If more than one in 8 blocks may contain the best class, all classes are scored, by vectorized loops.
_MANY = 8
#: Bounds that are compared at once, by a vectorized loop.
_RUN = 64


class LiveBounds(NamedTuple):
    """Bounds of the blocks, and copies of the weights of the most frequent features.

    Attributes
    ----------
    place : int32 (d,)
        The row of ``bound`` that belongs to a feature, or -1.
    bound : (rows, n_blocks)
        Upper bounds, >= 0.
    copy : (the first rows, BLOCK * n_blocks)
        Weights, 0 where there is none.
    """

    place: np.ndarray[Any, Any]
    bound: np.ndarray[Any, Any]
    copy: np.ndarray[Any, Any]


class Scratch(NamedTuple):
    """Working memory of one thread.

    Attributes
    ----------
    full : (K + 1,)
        Zero between rows; the last entry receives the values of empty slots.
    scores : (BLOCK,)
    sums : (n_blocks,)
    touched : int32 (K + 1,)
    """

    full: np.ndarray[Any, Any]
    touched: np.ndarray[Any, Any]
    sums: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]


def make_scratch(n_classes: int, bounds: LiveBounds) -> Scratch:
    """The working memory of `bounded_best`."""
    real = bounds.bound.dtype
    return Scratch(
        np.zeros(n_classes + 1, real),
        np.empty(n_classes + 1, np.int32),
        np.empty(bounds.bound.shape[1], real),
        np.empty(BLOCK, real),
    )


def no_bounds(dtype: Any) -> LiveBounds:
    """Bounds for no feature: every row is scored in full."""
    return LiveBounds(np.empty(0, np.int32), np.empty((0, 0), dtype), np.empty((0, 0), dtype))


def make_bounds(table: WeightTable, n_classes: int) -> LiveBounds:
    """The bounds of the present weights. Bounds, and copies, take at most as much memory as the table."""
    chosen = np.flatnonzero(table.held > n_classes // _LISTED)
    blocks = -(-n_classes // BLOCK)
    most = table.keys.nbytes // (blocks * table.values.itemsize)
    chosen = chosen[np.argsort(-table.held[chosen], kind="stable")[:most]]
    copied = int(np.count_nonzero(table.held[chosen] > n_classes // _COPIED))
    copied = min(copied, table.keys.nbytes // (n_classes * table.values.itemsize))
    place = np.full(len(table.held), -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    real = table.values.dtype
    bounds = LiveBounds(place, np.zeros((len(chosen), blocks), real), np.zeros((copied, BLOCK * blocks), real))
    _fill(table, bounds)
    return bounds


@jit
def _fill(table, bounds):
    for j in range(bounds.place.shape[0]):
        p = bounds.place[j]
        if p < 0:
            continue
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            if table.keys[2 * slot] >= 0:
                _set(bounds, p, np.int64(table.keys[2 * slot]), table.values[2 * slot + 1])


@inline
def _set(bounds, p, k, value):
    bounds.bound[p, k // BLOCK] = max(bounds.bound[p, k // BLOCK], value)
    if p < bounds.copy.shape[0]:
        bounds.copy[p, k] = value


@jit
def follow(rows, y, rivals, steps, table, bounds):
    """Update the bounds after ``u_y += step x``, ``u_r -= step x`` for each row."""
    for m in range(y.shape[0]):
        if steps[m] != 0:
            for t in range(rows.indptr[m], rows.indptr[m + 1]):
                j = rows.indices[t]
                p = bounds.place[j]
                if p >= 0:
                    _set(bounds, p, np.int64(y[m]), weight_at(table, j, np.int64(y[m])))
                    _set(bounds, p, np.int64(rivals[m]), weight_at(table, j, np.int64(rivals[m])))


@jit
def soften_bounds(bounds, j, tau):
    """Update the bounds after a soft threshold of the weights of feature j: soft-threshold them as well."""
    p = bounds.place[j]
    if p >= 0:
        small = bounds.bound.dtype.type(tau)
        for a in range(bounds.bound.shape[1]):
            bounds.bound[p, a] = max(bounds.bound[p, a] - small, small - small)
        if p < bounds.copy.shape[0]:
            for k in range(bounds.copy.shape[1]):
                bounds.copy[p, k] = soft(bounds.copy[p, k], small)


@inline
def _outside(best, own, scale):
    # Whether a row whose best other class has this score is beyond the margin; never with a scale of 0.
    return scale > 0 and 1.0 + scale * (np.float64(best) - np.float64(own)) <= 0


@inline
def bounded_best(rows, m, target, own, scale, table, bounds, scratch, kept, which):
    """The best class of row m other than ``target``, its score, and the number of table entries read.

    The class is -1 where it cannot be determined from the bounds, or its score is not positive. With a ``scale`` above
    0, a row beyond the margin, 1 + scale (best - own) <= 0, may get ``target`` and a low score.

    If ``kept`` and ``which`` have entries, no more blocks than these are scored, those with the highest bounds: the
    class may not be the best, and its score not positive.
    """
    sums = scratch.sums
    real = sums.dtype.type
    begin = rows.indptr[m]
    end = rows.indptr[m + 1]
    top = real(-np.inf)
    who = np.int64(-1)
    work = np.int64(0)
    for t in range(begin, end):
        if not rows.data[t] >= 0:
            return who, top, work
    count, read = _lists(rows, m, table, bounds, scratch)
    work += read
    for t in range(begin, end):
        p = bounds.place[rows.indices[t]]
        if p < 0:
            continue
        x = real(rows.data[t])
        bound = bounds.bound[p]
        for a in range(sums.shape[0]):
            sums[a] += x * bound[a]
    raised = real(1) + real(4 * (end - begin + 2)) * np.finfo(real).eps
    high = real(0)
    for a in range(sums.shape[0]):
        sums[a] *= raised
        high = max(high, sums[a])
    if _outside(high, own, scale):
        top = real(own - 2 / scale)
        who = np.int64(target)
    else:
        peak = 0
        while peak < sums.shape[0] - 1 and sums[peak] != high:  # none is, if all are NaN
            peak += 1
        top, who = _best_of_block(rows, m, table, bounds, peak, target, scratch, top, who)
        # Scores below are beyond the margin. Lower than that by more than its rounding: a block too many does no harm.
        least = real(-np.inf)
        if scale > 0:
            least = real(np.float64(own) - 1 / scale - 1e-5 * (abs(np.float64(own)) + 1 / scale))
        cut = max(top, least)
        near = np.int64(0)
        for a in range(sums.shape[0]):
            near += sums[a] >= cut
        if 0 < kept.shape[0] < near:
            start(kept, which, kept.shape[0])
            for first in range(0, sums.shape[0], _RUN):
                run = sums[first : first + _RUN]
                if _any_at(run, cut, kept[0]):
                    for a in range(run.shape[0]):
                        if run[a] >= cut:
                            offer(kept, which, kept.shape[0], run[a], np.int64(first + a))
            for a in range(kept.shape[0]):
                if kept[a] >= max(top, least) and which[a] != peak:
                    top, who = _best_of_block(rows, m, table, bounds, which[a], target, scratch, top, who)
                    work += BLOCK * (end - begin)
        elif _MANY * near > sums.shape[0]:
            top, who = _best_of_all(rows, m, table, bounds, target, scratch)
            work += scratch.full.shape[0]
            count = 0
        else:
            for first in range(0, sums.shape[0], _RUN):
                run = sums[first : first + _RUN]
                if _any_at(run, max(top, least), real(np.nan)):
                    for a in range(run.shape[0]):
                        if run[a] >= max(top, least) and first + a != peak:
                            top, who = _best_of_block(rows, m, table, bounds, first + a, target, scratch, top, who)
                            work += BLOCK * (end - begin)
        if not top > 0 and kept.shape[0] == 0:
            who = np.int64(-1)
    for a in range(count):
        scratch.full[_listed(scratch, count, a)] = 0
    return who, top, work


@inline
def _any_at(run, cut, worst):
    # Whether a number is at least ``cut``, and above ``worst`` unless that is NaN.
    count = np.int64(0)
    for a in range(run.shape[0]):
        count += (run[a] >= cut) & ((run[a] > worst) | (worst != worst))
    return count > 0


@inline
def _lists(rows, m, table, bounds, scratch):
    # The terms of the features without bounds: to each class, into full, which lists them; and at most to a block. Also
    # returns how many were read of features that would have bounds now.
    full, touched, sums, _ = scratch
    real = full.dtype.type
    K = full.shape[0] - 1
    sums[:] = 0
    count = 0
    read = np.int64(0)
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        j = rows.indices[t]
        if bounds.place[j] >= 0:
            continue
        if table.held[j] > K // _LISTED:
            read += np.int64(table.held[j])
        x = real(rows.data[t])
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            k = np.int64(table.keys[2 * slot])
            if k >= 0:
                v = full[k]
                touched[count] = k
                # A class whose partial sum returns to 0 is listed twice.
                count = min(count + (v == 0), K)
                full[k] = v + x * table.values[2 * slot + 1]
    for a in range(count):
        k = _listed(scratch, count, a)
        sums[k // BLOCK] = max(sums[k // BLOCK], full[k])
    return count, read


@inline
def _listed(scratch, count, a):
    # A full list of K entries may contain duplicates and miss classes: all classes are visited instead.
    return np.int64(scratch.touched[a]) if count < scratch.full.shape[0] - 1 else np.int64(a)


@inline
def _best_of_all(rows, m, table, bounds, target, scratch):
    """The best class other than ``target`` and its score, from the scores of all classes; resets ``full`` to zero."""
    full = scratch.full
    real = full.dtype.type
    K = full.shape[0] - 1
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        j = rows.indices[t]
        p = bounds.place[j]
        x = real(rows.data[t])
        if p >= bounds.copy.shape[0]:
            for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
                k = np.int64(table.keys[2 * slot])
                if k >= 0:
                    full[k] += x * table.values[2 * slot + 1]
        elif p >= 0:
            held = bounds.copy[p]
            for c in range(K):
                full[c] += x * held[c]
    full[target] = -np.inf
    top = real(-np.inf)
    for c in range(K):
        top = max(top, full[c])
    who = np.int64(0)
    while full[who] != top:
        who += 1
    full[:] = 0
    return top, who


@inline
def _best_of_block(rows, m, table, bounds, block, target, scratch, top, who):
    """The better of ``who`` (score ``top``) and the best class of a block other than ``target``; ties: the lower."""
    full, _, _, scores = scratch
    real = full.dtype.type
    first = np.int64(block) * BLOCK
    count = min(BLOCK, full.shape[0] - 1 - first)
    for c in range(count):
        scores[c] = full[first + c]
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        j = rows.indices[t]
        p = bounds.place[j]
        if p >= 0:
            x = real(rows.data[t])
            if p < bounds.copy.shape[0]:
                for c in range(BLOCK):
                    scores[c] += x * bounds.copy[p, first + c]
            else:
                add_run(table, j, x, first, count, scores)
    for c in range(count):
        k = first + c
        if k != target and (scores[c] > top or (scores[c] == top and k < who)):
            top = scores[c]
            who = k
    return top, who

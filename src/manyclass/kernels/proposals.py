"""Kernels that propose rivals to the active-set Crammer-Singer solver: from class centroids, and from current weights.

A rival of a row is a class j != y; a violator is one with a positive margin violation c_yj + s_j - s_y, where c_yj is 1
unless the loss has costs: the scores of rivals are taken with c_yj - 1 added. From current weights every class of a row
is scored, and vectorized loops find the violators: with weights of few features most classes have a score near 0, and
thousands of them violate the margin of a row whose own score is small. An alternative, to read only the features
without which no class can be a violator (the score of y is a bound), was slower: it saves four fifths of the
multiply-adds, but these are the cheap ones along dense rows, and its lookups are scattered over the memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from manyclass.kernels.jit import implements, inline, jit
from manyclass.kernels.mixed import (
    MEMBERS,
    STRIDE,
    add_coarse,
    add_dense,
    add_lists,
    all_above,
    any_above,
    class_of,
    correction,
    highest,
    make_scores,
    make_terms,
    peaks_of,
    take_dense,
)
from manyclass.kernels.operations import rival_cost
from manyclass.kernels.products import add_scores
from manyclass.kernels.rows import longest_row, row_span
from manyclass.kernels.simplex import smooth_largest
from manyclass.kernels.table import image_scores

__all__ = ["centroid_rivals", "keep_violators", "propose", "propose_mixed"]

# mypy: disable-error-code="no-untyped-def"

#: Classes whose scores are compared in one vectorized loop.
_BLOCK = 64
#: Classes of a row that are scored exactly one by one, each with scattered reads; with more of them, all are.
_CLOSE = 128


@inline
def _insert(best, best_class, size, value, k):
    """Insert (value, k) into the descending list; equal values keep the order of insertion. Returns the new size."""
    limit = best.shape[0]
    if size == limit and not value > best[size - 1]:
        return size
    place = size if size < limit else limit - 1
    while place > 0 and best[place - 1] < value:
        if place < limit:
            best[place] = best[place - 1]
            best_class[place] = best_class[place - 1]
        place -= 1
    best[place] = value
    best_class[place] = k
    return min(size + 1, limit)


def _integers(s: Any) -> Any:
    """The same memory as integers, which have the order of the floats where these are not negative."""
    raise TypeError("compiled: call it from a kernel")


@implements(_integers)
def _integers_of(s: Any) -> Any:
    return (lambda s: s.view(np.int32)) if s.dtype == types.float32 else (lambda s: s.view(np.int64))


@inline
def _largest(integers):
    # A maximum of integers is vectorized, that of floats is not.
    top = integers[0]
    for k in range(1, integers.shape[0]):
        top = max(top, integers[k])
    return top


@jit
def propose(rows, y, weights, loss, reg, V, bias, indptr, rivals, b, slack, found, begin, end):
    """Score every class for the rows begin .. end - 1 at fixed weights: the dual image ``V``, an array.

    ``found`` (n x m) receives the rivals with the largest scores among those without a dual variable whose margin
    violation c_yj + s_j - s_y is positive and within ``slack`` of the row's largest; largest first, then -1. Returns
    the exact sum of the losses, over all classes.
    """
    outputs = bias.shape[0]
    real = bias.dtype.type
    gamma = real(loss.gamma)
    blocks = (outputs + _BLOCK - 1) // _BLOCK
    whole = np.zeros(blocks * _BLOCK, bias.dtype)
    s = whole[:outputs]
    peak = np.empty(blocks, bias.dtype)
    integers, peak_integers = _integers(whole), _integers(peak)
    near = np.empty(blocks * _BLOCK, bias.dtype)
    active = np.zeros(blocks * _BLOCK, np.bool_)
    m = found.shape[1]
    best = np.empty(m, bias.dtype)
    best_class = np.empty(m, np.int64)
    losses = 0.0
    for i in range(begin, end):
        c = np.float64(weights[i])
        found[i, :] = -1
        if c <= 0:
            continue
        t = y[i]
        for k in range(outputs):  # a slice assignment would compile 1.5 s longer, for its error message
            s[k] = bias[k] + (real(rival_cost(loss, t, k)) - real(1))
        s[t] = bias[t]
        add_scores(rows, i, V, 0, outputs, reg, s)
        # From here on ``s`` has the violations, or 0, and ``peak`` the largest of each block: most blocks are not read
        # again.
        level = s[t] - real(1)
        for k in range(outputs):
            s[k] = max(s[k] - level, real(0))
        s[t] = real(0)
        for block in range(blocks):
            peak_integers[block] = _largest(integers[block * _BLOCK : (block + 1) * _BLOCK])
        top = real(0)
        for block in range(blocks):
            top = max(top, peak[block])
        if top <= 0:
            continue
        if gamma > 0:
            # Only violations within gamma of the largest can have a positive dual in the smoothed maximum.
            size = 0
            for block in range(blocks):
                if peak[block] > max(top - gamma, real(0)):
                    for k in range(_BLOCK):
                        near[size + k] = whole[block * _BLOCK + k] - top
                    size += _BLOCK
            losses += c * smooth_largest(near[:size], top, gamma)
        else:
            losses += c * np.float64(top)
        for entry in range(indptr[i], indptr[i + 1]):
            # `merge_rivals` drops rivals whose dual variable is zero: violators among them are proposed again.
            active[rivals[entry]] = b[entry] > 0
        size = 0
        least = max(top - real(slack), real(0))
        for block in range(blocks):
            if not peak[block] > least:
                continue
            for k in range(block * _BLOCK, (block + 1) * _BLOCK):
                if whole[k] > least and not active[k]:
                    size = _insert(best, best_class, size, whole[k], k)
                    if size == m:
                        least = best[m - 1]
        for a in range(size):
            found[i, a] = best_class[a]
        for entry in range(indptr[i], indptr[i + 1]):
            active[rivals[entry]] = False
    return losses


@jit
def propose_mixed(rows, y, sample_weight, loss, weights, bias, indptr, rivals, b, slack, found, begin, end):
    """`propose` for sparse rows and mixed weights: classes that cannot matter are scored coarsely.

    The classes whose violations the loss depends on, and those that may be proposed, are scored exactly, one by one; a
    row for which they are many is scored exactly in all classes.
    """
    outputs = bias.shape[0]
    real = bias.dtype.type
    gamma = real(loss.gamma)
    zero = real(0)
    s = make_scores(outputs, bias.dtype)
    peak = np.empty(s.shape[0] // MEMBERS, bias.dtype)
    close = np.empty(s.shape[0], np.int64)
    near = np.empty(s.shape[0], bias.dtype)
    active = np.zeros(s.shape[0], np.bool_)
    terms = make_terms(rows, begin, end, bias.dtype)
    m = found.shape[1]
    best = np.empty(m, bias.dtype)
    best_class = np.empty(m, np.int64)
    losses = 0.0
    for i in range(begin, end):
        c = np.float64(sample_weight[i])
        found[i, :] = -1
        if c <= 0:
            continue
        t = y[i]
        count = take_dense(rows, i, weights, terms)
        for entry in range(indptr[i], indptr[i + 1]):
            # `merge_rivals` drops rivals whose dual variable is zero: violators among them are proposed again.
            active[rivals[entry]] = b[entry] > 0
        exact = count == 0
        loss_here = 0.0
        top = zero
        size = 0
        while True:
            for k in range(outputs):
                s[k] = bias[k] + (real(rival_cost(loss, t, k)) - real(1))
            s[t] = bias[t]
            add_lists(rows, i, weights, s)
            level = s[t] - real(1)
            for e in range(count):
                level += terms.values[e] * weights.full[terms.places[e], t]
            s[t] = -np.inf
            error = zero
            if exact:
                add_dense(weights, terms, count, s)
            else:
                error = add_coarse(weights, terms, count, s)
            peaks_of(s, peak)
            most = s.shape[0] if exact else _CLOSE
            # The loss depends on the violations within gamma of the largest, if they are positive.
            top = highest(peak) - level
            # Rounding is an error, too, which the largest must not be lost by.
            error += real(4) * np.finfo(bias.dtype).eps * (abs(level) + abs(top))
            cut = level + max(top - gamma - error - error, -error)
            size = all_above(peak, s, cut, close, most)
            if size > most:
                exact = True
                continue
            top = zero
            for a in range(size):
                k = close[a]
                near[a] = s[k] - level
                if not exact:
                    near[a] += correction(weights, terms, count, k)
                near[a] = max(near[a], zero)
                top = max(top, near[a])
            if top <= 0:
                size = 0
                break
            loss_here = np.float64(top)
            if gamma > 0:
                for a in range(size):
                    near[a] -= top
                loss_here = smooth_largest(near[:size], top, gamma)
            least = max(top - real(slack), zero)
            # The m best by coarse scores; the m best are not more than twice the error below the last of them.
            size = 0
            floor = least if exact else least - error
            for first in range(0, peak.shape[0], STRIDE):
                if not any_above(peak, first, level + floor):
                    continue
                for block in range(first, first + STRIDE):
                    if peak[block] - level > floor:
                        for member in range(MEMBERS):
                            k = class_of(block, member)
                            if s[k] - level > floor and not active[k]:
                                size = _insert(best, best_class, size, s[k] - level, k)
                                if size == m:
                                    floor = best[m - 1]
            if exact:
                break
            if size == m:
                floor = max(least - error, floor - error - error)
            several = all_above(peak, s, level + floor, close, most)
            if several > most:
                exact = True
                continue
            size = 0
            for a in range(several):
                k = close[a]
                if not active[k]:
                    v = s[k] - level + correction(weights, terms, count, k)
                    if v > least:
                        size = _insert(best, best_class, size, v, k)
            break
        if top > 0:
            losses += c * loss_here
        for a in range(size):
            found[i, a] = best_class[a]
        for entry in range(indptr[i], indptr[i + 1]):
            active[rivals[entry]] = False
    return losses


@jit
def keep_violators(rows, y, loss, reg, V, bias, indptr, rivals, b, asked, slack, found):
    """Of the classes ``asked`` (n x k) that an index returned for each row, keep those that `propose` would propose.

    These are the violators at the current image ``V`` without a dual variable, within ``slack`` of the row's largest
    violation. Returns how many there are.
    """
    k, m = asked.shape[1], found.shape[1]
    real = bias.dtype.type
    classes = np.empty(k + 1, np.int64)
    s = np.empty(k + 1, bias.dtype)
    slots = np.empty((k + 1) * longest_row(rows), np.int64)
    best = np.empty(m, bias.dtype)
    best_class = np.empty(m, np.int64)
    total = 0
    for i in range(asked.shape[0]):
        for a in range(k):
            classes[a] = asked[i, a]
        classes[k] = y[i]
        for a in range(k):
            s[a] = bias[classes[a]] + (real(rival_cost(loss, y[i], classes[a])) - real(1))
        s[k] = bias[y[i]]
        begin, end = row_span(rows, i)
        image_scores(V, rows, i, begin, end, classes, k + 1, reg, s, slots)
        level = s[k] - real(1)
        least = level
        for a in range(k):
            least = max(least, s[a] - real(slack))
        size = 0
        for a in range(k):
            taken = s[a] <= least
            for entry in range(indptr[i], indptr[i + 1]):
                taken |= rivals[entry] == classes[a] and b[entry] > 0
            if not taken:
                size = _insert(best, best_class, size, s[a], classes[a])
        for a in range(m):
            found[i, a] = best_class[a] if a < size else -1
        total += size
    return total


@jit
def centroid_rivals(
    data, indices, indptr, y, scores_ptr, scores_class, scores_value, limit, outputs, found, begin, end
):
    """First proposals: the classes whose centroids have the largest inner products with the row.

    ``scores_*`` is the d x K matrix of class centroids in CSR, used as an inverted index; a feature that more than
    ``limit`` classes have is skipped: it discriminates little and costs much.
    """
    m = found.shape[1]
    score = np.zeros(outputs, np.float32)
    seen = np.zeros(outputs, np.bool_)
    touched = np.empty(outputs, np.int64)
    best = np.empty(m, np.float32)
    best_class = np.empty(m, np.int64)
    for i in range(begin, end):
        count = 0
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            if scores_ptr[j + 1] - scores_ptr[j] > limit:
                continue
            x = np.float32(data[t])
            for entry in range(scores_ptr[j], scores_ptr[j + 1]):
                k = scores_class[entry]
                if not seen[k]:
                    seen[k] = True
                    touched[count] = k
                    count += 1
                score[k] += x * np.float32(scores_value[entry])
        size = 0
        for a in range(count):
            k = touched[a]
            if k != y[i] and score[k] > 0:
                size = _insert(best, best_class, size, score[k], k)
            score[k] = 0
            seen[k] = False
        found[i, :] = -1
        for a in range(size):
            found[i, a] = best_class[a]

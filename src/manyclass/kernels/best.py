"""The k best classes of sparse rows for sparse weights of very many classes.

Scores from the coarse copy of `manyclass.kernels.mixed` tell which classes can be among the best. These are then scored
as everywhere, feature by feature, so that results equal those of `fill_tile` and `keep_best` to the last bit. A row for
which they are many is scored exactly in all classes.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.candidates import add_listed_row
from manyclass.kernels.jit import inline, jit
from manyclass.kernels.mixed import (
    MEMBERS,
    STRIDE,
    add_coarse,
    add_lists,
    all_above,
    any_above,
    class_of,
    make_scores,
    make_terms,
    peaks_of,
    take_dense,
)
from manyclass.kernels.predict import SparseWeights, add_row, sort_heap
from manyclass.kernels.search import offer, start

__all__ = ["best_mixed"]

# mypy: disable-error-code="no-untyped-def"

#: Scores that are compared with the worst of the k best at once, by a vectorized loop.
_RUN = 64
#: Largest number of classes of a row that are scored one by one, a number for each of the k best and others.
_EACH, _OTHERS = 4, 32
#: Largest k for which coarse scores are used.
_BEST = 64


@inline
def _offer_all(s, count, value, number):
    # Insert the classes 0 .. count - 1, in ascending order, into a heap of the k best.
    for first in range(0, count, _RUN):
        last = min(first + _RUN, count)
        run = s[first:last]
        worst = value[0]
        near = 0
        for c in range(last - first):
            near += not (run[c] <= worst)  # negated, so that NaN counts
        if near > 0:
            for c in range(first, last):
                offer(value, number, value.shape[0], s[c], c)


@inline
def _offer_near(peak, s, K, value, number):
    # Insert the classes into a heap of the k best by their peaks. The k-th best peak of all groups of 64, found first,
    # is one that the k best scores are not below.
    size = value.shape[0]
    start(value, number, size)
    for first in range(0, peak.shape[0], STRIDE):
        if any_above(peak, first, value[0]):
            top = peak[first]
            for b in range(first + 1, first + STRIDE):
                top = max(top, peak[b])
            offer(value, number, size, top, first)
    least = value[0]
    start(value, number, size)
    for first in range(0, peak.shape[0], STRIDE):
        if any_above(peak, first, value[0]):
            for block in range(first, first + STRIDE):
                if not (peak[block] < least or peak[block] <= value[0]):
                    for member in range(MEMBERS):
                        k = class_of(block, member)
                        if k < K:
                            offer(value, number, size, s[k], k)


@inline
def _rounding(rows, i, weights, largest):
    # A bound on what a score differs by if its terms are added in another order.
    real = weights.largest.dtype.type
    total = largest
    begin, end = np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1])
    for t in range(begin, end):
        total += abs(real(rows.data[t])) * weights.largest[rows.indices[t]]
    return real(4 * (end - begin + 4)) * np.finfo(real).eps * total


@inline
def _sort(classes):
    # Few: by insertion.
    for a in range(1, classes.shape[0]):
        k = classes[a]
        place = a
        while place > 0 and classes[place - 1] > k:
            classes[place] = classes[place - 1]
            place -= 1
        classes[place] = k


@jit
def best_mixed(rows, weights, intercept, begin, end, values, numbers):
    """The k best classes of the rows begin .. end - 1, best first, into ``values[i]`` and ``numbers[i]``.

    The rows are compressed and valid; the lists of the mixed weights are sorted.
    """
    K = intercept.shape[0]
    size = values.shape[1]
    real = values.dtype.type
    lists = SparseWeights(weights.data, weights.indices, weights.indptr)
    s = make_scores(K, values.dtype)
    peak = np.empty(s.shape[0] // MEMBERS, values.dtype)
    terms = make_terms(rows, begin, end, values.dtype)
    most = _EACH * size + _OTHERS
    found = np.empty(most, np.int64)
    exact = np.empty(most, values.dtype)
    largest = real(0)
    for k in range(K):
        largest = max(largest, abs(real(intercept[k])))
    for i in range(begin, end):
        value = values[i]
        number = numbers[i]
        for k in range(K):
            s[k] = intercept[k]
        count = take_dense(rows, i, weights, terms)
        possible = most + 1
        if size <= _BEST:
            add_lists(rows, i, weights, s)
            error = add_coarse(weights, terms, count, s)
            error += real(_rounding(rows, i, weights, largest)) + real(1e-30)  # above 0, as the comparison is strict
            peaks_of(s, peak)
            _offer_near(peak, s, K, value, number)
            possible = all_above(peak, s, value[0] - error - error, found, most)
            if possible > most:
                for k in range(K):
                    s[k] = intercept[k]
        start(value, number, size)
        if possible <= most:
            few = exact[:possible]
            classes = found[:possible]
            _sort(classes)
            for a in range(possible):
                few[a] = intercept[classes[a]]
            add_listed_row(rows, i, lists, classes, few)
            for a in range(possible):
                offer(value, number, size, few[a], classes[a])
        else:
            part = s[:K]
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                add_row(lists, rows.indices[t], real(rows.data[t]), 0, K, part)
            _offer_all(s, K, value, number)
        sort_heap(value, number, size)

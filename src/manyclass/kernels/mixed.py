"""Sparse weights of very many classes, with a coarse copy from which the classes that can be among the best are found.

Most features have weights in few classes: they are lists, which are read whole. Those with weights in many classes have
dense rows, and these take most of the time: there are several for a row of the data, with K numbers each, more than a
cache holds. So they are read as integers of 8 bits, a quarter of the bytes. What that changes a score by has a bound,
and only the few classes that can be among the best despite it are scored with the weights themselves: results are
exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.jit import implements, inline, jit
from manyclass.kernels.rows import read_only
from manyclass.runtime.threads import ranges, run

__all__ = [
    "MEMBERS",
    "STRIDE",
    "MixedWeights",
    "Terms",
    "add_coarse",
    "add_dense",
    "add_lists",
    "all_above",
    "any_above",
    "class_of",
    "correction",
    "highest",
    "make_mixed",
    "make_scores",
    "make_terms",
    "peaks_of",
    "take_dense",
]

# mypy: disable-error-code="no-untyped-def"

#: A feature with weights in more than K / 16 classes gets a dense row.
_FULL = 16
#: Numbers in dense rows that are always granted.
_LEAST = 1 << 21
#: Classes that share a peak, and the number of classes between two of these: vectorized loops have no other order.
MEMBERS, STRIDE = 16, 64


class MixedWeights(NamedTuple):
    """Weights d x K as compressed sparse rows, except that features with weights in many classes have dense rows.

    Attributes
    ----------
    data, indices, indptr : arrays
        The compressed sparse rows, with the weights of all features.
    place : int32 (d,)
        The number of a feature's dense row, or -1.
    full : (m, K)
        The dense rows; (0, K) where only the coarse ones are needed.
    coarse : int8 (m, K)
        The dense rows divided by a 127th of the largest magnitude of their row, and rounded.
    largest : (d,)
        The largest magnitude of a feature's weights.
    """

    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]
    place: np.ndarray[Any, Any]
    full: np.ndarray[Any, Any]
    coarse: np.ndarray[Any, Any]
    largest: np.ndarray[Any, Any]


class Terms(NamedTuple):
    """Working memory of a thread: the terms of a row whose features have dense rows.

    Attributes
    ----------
    places : int64 (m,)
        Dense rows.
    values, units : (m,)
        The values of the row, and the units of the coarse weights.
    """

    places: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    units: np.ndarray[Any, Any]


@inline
def make_terms(rows, begin, end, dtype):
    """Working memory for the rows begin .. end - 1."""
    longest = np.int64(1)
    for i in range(begin, end):
        longest = max(longest, np.int64(rows.indptr[i + 1]) - np.int64(rows.indptr[i]))
    return Terms(np.zeros(longest, np.int64), np.zeros(longest, dtype), np.zeros(longest, dtype))


def make_mixed(
    weights: sp.csr_matrix[Any], *, full: bool = True, least: int = _LEAST, n_threads: int = 1
) -> MixedWeights:
    """The mixed view of a CSR matrix; only the values of the dense rows are copied.

    The dense rows have at most twice as many numbers as the sparse rows, or ``least``: with ``full`` of 1 + 4 or 1 + 8
    bytes, else of 1.
    """
    d, K = weights.shape
    held = np.diff(weights.indptr)
    chosen = np.flatnonzero(held > K // _FULL)
    chosen = np.sort(chosen[np.argsort(-held[chosen], kind="stable")[: max(2 * weights.nnz, least) // K]])
    place = np.full(d, -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    lists = read_only(weights.data), read_only(weights.indices), read_only(weights.indptr)
    coarse = np.zeros((len(chosen), K), np.int8)
    dense = np.zeros((len(chosen) if full else 0, K), weights.dtype)
    mixed = MixedWeights(*lists, place, dense, coarse, np.zeros(d, weights.dtype))
    run(lambda begin, end: _fill(mixed, begin, end), ranges(d, 512), n_threads)
    return mixed


@jit
def _fill(mixed, begin, end):
    real = mixed.full.dtype.type
    kept = mixed.full.shape[0] > 0
    own = np.empty(mixed.full.shape[1], mixed.full.dtype)
    for j in range(begin, end):
        high = real(0)
        p = mixed.place[j]
        if p >= 0:
            row = mixed.full[p] if kept else own
            row[:] = real(0)
            for t in range(mixed.indptr[j], mixed.indptr[j + 1]):
                row[mixed.indices[t]] += mixed.data[t]  # a class may be listed twice
            for k in range(row.shape[0]):
                high = max(high, abs(row[k]))
            times = real(127) / high if high > 0 else real(0)
            for k in range(row.shape[0]):
                mixed.coarse[p, k] = np.int8(np.rint(row[k] * times))
        else:
            for t in range(mixed.indptr[j], mixed.indptr[j + 1]):
                high = max(high, abs(mixed.data[t]))
        mixed.largest[j] = high


def make_scores(K: Any, dtype: Any) -> Any:
    """An array for the scores of K classes, and more, which stay at -infinity, as `peaks_of` needs it."""
    raise TypeError("compiled: call it from a kernel")


@implements(make_scores)
def _make_scores(K: Any, dtype: Any) -> Any:
    group = MEMBERS * STRIDE

    def make(K, dtype):
        whole = np.empty((K + group - 1) // group * group, dtype)
        whole[:] = -np.inf
        return whole

    return make


@inline
def add_lists(rows, i, weights, s):
    """Add to the scores ``s`` the terms of row i whose features have no dense row."""
    for t in range(rows.indptr[i], rows.indptr[i + 1]):
        j = rows.indices[t]
        if weights.place[j] < 0:
            x = s.dtype.type(rows.data[t])
            for e in range(weights.indptr[j], weights.indptr[j + 1]):
                # Unsigned: no check for an index from the end.
                s[np.uint64(weights.indices[e])] += x * weights.data[e]


@inline
def take_dense(rows, i, weights, terms):
    """Fill ``terms`` with the dense rows of the features of row i and its values there. Returns how many there are."""
    count = 0
    for t in range(rows.indptr[i], rows.indptr[i + 1]):
        j = rows.indices[t]
        p = weights.place[j]
        if p >= 0:
            terms.places[count] = p
            terms.values[count] = rows.data[t]
            terms.units[count] = weights.largest[j] / terms.units.dtype.type(127)
            count += 1
    return count


@inline
def add_dense(weights, terms, count, s):
    """Add to the scores ``s`` the terms of the dense rows."""
    K = weights.full.shape[1]
    part = s[:K]
    places, values = terms.places, terms.values
    m = 0
    # Four at a time, so that the scores are read and written a quarter as often.
    while m + 4 <= count:
        w0 = weights.full[places[m]]
        w1 = weights.full[places[m + 1]]
        w2 = weights.full[places[m + 2]]
        w3 = weights.full[places[m + 3]]
        x0 = values[m]
        x1 = values[m + 1]
        x2 = values[m + 2]
        x3 = values[m + 3]
        for k in range(K):
            part[k] += x0 * w0[k] + x1 * w1[k] + x2 * w2[k] + x3 * w3[k]
        m += 4
    while m < count:
        w = weights.full[places[m]]
        x = values[m]
        for k in range(K):
            part[k] += x * w[k]
        m += 1


@inline
def add_coarse(weights, terms, count, s):
    """Add to the scores ``s`` the coarse terms of the dense rows. Returns a bound on what a score is changed by."""
    real = s.dtype.type
    K = weights.coarse.shape[1]
    part = s[:K]
    places, values, units = terms
    total = real(0)
    m = 0
    while m < count:
        w0 = weights.coarse[places[m]]
        x0 = values[m] * units[m]
        total += abs(x0)
        if m + 4 <= count:
            w1 = weights.coarse[places[m + 1]]
            w2 = weights.coarse[places[m + 2]]
            w3 = weights.coarse[places[m + 3]]
            x1 = values[m + 1] * units[m + 1]
            x2 = values[m + 2] * units[m + 2]
            x3 = values[m + 3] * units[m + 3]
            total += abs(x1) + abs(x2) + abs(x3)
            for k in range(K):
                part[k] += x0 * real(w0[k]) + x1 * real(w1[k]) + x2 * real(w2[k]) + x3 * real(w3[k])
            m += 4
        else:
            for k in range(K):
                part[k] += x0 * real(w0[k])
            m += 1
    return total / real(2)


@inline
def correction(weights, terms, count, k):
    """What makes a score with `add_coarse` the exact one of class k."""
    places, values, units = terms
    total = values[0] - values[0]
    for m in range(count):
        p = places[m]
        total += values[m] * (weights.full[p, k] - units[m] * values.dtype.type(weights.coarse[p, k]))
    return total


@inline
def peaks_of(s, peak):
    """The largest of each `MEMBERS` scores; which, says `class_of`."""
    for group in range(peak.shape[0] // STRIDE):
        first = group * MEMBERS * STRIDE
        for b in range(STRIDE):
            top = s[first + b]
            for c in range(1, MEMBERS):
                top = max(top, s[first + c * STRIDE + b])
            peak[group * STRIDE + b] = top


@inline
def class_of(block, member):
    """The class that a number is the score of: member 0 .. `MEMBERS` - 1 of those that share peak ``block``."""
    return (block // STRIDE * MEMBERS + member) * STRIDE + block % STRIDE


@inline
def highest(peak):
    """The largest of the peaks."""
    top = peak[0]
    for first in range(0, peak.shape[0], STRIDE):
        if any_above(peak, first, top):
            for b in range(first, first + STRIDE):
                top = max(top, peak[b])
    return top


@inline
def any_above(peak, first, cut):
    """Whether one of the 64 peaks from ``first`` on is not at most ``cut``."""
    part = peak[first : first + STRIDE]
    count = 0
    for b in range(STRIDE):
        count += not (part[b] <= cut)
    return count > 0


@inline
def all_above(peak, s, cut, found, most):
    """Fill ``found`` with the classes whose scores are not at most ``cut``. Returns how many, or most + 1."""
    size = 0
    for first in range(0, peak.shape[0], STRIDE):
        if not any_above(peak, first, cut):
            continue
        for block in range(first, first + STRIDE):
            if not (peak[block] <= cut):
                for member in range(MEMBERS):
                    k = class_of(block, member)
                    if not (s[k] <= cut):
                        if size == most:
                            return most + 1
                        found[size] = k
                        size += 1
    return size

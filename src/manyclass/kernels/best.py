"""The k best classes of sparse rows for sparse weights of very many classes, without a score of each class in memory.

Classes are scored in pieces that stay in the cache, for several rows one after the other. A position in the list of
weights of each non-zero of these rows moves from piece to piece. Features with weights in many classes are read from
dense rows (`manyclass.kernels.predict.MixedWeights`), by vectorized loops. The terms of a score are added in the order
of the features, as everywhere: results equal those of `fill_tile` and `keep_best` to the last bit.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.predict import sink, sort_heap, worse
from manyclass.kernels.search import start

__all__ = ["best_mixed"]

# mypy: disable-error-code="no-untyped-def"

#: Classes in a piece, and rows that it is used for.
_PIECE, _ROWS = 16384, 16
#: Scores that are compared with the worst of the k best at once, by a vectorized loop.
_RUN = 64


@inline
def _offer_all(s, lo, count, value, number):
    # Insert the classes lo .. lo + count - 1, in ascending order, into a heap of the k best.
    for first in range(0, count, _RUN):
        last = min(first + _RUN, count)
        run = s[first:last]
        worst = value[0]
        near = 0
        for c in range(last - first):
            # Negated, so that NaN reaches `worse`, which handles it.
            near += not (run[c] <= worst)
        if near > 0:
            for c in range(first, last):
                if not (s[c] <= value[0]) and worse(value[0], number[0], s[c], lo + c):
                    sink(value, number, value.shape[0], s[c], lo + c)


@jit
def best_mixed(rows, weights, intercept, begin, end, values, numbers):
    """The k best classes of the rows begin .. end - 1, best first, into ``values[i]`` and ``numbers[i]``.

    The rows are compressed and valid; the lists of the mixed weights are sorted.
    """
    K = intercept.shape[0]
    size = values.shape[1]
    scores = np.empty(min(K, _PIECE), values.dtype)
    real = scores.dtype.type
    for top in range(begin, end, _ROWS):
        bottom = min(top + _ROWS, end)
        origin = np.int64(rows.indptr[top])
        at = np.empty(np.int64(rows.indptr[bottom]) - origin, np.int64)
        for t in range(at.shape[0]):
            at[t] = weights.indptr[rows.indices[origin + t]]
        for i in range(top, bottom):
            start(values[i], numbers[i], size)
        for lo in range(0, K, _PIECE):
            hi = min(lo + _PIECE, K)
            for i in range(top, bottom):
                b = intercept[lo:hi]
                for c in range(hi - lo):
                    scores[c] = b[c]
                for t in range(np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1])):
                    j = rows.indices[t]
                    x = real(rows.data[t])
                    if weights.place[j] >= 0:
                        w = weights.full[weights.place[j], lo:hi]
                        for c in range(hi - lo):
                            scores[c] += x * w[c]
                    else:
                        e = at[t - origin]
                        last = np.int64(weights.indptr[j + 1])
                        while e < last and weights.indices[e] < hi:
                            # Unsigned: no check for an index from the end.
                            scores[np.uint64(weights.indices[e] - lo)] += x * weights.data[e]
                            e += 1
                        at[t - origin] = e
                _offer_all(scores, lo, hi - lo, values[i], numbers[i])
        for i in range(top, bottom):
            sort_heap(values[i], numbers[i], size)

"""The losses of softmax regression and their gradients, for blocks of rows: one exponential per score.

The exponentials of a block are computed in one loop, whatever the number of classes is; row by row, ten classes would
not fill a SIMD vector.
"""

from __future__ import annotations

import math

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.vmath import exp

__all__ = ["softmax_at"]

#: Scores per block: they stay in the first-level cache.
_SCORES = 4096
#: Maxima that are found at the same time: one would wait for the last comparison, as LLVM may not reorder them.
_LANES = 16


@jit
def softmax_at(targets, weights, loss, S, begin, end):
    """`manyclass.kernels.primal.respond_at` for a `MultinomialLoss` and `ClassTargets`."""
    real = S.dtype.type
    outputs = S.shape[1]
    size = max(1, _SCORES // outputs)
    above = np.empty(size, np.float64)
    flat = np.empty(size * outputs, S.dtype)
    tops = np.empty(_LANES, S.dtype)
    losses = 0.0
    for first in range(begin, end, size):
        m = min(size, end - first)
        for r in range(m):
            s, t = S[first + r], targets.y[first + r]
            s[t] -= real(loss.margin)
            top = s[0]
            if outputs >= 4 * _LANES:
                for e in range(_LANES):
                    tops[e] = top
                for first_of in range(0, outputs - _LANES + 1, _LANES):
                    for e in range(_LANES):
                        tops[e] = max(tops[e], s[first_of + e])
                for e in range(_LANES):
                    top = max(top, tops[e])
                for k in range(outputs - outputs % _LANES, outputs):
                    top = max(top, s[k])
            else:
                for k in range(outputs):
                    top = max(top, s[k])
            above[r] = np.float64(top) - np.float64(s[t])
            part = flat[r * outputs : (r + 1) * outputs]
            for k in range(outputs):
                part[k] = s[k] - top
        for e in range(m * outputs):
            flat[e] = exp(flat[e])
        for r in range(m):
            t, part, a = targets.y[first + r], flat[r * outputs : (r + 1) * outputs], S[first + r]
            own = np.float64(part[t])
            part[t] = real(0)  # the others are summed alone: a small probability of theirs is then exact
            rivals = real(0)
            for k in range(outputs):
                rivals += part[k]
            total = own + np.float64(rivals)
            share = real(-1.0 / total)
            for k in range(outputs):
                a[k] = share * part[k]
            a[t] = -share * rivals
            losses += np.float64(weights[first + r]) * (math.log(total) + above[r])
    return losses

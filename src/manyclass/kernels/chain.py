"""Kernels of linear-chain models: marginals by forward-backward recursions, best paths by Viterbi's algorithm.

The tokens of sequence i are the rows ``edges[i] .. edges[i + 1] - 1`` of ``S``, the scores of the K labels of each
token. A path y_1 .. y_T has the score ``sum_t S[t, y_t] + sum_t A[y_t, y_t+1] + first[y_1] + last[y_T]``, and its
probability is proportional to the exponential of that (Lafferty, McCallum and Pereira, "Conditional random fields",
ICML 2001).

The recursions multiply numbers that are scaled at each token to sum to 1. Where the scores of a token and the
transitions span more than the exponents of float64, they add logarithms instead.
"""

from __future__ import annotations

import math

import numpy as np

from manyclass.kernels.jit import inline, jit

__all__ = ["best_paths", "chain_losses"]

# mypy: disable-error-code="no-untyped-def"

#: With a narrower span no factor or product of the scaled recursions underflows: exp(-600) is 1e-261.
_SPAN = 600.0


@inline
def _add_ends(S, begin, end, first, last):
    """Add the scores of the first and of the last label to those of the tokens begin .. end - 1."""
    for k in range(S.shape[1]):
        S[begin, k] += first[k]
    for k in range(S.shape[1]):
        S[end - 1, k] += last[k]


@jit
def chain_losses(S, y, edges, begin, end, scale, A, first, last, pairs, losses):
    """The losses log Z_i - score(y_i) of the sequences begin <= i < end; returns the sum of scale_i times them.

    The rows of ``S``, of these sequences alone and so from row 0 on, become the marginals P(y_t = k).
    ``pairs[j, k]`` increases by ``scale_i sum_t P(y_t = j, y_t+1 = k)``. ``y`` holds the observed labels of all tokens;
    if it has length 0, ``losses`` become log Z_i.
    """
    K = S.shape[1]
    top, bottom, longest = A[0, 0], A[0, 0], 0
    for j in range(K):
        for k in range(K):
            top, bottom = max(top, A[j, k]), min(bottom, A[j, k])
    for i in range(begin, end):
        longest = max(longest, edges[i + 1] - edges[i])
    steps = np.empty((K, K))
    for j in range(K):
        for k in range(K):
            steps[j, k] = math.exp(A[j, k] - top)
    forward = np.empty((longest, K))
    sums = np.empty(longest)
    ahead, after = np.empty(K), np.empty(K)
    outer = np.zeros((K, K))
    total = 0.0
    for i in range(begin, end):
        at, size = edges[i] - edges[begin], edges[i + 1] - edges[i]
        _add_ends(S, at, at + size, first, last)
        score = 0.0
        if y.shape[0] > 0:
            for t in range(size):
                k = y[edges[i] + t]
                score += S[at + t, k]
                if t + 1 < size:
                    score += A[k, y[edges[i] + t + 1]]
        narrow = True
        for t in range(size):
            high, low = S[at + t, 0], S[at + t, 0]
            for k in range(K):
                high, low = max(high, S[at + t, k]), min(low, S[at + t, k])
            narrow = narrow and high - low + (top - bottom) < _SPAN
        part = S[at : at + size]
        if narrow:
            log_z = _scaled(part, steps, top, scale[i], forward, sums, ahead, after, outer)
        else:
            log_z = _in_logarithms(part, A, scale[i], forward, ahead, after, pairs)
        losses[i - begin] = log_z - score
        total += scale[i] * (log_z - score)
    for j in range(K):
        for k in range(K):
            pairs[j, k] += outer[j, k] * steps[j, k]
    return total


@jit
def _scaled(S, steps, top, weight, forward, sums, ahead, after, outer):
    """log Z of one sequence; ``S`` becomes the marginals. Products of numbers that sum to 1 at each token.

    ``outer`` increases by ``weight`` times the marginals of pairs, divided by ``steps``, the exponentials of A - top.
    """
    size, K = S.shape
    log_z = top * (size - 1)
    for t in range(size):
        s, now = S[t], forward[t]
        high = s[0]
        for k in range(K):
            high = max(high, s[k])
        for k in range(K):
            s[k] = math.exp(s[k] - high)
        if t == 0:
            for k in range(K):
                now[k] = s[k]
        else:
            before = forward[t - 1]
            for k in range(K):
                now[k] = 0.0
            for j in range(K):
                a, row = before[j], steps[j]
                for k in range(K):
                    now[k] += a * row[k]
            for k in range(K):
                now[k] *= s[k]
        z = 0.0
        for k in range(K):
            z += now[k]
        for k in range(K):
            now[k] /= z
        sums[t] = z
        log_z += high + math.log(z)
    for k in range(K):
        ahead[k] = 1.0
    for t in range(size - 1, -1, -1):
        s, now = S[t], forward[t]
        for k in range(K):
            after[k] = s[k] * ahead[k] / sums[t]
            s[k] = now[k] * ahead[k]
        if t == 0:
            break
        before = forward[t - 1]
        for j in range(K):
            into, row, a = outer[j], steps[j], weight * before[j]
            for k in range(K):
                into[k] += a * after[k]
            total = 0.0
            for k in range(K):
                total += row[k] * after[k]
            ahead[j] = total
    return log_z


@inline
def _log_sum(x):
    """log sum exp(x), exact also where all but one are minus infinity."""
    high = x[0]
    for k in range(x.shape[0]):
        high = max(high, x[k])
    total = 0.0
    for k in range(x.shape[0]):
        total += math.exp(x[k] - high)
    return high + math.log(total)


@jit
def _in_logarithms(S, A, weight, forward, ahead, after, pairs):
    """As `_scaled`, by sums of logarithms; ``pairs`` increases by ``weight`` times the marginals of pairs."""
    size, K = S.shape
    forward[0] = S[0]
    for t in range(1, size):
        for k in range(K):
            for j in range(K):
                after[j] = forward[t - 1, j] + A[j, k]
            forward[t, k] = _log_sum(after) + S[t, k]
    log_z = _log_sum(forward[size - 1])
    for k in range(K):
        ahead[k] = 0.0
    for t in range(size - 1, -1, -1):
        for k in range(K):
            ahead[k] += S[t, k]
            S[t, k] = math.exp(forward[t, k] - S[t, k] + ahead[k] - log_z)
        if t == 0:
            break
        for j in range(K):
            for k in range(K):
                after[k] = A[j, k] + ahead[k]
                pairs[j, k] += weight * math.exp(forward[t - 1, j] + after[k] - log_z)
            forward[t, j] = _log_sum(after)
        for k in range(K):
            ahead[k] = forward[t, k]
    return log_z


@jit
def best_paths(S, edges, begin, end, A, first, last, path):
    """``path`` becomes the most probable labels of the sequences begin <= i < end; of equal ones the lower.

    ``S`` and ``path`` hold the tokens of these sequences alone; ``S`` is changed.
    """
    K = S.shape[1]
    longest = 0
    for i in range(begin, end):
        longest = max(longest, edges[i + 1] - edges[i])
    origin = np.empty((longest, K), np.int32)
    best = np.empty(K)
    for i in range(begin, end):
        at, size = edges[i] - edges[begin], edges[i + 1] - edges[i]
        _add_ends(S, at, at + size, first, last)
        for t in range(1, size):
            before, now, source = S[at + t - 1], S[at + t], origin[t]
            for k in range(K):
                best[k] = before[0] + A[0, k]
                source[k] = 0
            for j in range(1, K):
                for k in range(K):
                    reached = before[j] + A[j, k]
                    if reached > best[k]:
                        best[k] = reached
                        source[k] = j
            for k in range(K):
                now[k] += best[k]
        k = int(np.argmax(S[at + size - 1]))
        for t in range(size - 1, -1, -1):
            path[at + t] = k
            if t > 0:
                k = origin[t, k]

"""Dual ascent in rounds: the steps of a few sparse rows at the same weights, by threads that wait for each other.

Scores and updates are divided by features or by outputs, dual steps by rows. No thread reads weights that another one
writes, and no number depends on which thread computes it: the result is the same on any number of threads.

The steps of a round are computed at the same weights and all taken. For a random round of B of the n rows,

    E || sum_i x_i d_i^T ||^2 <= (B / n) sum_i v_i ||d_i||^2,  v_i = sum_j (1 + (B - 1) (m_j - 1) / (n - 1)) x_ij^2,

where m_j rows have feature j (Richtarik & Takac 2016, Parallel coordinate descent methods for big data optimization,
section 5). So v_i takes the place of ||x_i||^2; the two are close for rows that share few features.

The bound is reached by steps d_i of one direction, which those of many rows of several classes are far from. So v_i
is not taken as a whole: ||x_i||^2 is raised by a part of v_i - ||x_i||^2 only, twice what the rounds of the last epochs
had.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.meeting import meet
from manyclass.kernels.operations import dual_step, primal
from manyclass.kernels.rows import row_dot, row_span, row_split
from manyclass.kernels.targets import target_row

__all__ = ["ROUND", "SHARDS", "is_sorted", "sdca_rounds", "shared_norms"]

#: Rows of a round.
ROUND = 8
#: Ranges of features by which scores and updates of few outputs are divided; the sums by range are added in order.
SHARDS = 8


@jit
def is_sorted(rows):
    """Whether the features of each row are in ascending order."""
    for i in range(rows.indptr.shape[0] - 1):
        for t in range(rows.indptr[i] + 1, rows.indptr[i + 1]):
            if rows.indices[t] < rows.indices[t - 1]:
                return False
    return True


@jit
def shared_norms(rows, order, size, counts, out):
    """v_i of the n rows of ``order`` in random rounds of ``size``; ``counts`` has a zero for each feature."""
    n = order.shape[0]
    for position in range(n):
        i = order[position]
        for t in range(rows.indptr[i], rows.indptr[i + 1]):
            counts[rows.indices[t]] += 1
    rate = (size - 1.0) / max(n - 1, 1)
    for position in range(n):
        i = order[position]
        total = 0.0
        for t in range(rows.indptr[i], rows.indptr[i + 1]):
            total += (1.0 + rate * (counts[rows.indices[t]] - 1)) * np.float64(rows.data[t]) ** 2
        out[i] = total


@jit
def sdca_rounds(
    rows,
    targets,
    weights,
    norms,
    excess,
    order,
    loss,
    reg,
    V,
    bias,
    dual,
    idle,
    inv_lam_n,
    bias_step,
    bias_excess,
    edges,
    cuts,
    scores,
    steps,
    every,
    crossed,
    arrived,
    me,
    threads,
):
    """What thread ``me`` of ``threads`` does of an epoch in rounds (`manyclass.kernels.sdca.sdca_epoch`).

    Scores and updates are divided by features, if there are ``SHARDS - 1`` inner ``edges`` of the shards, or by
    outputs: the thread's are cuts[me] <= k < cuts[me + 1]. Shared: ``scores``, (len(edges) + 1) x rows of a round x
    columns of V, ``steps``, rows of a round x columns of V, zero, and ``arrived``, zero. ``norms``, ``excess``,
    ``bias_excess``, ``every`` and ``crossed`` are as for `manyclass.kernels.active.active_epoch`.
    """
    real = V.dtype.type
    outputs = dual.shape[1]
    shards, size = scores.shape[0], scores.shape[1]
    divided = shards > 1
    first = me * shards // threads if divided else 0
    last = (me + 1) * shards // threads if divided else 1
    spans = np.empty((size, 2), np.int64)
    lo = cuts[0] if divided else cuts[me]
    hi = cuts[threads] if divided else cuts[me + 1]
    known = max(min(hi, outputs), lo)
    buffer = np.empty(outputs, V.dtype)
    new = np.empty(outputs, V.dtype)
    total = np.empty(outputs, V.dtype)
    no_bound = np.int64(V.shape[0])
    meetings = 0
    for start in range(0, order.shape[0], size):
        end = min(start + size, order.shape[0])
        for r in range(end - start):
            i = order[start + r]
            for f in range(first, last):
                for k in range(lo, hi):
                    scores[f, r, k] = 0
            begin, until = row_span(rows, i)
            if first > 0:
                begin = row_split(rows, i, begin, edges[first - 1])
            f, t = first, begin
            s, bound = scores[f, r, lo:hi], edges[f] if f + 1 < shards else no_bound
            while t < until:
                j = rows.indices[t]
                if j >= bound:
                    while f < last and j >= bound:
                        f += 1
                        bound = edges[f] if f + 1 < shards else no_bound
                    if f == last:
                        break
                    s = scores[f, r, lo:hi]
                x = real(rows.data[t])
                v = V[j, lo:hi]
                for k in range(hi - lo):
                    s[k] += x * primal(reg, v[k])
                t += 1
            spans[r, 0], spans[r, 1] = begin, t
        meetings += 1
        if not meet(arrived, me, threads, meetings):
            return
        for position in range(start + me, end, threads):
            i = order[position]
            r = position - start
            step = steps[r]
            c = real(weights[i])
            change = real(0)
            if c > 0:
                for k in range(outputs):
                    total[k] = bias[k]
                for f in range(shards):
                    s = scores[f, r]
                    for k in range(outputs):
                        total[k] += s[k]
                q = c * (real(norms[i]) * real(inv_lam_n) + real(bias_step) + real(bias_excess))
                a = dual[i]
                dual_step(loss, total, a, target_row(targets, i, 0, outputs, buffer), q, new)
                for k in range(outputs):
                    delta = new[k] - a[k]
                    a[k] = new[k]
                    change = max(change, abs(delta))
                    step[k] = c * delta
            if change > 0:
                idle[i] = 0
            else:
                idle[i] = min(idle[i] + 1, 100)
                step[0] = np.nan  # nothing to add
        meetings += 1
        if not meet(arrived, me, threads, meetings):
            return
        number = start // size
        if number % every == 0 and number // every % threads == me:
            _measure(rows, order[start:end], steps, outputs, excess, bias_step, inv_lam_n, crossed[number // every])
        for r in range(end - start):
            step = steps[r]
            if np.isnan(step[0]):
                continue
            d = step[lo:hi]
            if bias_step > 0 and (me == 0 or not divided):
                for k in range(lo, known):
                    bias[k] += real(bias_step) * step[k]
            i = order[start + r]
            for t in range(spans[r, 0], spans[r, 1]):
                x = real(rows.data[t]) * real(inv_lam_n)
                v = V[rows.indices[t], lo:hi]
                for k in range(hi - lo):
                    v[k] += x * d[k]


@inline
def _measure(rows, order, steps, outputs, excess, bias_step, inv_lam_n, crossed):
    """What the steps of a round have in common, and the bound on it: see `sdca_rounds`.

    Estimated from each row and the one before it, which are as random a pair as any other.
    """
    n = order.shape[0]
    constant = np.float64(bias_step) / np.float64(inv_lam_n)
    for r in range(n):
        if np.isnan(steps[r, 0]):
            continue
        length = 0.0
        for k in range(outputs):
            length += np.float64(steps[r, k]) ** 2
        crossed[1] += (np.float64(excess[order[r]]) + (n - 1.0) * constant) * length
        if r == 0 or np.isnan(steps[r - 1, 0]):
            continue
        same = 0.0
        for k in range(outputs):
            same += np.float64(steps[r, k]) * np.float64(steps[r - 1, k])
        crossed[0] += n * same * (row_dot(rows, order[r], order[r - 1]) + constant)

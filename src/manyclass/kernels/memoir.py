"""Kernels of MEMOIR: the best rival of each row at the current weights, and steps that change two classes.

A rival of a row is a class other than its own class y. The unscaled weights U are a d x K array or a `WeightTable`.
Rows are compressed sparse, one batch at a time. The search for rivals does not change U, so that threads can share the
rows of a batch; steps are taken in the order of the batch.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.live_bounds import bounded_best, soften_bounds
from manyclass.kernels.table import add_at, has_room, soften, weight_at

__all__ = ["add_steps", "columns", "fill", "pair_scores", "settle", "sum_of_squares", "table_rivals", "truncate"]

# mypy: disable-error-code="no-untyped-def"


@inline
def _listed_scores(rows, m, table, full, touched):
    """Add the scores of row m to ``full`` and list their classes in ``touched``; returns how many."""
    real = full.dtype.type
    K = full.shape[0] - 1
    count = 0
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        j = rows.indices[t]
        x = real(rows.data[t])
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            k = table.keys[2 * slot]
            if k >= 0:
                v = full[k]
                touched[count] = k
                # A class whose partial sum returns to 0 is listed twice.
                count = min(count + (v == 0), K)
                full[k] = v + x * table.values[2 * slot + 1]
    return count


@inline
def _scores(rows, m, table, full):
    """Add the scores of row m to ``full``, without a list. Empty slots add 0 to the entry after the last class."""
    real = full.dtype.type
    K = full.shape[0] - 1
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        j = rows.indices[t]
        x = real(rows.data[t])
        if 2 * table.held[j] > table.capacity[j]:
            # Mostly full: selections instead of branches, which would be mispredicted.
            for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
                key = np.int64(table.keys[2 * slot])
                value = table.values[2 * slot + 1]
                full[key if key >= 0 else K] += x * (value if key >= 0 else real(0))
        else:
            for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
                key = np.int64(table.keys[2 * slot])
                if key >= 0:
                    full[key] += x * table.values[2 * slot + 1]


@inline
def _scanned(rows, m, target, held, table, full, touched):
    """The best class other than ``target`` and its score, from all weights of the row's features."""
    real = full.dtype.type
    K = full.shape[0] - 1
    top = real(-np.inf)
    who = np.int64(K)
    if 4 * held < K:
        count = _listed_scores(rows, m, table, full, touched)
        for a in range(count):
            k = np.int64(touched[a])
            v = full[k]
            if k != target and (v > top or (v == top and k < who)):
                top = v
                who = k
        if not top > 0:
            who, top = _first_zero(full, target, who, top)
        for a in range(count):
            full[np.int64(touched[a])] = 0
    else:
        _scores(rows, m, table, full)
        full[target] = -np.inf
        for c in range(K):
            top = max(top, full[c])
        found = 0
        while full[found] != top:
            found += 1
        who = np.int64(found)
        if not top > 0:
            who, top = _first_zero(full, target, who, top)
        for c in range(K + 1):
            full[c] = 0
    return who, top


@jit
def table_rivals(rows, y, table, bounds, scale, most, scratch, rivals, best, own):
    """Find the best class of each row other than ``y``, on a `WeightTable`: ``rivals``, with the scores ``best``.

    ``own`` receives the score of y. Returns how many entries of the table were read.

    Ties: of equal positive or equal negative scores the lower class number; of scores of 0 the first class after y,
    cyclically, because at W = 0 all classes are tied, and otherwise every step would decrease the same class.

    Without bounds (no blocks) the cost is the number of stored weights of the row's features; with them, the sums of
    the bounds and the weights of the blocks that may contain the best class. With a ``scale`` above 0 only rivals
    within the margin are needed, ``1 + scale (best - own) > 0``: a row without one may get any class whose score is too
    low for it. With ``most`` above 0 the bounds are followed to so many blocks at most, and a better class be missed.
    """
    real = best.dtype.type
    work = np.int64(0)
    kept = np.empty(most, best.dtype)
    which = np.empty(most, np.int64)
    for m in range(y.shape[0]):
        target = np.int64(y[m])
        held = np.int64(0)
        score = real(0)
        for t in range(rows.indptr[m], rows.indptr[m + 1]):
            held += table.held[rows.indices[t]]
            score += real(rows.data[t]) * weight_at(table, rows.indices[t], target)
        own[m] = score
        who = np.int64(-1)
        if bounds.bound.shape[1] > 0:
            who, top, read = bounded_best(rows, m, target, score, scale, table, bounds, scratch, kept, which)
            work += read
            if who >= 0 and who != target and not top > 0:
                who, top = _or_next(rows, m, target, scratch.full.shape[0] - 1, table, who, top)
        if who < 0:
            work += held
            who, top = _scanned(rows, m, target, held, table, scratch.full, scratch.touched)
        rivals[m] = who
        best[m] = top
    return work


@inline
def _or_next(rows, m, target, K, table, who, top):
    """The class after ``target``, cyclically, and its score, if that is not below ``top``; else ``who`` and ``top``."""
    after = target + 1 if target + 1 < K else np.int64(0)
    real = table.values.dtype.type
    score = real(0)
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        score += real(rows.data[t]) * weight_at(table, rows.indices[t], after)
    return (np.int64(after), score) if score >= top else (np.int64(who), top)


@inline
def _first_zero(full, target, who, top):
    """The first class after ``target`` with score 0, cyclically; if there is none, ``who`` and ``top``."""
    K = full.shape[0] - 1
    for a in range(1, K):
        k = target + a
        if k >= K:
            k -= K
        if full[k] == 0:
            return np.int64(k), full[k]
    return np.int64(who), top


@jit
def pair_scores(rows, first, second, U, of_first, of_second):
    """``x_m . u_k`` of each row for k = ``first[m]`` and k = ``second[m]``."""
    real = of_first.dtype.type
    for m in range(first.shape[0]):
        a = real(0)
        b = real(0)
        for t in range(rows.indptr[m], rows.indptr[m + 1]):
            x = real(rows.data[t])
            a += x * weight_at(U, rows.indices[t], first[m])
            b += x * weight_at(U, rows.indices[t], second[m])
        of_first[m] = a
        of_second[m] = b


@jit
def add_steps(rows, y, rivals, steps, U, begin, squares):
    """``u_y += steps[m] x_m`` and ``u_r -= steps[m] x_m`` for the rows from ``begin`` on, in their order.

    Returns the first row for which a table had no free slots (or the number of rows), and the increase of ||U||^2.
    ``squares`` are the ||u_k||^2, or empty.
    """
    change = 0.0
    for m in range(begin, y.shape[0]):
        if steps[m] == 0:
            continue
        if not has_room(U, rows, m, 2):
            return m, change
        own = 0.0
        other = 0.0
        for t in range(rows.indptr[m], rows.indptr[m + 1]):
            delta = steps[m] * np.float64(rows.data[t])
            own += add_at(U, rows.indices[t], np.int64(y[m]), delta)
            other += add_at(U, rows.indices[t], np.int64(rivals[m]), -delta)
        change += own + other
        if squares.shape[0] > 0:
            squares[y[m]] += own
            squares[rivals[m]] += other
    return y.shape[0], change


@jit
def settle(U, features, total, stamp, bounds, keys, values):
    """Apply the delayed truncation to the rows ``features`` of U: soft-threshold them by ``total - stamp[j]``.

    Successive soft thresholds of an unchanged entry add up, so that it is exact to delay them until a feature is used.
    ``bounds`` are those of U, or empty; ``keys`` and ``values`` are scratch, K entries each.
    """
    for a in range(features.shape[0]):
        j = np.int64(features[a])
        if stamp[j] < total:
            soften(U, j, total - stamp[j], keys, values)
            if bounds.place.shape[0] > 0:
                soften_bounds(bounds, j, total - stamp[j])
            stamp[j] = total


@jit
def truncate(table, chosen, tau):
    """Soft-threshold the columns k of a table for which ``chosen[k]`` is true."""
    small = table.values.dtype.type(tau)
    for j in range(table.start.shape[0]):
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            if table.keys[2 * slot] >= 0 and chosen[table.keys[2 * slot]]:
                v = table.values[2 * slot + 1]
                table.values[2 * slot + 1] = v - min(max(v, -small), small)


@jit
def sum_of_squares(U):
    """``||U||^2`` of an array, in float64."""
    total = 0.0
    for j in range(U.shape[0]):
        for k in range(U.shape[1]):
            total += np.float64(U[j, k]) * np.float64(U[j, k])
    return total


@jit
def columns(table, place, indptr, indices, data):
    """The columns k with ``place[k] >= 0`` as compressed rows, column k in row ``place[k]``.

    Call it twice: with ``indices`` of length 0 it sets ``indptr[r + 1]`` to the length of row r; with the cumulative
    sum of these as ``indptr`` it fills ``indices`` and ``data``.
    """
    write = indices.shape[0] > 0
    for j in range(table.start.shape[0]):
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            k = table.keys[2 * slot]
            if k >= 0 and place[k] >= 0 and table.values[2 * slot + 1] != 0:
                r = place[k]
                if write:
                    indices[indptr[r]] = j
                    data[indptr[r]] = table.values[2 * slot + 1]
                    indptr[r] += 1
                else:
                    indptr[r + 1] += 1


@jit
def fill(table, rows):
    """Copy compressed rows, one per feature, to an empty table in which each feature has enough slots."""
    for j in range(table.start.shape[0]):
        for t in range(rows.indptr[j], rows.indptr[j + 1]):
            add_at(table, j, np.int64(rows.indices[t]), rows.data[t])

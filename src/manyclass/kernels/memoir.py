"""Kernels of MEMOIR: the best rival of each row on the live weights, and steps that touch two classes.

The unscaled weights U are a d x K array or a `WeightTable`. Rows are compressed sparse, a batch at a time. Rivals are
found without a change of U, so that threads may share the rows of a batch; steps are taken in the order of the batch.
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
    """Scores of row m into ``full``, the classes into ``touched``; returns how many."""
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
                # A class that comes back to 0 on the way is listed twice.
                count = min(count + (v == 0), K)
                full[k] = v + x * table.values[2 * slot + 1]
    return count


@inline
def _scores(rows, m, table, full):
    """The same without a list. An empty slot adds nothing to the number behind the last class."""
    real = full.dtype.type
    K = full.shape[0] - 1
    for t in range(rows.indptr[m], rows.indptr[m + 1]):
        j = rows.indices[t]
        x = real(rows.data[t])
        if 2 * table.held[j] > table.capacity[j]:
            # Mostly full: no branch that cannot be foreseen.
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
    """The best class but ``target`` and its score, by all that the features of the row hold."""
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
def table_rivals(rows, y, table, bounds, scale, scratch, rivals, best, own):
    """The class with the largest score of each row among all but ``y``, on a `WeightTable`: ``rivals`` and ``best``;
    ``own`` is the score of y. Returns how many entries of the table were read.

    Of equal positive or equal negative scores the lower number wins; of scores of 0 the first class after y,
    cyclically - at W = 0 all classes are rivals alike, and one class must not be pushed away from all rows.

    Without bounds (no blocks) it costs what the lists of the row's features hold; with them, the sums of the bounds and
    what the blocks hold that may have the best class. With a ``scale`` above 0 only rivals within the margin are
    wanted, ``1 + scale (best - own) > 0``: a row that has none may get any class, with a score that says so.
    """
    real = best.dtype.type
    work = np.int64(0)
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
            who, top, read = bounded_best(rows, m, target, score, scale, table, bounds, scratch)
            work += read
        if who < 0:
            work += held
            who, top = _scanned(rows, m, target, held, table, scratch.full, scratch.touched)
        rivals[m] = who
        best[m] = top
    return work


@inline
def _first_zero(full, target, who, top):
    """The first class after ``target`` with score 0, cyclically; else what was found."""
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
def add_steps(rows, y, rivals, steps, U, begin):
    """``u_y += steps[m] x_m`` and ``u_r -= steps[m] x_m`` for the rows from ``begin`` on, in their order.

    Returns the first row for which a table had no room (else their number), and by how much ||U||^2 has grown.
    """
    change = 0.0
    for m in range(begin, y.shape[0]):
        if steps[m] == 0:
            continue
        if not has_room(U, rows, m, 2):
            return m, change
        for t in range(rows.indptr[m], rows.indptr[m + 1]):
            delta = steps[m] * np.float64(rows.data[t])
            change += add_at(U, rows.indices[t], np.int64(y[m]), delta)
            change += add_at(U, rows.indices[t], np.int64(rivals[m]), -delta)
    return y.shape[0], change


@jit
def settle(U, features, total, stamp, bounds, keys, values):
    """Give the rows ``features`` of U the truncation that they have missed: soft-threshold by ``total - stamp[j]``.

    Thresholds add up while an entry is not changed, so that it is exact to let them wait until a feature is needed.
    ``bounds`` are those of U, or none; ``keys`` and ``values`` are scratch, K each.
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
    """Soft-threshold the columns of a table of which ``chosen`` says so."""
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
    """The columns k with ``place[k] >= 0`` as compressed rows, column k in row ``place[k]``: first, with ``indices`` of
    length 0, how long each is (``indptr[r + 1]``), then, with the pointers summed up, what they hold."""
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
    """Put compressed rows, one a feature, into an empty table in which each feature has slots enough."""
    for j in range(table.start.shape[0]):
        for t in range(rows.indptr[j], rows.indptr[j + 1]):
            add_at(table, j, np.int64(rows.indices[t]), rows.data[t])

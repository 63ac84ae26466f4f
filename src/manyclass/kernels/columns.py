"""Kernels of coordinate descent on compressed sparse columns.

Position p stands for the column ``features[p]`` of X. ``u`` (n numbers) is the gradient of a quadratic model of the
mean loss with respect to the scores, ``h`` its curvature. An intercept is eliminated: it moves with every weight so
that the total gradient, ``u + shift h``, sums to zero; only ``shift`` is stored, and no column is centered in memory.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit

__all__ = ["add_columns", "column_dots", "column_epochs", "column_moments", "gather", "gather_scaled", "row_gram"]


@jit
def column_dots(data, indices, indptr, features, u, out):
    """``out_p = x_p . u``."""
    for p in range(features.shape[0]):
        j = features[p]
        total = 0.0
        for t in range(indptr[j], indptr[j + 1]):
            total += data[t] * u[indices[t]]
        out[p] = total


@jit
def add_columns(data, indices, indptr, features, w, s):
    """``s += sum_p w_p x_p``."""
    for p in range(features.shape[0]):
        j = features[p]
        for t in range(indptr[j], indptr[j + 1]):
            s[indices[t]] += w[p] * data[t]


@jit
def column_moments(data, indices, indptr, features, h, first, second):
    """``first_p = x_p . h`` and ``second_p = x_p^2 . h``."""
    for p in range(features.shape[0]):
        j = features[p]
        one = 0.0
        two = 0.0
        for t in range(indptr[j], indptr[j + 1]):
            x = np.float64(data[t])
            one += x * h[indices[t]]
            two += x * x * h[indices[t]]
        first[p] = one
        second[p] = two


@jit
def column_epochs(
    data, indices, indptr, features, positions, w, u, h, flat, first, curvature, spread, shift, l1, l2, keep_w, keep_u
):
    """Cyclic exact steps on the model plus ``l1 ||w||_1 + l2 ||w||^2 / 2`` over the columns at ``positions``.

    One epoch for each row of ``keep_w`` and ``keep_u``, which receive the weights at ``positions`` and ``u`` (its last
    entry is the shift) after the epoch; if they have no rows, one epoch, and nothing is stored. ``flat`` says that h is
    constant, ``spread`` is 1 / sum h, or 0 without an intercept. Returns the largest violation of optimality in the
    last epoch, and the shift.
    """
    worst = 0.0
    n = u.shape[0]
    for epoch in range(max(1, keep_w.shape[0])):
        worst = 0.0
        for p in positions:
            j = features[p]
            old = w[p]
            rise = 0.0
            for t in range(indptr[j], indptr[j + 1]):
                rise += data[t] * u[indices[t]]
            rise += shift * first[p] + l2 * old
            if old > 0.0:
                violation = abs(rise + l1)
            elif old < 0.0:
                violation = abs(rise - l1)
            else:
                violation = abs(rise) - l1
            worst = max(worst, violation)
            new = 0.0
            a = curvature[p] + l2
            if a > 0.0:
                z = old - rise / a
                new = max(z - l1 / a, 0.0) + min(z + l1 / a, 0.0)
            change = new - old
            if change != 0.0:
                w[p] = new
                shift -= spread * first[p] * change
                if flat:
                    step = h[0] * change
                    for t in range(indptr[j], indptr[j + 1]):
                        u[indices[t]] += step * data[t]
                else:
                    for t in range(indptr[j], indptr[j + 1]):
                        u[indices[t]] += h[indices[t]] * change * data[t]
        if keep_w.shape[0] > 0:
            for p in range(positions.shape[0]):
                keep_w[epoch, p] = w[positions[p]]
            for i in range(n):
                keep_u[epoch, i] = u[i]
            keep_u[epoch, n] = shift
    return worst, shift


@jit
def row_gram(data, indices, indptr, place, h, G, begin, end):
    """``G[p, q] += sum_i h_i x_ip x_iq`` for q <= p, over the rows begin <= i < end of compressed sparse ROWS.

    ``place`` is the position of each feature in G, or -1.
    """
    where = np.empty(G.shape[0], np.int64)
    what = np.empty(G.shape[0])
    for i in range(begin, end):
        if h[i] == 0.0:
            continue
        m = 0
        for t in range(indptr[i], indptr[i + 1]):
            p = place[indices[t]]
            if p >= 0:
                where[m] = p
                what[m] = data[t]
                m += 1
        for a in range(m):
            x = h[i] * what[a]
            for b in range(m):
                if where[b] <= where[a]:
                    G[where[a], where[b]] += x * what[b]


@jit
def gather(x, features, out):
    """``out = x[:, features]`` of dense rows."""
    for i in range(x.shape[0]):
        for p in range(features.shape[0]):
            out[i, p] = x[i, features[p]]


@jit
def gather_scaled(x, features, means, root, out):
    """``out_ip = root_i (x[i, features_p] - means_p)`` of dense rows."""
    for i in range(x.shape[0]):
        for p in range(features.shape[0]):
            out[i, p] = root[i] * (x[i, features[p]] - means[p])

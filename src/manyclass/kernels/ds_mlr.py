"""Kernels of DS-MLR: softmax regression where a worker has some of the rows and, at any time, one block of the classes.

A block holds the weights of K_b classes in d + 1 rows: those of a feature are contiguous, and the last row belongs to a
feature that has the value ``constant`` in every example (the intercept; 0 without one). A shard is the rows
begin <= i < end; arrays with a row for each of its examples start at 0. ``lse`` holds, for each example, the
log-sum-exp of its scores in each block of classes, in float64: the probabilities exp(s_k) / (Z_others + Z_this) are at
most 1 and never overflow, for any weights.
"""

from __future__ import annotations

import math

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.products import add_outer, add_scores, add_squares
from manyclass.kernels.vmath import exp

__all__ = [
    "block_curvature",
    "block_dots",
    "block_gradient",
    "block_logsumexp",
    "block_scores",
    "candidate_sums",
    "combine",
    "concave_gradient",
    "concave_line",
    "conjugate_rows",
    "fresh_steps",
    "line_sums",
    "logsumexp_rows",
    "loss_rows",
    "masses",
    "moved_mass",
    "multiplier_steps",
    "spreads",
]

#: Differences to the largest score of a row are cut off here: exp(-700) is the smallest that float64 can hold.
_FAR = 700.0
#: Entries of the vectors in one piece of their inner products: pieces of all vectors fit in the cache.
_CHUNK = 1024


@jit
def block_scores(rows, begin, end, W, constant, plain, S, lo):
    """``S[i - begin, lo + k] = w_k^T x_i`` for all classes of the block."""
    K = W.shape[1]
    last = W.shape[0] - 1
    for i in range(begin, end):
        s = S[i - begin, lo : lo + K]
        for k in range(K):
            s[k] = constant * W[last, k]
        add_scores(rows, i, W, 0, K, plain, s)


@inline
def _logsumexp(s, lo, hi):
    top = s[lo]
    for k in range(lo, hi):
        top = max(top, s[k])
    total = 0.0
    for k in range(lo, hi):
        total += np.float64(exp(s[k] - top))
    return np.float64(top) + math.log(total)


@jit
def block_logsumexp(S, lo, hi, lse, b):
    """``lse[i, b] = log sum_{lo <= k < hi} exp(S[i, k])``."""
    for i in range(S.shape[0]):
        lse[i, b] = _logsumexp(S[i], lo, hi)


@jit
def logsumexp_rows(lse, out):
    """The log-sum-exp over all blocks."""
    for i in range(lse.shape[0]):
        out[i] = _total(lse[i])


@inline
def _total(lse):
    top = lse[0]
    for b in range(lse.shape[0]):
        top = max(top, lse[b])
    total = 0.0
    for b in range(lse.shape[0]):
        total += math.exp(lse[b] - top)
    return top + math.log(total)


@jit
def block_gradient(rows, begin, end, S, at, y, c, total, remove, moved, share, lo, constant, G):
    """``G += sum_i c_i (p_i - e_{y_i}) x_i^T`` for the block of classes from ``lo`` on.

    Scores of the block are ``S[:, at:at + K_b]``. p_ik = exp(s_ik - total_i) (1 - remove_k) + moved_i share_k: the
    softmax, with mass moved between the classes so that the dual point is balanced (see `moved_mass`); with ``remove``
    and ``moved`` zero, the softmax itself.
    """
    K = G.shape[1]
    last = G.shape[0] - 1
    real = G.dtype.type
    coef = np.empty(K, G.dtype)
    for i in range(begin, end):
        s = S[i - begin, at : at + K]
        weight = real(c[i])
        if weight == 0:
            continue
        top = real(total[i - begin])
        # What float32 leaves of the sum: without it all p_ik are wrong by the same factor.
        scale = weight * real(exp(np.float64(top) - total[i - begin]))
        gained = moved[i - begin]
        for k in range(K):
            coef[k] = scale * exp(s[k] - top)
        if gained != 0:
            for k in range(K):
                coef[k] = coef[k] * real(1.0 - remove[lo + k]) + weight * real(gained * share[lo + k])
        t = y[i] - lo
        if 0 <= t < K:
            # In float64: near p_iy = 1 the difference is small, and certificates multiply it by large scores.
            p = exp(np.float64(s[t]) - total[i - begin])
            if gained != 0:
                p = p * (1.0 - remove[lo + t]) + gained * share[lo + t]
            coef[t] = real(np.float64(weight) * p - np.float64(weight))
        add_outer(rows, i, coef, 0, K, G)
        for k in range(K):
            G[last, k] += constant * coef[k]


@jit
def block_curvature(rows, begin, end, S, at, c, total, constant, H):
    """``H[j, k] += sum_i c_i p_ik (1 - p_ik) x_ij^2``: the diagonal of the Hessian, for the block of classes of H.

    Scores of the block are ``S[:, at:at + K_b]``.
    """
    K = H.shape[1]
    last = H.shape[0] - 1
    real = H.dtype.type
    coef = np.empty(K, H.dtype)
    own = real(constant) * real(constant)
    for i in range(begin, end):
        s = S[i - begin, at : at + K]
        weight = real(c[i])
        if weight == 0:
            continue
        top = real(total[i - begin])
        for k in range(K):
            coef[k] = exp(s[k] - top)
        for k in range(K):
            # Rounding may leave p a little above 1.
            coef[k] = weight * (coef[k] * max(real(1) - coef[k], real(0)))
        add_squares(rows, i, coef, H)
        for k in range(K):
            H[last, k] += own * coef[k]


@jit
def fresh_steps(rows, begin, order, y, c, norms, lse, b, lo, W, constant, eta, decay, most, plain):
    """One stochastic step for each example on a block, in the given order, with up-to-date normalizers.

        w_k = w_k - eta_i c_i (p_ik - [y_i = k]) x_i,    p_ik = exp(s_ik) / (Z of the other blocks + Z of this one)

    eta_i c_i (||x_i||^2 + constant^2) is at most ``most``, so that no example overshoots for any ``eta``. The penalty
    enters as one multiplication of all weights by ``decay``, before the steps. ``lse[:, b]`` is updated as the weights
    change.
    """
    K = W.shape[1]
    last = W.shape[0] - 1
    B = lse.shape[1]
    real = W.dtype.type
    s = np.empty(K, W.dtype)
    coef = np.empty(K, W.dtype)
    for j in range(last):
        for k in range(K):
            W[j, k] *= real(decay)
    for r in range(order.shape[0]):
        i = begin + order[r]
        weight = np.float64(c[i])
        size = np.float64(norms[i]) + np.float64(constant) * np.float64(constant)
        if weight == 0.0:
            continue
        for k in range(K):
            s[k] = constant * W[last, k]
        add_scores(rows, i, W, 0, K, plain, s)
        mine = lse[i - begin]
        mine[b] = _logsumexp(s, 0, K)
        total = real(_total(mine)) if B > 1 else real(mine[b])
        step = eta * weight
        if step * size > most:
            step = most / size
        rate = real(step)
        for k in range(K):
            coef[k] = -rate * exp(min(s[k] - total, real(0)))
        t = y[i] - lo
        if 0 <= t < K:
            coef[t] += rate
        add_outer(rows, i, coef, 0, K, W)
        own = real(size)
        for k in range(K):
            W[last, k] += constant * coef[k]
        for k in range(K):
            s[k] += own * coef[k]
        mine[b] = _logsumexp(s, 0, K)


@jit
def multiplier_steps(rows, begin, order, y, c, norms, multiplier, lo, W, constant, eta, decay, most, plain):
    """Equation (13) of the DS-MLR paper on a block: the exponent is s_ik + b_i, with b_i from its last update.

    The exponent is clamped at 0, because exp(s_ik + b_i) is a probability where b_i is up to date.
    """
    K = W.shape[1]
    last = W.shape[0] - 1
    real = W.dtype.type
    s = np.empty(K, W.dtype)
    coef = np.empty(K, W.dtype)
    for j in range(last):
        for k in range(K):
            W[j, k] *= real(decay)
    for r in range(order.shape[0]):
        i = begin + order[r]
        weight = np.float64(c[i])
        size = np.float64(norms[i]) + np.float64(constant) * np.float64(constant)
        for k in range(K):
            s[k] = constant * W[last, k]
        add_scores(rows, i, W, 0, K, plain, s)
        step = eta * weight
        if step * size > most:
            step = most / size
        rate = real(step)
        shift = real(multiplier[i - begin])
        for k in range(K):
            coef[k] = -rate * exp(min(s[k] + shift, real(0)))
        t = y[i] - lo
        if 0 <= t < K:
            coef[t] += rate
        add_outer(rows, i, coef, 0, K, W)
        for k in range(K):
            W[last, k] += constant * coef[k]


@jit
def loss_rows(S, begin, y, c, total):
    """``sum_i c_i (total_i - s_{i, y_i})`` over a shard."""
    value = 0.0
    for r in range(S.shape[0]):
        i = begin + r
        value += np.float64(c[i]) * (total[r] - np.float64(S[r, y[i]]))
    return value


@jit
def line_sums(S, T, t, begin, y, c, out):
    """Value and slope at ``t`` of the weighted losses of a shard along the scores S + t T, into ``out``."""
    K = S.shape[1]
    real = S.dtype.type
    u = np.empty(K, S.dtype)
    e = np.empty(K, S.dtype)
    step = real(t)
    value, slope = 0.0, 0.0
    for r in range(S.shape[0]):
        i = begin + r
        weight = np.float64(c[i])
        if weight == 0.0:
            continue
        s = S[r]
        d = T[r]
        for k in range(K):
            u[k] = s[k] + step * d[k]
        top = u[0]
        for k in range(K):
            top = max(top, u[k])
        for k in range(K):
            e[k] = exp(u[k] - top)
        # Relative to the direction of the true class: no cancellation in the sum for rows that are fitted well.
        own = d[y[i]]
        total, first = 0.0, 0.0
        for k in range(K):
            v = np.float64(d[k] - own)
            p = np.float64(e[k])
            total += p
            first += p * v
        value += weight * (np.float64(top) + math.log(total) - np.float64(u[y[i]]))
        slope += weight * first / total
    out[0] = value
    out[1] = slope


@jit
def candidate_sums(S, T, ts, y, begin, lo, top, total, first, own):
    """Add one block of classes to the running sums along a line, for all step sizes ``ts`` in one pass.

    After all blocks, the log-sum-exp at step t is ``top + log(total)`` and its derivative ``first / total``; ``own``
    receives the score and the direction of the true class.
    """
    for r in range(S.shape[0]):
        k_own = y[begin + r] - lo
        if 0 <= k_own < S.shape[1]:
            own[r, 0] = S[r, k_own]
            own[r, 1] = T[r, k_own]
        for m in range(ts.shape[0]):
            t = ts[m]
            highest = top[r, m]
            for k in range(S.shape[1]):
                highest = max(highest, np.float64(S[r, k]) + t * np.float64(T[r, k]))
            # Before the first block top is minus infinity and the sums are zero.
            shrink = math.exp(max(top[r, m] - highest, -_FAR))
            sums, slopes = total[r, m] * shrink, first[r, m] * shrink
            for k in range(S.shape[1]):
                e = exp(np.float64(S[r, k]) + t * np.float64(T[r, k]) - highest)
                sums += e
                slopes += e * np.float64(T[r, k])
            top[r, m], total[r, m], first[r, m] = highest, sums, slopes


@jit
def masses(S, begin, y, c, total, lo, wanted, present):
    """``wanted[lo + k] += sum_{y_i = k} c_i`` and ``present[lo + k] += sum_i c_i p_ik`` for the columns of ``S``."""
    real = S.dtype.type
    K = S.shape[1]
    e = np.empty(K, S.dtype)
    for r in range(S.shape[0]):
        i = begin + r
        weight = np.float64(c[i])
        top = real(total[r])
        for k in range(K):
            e[k] = exp(S[r, k] - top)
        scale = weight * exp(np.float64(top) - total[r])  # see `block_gradient`
        for k in range(K):
            present[lo + k] += scale * np.float64(e[k])
        t = y[i] - lo
        if 0 <= t < K:
            wanted[lo + t] += weight
            present[lo + t] += weight * exp(np.float64(S[r, t]) - total[r]) - scale * np.float64(e[t])


@jit
def spreads(S, begin, c, total, lo, out):
    """``out[lo + k] += sum_i c_i p_ik (1 - p_ik)`` for the columns of ``S``."""
    real = S.dtype.type
    K = S.shape[1]
    e = np.empty(K, S.dtype)
    for r in range(S.shape[0]):
        weight = np.float64(c[begin + r])
        top = real(total[r])
        for k in range(K):
            e[k] = exp(S[r, k] - top)
        for k in range(K):
            p = np.float64(e[k])
            out[lo + k] += weight * p * max(1.0 - p, 0.0)


@jit
def moved_mass(S, total, remove, lo, moved):
    """``moved_i += sum_k remove_k p_ik``: the mass taken from example i, to be given to the classes with a deficit."""
    for r in range(S.shape[0]):
        given = 0.0
        for k in range(S.shape[1]):
            given += remove[lo + k] * exp(np.float64(S[r, k]) - total[r])
        moved[r] += given


@jit
def conjugate_rows(S, begin, c, total, remove, moved, share, lo):
    """``sum_i c_i sum_k p_ik log p_ik`` over the columns of ``S``, with the p of `block_gradient`."""
    value = 0.0
    for r in range(S.shape[0]):
        weight = np.float64(c[begin + r])
        if weight == 0.0:
            continue
        part = 0.0
        for k in range(S.shape[1]):
            z = np.float64(S[r, k]) - total[r]
            p = exp(z)
            if moved[r] != 0.0:
                p = p * (1.0 - remove[lo + k]) + moved[r] * share[lo + k]
                z = math.log(max(p, 1e-300))
            part += p * z
        value += weight * part
    return value


@jit
def block_dots(stack, a, b, g, out):
    """Inner products in float64 of the vectors a, b and g with those of ``stack`` and with each other, in one pass.

    ``out`` has 3 rows: a, b and g; their columns are the members of the stack, then a, b and g.
    """
    m = stack.shape[0]
    out[:] = 0.0
    for begin in range(0, a.shape[0], _CHUNK):
        # The loops below index slices from 0: an index that might be negative would prevent vectorization.
        x, y, z = a[begin : begin + _CHUNK], b[begin : begin + _CHUNK], g[begin : begin + _CHUNK]
        for q in range(m):
            v = stack[q, begin : begin + _CHUNK]
            one, two, three = 0.0, 0.0, 0.0
            for j in range(x.shape[0]):
                one += np.float64(v[j]) * np.float64(x[j])
                two += np.float64(v[j]) * np.float64(y[j])
                three += np.float64(v[j]) * np.float64(z[j])
            out[0, q] += one
            out[1, q] += two
            out[2, q] += three
        aa, ab, ag, bb, bg, gg = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(x.shape[0]):
            one, two, three = np.float64(x[j]), np.float64(y[j]), np.float64(z[j])
            aa += one * one
            ab += one * two
            ag += one * three
            bb += two * two
            bg += two * three
            gg += three * three
        out[0, m] += aa
        out[0, m + 1] += ab
        out[0, m + 2] += ag
        out[1, m + 1] += bb
        out[1, m + 2] += bg
        out[2, m + 2] += gg
    out[1, m] = out[0, m + 1]
    out[2, m] = out[0, m + 2]
    out[2, m + 1] = out[1, m + 2]


@jit
def combine(stack, g, shares, out):
    """``out = sum_q shares_q stack_q + shares_last g``."""
    m = stack.shape[0]
    real = out.dtype.type
    for begin in range(0, out.shape[0], _CHUNK):
        o = out[begin : begin + _CHUNK]
        last = g[begin : begin + _CHUNK]
        part = real(shares[m])
        for j in range(o.shape[0]):
            o[j] = part * last[j]
        for q in range(m):
            if shares[q] == 0.0:
                continue
            part = real(shares[q])
            v = stack[q, begin : begin + _CHUNK]
            for j in range(o.shape[0]):
                o[j] += part * v[j]


@jit
def concave_line(S, T, steps, begin, lo, y, c, total, values, slopes):
    """Of each class, the weighted sum of a_i exp(z_i) - [y_i = k] z_i with z_i = s_ik + t_k d_ik, and its slope in t_k.

    a_i = exp(-total_i); exponents are clamped to the range of float64.
    """
    values[:] = 0.0
    slopes[:] = 0.0
    for r in range(S.shape[0]):
        i = begin + r
        weight = np.float64(c[i])
        for k in range(S.shape[1]):
            d = np.float64(T[r, k])
            e = weight * exp(np.float64(S[r, k]) + steps[k] * d - total[r])
            values[k] += e
            slopes[k] += e * d
        t = y[i] - lo
        if 0 <= t < S.shape[1]:
            values[t] -= weight * (np.float64(S[r, t]) + steps[t] * np.float64(T[r, t]))
            slopes[t] -= weight * np.float64(T[r, t])


@jit
def concave_gradient(rows, S, y, c, total, lo, constant, G):
    """``G += sum_i c_i (a_i exp(s_ik) - [y_i = k]) x_i^T`` of a block of classes, with a_i = exp(-total_i)."""
    K = G.shape[1]
    last = G.shape[0] - 1
    real = G.dtype.type
    coef = np.empty(K, G.dtype)
    for i in range(S.shape[0]):
        weight = np.float64(c[i])
        for k in range(K):
            coef[k] = real(weight * exp(np.float64(S[i, k]) - total[i]))
        t = y[i] - lo
        if 0 <= t < K:
            coef[t] -= real(weight)
        add_outer(rows, i, coef, 0, K, G)
        for k in range(K):
            G[last, k] += constant * coef[k]

"""Kernels of bound majorization: the curvature of partition functions, in the space of the labels.

The labels of example i are the entries ``offsets[i] .. offsets[i + 1] - 1`` of flat arrays; ``L`` holds the logarithms
of a(y) = h(y) exp(theta . f(y)), minus infinity where the measure h is zero. With u_y = e_y - w_y, where w_y are the
probabilities of the labels that precede y, the bound of Jebara and Choromanska has the curvature
sum_y beta_y F' u_y u_y' F. The functions below work on the m x m matrix B = sum_y beta_y u_y u_y', which does not
depend on the features. It is given by the order of the labels and two numbers for each of them, beta and kappa:

    beta_y = tanh(r / 2) / (2 r),  r = log a(y) - log z,     kappa_y = a(y) / (z + a(y)),     z the sum before y

and w_y, restricted to the labels before l, is kappa_j prod_{j < i < l} (1 - kappa_i).
"""

from __future__ import annotations

import math

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.products import add_outer, add_scores

__all__ = [
    "add_images",
    "along",
    "apply_blocks",
    "block_diagonal",
    "blocks",
    "fill_gram",
    "gather",
    "label_terms",
    "mix_rows",
    "range_scores",
    "soften",
]

# mypy: disable-error-code="no-untyped-def"


@inline
def _half_tanh(r):
    """tanh(r / 2) / (2 r), 1/4 at 0: half of it is the curvature of a quadratic that lies above log cosh."""
    if abs(r) < 1e-4:
        return 0.25 - r * r / 48.0
    return math.tanh(0.5 * r) / (2.0 * r)


@inline
def _log_add(one, two):
    """log(exp(one) + exp(two))."""
    if one == -math.inf:
        return two
    if two == -math.inf:
        return one
    return max(one, two) + math.log1p(math.exp(-abs(one - two)))


@jit
def label_terms(L, offsets, direction, order, beta, kappa):
    """Set the order of each example's labels, and beta and kappa of each label (see the module).

    ``order[b + r]`` is the r-th label, counted from the example's first; ``beta`` and ``kappa`` are in that order.
    ``direction``: 1, by score, lowest first; -1, highest first; 0, the order given.
    """
    for i in range(offsets.shape[0] - 1):
        b, e = offsets[i], offsets[i + 1]
        if direction != 0:
            if e - b <= 16:
                for r in range(e - b):
                    at = r
                    while at > 0 and direction * (L[b + order[b + at - 1]] - L[b + r]) > 0:
                        order[b + at] = order[b + at - 1]
                        at -= 1
                    order[b + at] = r
            else:
                found = np.argsort(direction * L[b:e], kind="mergesort")
                for r in range(e - b):
                    order[b + r] = found[r]
        else:
            for r in range(e - b):
                order[b + r] = r
        z = -math.inf
        for r in range(e - b):
            a = L[b + order[b + r]]
            if z == -math.inf:
                beta[b + r] = 0.0
                kappa[b + r] = 1.0
            elif a == -math.inf:  # beta falls to 0 like 1 / (2 |r|)
                beta[b + r] = 0.0
                kappa[b + r] = 0.0
            else:
                beta[b + r] = _half_tanh(a - z)
                kappa[b + r] = 1.0 / (1.0 + math.exp(z - a)) if z - a < 700.0 else 0.0
            z = _log_add(z, a)


@jit
def soften(L, offsets, P):
    """``P`` becomes the probabilities of the labels."""
    for i in range(offsets.shape[0] - 1):
        b, e = offsets[i], offsets[i + 1]
        top = -math.inf
        for l in range(b, e):
            top = max(top, L[l])
        for l in range(b, e):
            P[l] = math.exp(L[l] - top)
        total = 0.0
        for l in range(b, e):
            total += P[l]
        for l in range(b, e):
            P[l] /= total


@jit
def blocks(P, order, beta, kappa, offsets, squares, scale, share, C):
    """``C_i = scale_i ((1 - share) H_i + share B_i)``, m_i x m_i each, from ``squares[i]`` on.

    H_i = diag(p) - p p' is the Hessian of log Z, B_i the bound's curvature.
    """
    for i in range(offsets.shape[0] - 1):
        b = offsets[i]
        m = offsets[i + 1] - b
        start = squares[i]
        near = scale[i] * (1.0 - share)
        for j in range(m):
            for l in range(m):
                C[start + j * m + l] = -near * P[b + j] * P[b + l]
            C[start + j * m + j] += near * P[b + j]
        if share == 0.0:
            continue
        far = scale[i] * share
        later = 0.0  # sum over the labels after r of beta_y (prod of (1 - kappa) between)^2
        for r in range(m - 1, -1, -1):
            l = order[b + r]
            C[start + l * m + l] += far * (beta[b + r] + kappa[b + r] * kappa[b + r] * later)
            cross = far * (kappa[b + r] * (1.0 - kappa[b + r]) * later - beta[b + r])
            weight = cross
            for before in range(r - 1, -1, -1):
                j = order[b + before]
                C[start + j * m + l] += kappa[b + before] * weight
                C[start + l * m + j] += kappa[b + before] * weight
                weight *= 1.0 - kappa[b + before]
            stay = 1.0 - kappa[b + r]
            later = beta[b + r] + stay * stay * later


@jit
def block_diagonal(P, order, beta, kappa, offsets, scale, share, out):
    """The diagonals of the matrices C_i of `blocks`, in the order of the flat arrays."""
    for i in range(offsets.shape[0] - 1):
        b = offsets[i]
        m = offsets[i + 1] - b
        for l in range(m):
            out[b + l] = scale[i] * (1.0 - share) * P[b + l] * (1.0 - P[b + l])
        if share == 0.0:
            continue
        later = 0.0
        for r in range(m - 1, -1, -1):
            out[b + order[b + r]] += scale[i] * share * (beta[b + r] + kappa[b + r] * kappa[b + r] * later)
            stay = 1.0 - kappa[b + r]
            later = beta[b + r] + stay * stay * later


@jit
def apply_blocks(P, order, beta, kappa, offsets, scale, share, V, out):
    """``out_i = C_i v_i`` in O(m_i), without forming the matrices C_i."""
    longest = 0
    for i in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    turn = np.empty(longest)
    for i in range(offsets.shape[0] - 1):
        b = offsets[i]
        m = offsets[i + 1] - b
        mean = 0.0
        for l in range(m):
            mean += P[b + l] * V[b + l]
        for l in range(m):
            out[b + l] = scale[i] * (1.0 - share) * P[b + l] * (V[b + l] - mean)
        if share == 0.0:
            continue
        running = 0.0  # the mean of v under the labels so far
        for r in range(m):
            v = V[b + order[b + r]]
            turn[r] = beta[b + r] * (v - running)
            running += kappa[b + r] * (v - running)
        later = 0.0
        for r in range(m - 1, -1, -1):
            out[b + order[b + r]] += scale[i] * share * (turn[r] - kappa[b + r] * later)
            later = turn[r] + (1.0 - kappa[b + r]) * later


@jit
def along(L, D, t, true, offsets, scale, gradient, hessian):
    """The weighted sum of the losses log Z - log a(true) at ``L + sum_q t_q D_q``.

    Fills ``gradient`` (q) and ``hessian`` (q x q), the derivatives with respect to ``t``; ``true`` holds flat
    positions.
    """
    q = D.shape[0]
    total = 0.0
    mean = np.empty(q)
    gradient[:] = 0
    hessian[:] = 0
    second = np.empty((q, q))
    for i in range(offsets.shape[0] - 1):
        c = scale[i]
        if c == 0.0:
            continue
        b, e = offsets[i], offsets[i + 1]
        top = -math.inf
        at_true = 0.0
        for l in range(b, e):
            s = L[l]
            for j in range(q):
                s += t[j] * D[j, l]
            top = max(top, s)
            if l == true[i]:
                at_true = s
        z = 0.0
        mean[:] = 0
        second[:] = 0
        for l in range(b, e):
            s = L[l]
            for j in range(q):
                s += t[j] * D[j, l]
            a = math.exp(s - top)
            z += a
            for j in range(q):
                moved = D[j, l] - D[j, true[i]]
                mean[j] += a * moved
                for k in range(j + 1):
                    second[j, k] += a * moved * (D[k, l] - D[k, true[i]])
        total += c * (math.log(z) + (top - at_true))
        for j in range(q):
            mean[j] /= z
            gradient[j] += c * mean[j]
        for j in range(q):
            for k in range(j + 1):
                hessian[j, k] += c * (second[j, k] / z - mean[j] * mean[k])
    for j in range(q):
        for k in range(j):
            hessian[k, j] = hessian[j, k]
    return total


@jit
def mix_rows(C, offsets, squares, F, out):
    """``out_i = C_i F_i``, with the matrices C_i of `blocks`; ``F`` and ``out`` start at row ``offsets[0]``."""
    first = offsets[0]
    for i in range(offsets.shape[0] - 1):
        b = offsets[i] - first
        m = offsets[i + 1] - offsets[i]
        for j in range(m):
            into = out[b + j]
            for k in range(into.shape[0]):
                into[k] = 0
            for l in range(m):
                c = C[squares[i] + j * m + l]
                if c == 0.0:
                    continue
                row = F[b + l]
                for k in range(into.shape[0]):
                    into[k] += c * row[k]


@jit
def fill_gram(data, indices, indptr, index, constant, C, G, first, last):
    """``G[a, :, b, :] += sum_i C[i, a, b] x_i x_i'`` over the sparse rows ``index``, for first <= a < last and b <= a.

    ``constant`` is the value of one more feature, the last of G. Each pair of stored values is added once.
    """
    d = G.shape[1]
    for at in range(index.shape[0]):
        begin, end = indptr[index[at]], indptr[index[at] + 1]
        m = end - begin
        for a in range(first, last):
            for b in range(a + 1):
                c = C[at, a, b]
                for u in range(m):
                    x = c * data[begin + u]
                    into = G[a, indices[begin + u], b]
                    for v in range(m):
                        into[indices[begin + v]] += x * data[begin + v]
                    if constant != 0.0:
                        into[d - 1] += x * constant
                if constant != 0.0:
                    into = G[a, d - 1, b]
                    x = c * constant
                    for v in range(m):
                        into[indices[begin + v]] += x * data[begin + v]
                    into[d - 1] += x * constant


@jit
def add_images(rows, R, begin, end, lo, hi, V):
    """``V[:, lo:hi] += sum_i x_i R[i - begin, lo:hi]`` over begin <= i < end."""
    for i in range(begin, end):
        add_outer(rows, i, R[i - begin, lo:hi], lo, hi, V)


@jit
def range_scores(rows, V, plain, begin, end, S):
    """``S[i - begin] = V' x_i`` for begin <= i < end. ``plain`` is the `L2` penalty: V holds the weights."""
    for i in range(begin, end):
        s = S[i - begin]
        for k in range(V.shape[1]):
            s[k] = 0
        add_scores(rows, i, V, 0, V.shape[1], plain, s)


@jit
def gather(rows, index, d, out):
    """``out[m, :d] = x_i`` for i = ``index[m]``, densely."""
    one = np.ones(1, out.dtype)
    for m in range(index.shape[0]):
        for j in range(d):
            out[m, j] = 0
        row = out[m, :d].reshape((d, 1))
        add_outer(rows, index[m], one, 0, 1, row)

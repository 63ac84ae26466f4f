"""Log losses of scores times an inverse temperature, plus shifts, with their derivatives.

``scores`` is (n, K), ``tops`` (n,) has the largest score of each row, ``weights`` (n,) are sample weights, ``b`` (K,)
are the shifts. With z_i = beta s_i + b each kernel returns the sums, over the rows begin <= i < end, of the weighted
losses and of their first two derivatives with respect to beta, and adds their gradient with respect to b to ``slopes``
unless that is empty.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.vmath import exp, log

__all__ = ["sigmoid_losses", "sign_losses", "softmax_losses"]

# mypy: disable-error-code="no-untyped-def"


@jit
def softmax_losses(scores, tops, target, weights, beta, b, slopes, begin, end):
    """``log sum_k exp(z_k) - z_y`` for the class numbers y in ``target``."""
    K = b.shape[0]
    e = np.empty(K)
    shift = b.max()
    loss = slope = bend = 0.0
    for i in range(begin, end):
        w, y, s = weights[i], target[i], scores[i]
        top = beta * np.float64(tops[i]) + shift
        total = mean = spread = 0.0
        for k in range(K):
            e[k] = exp(beta * np.float64(s[k]) + b[k] - top)
            total += e[k]
            mean += e[k] * np.float64(s[k])
        mean /= total
        for k in range(K):
            away = np.float64(s[k]) - mean
            spread += e[k] * away * away
        loss += w * (log(total) + top - beta * np.float64(s[y]) - b[y])
        slope += w * (mean - np.float64(s[y]))
        bend += w * spread / total
        if slopes.shape[0] > 0:
            for k in range(K):
                slopes[k] += w / total * e[k]
            slopes[y] -= w
    return loss, slope, bend


@jit
def sigmoid_losses(scores, tops, target, weights, beta, b, slopes, begin, end):
    """``log sum_k sigma(z_k) - log sigma(z_y)`` with the sigmoid sigma, for the class numbers y in ``target``."""
    K = b.shape[0]
    p, wrong = np.empty(K), np.empty(K)
    shift = b.max()
    loss = slope = bend = 0.0
    for i in range(begin, end):
        w, y, s = weights[i], target[i], scores[i]
        # All sigmoids are divided by exp(top): far below zero their ratios stay exact.
        top = min(beta * np.float64(tops[i]) + shift, 0.0)
        scale = exp(top)
        total = mean = spread = 0.0
        for k in range(K):
            e = exp(top - beta * np.float64(s[k]) - b[k])
            p[k] = 1.0 / (scale + e)
            wrong[k] = e * p[k]
            total += p[k]
            mean += p[k] * wrong[k] * np.float64(s[k])
        mean /= total
        for k in range(K):
            u = np.float64(s[k]) * wrong[k]
            spread += p[k] * ((u - mean) * (u - mean) - np.float64(s[k]) * u * (1.0 - wrong[k]))
        own = np.float64(s[y]) * wrong[y]
        loss += w * (log(total) - log(p[y]))
        slope += w * (mean - own)
        bend += w * (spread / total + np.float64(s[y]) * own * (1.0 - wrong[y]))
        if slopes.shape[0] > 0:
            for k in range(K):
                slopes[k] += w / total * p[k] * wrong[k]
            slopes[y] -= w * wrong[y]
    return loss, slope, bend


@jit
def sign_losses(scores, tops, target, weights, beta, b, slopes, begin, end):
    """``sum_k log(1 + exp(-t_k z_k))``, where t_k is 1 where ``target`` (n, K) is positive and else -1."""
    K = b.shape[0]
    loss = slope = bend = 0.0
    for i in range(begin, end):
        w, s = weights[i], scores[i]
        for k in range(K):
            sign = 1.0 if target[i, k] > 0 else -1.0
            e = exp(-sign * (beta * np.float64(s[k]) + b[k]))
            wrong = e / (1.0 + e)
            loss += w * log(1.0 + e)
            slope -= w * sign * wrong * np.float64(s[k])
            bend += w * wrong * (1.0 - wrong) * np.float64(s[k]) * np.float64(s[k])
            if slopes.shape[0] > 0:
                slopes[k] -= w * sign * wrong
    return loss, slope, bend

"""Equation (13) of the DS-MLR paper as it is printed, without the changes of `manyclass.kernels.ds_mlr`."""

from __future__ import annotations

import math

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.products import add_outer, add_scores

__all__ = ["literal_steps"]

#: Below this factor the weights are rescaled, so that what is divided by it remains finite.
_SMALL = 1e-6


@jit
def literal_steps(rows, begin, order, y, c, multiplier, lo, W, constant, eta, shrink, plain):
    """``w_k = w_k - eta (lam w_k + c_i (exp(w_k.x_i + b_i) - [y_i = k]) x_i)`` for each row in the given order.

    ``eta`` is eta K of the paper and ``shrink`` is 1 - eta K lam; the constant feature, last, has no penalty. The
    exponential is not bounded: weights may become infinite.
    """
    K = W.shape[1]
    last = W.shape[0] - 1
    s = np.empty(K, W.dtype)
    coef = np.empty(K, W.dtype)
    factor = 1.0  # of all weights but the intercepts
    for r in range(order.shape[0]):
        i = begin + order[r]
        s[:] = 0
        add_scores(rows, i, W, 0, K, plain, s)
        rate = eta * np.float64(c[i])
        t = y[i] - lo
        for k in range(K):
            score = factor * np.float64(s[k]) + np.float64(constant) * np.float64(W[last, k])
            wrong = math.exp(score + multiplier[i - begin]) - (1.0 if k == t else 0.0)
            s[k] = -rate * wrong
        factor *= shrink
        if abs(factor) < _SMALL:
            for j in range(last):
                for k in range(K):
                    W[j, k] *= W.dtype.type(factor)
            factor = 1.0
        for k in range(K):
            coef[k] = np.float64(s[k]) / factor
            W[last, k] += constant * s[k]
        add_outer(rows, i, coef, 0, K, W)
    for j in range(last):
        for k in range(K):
            W[j, k] *= W.dtype.type(factor)

"""Kernels of the primal solvers: the negative gradient of the losses with respect to the scores, and its dual value.

``a_i = -grad phi(W^T x_i + b)`` is a feasible dual point, optimal where the weights are, and its dual image V gives the
gradient of the mean loss: -lam V.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.operations import loss_conjugate, loss_gradient, loss_value, value_term
from manyclass.kernels.products import add_scores
from manyclass.kernels.targets import target_row

__all__ = ["conjugate_rows", "inner_product", "penalty_value", "respond_rows", "value_rows"]


@jit
def respond_rows(rows, targets, weights, loss, plain, W, bias, dual, begin, end):
    """``a_i = -grad phi(s_i)`` for begin <= i < end; returns ``sum_i c_i phi(s_i)``.

    ``plain`` is the `L2` penalty, for which grad g* is the identity: W holds the weights themselves.
    """
    outputs = bias.shape[0]
    s = np.zeros(W.shape[1], W.dtype)
    work = np.empty(outputs, W.dtype)
    buffer = np.empty(outputs, W.dtype)
    losses = 0.0
    for i in range(begin, end):
        for k in range(outputs):
            s[k] = bias[k]
        add_scores(rows, i, W, 0, W.shape[1], plain, s)
        t = target_row(targets, i, 0, outputs, buffer)
        losses += np.float64(weights[i]) * loss_value(loss, s[:outputs], t, work)
        loss_gradient(loss, s[:outputs], t, work)
        for k in range(outputs):
            dual[i, k] = -work[k]
    return losses


@jit
def value_rows(rows, targets, weights, loss, plain, W, bias, begin, end):
    """``sum_i c_i phi(s_i)`` over begin <= i < end."""
    outputs = bias.shape[0]
    s = np.zeros(W.shape[1], W.dtype)
    work = np.empty(outputs, W.dtype)
    buffer = np.empty(outputs, W.dtype)
    losses = 0.0
    for i in range(begin, end):
        for k in range(outputs):
            s[k] = bias[k]
        add_scores(rows, i, W, 0, W.shape[1], plain, s)
        t = target_row(targets, i, 0, outputs, buffer)
        losses += np.float64(weights[i]) * loss_value(loss, s[:outputs], t, work)
    return losses


@jit
def conjugate_rows(targets, weights, loss, dual, begin, end):
    """``sum_i c_i phi*(-a_i)`` over begin <= i < end."""
    outputs = dual.shape[1]
    buffer = np.empty(outputs, dual.dtype)
    total = 0.0
    for i in range(begin, end):
        total += np.float64(weights[i]) * loss_conjugate(loss, dual[i], target_row(targets, i, 0, outputs, buffer))
    return total


@jit
def penalty_value(W, reg, begin, end):
    """``g(W)`` over the features begin <= j < end."""
    total = 0.0
    for j in range(begin, end):
        for k in range(W.shape[1]):
            total += value_term(reg, W[j, k])
    return total


@jit
def inner_product(one, two, begin, end):
    """``<A, B>`` over the rows begin <= j < end, in float64."""
    total = 0.0
    for j in range(begin, end):
        for k in range(one.shape[1]):
            total += np.float64(one[j, k]) * np.float64(two[j, k])
    return total

"""Kernels of accelerated Prox-SDCA: the extrapolation, and the dual objective between two dual points."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.operations import conjugate_term, loss_conjugate, primal
from manyclass.kernels.targets import target_row

__all__ = ["extrapolate", "mix", "mixed_conjugate", "mixed_losses", "momentum", "own_image"]


@jit
def momentum(V, reg, Y, W, begin, end):
    """``<Y - W', W' - W>`` and ``||W' - Y||^2`` for the new weights W' = grad g*(V), in float64.

    A positive first number means that the momentum points uphill: the restart test of O'Donoghue and Candes (2015).
    """
    back = 0.0
    moved = 0.0
    for j in range(begin, end):
        for k in range(V.shape[1]):
            w = np.float64(primal(reg, V[j, k]))
            y = np.float64(Y[j, k])
            back += (y - w) * (w - np.float64(W[j, k]))
            moved += (w - y) * (w - y)
    return back, moved


@jit
def extrapolate(V, reg, Y, W, beta, pull, begin, end):
    """Move to the next proximal center, in place: ``W' = grad g*(V)``, ``Y' = W' + beta (W' - W)``.

    V is shifted by ``pull (Y' - Y)``, since it includes the proximal term's ``pull Y``.
    """
    real = V.dtype.type
    beta = real(beta)
    pull = real(pull)
    for j in range(begin, end):
        for k in range(V.shape[1]):
            w = primal(reg, V[j, k])
            y = w + beta * (w - W[j, k])
            V[j, k] += pull * (y - Y[j, k])
            Y[j, k] = y
            W[j, k] = w


@jit
def own_image(V, Y, pull, scale, out, begin, end):
    """``out = scale (V - pull Y)``: the dual image of the original problem, without the proximal term."""
    real = V.dtype.type
    for j in range(begin, end):
        for k in range(V.shape[1]):
            out[j, k] = real(scale) * (V[j, k] - real(pull) * Y[j, k])


@jit
def mixed_losses(targets, weights, loss, one, two, x, begin, end):
    """``sum_i c_i phi*(-(a_i + x (a'_i - a_i)))`` in float64, for ``one`` = a and ``two`` = a'."""
    outputs = one.shape[1]
    mixed = np.empty(outputs, one.dtype)
    buffer = np.empty(outputs, one.dtype)
    x = one.dtype.type(x)
    total = 0.0
    for i in range(begin, end):
        for k in range(outputs):
            mixed[k] = one[i, k] + x * (two[i, k] - one[i, k])
        total += np.float64(weights[i]) * loss_conjugate(loss, mixed, target_row(targets, i, 0, outputs, buffer))
    return total


@jit
def mixed_conjugate(reg, one, two, x, begin, end):
    """``g*(v + x (v' - v))`` in float64."""
    x = one.dtype.type(x)
    total = 0.0
    for j in range(begin, end):
        for k in range(one.shape[1]):
            total += conjugate_term(reg, one[j, k] + x * (two[j, k] - one[j, k]))
    return total


@jit
def mix(one, two, x, begin, end):
    """``one += x (two - one)`` in place, rounded as in `mixed_losses` and `mixed_conjugate`."""
    x = one.dtype.type(x)
    for i in range(begin, end):
        for k in range(one.shape[1]):
            one[i, k] += x * (two[i, k] - one[i, k])

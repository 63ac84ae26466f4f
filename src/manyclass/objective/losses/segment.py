"""Options II to V of Prox-SDCA: steps on the segment from the old dual vector a to u = -grad phi(s).

`Segment` wraps any loss and replaces its dual step (Shalev-Shwartz & Zhang 2014, figure 1). Option I is the exact dual
step of the loss itself. The new dual vector is ``a + x (u - a)``, 0 <= x <= 1; the domain of phi* is convex, so that it
is feasible.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from manyclass.kernels.jit import implements, inline, is_a
from manyclass.kernels.operations import (
    dual_step,
    loss_conjugate,
    loss_gradient,
    loss_value,
    unit_conjugate,
    unit_gradient,
    unit_value,
)
from manyclass.objective.losses.base import is_separable
from manyclass.objective.losses.crammer_singer import CrammerSingerLoss
from manyclass.objective.losses.log_loss import LogisticLoss
from manyclass.objective.losses.multinomial import MultinomialLoss
from manyclass.objective.losses.soft import SoftMultinomialLoss, largest

__all__ = ["OPTIONS", "Segment"]

OPTIONS = ("I", "II", "III", "IV", "V")
_LINE_SEARCH, _CLOSED, _RADIUS, _CONSTANT = 2, 3, 4, 5
_GOLDEN = 0.6180339887498949


class Segment(NamedTuple):
    """A loss whose dual step is Option II, III, IV or V.

    Parameters
    ----------
    loss : NamedTuple
        The compiled loss.
    option : {2, 3, 4, 5}
        2: the point of the segment that maximizes the dual. 3: the point that maximizes the quadratic lower bound on
        the dual that follows from (1/gamma)-smoothness. 4: as 3, with ``radius`` in place of q. 5: the constant
        x = gamma / (radius + gamma).
    gamma : float
        Smoothness of the loss: phi is (1/gamma)-smooth.
    radius : float
        max_i c_i ||x_i||^2 / (lam n).
    """

    loss: Any
    option: int
    gamma: float
    radius: float


@inline
def _fraction(option, young, curved, square, gamma, q, radius):
    """x of Options III to V.

    ``young`` is the Fenchel-Young gap of (s, a); phi* is strongly convex in the part ``curved`` of ||z||^2 =
    ``square``.
    """
    if square <= 0.0:
        return 0.0
    if option == _CONSTANT:
        return gamma * curved / (radius * square + gamma * curved) if curved > 0.0 else 0.0
    length = radius if option == _RADIUS else q
    below = gamma * curved + length * square
    if below <= 0.0:
        return 1.0 if young > 0.0 else 0.0
    return min(max((max(young, 0.0) + 0.5 * gamma * curved) / below, 0.0), 1.0)


def fenchel_young(loss: Any, s: Any, a: Any, t: Any, work: Any) -> Any:
    """``phi(s) + phi*(-a) + s.a`` >= 0 in float64."""
    raise TypeError("compiled: call it from a kernel")


@implements(fenchel_young)
def _fenchel_young(loss: Any, s: Any, a: Any, t: Any, work: Any) -> Any:
    if is_a(loss, MultinomialLoss):

        def divergence(loss, s, a, t, work):
            # phi(s) + phi*(-a) + s.a cancels. The equal sum of p log(p / softmax(s)) - p + softmax(s) has terms >= 0.
            kept = s[t]
            s[t] = kept - loss.margin
            top = np.float64(s[0])
            for k in range(s.shape[0]):
                top = max(top, np.float64(s[k]))
            total = 0.0
            for k in range(s.shape[0]):
                total += math.exp(np.float64(s[k]) - top)
            level = top + math.log(total)
            gap = 0.0
            rivals = 0.0
            for k in range(s.shape[0]):
                if k != t:
                    p = max(-np.float64(a[k]), 0.0)
                    rivals += p
                    gap += _entropy_gap(p, np.float64(s[k]) - level)
            gap += _entropy_gap(max(1.0 - rivals, 0.0), np.float64(s[t]) - level)
            s[t] = kept
            return gap

        return divergence
    if is_a(loss, SoftMultinomialLoss):

        def soft_divergence(loss, s, a, t, work):
            top = np.float64(s[0])
            for k in range(s.shape[0]):
                top = max(top, np.float64(s[k]))
            total = 0.0
            for k in range(s.shape[0]):
                total += math.exp(np.float64(s[k]) - top)
            level = top + math.log(total)
            gap = 0.0
            for k in range(s.shape[0]):
                gap += _entropy_gap(max(np.float64(t[k]) - np.float64(a[k]), 0.0), np.float64(s[k]) - level)
            return gap

        return soft_divergence

    def plain(loss, s, a, t, work):
        total = loss_value(loss, s, t, work) + loss_conjugate(loss, a, t)
        for k in range(s.shape[0]):
            total += np.float64(s[k]) * np.float64(a[k])
        return total

    return plain


@inline
def _entropy_gap(p, log_r):
    """``p log(p / r) - p + r`` >= 0."""
    r = math.exp(log_r)
    return r if p <= 0.0 else p * (math.log(p) - log_r) - p + r


def unit_young(loss: Any, s: Any, a: Any, y: Any) -> Any:
    """`fenchel_young` for one output of a separable loss."""
    raise TypeError("compiled: call it from a kernel")


@implements(unit_young)
def _unit_young(loss: Any, s: Any, a: Any, y: Any) -> Any:
    if is_a(loss, LogisticLoss):

        def divergence(loss, s, a, y):
            b = min(max(np.float64(a) * np.float64(y), 0.0), 1.0)
            z = np.float64(y) * np.float64(s) - np.float64(loss.margin)
            # log sigmoid(-z) and log sigmoid(z)
            tail = math.log1p(math.exp(-abs(z)))
            return _entropy_gap(b, min(-z, 0.0) - tail) + _entropy_gap(1.0 - b, min(z, 0.0) - tail)

        return divergence

    def plain(loss, s, a, y):
        a = np.float64(a)
        return unit_value(loss, s, y) + unit_conjugate(loss, a, np.float64(y)) + np.float64(s) * a

    return plain


@inline
def _unit_rise(loss, s, a, z, y, q, x):
    return -unit_conjugate(loss, a + x * z, y) - s * x * z - 0.5 * q * x * x * z * z


@inline
def _row_rise(loss, s, a, u, t, q, x, dot, square, work):
    for k in range(a.shape[0]):
        work[k] = np.float64(a[k]) + x * (np.float64(u[k]) - np.float64(a[k]))
    return -loss_conjugate(loss, work, t) - x * dot - 0.5 * q * x * x * square


def _arrive(a: Any, t: Any, x: Any, new: Any) -> Any:
    """``new = a + x (new - a)``, on the simplex around the target."""
    raise TypeError("compiled: call it from a kernel")


@implements(_arrive)
def _arrive_simplex(a: Any, t: Any, x: Any, new: Any) -> Any:
    if isinstance(t, types.Array):

        def soft(a, t, x, new):
            best = largest(t)
            others = 0.0
            for k in range(a.shape[0]):
                if k != best:
                    old = np.float64(a[k])
                    new[k] = min(new.dtype.type(old + x * (np.float64(new[k]) - old)), t[k])
                    others += np.float64(new[k])
            new[best] = min(new.dtype.type(-others), t[best])

        return soft

    def hard(a, t, x, new):
        rivals = 0.0
        for k in range(a.shape[0]):
            if k != t:
                old = np.float64(a[k])
                new[k] = new.dtype.type(min(old + x * (np.float64(new[k]) - old), 0.0))
                rivals -= np.float64(new[k])
        new[t] = new.dtype.type(min(rivals, 1.0))

    return hard


@implements(dual_step)
def _dual_step(loss: Any, s: Any, a: Any, t: Any, q: Any, new: Any) -> Any:
    if not is_a(loss, Segment):
        return None
    inner = loss.types[0]
    if is_separable(inner):

        def each(loss, s, a, t, q, new):
            phi = loss.loss
            gamma, radius, q64 = np.float64(loss.gamma), np.float64(loss.radius), np.float64(q)
            for k in range(s.shape[0]):
                old, y, score = np.float64(a[k]), np.float64(t[k]), np.float64(s[k])
                z = -np.float64(unit_gradient(phi, s[k], t[k])) - old
                if loss.option == _LINE_SEARCH:
                    low, high = 0.0, 1.0
                    left, right = 1.0 - _GOLDEN, _GOLDEN
                    f, g = _unit_rise(phi, score, old, z, y, q64, left), _unit_rise(phi, score, old, z, y, q64, right)
                    for _ in range(40):
                        if f >= g:
                            high, right, g = right, left, f
                            left = high - _GOLDEN * (high - low)
                            f = _unit_rise(phi, score, old, z, y, q64, left)
                        else:
                            low, left, f = left, right, g
                            right = low + _GOLDEN * (high - low)
                            g = _unit_rise(phi, score, old, z, y, q64, right)
                    x = 0.5 * (low + high)
                    best = _unit_rise(phi, score, old, z, y, q64, x)
                    for end in (0.0, 1.0):
                        value = _unit_rise(phi, score, old, z, y, q64, end)
                        if value >= best:
                            x, best = end, value
                else:
                    x = _fraction(loss.option, unit_young(phi, s[k], a[k], t[k]), z * z, z * z, gamma, q64, radius)
                new[k] = a[k] + new.dtype.type(x * z)

        return each
    crammer_singer = is_a(inner, CrammerSingerLoss)

    def joint(loss, s, a, t, q, new):
        phi = loss.loss
        q64 = np.float64(q)
        work = np.empty(s.shape[0], np.float64)
        young = fenchel_young(phi, s, a, t, new)
        loss_gradient(phi, s, t, new)
        square = 0.0
        dot = 0.0
        for k in range(s.shape[0]):
            new[k] = -new[k]
            z = np.float64(new[k]) - np.float64(a[k])
            square += z * z
            dot += z * np.float64(s[k])
        curved = square
        if crammer_singer:  # gamma smooths the conjugate in the entries j != y only
            z = np.float64(new[t]) - np.float64(a[t])
            curved = max(square - z * z, 0.0)
        if loss.option == _LINE_SEARCH:
            low, high = 0.0, 1.0
            left, right = 1.0 - _GOLDEN, _GOLDEN
            f = _row_rise(phi, s, a, new, t, q64, left, dot, square, work)
            g = _row_rise(phi, s, a, new, t, q64, right, dot, square, work)
            for _ in range(40):
                if f >= g:
                    high, right, g = right, left, f
                    left = high - _GOLDEN * (high - low)
                    f = _row_rise(phi, s, a, new, t, q64, left, dot, square, work)
                else:
                    low, left, f = left, right, g
                    right = low + _GOLDEN * (high - low)
                    g = _row_rise(phi, s, a, new, t, q64, right, dot, square, work)
            x = 0.5 * (low + high)
            best = _row_rise(phi, s, a, new, t, q64, x, dot, square, work)
            for end in (0.0, 1.0):
                value = _row_rise(phi, s, a, new, t, q64, end, dot, square, work)
                if value >= best:
                    x, best = end, value
        else:
            x = _fraction(loss.option, young, curved, square, np.float64(loss.gamma), q64, np.float64(loss.radius))
        _arrive(a, t, x, new)

    return joint

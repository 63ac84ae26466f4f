"""Losses in functions of the array API standard: values, gradients and conjugates of a block of rows at once.

They are those of `manyclass.objective.losses`, where the formulas are; a `ArrayLoss` is the counterpart of a compiled
loss. S are the scores of a block, (m, K). The targets T of a joint loss are the numbers of the classes, (m,); of a loss
of signs, 1 and -1, (m, K); of a regression, (m, K).

On a device an operation on a block takes the time to read and write it, and matrix products little more: the fewer
operations, the better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from manyclass.objective.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SmoothHingeLoss,
    SquaredHingeLoss,
    SquaredLoss,
)
from manyclass.runtime.arrays import entries, with_entries

__all__ = ["ARRAY_LOSSES", "ArrayLoss", "has_array_loss"]


class ArrayLoss(NamedTuple):
    """A loss on blocks of rows; both functions take the functions of the library, and the compiled loss.

    Attributes
    ----------
    respond : callable
        ``respond(xp, wide, loss, S, T)``: the losses, (m,) of type ``wide``, and their negative gradients, (m, K). S
        may be overwritten.
    conjugate : callable
        ``conjugate(xp, loss, A, T)``: ``phi*(-a)`` of each row, (m,).
    """

    respond: Callable[..., tuple[Any, Any]]
    conjugate: Callable[..., Any]


def has_array_loss(loss: Any) -> bool:
    """Whether a compiled loss has a counterpart here, and a gradient."""
    return type(loss) in ARRAY_LOSSES and loss.smoothness > 0


def _total(xp: Any, wide: Any, values: Any) -> Any:
    return xp.sum(values, axis=1, dtype=wide)


# --- multinomial --------------------------------------------------------------------------------------------------


def _multinomial(xp: Any, wide: Any, loss: Any, S: Any, T: Any) -> tuple[Any, Any]:
    own = entries(S, T)
    if loss.margin:
        own = own - float(loss.margin)
        S = with_entries(S, T, own)
    top = xp.max(S, axis=1, keepdims=True)
    S -= top
    # Small probabilities are exact in float32 because that of the class is never a summand, and log(1 + x) its loss.
    A = with_entries(xp.exp(S), T, xp.zeros_like(own))
    others = xp.astype(xp.sum(A, axis=1, keepdims=True), wide)
    ahead = xp.astype(top - own, wide)
    total = others + xp.exp(-ahead)
    values = xp.where(ahead > 0, xp.log(total) + ahead, xp.log1p(others))
    A *= xp.astype(-1 / total, A.dtype)
    return values[:, 0], with_entries(A, T, xp.astype(others / total, A.dtype))


def _entropy(xp: Any, loss: Any, A: Any, T: Any) -> Any:
    p = with_entries(-A, T, xp.zeros_like(A[:, :1]))
    p = xp.where(p > 0, p, xp.zeros_like(p))
    rivals = xp.sum(p, axis=1)
    # p is zero, or so much larger than the smallest number that this changes no digit which counts.
    p *= xp.log(p + float(xp.finfo(p.dtype).smallest_normal))
    gone = xp.where(rivals < 1, rivals, xp.zeros_like(rivals))
    return xp.sum(p, axis=1) + (1 - gone) * xp.log1p(-gone) - float(loss.margin) * rivals


# --- losses of signs ----------------------------------------------------------------------------------------------


def _logistic(xp: Any, wide: Any, loss: Any, S: Any, T: Any) -> tuple[Any, Any]:
    z = T * S - float(loss.margin)
    small, zero = xp.exp(-xp.abs(z)), xp.zeros_like(z)
    values = xp.log1p(small) + xp.where(z < 0, -z, zero)
    return _total(xp, wide, values), T * xp.where(z < 0, xp.ones_like(z), small) / (1 + small)


def _binary_entropy(xp: Any, loss: Any, A: Any, T: Any) -> Any:
    b = A * T
    inside = (b > 0) & (b < 1)
    p = xp.where(inside, b, xp.full_like(b, 0.5))
    values = xp.where(inside, p * xp.log(p) + (1 - p) * xp.log1p(-p), xp.zeros_like(b))
    b = xp.where(b < 0, xp.zeros_like(b), xp.where(b > 1, xp.ones_like(b), b))
    return xp.sum(values - float(loss.margin) * b, axis=1)


def _smooth_hinge(xp: Any, wide: Any, loss: Any, S: Any, T: Any) -> tuple[Any, Any]:
    gamma = float(loss.gamma)
    short, zero = 1 - T * S, xp.zeros_like(S)
    short = xp.where(short > 0, short, zero)
    near = xp.where(short < gamma, short, xp.full_like(short, gamma))
    return _total(xp, wide, near * (short - 0.5 * near) / gamma), T * near / gamma


def _smooth_hinge_conjugate(xp: Any, loss: Any, A: Any, T: Any) -> Any:
    return xp.sum(0.5 * float(loss.gamma) * A * A - A * T, axis=1)


def _squared_hinge(xp: Any, wide: Any, loss: Any, S: Any, T: Any) -> tuple[Any, Any]:
    short = 1 - T * S
    short = xp.where(short > 0, short, xp.zeros_like(S))
    return _total(xp, wide, short * short), 2 * T * short


def _squared_hinge_conjugate(xp: Any, loss: Any, A: Any, T: Any) -> Any:
    return xp.sum(0.25 * A * A - A * T, axis=1)


# --- losses of regression -----------------------------------------------------------------------------------------


def _squared(xp: Any, wide: Any, loss: Any, S: Any, T: Any) -> tuple[Any, Any]:
    short = T - S
    return _total(xp, wide, 0.5 * short * short), short


def _huber(xp: Any, wide: Any, loss: Any, S: Any, T: Any) -> tuple[Any, Any]:
    delta, short = float(loss.delta), T - S
    edge = xp.full_like(short, delta)
    near = xp.where(short > edge, edge, xp.where(short < -edge, -edge, short))
    return _total(xp, wide, near * (short - 0.5 * near)), near


def _squared_conjugate(xp: Any, loss: Any, A: Any, T: Any) -> Any:
    return xp.sum(0.5 * A * A - A * T, axis=1)


#: Compiled loss -> its functions on blocks of rows.
ARRAY_LOSSES: dict[type, ArrayLoss] = {
    MultinomialLoss: ArrayLoss(_multinomial, _entropy),
    LogisticLoss: ArrayLoss(_logistic, _binary_entropy),
    SmoothHingeLoss: ArrayLoss(_smooth_hinge, _smooth_hinge_conjugate),
    SquaredHingeLoss: ArrayLoss(_squared_hinge, _squared_hinge_conjugate),
    SquaredLoss: ArrayLoss(_squared, _squared_conjugate),
    HuberLoss: ArrayLoss(_huber, _squared_conjugate),
}

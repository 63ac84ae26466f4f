"""The operations that kernels call on a loss and on a penalty; losses and penalties implement them for their types.

A loss acts on one example: scores ``s`` in R^K, a target ``t`` (see `manyclass.kernels.targets`), a dual vector ``a``
in R^K. Solvers store the dual image ``v = X^T (c * dual) / (lam n)``; the weights ``W = grad g*(v)`` are computed entry
by entry when they are read, so that no second d x K array is needed.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "conjugate_term",
    "dual_step",
    "loss_conjugate",
    "loss_gradient",
    "loss_hessian",
    "loss_value",
    "primal",
    "prox",
    "rival_cost",
    "unit_conjugate",
    "unit_gradient",
    "unit_hessian",
    "unit_step",
    "unit_value",
    "value_term",
]


def loss_value(loss: Any, s: Any, t: Any, work: Any) -> Any:
    """phi(s; t) in float64. ``work`` is scratch of length K."""
    raise TypeError("compiled: call it from a kernel")


def loss_gradient(loss: Any, s: Any, t: Any, out: Any) -> Any:
    """``out = grad phi(s; t)`` (a subgradient where phi has a kink)."""
    raise TypeError("compiled: call it from a kernel")


def loss_hessian(loss: Any, s: Any, t: Any, u: Any, out: Any) -> Any:
    """``out = H u``, with H the Hessian of phi at s (a one-sided one where phi' has a kink)."""
    raise TypeError("compiled: call it from a kernel")


def loss_conjugate(loss: Any, a: Any, t: Any) -> Any:
    """phi*(-a; t) in float64, for a dual-feasible ``a``."""
    raise TypeError("compiled: call it from a kernel")


def dual_step(loss: Any, s: Any, a: Any, t: Any, q: Any, new: Any) -> Any:
    """``new = argmax_b -phi*(-b) - s.(b - a) - (q/2) ||b - a||^2``: Option I of Prox-SDCA."""
    raise TypeError("compiled: call it from a kernel")


def rival_cost(loss: Any, t: Any, k: Any) -> Any:
    """The number by which the score of class t must exceed that of its rival k for a loss of zero (max-of-hinge)."""
    raise TypeError("compiled: call it from a kernel")


def unit_value(loss: Any, s: Any, y: Any) -> Any:
    """phi of one score, in float64."""
    raise TypeError("compiled: call it from a kernel")


def unit_gradient(loss: Any, s: Any, y: Any) -> Any:
    """phi' of one score."""
    raise TypeError("compiled: call it from a kernel")


def unit_hessian(loss: Any, s: Any, y: Any) -> Any:
    """phi'' of one score (a one-sided derivative where phi' has a kink)."""
    raise TypeError("compiled: call it from a kernel")


def unit_conjugate(loss: Any, a: Any, y: Any) -> Any:
    """phi*(-a) of one dual variable, in float64."""
    raise TypeError("compiled: call it from a kernel")


def unit_step(loss: Any, s: Any, a: Any, y: Any, q: Any) -> Any:
    """The value of one dual variable that maximizes the dual objective, the others being fixed."""
    raise TypeError("compiled: call it from a kernel")


def primal(reg: Any, v: Any) -> Any:
    """``grad g*`` of one entry: the weight at the entry ``v`` of the dual image."""
    raise TypeError("compiled: call it from a kernel")


def prox(reg: Any, z: Any, step: Any) -> Any:
    """``argmin_u step g(u) + (u - z)^2 / 2`` of one entry."""
    raise TypeError("compiled: call it from a kernel")


def value_term(reg: Any, w: Any) -> Any:
    """The term of one weight in g(W), in float64."""
    raise TypeError("compiled: call it from a kernel")


def conjugate_term(reg: Any, v: Any) -> Any:
    """The term of one entry in g*(v), in float64."""
    raise TypeError("compiled: call it from a kernel")

"""Squared Euclidean norm: g(W) = ||W||^2 / 2."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import conjugate_term, primal, prox, value_term
from manyclass.objective.penalties.base import provides

__all__ = ["L2"]


@provides("l2", "conjugate", "gradient", "plain", "prox")
class L2(NamedTuple):
    """g(W) = ||W||^2 / 2; its own conjugate, and grad g(w) = w, grad g*(v) = v."""


@implements(primal)
def _primal(reg: Any, v: Any) -> Any:
    return (lambda reg, v: v) if is_a(reg, L2) else None


@implements(value_term)
def _value_term(reg: Any, w: Any) -> Any:
    return (lambda reg, w: 0.5 * np.float64(w) * np.float64(w)) if is_a(reg, L2) else None


@implements(conjugate_term)
def _conjugate_term(reg: Any, v: Any) -> Any:
    return (lambda reg, v: 0.5 * np.float64(v) * np.float64(v)) if is_a(reg, L2) else None


@implements(prox)
def _prox(reg: Any, z: Any, step: Any) -> Any:
    return (lambda reg, z, step: z / (z - z + np.float32(1) + step)) if is_a(reg, L2) else None

"""Pure l1 norm: g(W) = ||W||_1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import conjugate_term, prox, value_term
from manyclass.objective.penalties.base import provides

__all__ = ["L1"]


@provides("l1", "prox")
class L1(NamedTuple):
    """g(W) = ||W||_1; g*(v) = 0 where max |v| <= 1, else infinity.

    Not strongly convex: a dual image does not determine the weights, and `Problem.certify` scales a dual point down
    until its image is feasible.
    """


@implements(value_term)
def _value_term(reg: Any, w: Any) -> Any:
    return (lambda reg, w: abs(np.float64(w))) if is_a(reg, L1) else None


@implements(conjugate_term)
def _conjugate_term(reg: Any, v: Any) -> Any:
    return (lambda reg, v: 0.0) if is_a(reg, L1) else None


@implements(prox)
def _prox(reg: Any, z: Any, step: Any) -> Any:
    if not is_a(reg, L1):
        return None

    def soft_threshold(reg, z, step):
        zero = z - z
        tau = zero + type(z)(step)
        return max(z - tau, zero) + min(z + tau, zero)

    return soft_threshold

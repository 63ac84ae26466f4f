"""Elastic net: g(W) = ||W||^2 / 2 + threshold ||W||_1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import implements, is_a
from manyclass.kernels.operations import conjugate_term, primal, prox, value_term
from manyclass.objective.penalties.base import provides

__all__ = ["ElasticNet"]


@provides("elastic net", "conjugate", "prox")
class ElasticNet(NamedTuple):
    """g(W) = ||W||^2 / 2 + threshold ||W||_1, with threshold = sigma / lam.

    grad g*(v) = sign(v) max(0, |v| - threshold) and g*(v) = ||grad g*(v)||^2 / 2 (Shalev-Shwartz & Zhang 2014,
    section 4).
    """

    threshold: float


@implements(primal)
def _primal(reg: Any, v: Any) -> Any:
    if not is_a(reg, ElasticNet):
        return None

    def soft_threshold(reg, v):
        zero = v - v
        tau = zero + type(v)(reg.threshold)
        return max(v - tau, zero) + min(v + tau, zero)

    return soft_threshold


@implements(value_term)
def _value_term(reg: Any, w: Any) -> Any:
    if not is_a(reg, ElasticNet):
        return None
    return lambda reg, w: 0.5 * np.float64(w) * np.float64(w) + reg.threshold * abs(np.float64(w))


@implements(conjugate_term)
def _conjugate_term(reg: Any, v: Any) -> Any:
    if not is_a(reg, ElasticNet):
        return None

    def half_square(reg, v):
        w = np.float64(primal(reg, v))
        return 0.5 * w * w

    return half_square


@implements(prox)
def _prox(reg: Any, z: Any, step: Any) -> Any:
    if not is_a(reg, ElasticNet):
        return None

    def shrink(reg, z, step):
        zero = z - z
        tau = zero + type(z)(step * reg.threshold)
        return (max(z - tau, zero) + min(z + tau, zero)) / (zero + np.float32(1) + step)

    return shrink

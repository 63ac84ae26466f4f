"""Penalties, one file each: a NamedTuple, and its operations as overloads for its type."""

from typing import Any

from manyclass.objective.penalties.elastic_net import ElasticNet
from manyclass.objective.penalties.l1 import L1
from manyclass.objective.penalties.l2 import L2

__all__ = ["L1", "L2", "ElasticNet", "make_penalty"]


def make_penalty(alpha: float, l1_ratio: float, scale: float = 1.0) -> tuple[Any, float]:
    """The penalty g and its factor lam: ``lam g(W) = alpha (scale (1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)``.

    Examples
    --------
    >>> make_penalty(0.5, 0.2)
    (ElasticNet(threshold=0.25), 0.4)
    """
    l2, l1 = alpha * (1.0 - l1_ratio) * scale, alpha * l1_ratio
    if l1_ratio == 1:
        return L1(), l1
    return ElasticNet(l1 / l2) if l1_ratio else L2(), l2

"""Penalties: a NamedTuple each, with compiled behaviour attached to its type."""

from manyclass.objective.penalties.elastic_net import ElasticNet
from manyclass.objective.penalties.l1 import L1
from manyclass.objective.penalties.l2 import L2

__all__ = ["L1", "L2", "ElasticNet"]

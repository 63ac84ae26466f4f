"""Penalties, one file each: a NamedTuple, and its operations as overloads for its type."""

from manyclass.objective.penalties.elastic_net import ElasticNet
from manyclass.objective.penalties.l1 import L1
from manyclass.objective.penalties.l2 import L2

__all__ = ["L1", "L2", "ElasticNet"]

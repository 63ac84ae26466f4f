"""Regularisers: a NamedTuple each, with compiled behaviour attached to its type."""

from manyclass.regularizers.elastic_net import ElasticNet
from manyclass.regularizers.l1 import L1
from manyclass.regularizers.l2 import L2

__all__ = ["L1", "L2", "ElasticNet"]

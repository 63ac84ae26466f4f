"""Regularisers: a NamedTuple each, with compiled behaviour attached to its type."""

from manyclass.regularizers.elastic_net import ElasticNet
from manyclass.regularizers.l2 import L2

__all__ = ["L2", "ElasticNet"]

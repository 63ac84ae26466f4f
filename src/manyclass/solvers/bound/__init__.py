"""Bound majorization: quadratic upper bounds on the partition functions of log-linear models."""

from manyclass.solvers.bound.low_rank import LowRankDiagonal
from manyclass.solvers.bound.partition import PartitionBound, partition_bound

__all__ = ["LowRankDiagonal", "PartitionBound", "partition_bound"]

"""Curvatures of log-linear models: the quadratic bound of the partition function, full and of low rank."""

from manyclass.solvers.bound.low_rank import LowRankDiagonal
from manyclass.solvers.bound.partition import PartitionBound, partition_bound

__all__ = ["LowRankDiagonal", "PartitionBound", "partition_bound"]

"""DS-MLR: softmax regression with rows and classes partitioned over workers; and baselines for comparison."""

from manyclass.solvers.ds_mlr.data_parallel import DataParallelLBFGS
from manyclass.solvers.ds_mlr.grid import Grid, make_grid
from manyclass.solvers.ds_mlr.log_concavity import LogConcavity
from manyclass.solvers.ds_mlr.solver import ALGORITHMS, DSMLR, PRECONDITIONERS, SCHEDULES

__all__ = [
    "ALGORITHMS",
    "DSMLR",
    "PRECONDITIONERS",
    "SCHEDULES",
    "DataParallelLBFGS",
    "Grid",
    "LogConcavity",
    "make_grid",
]

"""DS-MLR: softmax regression with rows and classes partitioned over workers; and what it is compared with."""

from manyclass.solvers.ds_mlr.data_parallel import DataParallelLBFGS
from manyclass.solvers.ds_mlr.grid import Grid, make_grid
from manyclass.solvers.ds_mlr.log_concavity import LogConcavity
from manyclass.solvers.ds_mlr.solver import ALGORITHMS, DSMLR, SCHEDULES

__all__ = ["ALGORITHMS", "DSMLR", "DataParallelLBFGS", "Grid", "LogConcavity", "SCHEDULES", "make_grid"]

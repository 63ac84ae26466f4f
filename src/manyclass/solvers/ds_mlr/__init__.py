"""DS-MLR: softmax regression with rows and classes partitioned over workers."""

from manyclass.solvers.ds_mlr.grid import Grid, make_grid
from manyclass.solvers.ds_mlr.solver import ALGORITHMS, DSMLR, SCHEDULES

__all__ = ["ALGORITHMS", "DSMLR", "Grid", "SCHEDULES", "make_grid"]

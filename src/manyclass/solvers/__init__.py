"""Solvers: they minimize a `Problem` in the fitting loop, or, `OutOfCore`, fit rows in a store."""

from manyclass.solvers.base import BaseSolver, Progress, Solver, State, StoreSolver
from manyclass.solvers.bound.majorization import BoundMajorization
from manyclass.solvers.ds_mlr import DSMLR, LogConcavity
from manyclass.solvers.dual.accelerated import AcceleratedSDCA
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.data_parallel import DataParallelSDCA
from manyclass.solvers.dual.interior import InteriorPoint
from manyclass.solvers.dual.sdca import SDCA, AsyncSDCA
from manyclass.solvers.dual.slight_l2 import SlightL2
from manyclass.solvers.least_squares.on_arrays import ArrayGeneralizedLeastSquares
from manyclass.solvers.least_squares.solver import GeneralizedLeastSquares
from manyclass.solvers.memoir.solver import Memoir
from manyclass.solvers.out_of_core.solver import OutOfCore
from manyclass.solvers.primal.baselines import ConjugateGradient, GradientDescent
from manyclass.solvers.primal.coordinate import CoordinateDescent, largest_penalty
from manyclass.solvers.primal.fista import FISTA
from manyclass.solvers.primal.lbfgs import LBFGS
from manyclass.solvers.primal.newton import Newton
from manyclass.solvers.primal.on_arrays import ArrayLBFGS, ArrayPreconditionedLBFGS
from manyclass.solvers.primal.preconditioned import PreconditionedLBFGS
from manyclass.solvers.primal.sgd import SGD

__all__ = [
    "DSMLR",
    "FISTA",
    "LBFGS",
    "SDCA",
    "SGD",
    "SOLVERS",
    "AcceleratedSDCA",
    "ActiveSetSDCA",
    "AsyncSDCA",
    "BaseSolver",
    "BoundMajorization",
    "ConjugateGradient",
    "CoordinateDescent",
    "DataParallelSDCA",
    "GeneralizedLeastSquares",
    "GradientDescent",
    "InteriorPoint",
    "LogConcavity",
    "Memoir",
    "Newton",
    "OutOfCore",
    "PreconditionedLBFGS",
    "Progress",
    "SlightL2",
    "Solver",
    "State",
    "StoreSolver",
    "largest_penalty",
]

LBFGS.on_arrays, PreconditionedLBFGS.on_arrays = ArrayLBFGS, ArrayPreconditionedLBFGS
GeneralizedLeastSquares.on_arrays = ArrayGeneralizedLeastSquares

#: The solvers by name: estimators, the command line, documentation tables, tests and benchmarks read this list.
SOLVERS: dict[str, type[BaseSolver]] = {
    solver.name: solver
    for solver in (
        SDCA,
        AcceleratedSDCA,
        ActiveSetSDCA,
        AsyncSDCA,
        InteriorPoint,
        CoordinateDescent,
        FISTA,
        LBFGS,
        PreconditionedLBFGS,
        Newton,
        ConjugateGradient,
        GradientDescent,
        SGD,
        GeneralizedLeastSquares,
        BoundMajorization,
        DSMLR,
        LogConcavity,
        DataParallelSDCA,
        Memoir,
        OutOfCore,
    )
}

"""Solvers: generators that improve a state; the driver does the rest."""

from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.bound.majorization import BatchBound, BoundMajorization
from manyclass.solvers.ds_mlr import DSMLR
from manyclass.solvers.dual.accelerated import Accelerated
from manyclass.solvers.dual.active import ActiveSDCA, AsyncActiveSDCA
from manyclass.solvers.dual.sdca import SDCA, AsyncSDCA
from manyclass.solvers.dual.slight_l2 import SlightL2
from manyclass.solvers.least_squares.majorise import Majorise
from manyclass.solvers.primal.conjugate import ConjugateGradient
from manyclass.solvers.primal.coordinate import CoordinateDescent, largest_penalty
from manyclass.solvers.primal.fista import FISTA
from manyclass.solvers.primal.lbfgs import LBFGS
from manyclass.solvers.primal.newton import Newton
from manyclass.solvers.primal.preconditioned import PreconditionedLBFGS
from manyclass.solvers.primal.sgd import SGD, AveragedSGD
from manyclass.solvers.primal.steepest import SteepestDescent

__all__ = [
    "Accelerated",
    "ActiveSDCA",
    "AsyncActiveSDCA",
    "AsyncSDCA",
    "AveragedSGD",
    "BatchBound",
    "BoundMajorization",
    "ConjugateGradient",
    "CoordinateDescent",
    "DSMLR",
    "FISTA",
    "LBFGS",
    "Newton",
    "Majorise",
    "PreconditionedLBFGS",
    "Progress",
    "SDCA",
    "SGD",
    "SlightL2",
    "Solver",
    "State",
    "SteepestDescent",
    "largest_penalty",
]

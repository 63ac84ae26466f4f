"""Solvers: generators that improve a state; the driver does the rest."""

from manyclass.solvers.accelerated import Accelerated
from manyclass.solvers.active import ActiveSDCA, AsyncActiveSDCA
from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.bound import BatchBound, BoundMajorization
from manyclass.solvers.conjugate import ConjugateGradient
from manyclass.solvers.coordinate import CoordinateDescent, largest_penalty
from manyclass.solvers.ds_mlr import DSMLR
from manyclass.solvers.fista import FISTA
from manyclass.solvers.lbfgs import LBFGS
from manyclass.solvers.majorise import Majorise
from manyclass.solvers.newton import Newton
from manyclass.solvers.preconditioned import PreconditionedLBFGS
from manyclass.solvers.sdca import SDCA, AsyncSDCA
from manyclass.solvers.sgd import SGD, AveragedSGD
from manyclass.solvers.slight_l2 import SlightL2
from manyclass.solvers.steepest import SteepestDescent

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

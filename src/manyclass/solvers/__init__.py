"""Solvers: generators that improve a state; the driver does the rest."""

from manyclass.solvers.active import ActiveSDCA
from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.sdca import SDCA, AsyncSDCA

__all__ = ["SDCA", "ActiveSDCA", "AsyncSDCA", "Progress", "Solver", "State"]

"""Solvers: generators that improve a state; the driver does the rest."""

from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.sdca import SDCA, AsyncSDCA

__all__ = ["SDCA", "AsyncSDCA", "Progress", "Solver", "State"]

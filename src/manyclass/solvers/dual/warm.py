"""Warm starts from the state of a run on a similar problem."""

from __future__ import annotations

import numpy as np

from manyclass.objective.problem import Problem
from manyclass.solvers.base import Solver, State, Warm
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.sdca import SDCA

__all__ = ["lineage", "warm_state"]

#: The arrays that Prox-SDCA reuses: dual variables, intercept, and the buffer of the dual image.
_CARRIED = ("dual", "bias", "V")


def lineage(solver: Solver) -> str:
    """A key that is equal for solvers which can start from each other's states."""
    plain = getattr(solver, "solver", solver)  # of `SlightL2`
    return "dual" if isinstance(plain, SDCA) and not isinstance(plain, ActiveSetSDCA) else solver.name


def warm_state(problem: Problem, solver: Solver, state: State) -> State:
    """The state in which ``solver`` starts from the ``state`` of another run; ``state`` may be changed in place.

    That run must have had the same targets, loss and shapes, but may have had other data, sample weights, lam or
    penalty. Its solver must be of the same `lineage`.
    """
    # Each fit counts its own iterations; samples that shrinking left out may be needed in this one.
    for name in ("iteration", "passes", "idle"):
        if name in state:
            state[name] = np.zeros_like(state[name])
    if isinstance(solver, Warm):
        warmed: State = solver.warm(problem, state)
        return warmed
    if isinstance(solver, SDCA) and not isinstance(solver, ActiveSetSDCA):
        state = {**solver.state(problem), **{name: state[name] for name in _CARRIED}}
    solver.certificate(problem, state, final=True)
    return state

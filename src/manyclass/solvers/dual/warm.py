"""Warm starts: how a run goes on from what another, on a problem like it, has left."""

from __future__ import annotations

import numpy as np

from manyclass.objective.problem import Problem
from manyclass.solvers.base import Solver, State, Warm
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.sdca import SDCA

__all__ = ["lineage", "warm_state"]

#: What plain Prox-SDCA takes over: a dual point, the intercept, and room for the image that its certificate makes.
_CARRIED = ("dual", "bias", "V")


def lineage(solver: Solver) -> str:
    """What solvers that go on from each other's states have in common: a dual vector for every example, or a name."""
    plain = getattr(solver, "solver", solver)  # of `SlightL2`
    return "dual" if isinstance(plain, SDCA) and not isinstance(plain, ActiveSetSDCA) else solver.name


def warm_state(problem: Problem, solver: Solver, state: State) -> State:
    """Where ``solver`` begins if a run has left ``state``, which may be changed in place.

    That run may have been on other data, weights, lam or penalty, but on the same targets, loss and shapes; by the same
    solver, or, where both carry one dual vector an example (Prox-SDCA, its acceleration, and these with a slight l2
    part), by any of them.
    """
    # A fit is counted by itself, and who was at rest in the last one need not be in this.
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

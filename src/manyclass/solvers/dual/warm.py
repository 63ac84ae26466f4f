"""Warm starts from the state of a run on a similar problem."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from manyclass.kernels.active import sparse_conjugates
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.solvers.base import Solver, State, Warm
from manyclass.solvers.dual._image import image_of
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.sdca import SDCA

__all__ = ["lineage", "warm_state"]

#: The arrays that Prox-SDCA reuses: dual variables, intercept, and the buffer of the dual image.
_CARRIED = ("dual", "bias", "V")


def lineage(solver: Solver) -> str:
    """A key that is equal for solvers which can start from each other's states."""
    plain = getattr(solver, "solver", solver)  # of `SlightL2`
    return "dual" if isinstance(plain, SDCA) and not isinstance(plain, ActiveSetSDCA) else solver.name


def warm_state(problem: Problem, solver: Solver, state: State, *, rough: bool = False) -> State:
    """The state in which ``solver`` starts from the ``state`` of another run; ``state`` may be changed in place.

    That run must have had the same targets, loss and shapes, but may have had other data, sample weights, lam or
    penalty. Its solver must be of the same `lineage`. ``rough`` says that the fit will end long before its optimum:
    `ActiveSetSDCA` then starts with weights of the right size (`_rescale`) and without a search for rivals.

    Raises
    ------
    MemoryError
        If the run would need more memory than is available besides the ``state``; raised before it is allocated.
    """
    if not solver.distributed:
        held = sum(int(getattr(part, "nbytes", 0)) for part in state.values())
        solver.require_memory(problem, {"less what it starts from": -held})
    # Each fit counts its own iterations; samples that shrinking left out may be needed in this one.
    for name in ("iteration", "passes", "idle"):
        if name in state:
            state[name] = np.zeros_like(state[name])
    if isinstance(solver, Warm):
        warmed: State = solver.warm(problem, state)
        return warmed
    if isinstance(solver, ActiveSetSDCA):
        if rough and isinstance(problem.penalty, L2):
            _rescale(problem, state)
            state["gap"] = np.ones(())
            return state
    elif isinstance(solver, SDCA):
        state = {**solver.state(problem), **{name: state[name] for name in _CARRIED}}
    solver.certificate(problem, state, final=True)
    return state


def _rescale(problem: Problem, state: State) -> None:
    """Multiply the sparse dual variables by the factor of [0, 1] with the largest dual objective.

    The weights of the dual variables a are X^T a / (lam n). With those of a ten times larger lam the weights are ten
    times too large, and a fit first makes many errors that it did not make before: on icd10cm/4 with 10 249 classes,
    alpha 1/n to 1/(10 n) to 1/(100 n), accuracy on held-out rows fell from 0.987 to 0.902 at the second step, and
    was back after 30 epochs. To the optimum, however, the way is shorter without the factor: which rows have large
    dual variables is kept.
    """
    image = image_of(state)
    image.rebuild(problem, state)
    # Losses and penalty at factor * b: a linear and a quadratic term.
    y: Any = problem.targets.y  # type: ignore[union-attr]
    part = partial(
        sparse_conjugates, y, problem.sample_weight, indptr=state["indptr"], rivals=state["rivals"], b=state["b"]
    )
    hard = problem.loss._replace(gamma=problem.dtype.type(0))
    linear, bent = -part(loss=hard) / problem.n_samples, part(loss=problem.loss) / problem.n_samples
    quadratic = linear + bent + problem.lam * image.sums(problem, state)[1]
    if 0 < linear < 2.0 * quadratic:
        factor = min(1.0, 0.5 * linear / quadratic)
        state["b"] *= problem.dtype.type(factor)
        image.scale(state, factor)

"""The solvers by name, which of them a problem gets when the user leaves the choice, and how one goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manyclass.losses import CrammerSinger, SmoothHinge
from manyclass.memory import available
from manyclass.problem import Problem
from manyclass.regularizers import L1, L2
from manyclass.solvers import (
    FISTA,
    LBFGS,
    SDCA,
    SGD,
    Accelerated,
    ActiveSDCA,
    AsyncActiveSDCA,
    AsyncSDCA,
    AveragedSGD,
    CoordinateDescent,
    SlightL2,
    Solver,
)
from manyclass.solvers.accelerated import is_ill_conditioned
from manyclass.solvers.base import State, Warm

__all__ = ["DUAL", "SOLVERS", "lineage", "make_solver", "warm_state"]

DUAL: dict[str, Callable[..., SDCA]] = {"sdca": SDCA, "accelerated": Accelerated, "sdca_async": AsyncSDCA}
_OTHERS: dict[str, Callable[[], Any]] = {
    "sdca_active": ActiveSDCA,
    "cd": CoordinateDescent,
    "fista": FISTA,
    "lbfgs": LBFGS,
    "sgd": SGD,
    "asgd": AveragedSGD,
}
SOLVERS = (*DUAL, *_OTHERS)

#: What a state of plain Prox-SDCA holds.
_PLAIN = ("iteration", "alpha", "V", "bias", "pull")

#: Classes from which the active-set solver serves crammer_singer: below, whole rows of scores vectorise better.
_MANY = 100
#: Outputs up to which coordinate descent, which takes them one by one, serves a sparse penalty.
_FEW = 10


def make_solver(name: str, problem: Problem, *, option: str = "I", sampling: str = "permutation") -> Solver:
    """The solver called ``name`` for this problem, or for "auto" the one that is fastest by measurement.

    Raises
    ------
    ValueError
        If ``option`` is one under which a loss with a kink would never move.
    """
    solver: Solver
    plain = (option, sampling) == ("I", "permutation")
    if name == "auto":
        name = _choice(problem)
        if not (plain or name in DUAL):  # who names a dual step asks for a solver that takes some
            name = _dual_choice(problem)
    if name == "sdca_active" and isinstance(problem.loss, SmoothHinge) and problem.n_outputs == 1:
        name = "sdca"  # Crammer and Singer's loss of two classes: one margin, no rivals to choose from
    if option in ("IV", "V") and name != "accelerated" and not problem.loss.smoothness:
        raise ValueError(
            f"option {option!r} takes steps in proportion to the smoothness of the loss, and "
            f"{type(problem.loss).__name__} has none: take option 'I', gamma > 0, or solver 'accelerated', which "
            "smooths it"
        )
    if name == "sdca_async" and plain and _has_many_rivals(problem):
        return AsyncActiveSDCA()
    if name in DUAL:
        dual = DUAL[name](option=option, sampling=sampling)
        solver = SlightL2(dual) if isinstance(problem.regularizer, L1) else dual
    else:
        solver = _OTHERS[name]()
    return solver


def _choice(problem: Problem) -> str:
    loss = problem.loss
    if _has_many_rivals(problem):
        return "sdca_active"
    if not isinstance(problem.regularizer, L2) and not loss.joint and loss.smoothness and problem.n_outputs <= _FEW:
        return "cd"
    return _dual_choice(problem)


def _dual_choice(problem: Problem) -> str:
    if isinstance(problem.regularizer, L1):
        return "accelerated"  # of a slight l2 part plain SDCA makes little, whatever the loss
    if is_ill_conditioned(problem):
        there = available()
        if there is None or 2 * sum(Accelerated().nbytes(problem).values()) < there:
            return "accelerated"
    return "sdca"


def _has_many_rivals(problem: Problem) -> bool:
    """Whether active sets of rivals pay, and can: they need an l2 part."""
    many = isinstance(problem.loss, CrammerSinger) and problem.n_outputs >= _MANY
    return many and not isinstance(problem.regularizer, L1)


def lineage(solver: Solver) -> str:
    """What the solvers that go on from each other's states have in common: a dual point for every example, or a name."""
    shared = isinstance(solver, SDCA | SlightL2) and not isinstance(solver, ActiveSDCA)
    return "dual" if shared else solver.name


def warm_state(problem: Problem, solver: Solver, state: State) -> State:
    """Where ``solver`` begins if a solver of its lineage has left ``state``, which may be changed in place.

    That run may have been on other data, weights, lam or penalty, but on the same targets, loss and shapes.
    """
    state["iteration"] = np.zeros((), np.int64)  # the iterations of a fit are counted by themselves
    if isinstance(solver, Warm):
        return solver.warm(problem, state)
    if lineage(solver) == "dual":
        state = {name: state[name] for name in _PLAIN}
    solver.certificate(problem, state, final=True)
    return state


def in_ranges(problem: Problem, solver: Solver) -> bool:
    """Whether the outputs are fitted a range at a time (`manyclass.columns`): for a separable loss, by a dual method
    whose result does not depend on the timing of threads."""
    return not problem.loss.joint and isinstance(solver, SDCA | SlightL2) and not isinstance(solver, AsyncSDCA)

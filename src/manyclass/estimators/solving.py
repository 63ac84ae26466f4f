"""The solvers by name, and which of them a problem gets when the user leaves the choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manyclass.losses import CrammerSinger
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
    AsyncSDCA,
    AveragedSGD,
    CoordinateDescent,
    SlightL2,
    Solver,
)
from manyclass.solvers.accelerated import is_ill_conditioned

__all__ = ["DUAL", "SOLVERS", "make_solver"]

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

#: Classes from which the active-set solver serves crammer_singer: below, whole rows of scores vectorise better.
_MANY = 100
#: Outputs up to which coordinate descent, which takes them one by one, serves a sparse penalty.
_FEW = 10


def make_solver(name: str, problem: Problem, *, option: str = "I", sampling: str = "permutation") -> Solver:
    """The solver called ``name`` for this problem, or for "auto" the one that is fastest by measurement."""
    solver: Solver
    if name == "auto":
        name = _choice(problem)
    if name == "sdca_active" and not problem.loss.joint:
        name = "sdca"  # two classes: one margin, no rivals to choose from
    if name in DUAL:
        dual = DUAL[name](option=option, sampling=sampling)
        solver = SlightL2(dual) if isinstance(problem.regularizer, L1) else dual
    else:
        solver = _OTHERS[name]()
    return solver


def _choice(problem: Problem) -> str:
    loss = problem.loss
    if isinstance(loss, CrammerSinger) and problem.n_outputs >= _MANY and not isinstance(problem.regularizer, L1):
        return "sdca_active"
    if not isinstance(problem.regularizer, L2) and not loss.joint and loss.smoothness and problem.n_outputs <= _FEW:
        return "cd"
    if isinstance(problem.regularizer, L1):
        return "accelerated" if loss.smoothness else "sdca"
    if is_ill_conditioned(problem):
        there = available()
        if there is None or 2 * sum(Accelerated().nbytes(problem).values()) < there:
            return "accelerated"
    return "sdca"

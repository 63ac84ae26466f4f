"""The solvers by name, which of them a problem gets when the user leaves the choice, and their kin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from manyclass.kernels.targets import SignTargets
from manyclass.mips import SearchIndex, SimpleLSH, SmallWorldGraph
from manyclass.objective.losses import CrammerSinger, SmoothHinge
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Problem
from manyclass.optimize.columns import WIDTH
from manyclass.runtime.memory import available
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
    BatchBound,
    BoundMajorization,
    ConjugateGradient,
    CoordinateDescent,
    Majorise,
    Newton,
    PreconditionedLBFGS,
    SlightL2,
    Solver,
    SteepestDescent,
)
from manyclass.solvers.dual.accelerated import is_ill_conditioned

__all__ = ["DUAL", "SEARCHES", "SOLVERS", "choose", "lineage", "make_solver"]

DUAL: dict[str, Callable[..., SDCA]] = {"sdca": SDCA, "accelerated": Accelerated, "sdca_async": AsyncSDCA}
_OTHERS: dict[str, Callable[[], Any]] = {
    "cd": CoordinateDescent,
    "fista": FISTA,
    "lbfgs": LBFGS,
    "preconditioned_lbfgs": PreconditionedLBFGS,
    "newton": Newton,
    "cg": ConjugateGradient,
    "gd": SteepestDescent,
    "majorise": Majorise,
    "sgd": SGD,
    "asgd": AveragedSGD,
    "bound": BoundMajorization,
    "bbm": BatchBound,
}
SOLVERS = (*DUAL, "sdca_active", *_OTHERS)

#: Who proposes rivals to the active-set solver: exact passes, or an index.
SEARCHES: dict[str, Callable[[], SearchIndex] | None] = {"exact": None, "lsh": SimpleLSH, "graph": SmallWorldGraph}

#: Classes from which the active-set solver serves crammer_singer: below, whole rows of scores vectorise better.
_MANY = 100
#: Outputs up to which coordinate descent, which takes them one by one, serves a sparse penalty.
_FEW = 10


def make_solver(
    name: str,
    problem: Problem,
    *,
    option: str = "I",
    sampling: str = "permutation",
    search: str | SearchIndex = "exact",
) -> Solver:
    """The solver called ``name`` for this problem, or for "auto" the one that is fastest by measurement.

    Raises
    ------
    ValueError
        If ``option`` is one under which a loss with a kink would never move, or ``search`` names an index and the
        solver has no use for one.
    """
    solver: Solver
    plain = (option, sampling) == ("I", "permutation")
    name = choose(name, problem, plain=plain)
    if name == "sdca_active" and isinstance(problem.loss, SmoothHinge) and problem.n_outputs == 1:
        name = "sdca"  # Crammer and Singer's loss of two classes: one margin, no rivals to choose from
    if option in ("IV", "V") and name != "accelerated" and not problem.loss.smoothness:
        raise ValueError(
            f"option {option!r} takes steps in proportion to the smoothness of the loss, and "
            f"{type(problem.loss).__name__} has none: take option 'I', gamma > 0, or solver 'accelerated', which "
            "smooths it"
        )
    active = name == "sdca_active" or (name == "sdca_async" and plain and _has_many_rivals(problem))
    if active:
        kind = ActiveSDCA if name == "sdca_active" else AsyncActiveSDCA
        return kind(search=_index(search))
    if search != "exact":
        raise ValueError(
            f"search proposes rivals to solver 'sdca_active' (loss 'crammer_singer'), and this fit takes {name!r}: "
            "leave search='exact', or choose that loss and solver"
        )
    if name in DUAL:
        dual = DUAL[name](option=option, sampling=sampling)
        solver = SlightL2(dual) if isinstance(problem.regularizer, L1) else dual
    else:
        solver = _OTHERS[name]()
    return solver


def _index(search: str | SearchIndex) -> SearchIndex | None:
    """The index of a name, or a copy of one given: a fit builds it anew, and it may be a parameter of others."""
    if isinstance(search, SearchIndex):
        return copy.deepcopy(search)
    make = SEARCHES[search]
    return None if make is None else make()


def choose(name: str, problem: Problem, *, plain: bool = True) -> str:
    """The name itself, or what "auto" stands for; ``plain`` says that no dual step or sampling has been asked for."""
    if name != "auto":
        return name
    found = _choice(problem)
    # Who names a dual step asks for a solver that takes some.
    return found if plain or found in DUAL else _dual_choice(problem)


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
    if isinstance(problem.targets, SignTargets) and problem.n_outputs >= 2 * WIDTH:
        return "sdca"  # in ranges, from the duals of no positives: further on than acceleration gets
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
    """What solvers that go on from each other's states have in common: a dual vector for every example, or a name."""
    shared = isinstance(solver, SDCA | SlightL2) and not isinstance(solver, ActiveSDCA)
    return "dual" if shared else solver.name


def in_ranges(problem: Problem, solver: Solver) -> bool:
    """Whether the outputs are fitted a range at a time (`manyclass.optimize.columns`): for a separable loss, by a dual
    method whose result does not depend on the timing of threads."""
    return not problem.loss.joint and isinstance(solver, SDCA | SlightL2) and not isinstance(solver, AsyncSDCA)

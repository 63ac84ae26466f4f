"""The solver that ``solver="auto"`` stands for: a rule of the problem alone, by measurement."""

from __future__ import annotations

from manyclass.kernels.targets import SignTargets
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Problem
from manyclass.optimize.columns import WIDTH
from manyclass.solvers import (
    SDCA,
    AcceleratedSDCA,
    ActiveSetSDCA,
    AsyncSDCA,
    CoordinateDescent,
    SlightL2,
    Solver,
)
from manyclass.solvers.dual.accelerated import is_ill_conditioned
from manyclass.solvers.dual.active import has_many_rivals

__all__ = ["choose", "in_ranges"]

#: Outputs up to which coordinate descent, which takes them one by one, serves a sparse penalty.
_FEW = 10


def choose(problem: Problem) -> Solver:
    """The solver for a problem where the user leaves the choice.

    It depends on the problem alone: not on the memory or the threads of the moment, so that the same seed gives the
    same model everywhere.
    """
    loss = problem.loss
    if has_many_rivals(problem):
        return ActiveSetSDCA()
    if not isinstance(problem.penalty, L2) and not loss.joint and loss.smoothness and problem.n_outputs <= _FEW:
        return CoordinateDescent()
    if isinstance(problem.penalty, L1):
        return AcceleratedSDCA()  # plain SDCA converges slowly when the l2 part is small, whatever the loss
    if isinstance(problem.targets, SignTargets) and problem.n_outputs >= 2 * WIDTH:
        return SDCA()  # in ranges, from the duals of no positives: further on than acceleration gets
    return AcceleratedSDCA() if is_ill_conditioned(problem) else SDCA()


def in_ranges(problem: Problem, solver: Solver) -> bool:
    """Whether the outputs are fitted a range at a time (`manyclass.optimize.columns`): for many outputs of a separable
    loss, by a dual method whose result does not depend on the timing of threads. ``solver`` is a prepared one."""
    if problem.loss.joint or problem.n_outputs < 2 * WIDTH:
        return False
    return isinstance(solver, SDCA | SlightL2) and not isinstance(solver, AsyncSDCA) and solver.reproducible

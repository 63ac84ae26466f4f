"""``solver="auto"``: a rule, based on measurements, that depends on the problem only."""

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

#: Maximum number of outputs for which coordinate descent, which fits them one by one, is used with an l1 part.
_FEW = 10


def choose(problem: Problem) -> Solver:
    """The solver for a problem with ``solver="auto"``.

    It depends on the problem only, not on the available memory or threads, so that a seed gives the same model
    everywhere.
    """
    loss = problem.loss
    if has_many_rivals(problem):
        return ActiveSetSDCA()
    if not isinstance(problem.penalty, L2) and not loss.joint and loss.smoothness and problem.n_outputs <= _FEW:
        return CoordinateDescent()
    if isinstance(problem.penalty, L1):
        return AcceleratedSDCA()  # SDCA converges slowly when the l2 part is small, for every loss
    if isinstance(problem.targets, SignTargets) and problem.n_outputs >= 2 * WIDTH:
        return SDCA()  # in ranges, warm-started from the problem without positive labels: faster than acceleration
    return AcceleratedSDCA() if is_ill_conditioned(problem) else SDCA()


def in_ranges(problem: Problem, solver: Solver) -> bool:
    """Whether the outputs are fitted one range after the other (`manyclass.optimize.columns`).

    This is so for many outputs of a separable loss and a deterministic dual solver. ``solver`` must be prepared.
    """
    if problem.loss.joint or problem.n_outputs < 2 * WIDTH:
        return False
    return isinstance(solver, SDCA | SlightL2) and not isinstance(solver, AsyncSDCA) and solver.reproducible

"""What the solvers that follow directions share: the objective with its gradient at a point, and the line search."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import State
from manyclass.solvers.primal.base import BatchSolver, curvature

__all__ = ["DescentSolver", "Found", "line_search", "rounding"]

#: Sufficient decrease and curvature of the weak Wolfe conditions.
_DECREASE, _CURVATURE = 1e-4, 0.9
#: Trial steps of a line search before it gives up: what they would still tell apart is rounding.
_TRIALS = 40
#: The first step of all is this over the trace of the Hessian's bound; the line search finds the rest of it.
_OPTIMISM = 16.0


class Found(NamedTuple):
    """The step a line search has found (0: none), the objective there, and how many it has tried."""

    step: float
    value: float
    tried: int


def line_search(
    evaluate: Callable[[float], tuple[float, float]],
    value: float,
    fall: float,
    noise: float,
    *,
    first: float = 1.0,
    within: float | None = None,
) -> Found:
    """A step along a descent direction of a convex objective; the last one tried is the one found.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(step)``: the objective and its slope along the direction there.
    value, fall : float
        Both where the search starts; ``fall`` < 0.
    noise : float
        Rounding of the objective: where differences drown in it, the slope decides (Hager and Zhang's approximate
        decrease).
    first : float
        The first step to try.
    within : float, optional
        Accept a step whose slope is at most this part of ``fall`` in size, and look for it by secants within a bracket.
        By default one that meets the weak Wolfe conditions, by doubling and bisection (Lewis & Overton 2013).

    References
    ----------
    Lewis and Overton, "Nonsmooth optimization via quasi-Newton methods", Math. Programming 2013, algorithm 2.6. Hager
    and Zhang, "A new conjugate gradient method with guaranteed descent and an efficient line search", SIAM J.
    Optimization 2005, equation 4.1.

    Examples
    --------
    >>> from manyclass.solvers.primal.descent import line_search
    >>> line_search(lambda step: ((step - 3) ** 2, 2 * (step - 3)), 9.0, -6.0, 0.0, within=0.1)
    Found(step=3.0, value=0.0, tried=2)
    """
    flat = _CURVATURE if within is None else within
    low, high, step = 0.0, math.inf, first
    slope_low, slope_high = fall, 0.0
    for tried in range(1, _TRIALS + 1):
        new, slope = evaluate(step)
        down = new <= value + _DECREASE * step * fall
        down = down or (new <= value + noise and slope <= (2.0 * _DECREASE - 1.0) * fall)
        # An end that stays while the other one moves counts half (the Illinois rule): slopes that saturate would hold
        # secants at the far end.
        if not down or (within is not None and slope > -flat * fall):
            slope_low *= 0.5 if math.isfinite(high) else 1.0
            high, slope_high = step, slope
        elif slope < flat * fall:
            slope_high *= 0.5 if low > 0 else 1.0
            low, slope_low = step, slope
        else:
            return Found(step, new, tried)
        if within is None:
            step = 2.0 * low if math.isinf(high) else 0.5 * (low + high)
        else:
            step = _secant(low, slope_low, high, slope_high, fall)
    return Found(0.0, value, _TRIALS)


def _secant(low: float, slope_low: float, high: float, slope_high: float, fall: float) -> float:
    """Where the slope would be zero were it linear, kept away from the ends of the bracket."""
    if math.isinf(high):
        bend = slope_low - fall
        guess = low * fall / -bend if bend > 0 else math.inf
        return min(max(guess, 1.1 * low), 10.0 * low)
    if not slope_high > 0:  # not even a decrease there, for all that its slope says, or not a number
        return 0.5 * (low + high)
    width = high - low
    guess = low - width * slope_low / (slope_high - slope_low)
    return min(max(guess, low + 0.1 * width), high - 0.1 * width)


def rounding(problem: Problem, value: float) -> float:
    """What differences of objectives near ``value`` may be wrong by."""
    return 8.0 * float(np.finfo(problem.dtype).eps) * abs(value)


class DescentSolver(BatchSolver):
    """A batch solver for a smooth loss and a smooth penalty, whose steps follow directions."""

    needs_penalty = frozenset({"gradient"})

    def _descend(self, problem: Problem, point: Array, state: State, gradient: Array) -> float:
        """P at ``point``, and its gradient."""
        W, bias = self._split(problem, point)
        losses = problem.respond(W, bias, state["dual"])
        self._slope(problem, state)
        self._add_penalty(problem, point, state, gradient)
        return problem.objective(losses, problem.penalty_value(W))

    @staticmethod
    def _add_penalty(problem: Problem, point: Array, state: State, gradient: Array) -> None:
        """``gradient`` becomes that of P where ``slope`` is that of the mean loss."""
        np.multiply(point, problem.lam, out=gradient)
        gradient[-1] = 0  # the intercept bears no penalty
        gradient += state["slope"]

    def _search(
        self,
        problem: Problem,
        state: State,
        direction: Array,
        value: float,
        fall: float,
        trial: Array,
        gradient: Array,
        *,
        first: float = 1.0,
        within: float | None = None,
    ) -> Found:
        """`line_search` along ``direction``, a pass for each step tried; fills ``trial`` and its ``gradient``."""

        def evaluate(step: float) -> tuple[float, float]:
            np.multiply(direction, step, out=trial)
            np.add(trial, state["point"], out=trial)
            new = self._descend(problem, trial, state, gradient)
            return new, problem.inner_product(gradient, direction)

        return line_search(evaluate, value, fall, rounding(problem, value), first=first, within=within)

    def _cautious(self, problem: Problem) -> float:
        """A first step along the negative gradient."""
        return _OPTIMISM / (curvature(problem) + problem.lam)

"""Base class of solvers that search along descent directions, and the line search."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.solvers.base import State
from manyclass.solvers.primal.base import BatchSolver, curvature
from manyclass.solvers.primal.dense import changes_along, suits_sweep

__all__ = ["OPTIMISM", "DescentSolver", "Found", "line_search", "rounding", "set_product"]

#: Sufficient decrease and curvature of the weak Wolfe conditions.
_DECREASE, _CURVATURE = 1e-4, 0.9
#: Maximum number of trial steps of a line search; further steps would differ by rounding only.
_TRIALS = 40
#: Slope at the step that some of the rows find, relative to that at 0.
_CLOSE = 0.1
#: The first step size is this divided by `curvature`, which overestimates the largest eigenvalue.
OPTIMISM = 16.0


class Found(NamedTuple):
    """The step size that a line search found (0: none), the objective there, and the number of trial steps."""

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
    """Find a step size along a descent direction of a convex objective; the last trial step is the one returned.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(step)`` returns the objective and its slope along the direction.
    value, fall : float
        Objective and slope at step 0; ``fall`` < 0.
    noise : float
        Rounding error of the objective: differences below it are decided by the slope (Hager and Zhang's approximate
        decrease).
    first : float, default=1.0
        The first trial step, > 0.
    within : float, optional
        Accept a step whose slope is at most ``within * abs(fall)`` in size, found by secants in a bracket. None: accept
        a step that meets the weak Wolfe conditions, found by doubling and bisection (Lewis & Overton 2013).

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
        # The Illinois rule: halve the slope of the end of the bracket that stays, or else secants converge slowly where
        # the slope saturates.
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
    """The zero of the linear interpolation of the slope, kept away from the ends of the bracket."""
    if math.isinf(high):
        bend = slope_low - fall
        guess = low * fall / -bend if bend > 0 else math.inf
        return min(max(guess, 1.1 * low), 10.0 * low)
    if not slope_high > 0:  # NaN, or the objective is too large there although its slope is negative
        return 0.5 * (low + high)
    width = high - low
    guess = low - width * slope_low / (slope_high - slope_low)
    return min(max(guess, low + 0.1 * width), high - 0.1 * width)


def set_product(out: Any, factor: float, array: Any, more: Any = None) -> None:
    """Set ``out`` to ``factor * array``, plus ``more``; arrays of any library, and no other is made."""
    out[...] = array
    out *= factor
    if more is not None:
        out += more


def rounding(dtype: np.dtype[Any], value: float) -> float:
    """The rounding error of differences between objectives near ``value``, computed with ``dtype``."""
    return 8.0 * float(np.finfo(dtype).eps) * abs(value)


class DescentSolver(BatchSolver):
    """A batch solver with steps along directions, for a smooth loss and a smooth penalty."""

    needs_penalty = frozenset({"gradient"})

    def _descend(self, problem: Problem, point: Array, state: State, gradient: Array) -> float:
        """P at ``point``; writes its ``gradient``."""
        losses = self._losses(problem, point, state)
        self._add_penalty(problem, point, state, gradient)
        return problem.objective(losses, problem.penalty_value(self._split(problem, point)[0]))

    @staticmethod
    def _add_penalty(problem: Problem, point: Array, state: State, gradient: Array) -> None:
        """Set ``gradient`` to that of P, given ``slope``, that of the mean loss."""
        set_product(gradient, problem.lam, point)
        gradient[-1, :] = 0  # the intercept is not penalized
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
        """`line_search` along ``direction``, one pass per trial step; writes ``trial`` and its ``gradient``."""

        def evaluate(step: float) -> tuple[float, float]:
            set_product(trial, step, direction, state["point"])
            new = self._descend(problem, trial, state, gradient)
            return new, problem.inner_product(gradient, direction)

        return line_search(evaluate, value, fall, self._rounding(problem, value), first=first, within=within)

    def _rounding(self, problem: Problem, value: float) -> float:
        """The rounding error of differences between objectives near ``value``."""
        return rounding(problem.dtype, value)

    def _likely_step(self, problem: Problem, point: Array, direction: Array, value: float, fall: float) -> float:
        """A first trial step: near the minimum along ``direction`` as some of many dense rows tell it, else 1."""
        move = self._split(problem, direction)
        changes = self._changes(problem, self._split(problem, point), move)
        if changes is None:
            return 1.0
        bend = problem.lam * problem.inner_product(move[0], move[0])

        def evaluate(step: float) -> tuple[float, float]:
            # Value and slope at 0 are known of all rows: near the optimum the few are asked for the curvature alone.
            loss, slope = changes(step)
            return value + step * fall + loss + 0.5 * bend * step * step, fall + slope + bend * step

        return line_search(evaluate, value, fall, self._rounding(problem, value), within=_CLOSE).step or 1.0

    def _changes(
        self, problem: Problem, weights: tuple[Array, Array], direction: tuple[Array, Array]
    ) -> Callable[[float], tuple[float, float]] | None:
        """See `manyclass.solvers.primal.dense.changes_along`."""
        return changes_along(problem, weights, direction) if suits_sweep(problem) else None

    @staticmethod
    def _estimate(problem: Problem, gradient: Array, value: float) -> Certificate:
        """P and D where gradient and objective are these: with an l2 penalty P - D = ||grad P||^2 / (2 lam).

        D is that at the negative gradients of the losses there, before an intercept has balanced them.
        """
        steep = gradient[:-1, :]
        return problem.bounds(value, value - problem.inner_product(steep, steep) / (2.0 * problem.lam))

    def _cautious(self, problem: Problem) -> float:
        """The first trial step along the negative gradient."""
        return OPTIMISM / (curvature(problem) + problem.lam)

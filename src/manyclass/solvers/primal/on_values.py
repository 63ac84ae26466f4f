"""Descent solvers on objectives that are no `Problem`: anything with values and gradients, such as a chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from manyclass.objective.problem import Array, Certificate
from manyclass.solvers.base import State
from manyclass.solvers.primal.baselines import ConjugateGradient, GradientDescent
from manyclass.solvers.primal.descent import OPTIMISM, DescentSolver
from manyclass.solvers.primal.lbfgs import LBFGS

__all__ = ["DESCENTS", "Smooth", "on_values"]

#: The solvers that `on_values` takes, by name.
DESCENTS: dict[str, type[DescentSolver]] = {
    solver.name: solver for solver in (LBFGS, ConjugateGradient, GradientDescent)
}


class Smooth(ABC):
    """A smooth objective P(theta) = losses + lam ||theta||^2 / 2, lam > 0; a point theta is a float64 array.

    Attributes
    ----------
    shape : tuple of int
        Shape of a point.
    lam : float
        Strength of the penalty.
    """

    dtype = np.dtype(np.float64)
    shape: tuple[int, int]
    lam: float

    @property
    @abstractmethod
    def curvature(self) -> float:
        """An estimate of the largest curvature of the losses: the mean squared norm of the rows, for the first step."""

    @abstractmethod
    def value(self, point: Array, gradient: Array) -> float:
        """P at a point, whose ``gradient`` is written."""

    def certificate(self, point: Array) -> Certificate:
        """P at a point, and the lower bound on its minimum that strong convexity gives."""
        gradient = np.empty(self.shape)
        return self.bounds(self.value(point, gradient), gradient)

    def bounds(self, value: float, gradient: Array) -> Certificate:
        """The certificate where P and its gradient are these: P - D = ||gradient||^2 / (2 lam)."""
        return Certificate(value, value - float(np.vdot(gradient, gradient)) / (2.0 * self.lam))

    def blank(self, shape: tuple[int, ...]) -> Array:
        """Zeros, for points, gradients and their histories."""
        return np.zeros(shape)

    @staticmethod
    def inner_product(one: Array, two: Array) -> float:
        """The inner product of two points."""
        return float(np.vdot(one, two))


class _OnValues(DescentSolver):
    """What differs where the objective is `Smooth`."""

    def _first(self, problem: Any) -> State:
        return {
            "iteration": np.zeros((), np.int64),
            "passes": np.zeros(()),
            "point": np.zeros(problem.shape),
        }

    def _descend(self, problem: Any, point: Array, state: State, gradient: Array) -> float:
        return float(problem.value(point, gradient))

    def _likely_step(self, problem: Any, point: Array, direction: Array, value: float, fall: float) -> float:
        return 1.0  # there are no rows to ask

    def _cautious(self, problem: Any) -> float:
        return float(OPTIMISM / (problem.curvature + problem.lam))

    @staticmethod
    def _estimate(problem: Any, gradient: Array, value: float) -> Certificate:
        found: Certificate = problem.bounds(value, gradient)
        return found


class _LBFGS(_OnValues, LBFGS):
    @staticmethod
    def _inner(problem: Any, one: Array, two: Array) -> Any:
        return problem.inner_product(one, two)  # the columns of a point are one problem


class _ConjugateGradient(_OnValues, ConjugateGradient):
    pass


class _GradientDescent(_OnValues, GradientDescent):
    pass


def on_values(solver: DescentSolver) -> DescentSolver:
    """The same solver, one of `DESCENTS`, for objectives that are `Smooth`.

    Its ``state(smooth)`` begins at the point 0, which may be replaced; ``iterate(smooth, state, 0)`` yields as for a
    `Problem`, with an estimate that is exact.

    Examples
    --------
    >>> from manyclass.solvers import LBFGS
    >>> class Bowl(Smooth):
    ...     shape, lam, curvature = (2, 1), 2.0, 0.0
    ...     def value(self, point, gradient):
    ...         gradient[:] = 2 * point - 1
    ...         return float(np.sum(point**2 - point))
    >>> bowl, solver = Bowl(), on_values(LBFGS())
    >>> state = solver.state(bowl)
    >>> for progress in solver.iterate(bowl, state, 0):
    ...     if progress.estimate.gap < 1e-12:
    ...         break
    >>> state["point"].ravel()
    array([0.5, 0.5])
    """
    kinds: dict[type, type[DescentSolver]] = {
        LBFGS: _LBFGS,
        ConjugateGradient: _ConjugateGradient,
        GradientDescent: _GradientDescent,
    }
    return kinds[type(solver)](**solver.get_params())

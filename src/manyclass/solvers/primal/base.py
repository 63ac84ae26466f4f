"""What the solvers on the weights share: how they certify, the intercept as a feature, the slope at a point.

A solver of the dual carries its lower bound along. One on the weights has none, but the negative gradients of the
losses at its weights, a_i = -grad phi(W^T x_i + b), are dual-feasible, and they are the dual optimum where the weights
are optimal: `Problem.certify` turns them into a true gap. No bound is kept from one certificate to the next: a state
may go on on other data, where it would bound nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from manyclass.kernels.sdca import weighted_sums
from manyclass.kernels.targets import RealTargets
from manyclass.objective.intercept import first_intercept
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.solvers.base import Progress, Solver, State

__all__ = ["ROWS", "BatchSolver", "PrimalSolver", "constant", "curvature"]

#: Rows of a point that a piece of a sum covers. Fixed: the sums must not depend on the number of threads.
ROWS = 4096


class PrimalSolver(Solver):
    """A solver on the weights. Its state keeps room for the certificate: ``dual`` (n x K) and ``V`` (d x K)."""

    #: The conjugate is for the certificate alone.
    needs_loss = frozenset({"gradient", "conjugate"})

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        W, bias = self.weights(problem, state)
        losses = problem.respond(W, bias, state["dual"])
        return problem.certify(W, bias, losses, state["dual"], self._image(state))

    def _image(self, state: State) -> Array:
        """Room for the dual image, d x K."""
        return state["V"]


class BatchSolver(PrimalSolver):
    """A solver that moves all weights at once, for a loss without kinks.

    Its point has d + 1 rows: W, and the weights of one more feature that has the value `constant` in every row and no
    penalty. That feature's share of the curvature is then of the size of the others', however X is scaled.
    """

    needs_loss = PrimalSolver.needs_loss | {"smooth_gradient"}
    takes_shift = True

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return self._split(problem, state["point"])

    def _image(self, state: State) -> Array:
        return state["slope"][:-1]

    def _first(self, problem: Problem) -> State:
        """The part of a state that batch solvers have in common."""
        shape = problem.n_features + 1, problem.n_outputs
        point = np.zeros(shape, problem.dtype)
        if problem.intercept and isinstance(problem.targets, RealTargets):  # else few steps lead there from zero
            point[-1] = first_intercept(problem) / constant(problem)
        return {
            "iteration": np.zeros((), np.int64),
            "passes": np.zeros(()),
            "point": point,
            # Both are made afresh before they are read; here so that iterations and certificates share them.
            "slope": np.zeros(shape, problem.dtype),
            "dual": np.zeros((problem.n_samples, problem.n_outputs), problem.dtype),
        }

    @staticmethod
    def _ended(state: State, passes: int) -> Progress:
        """Count one iteration that took so many passes."""
        state["iteration"] = np.asarray(state["iteration"] + 1)
        state["passes"] = np.asarray(state["passes"] + passes)
        return Progress(int(state["iteration"]), float(state["passes"]))

    @staticmethod
    def _split(problem: Problem, point: Array) -> tuple[Array, Array]:
        """``(W, b)`` of a point."""
        return point[:-1], problem.dtype.type(constant(problem)) * point[-1]

    @staticmethod
    def _slope(problem: Problem, state: State, image: Callable[[Array, Array], None] | None = None) -> None:
        """``state["slope"]`` becomes the gradient of P - lam g where ``dual`` are the responses of the losses."""
        dual, slope = state["dual"], state["slope"]
        (problem.dual_image if image is None else image)(dual, slope[:-1])
        slope[:-1] *= -problem.lam
        if problem.intercept:
            slope[-1] = -constant(problem) / problem.n_samples * weighted_sums(problem.sample_weight, dual)
        else:
            slope[-1] = 0


def constant(problem: Problem) -> float:
    """The value of the feature that carries the intercept: the root of the mean squared row norm; 0 without one."""
    if not problem.intercept:
        return 0.0
    return math.sqrt(float(np.average(problem.norms, weights=problem.sample_weight))) or 1.0


def curvature(problem: Problem) -> float:
    """The trace of a bound on the Hessian of the mean loss: its largest eigenvalue is below, mostly far below."""
    mean = float(np.average(problem.norms, weights=problem.sample_weight))
    return ((mean + constant(problem) ** 2) / float(problem.loss.smoothness)) or 1.0

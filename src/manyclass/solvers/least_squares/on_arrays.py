"""Generalized least squares on rows that are an array of another library, or of half precision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.problem import Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.least_squares.solver import GeneralizedLeastSquares
from manyclass.solvers.least_squares.systems import Factor
from manyclass.solvers.primal.base import momentum
from manyclass.solvers.primal.descent import DescentSolver
from manyclass.solvers.primal.on_arrays import OnArrays, root_of

__all__ = ["ArrayGeneralizedLeastSquares"]


class ArrayGeneralizedLeastSquares(OnArrays, GeneralizedLeastSquares):
    """`GeneralizedLeastSquares` on an `ArrayProblem`, for systems that are factored."""

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if isinstance(problem, ArrayProblem) and not self._factors(problem):
            raise ValueError(
                f"solver {self.name!r} solves by conjugate gradients for NumPy's rows of float32 or float64 only, got "
                f"others with {problem.n_features} features and system={self.system!r}: convert them, or choose "
                "'preconditioned_lbfgs' or 'lbfgs'"
            )

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        factor = self._system(problem)
        assert isinstance(factor, Factor)
        root = root_of(problem, factor)
        if state["iteration"] == 0:  # a new run, possibly a warm start
            state["passes"], state["momentum"] = np.ones(()), np.ones(())
            state["last"][...] = state["point"]
        gradient = problem.blank(state["point"].shape)
        while True:
            point, last = state["point"], state["last"]
            beta, later = momentum(float(state["momentum"])) if self.accelerated else (0.0, 1.0)
            start = point + beta * (point - last)
            self._descended(problem, start, state)
            DescentSolver._add_penalty(problem, start, state, gradient)
            new = start - root.T @ (root @ gradient)
            if problem.inner_product(gradient, new - point) > 0:
                later = 1.0
            state["last"], state["point"] = point, new
            state["momentum"] = np.asarray(later)
            yield self._ended(state, 1)

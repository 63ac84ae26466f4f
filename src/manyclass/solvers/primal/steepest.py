"""Steepest descent: steps along the negative gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from manyclass.objective.problem import Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.descent import DescentSolver

__all__ = ["GradientDescent"]


class GradientDescent(DescentSolver):
    """Steepest descent for a smooth loss and a smooth penalty, with a search for the length of each step.

    The search begins with the length of the last step and ends where the slope along the direction is at most nine
    tenths of what it was, in size (exact minima along the way make the method slower, not faster). The method is here
    to be compared with: its error falls by a factor in each iteration that is near one where the problem is
    ill-conditioned.

    Passes over the data: one for each step tried (the scores, and the gradient they lead to), and one at the start.

    Raises
    ------
    ValueError
        If the loss has a kink, or the penalty has no gradient (l1 and elastic net).

    References
    ----------
    Nocedal and Wright, "Numerical Optimization", 2nd edition, Springer 2006, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.optimize.loop import minimize
    >>> from manyclass.kernels.rows import make_rows
    >>> from manyclass.kernels.targets import ClassTargets
    >>> from manyclass.objective.losses import MultinomialLoss
    >>> from manyclass.objective.problem import Problem
    >>> from manyclass.objective.penalties import L2
    >>> from manyclass.solvers import GradientDescent
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> y = X[:, :3].argmax(axis=1).astype(np.int32)
    >>> problem = Problem(make_rows(X), ClassTargets(y, 3), MultinomialLoss(), L2(), lam=0.1, n_features=5)
    >>> result = minimize(problem, GradientDescent(), tol=1e-6)
    >>> result.certificate.relative_gap <= 1e-6
    True
    """

    name = "gd"
    summary = "steepest descent, for comparison"
    synonyms = ("gradient_descent", "steepest_descent")

    def state(self, problem: Problem) -> State:
        # The length of the last step, in multiples of the gradient; 0: none yet.
        return {**self._first(problem), "step": np.zeros(())}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {
            "weights (two points, two gradients, a direction, room)": 6 * (problem.n_features + 1) * size,
            "responses of the losses": problem.n_samples * size,
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        gradient, direction, trial, room = (np.empty_like(state["point"]) for _ in range(4))
        if state["iteration"] == 0:  # a new run, wherever it starts
            state["step"], state["passes"] = np.zeros(()), np.ones(())
        # Not kept in the state: it would be that of another objective after a warm start on other data.
        value = self._descend(problem, state["point"], state, gradient)
        while True:
            np.negative(gradient, out=direction)
            fall = problem.inner_product(gradient, direction)
            tried, step = 0, 0.0
            if fall < 0:
                first = float(state["step"]) or self._cautious(problem)
                step, found, tried = self._search(
                    problem, state, direction, value, fall, trial, room, first=first, within=_WITHIN
                )
                if step:
                    value = found
                    state["point"], trial = trial, state["point"]
                    gradient, room = room, gradient
            state["step"] = np.asarray(step)
            yield self._ended(state, tried)


#: The slope that is left at the end of a step.
_WITHIN = 0.9

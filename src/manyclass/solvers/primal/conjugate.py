"""Nonlinear conjugate gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.descent import DescentSolver

__all__ = ["ConjugateGradient"]


class ConjugateGradient(DescentSolver):
    """Nonlinear conjugate gradients (Hager & Zhang 2005) for a smooth loss and a smooth penalty.

    With g the gradient, d the direction and y the last change of g,

        d = -g + max(beta, 0.4 <d, g> / ||d||^2) d,      beta = <y - 2 d ||y||^2 / <d, y>, g> / <d, y>

    which is a direction of descent whatever the line search was; truncating beta restarts where it would be far below
    zero (their later CG_DESCENT, whose bound does not depend on the scale). The search for a step starts at the length
    that repeats the last decrease, and ends where the slope along d has fallen to a tenth, found by secants.

    Passes over the data: one for each step tried (the scores, and the gradient they lead to), and one at the start.

    Raises
    ------
    ValueError
        If the loss has a kink, or the penalty has no gradient (l1 and elastic net).

    References
    ----------
    Hager and Zhang, "A new conjugate gradient method with guaranteed descent and an efficient line search", SIAM J.
    Optimization 2005, equations 1.3 to 1.6. Hager and Zhang, "The limited memory conjugate gradient method", SIAM J.
    Optimization 2013, equation 1.5, for the bound on beta.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.optimize.loop import minimize
    >>> from manyclass.kernels.rows import make_rows
    >>> from manyclass.kernels.targets import ClassTargets
    >>> from manyclass.objective.losses import MultinomialLoss
    >>> from manyclass.objective.problem import Problem
    >>> from manyclass.objective.penalties import L2
    >>> from manyclass.solvers import ConjugateGradient
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> y = X[:, :3].argmax(axis=1).astype(np.int32)
    >>> problem = Problem(make_rows(X), ClassTargets(y, 3), MultinomialLoss(), L2(), lam=0.01, n_features=5)
    >>> result = minimize(problem, ConjugateGradient(), tol=1e-6)
    >>> result.certificate.relative_gap <= 1e-6
    True
    """

    name = "cg"
    summary = "nonlinear conjugate gradients, for comparison"
    synonyms = ("conjugate_gradient",)

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        return {
            **state,
            # The next direction (0: the negative gradient), and what the last step along one promised, step times fall.
            "direction": np.zeros_like(state["point"]),
            "promise": np.zeros(()),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {
            "weights (two points, two gradients, a direction, room)": 6 * (problem.n_features + 1) * size,
            "responses of the losses": problem.n_samples * size,
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        gradient, trial, room = (np.empty_like(state["point"]) for _ in range(3))
        direction = state["direction"]
        if state["iteration"] == 0:  # a new run, wherever it starts
            direction[:], state["promise"], state["passes"] = 0, np.zeros(()), np.ones(())
        # Not kept in the state: it would be that of another objective after a warm start on other data.
        value = self._descend(problem, state["point"], state, gradient)
        while True:
            fall = problem.inner_product(gradient, direction)
            first = float(state["promise"]) / fall if fall < 0 else 0.0
            if not first > 0:
                np.negative(gradient, out=direction)
                fall, first = -problem.inner_product(gradient, gradient), self._cautious(problem)
            tried, promise = 0, 0.0
            if fall < 0:
                step, found, tried = self._search(
                    problem, state, direction, value, fall, trial, room, first=first, within=_WITHIN
                )
                if step:
                    value, promise = found, step * fall
                    state["point"], trial = trial, state["point"]
                    gradient, room = room, gradient
                    # What was the gradient before, and the point, are now room.
                    _turn(problem, gradient, np.subtract(gradient, room, out=room), direction, trial)
            state["promise"] = np.asarray(promise)
            yield self._ended(state, tried)


def _turn(problem: Problem, gradient: Array, turn: Array, direction: Array, room: Array) -> None:
    """The next direction, in place, from the change ``turn`` of the gradient; zero where it tells nothing."""
    bend = problem.inner_product(direction, turn)
    square = problem.inner_product(direction, direction)
    beta = 0.0
    if bend > 0:
        along = problem.inner_product(direction, gradient)
        pull = 2.0 * problem.inner_product(turn, turn) / bend
        beta = (problem.inner_product(turn, gradient) - pull * along) / bend
        beta = max(beta, _LEAST * along / square)
    direction *= beta
    direction -= gradient


#: The slope that is left at the end of a step, and the least beta, in parts of that which would make d flat.
_WITHIN, _LEAST = 0.1, 0.4

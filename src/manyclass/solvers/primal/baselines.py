"""Nonlinear conjugate gradients and steepest descent: what other solvers on the weights are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.descent import DescentSolver

__all__ = ["ConjugateGradient", "GradientDescent"]


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
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import ConjugateGradient
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=ConjugateGradient(), alpha=0.1, tol=1e-6).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    """

    name = "cg"
    summary = "nonlinear conjugate gradients, for comparison"
    synonyms: ClassVar[tuple[str, ...]] = ("conjugate_gradient",)
    #: The slope that is left at the end of a step, in parts of that at its start.
    _within = 0.1
    #: Whether the first step tried along a direction promises the last decrease, or has the length of the last step.
    _by_decrease = True

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        return {
            **state,
            # The next direction (0: the negative gradient), and what the first step along it is to repeat: the promise
            # of the last one, step times fall, or its length.
            "direction": np.zeros_like(state["point"]),
            "last": np.zeros(()),
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
            direction[:], state["last"], state["passes"] = 0, np.zeros(()), np.ones(())
        # Not kept in the state: it would be that of another objective after a warm start on other data.
        value = self._descend(problem, state["point"], state, gradient)
        while True:
            fall = problem.inner_product(gradient, direction)
            first = float(state["last"]) / (fall if self._by_decrease else 1.0) if fall < 0 else 0.0
            if not first > 0:
                np.negative(gradient, out=direction)
                fall, first = -problem.inner_product(gradient, gradient), self._cautious(problem)
            tried, last = 0, 0.0
            if fall < 0:
                step, found, tried = self._search(
                    problem, state, direction, value, fall, trial, room, first=first, within=self._within
                )
                if step:
                    value, last = found, step * (fall if self._by_decrease else 1.0)
                    state["point"], trial = trial, state["point"]
                    gradient, room = room, gradient
                    # What was the gradient before, and the point, are now room.
                    self._turn(problem, gradient, np.subtract(gradient, room, out=room), direction)
            state["last"] = np.asarray(last)
            yield self._ended(state, tried)

    def _turn(self, problem: Problem, gradient: Array, turn: Array, direction: Array) -> None:
        """The next direction, in place, from the change ``turn`` of the gradient."""
        bend = problem.inner_product(direction, turn)
        beta = 0.0
        if bend > 0:
            along = problem.inner_product(direction, gradient)
            pull = 2.0 * problem.inner_product(turn, turn) / bend
            beta = (problem.inner_product(turn, gradient) - pull * along) / bend
            beta = max(beta, _LEAST * along / problem.inner_product(direction, direction))
        direction *= beta
        direction -= gradient


class GradientDescent(ConjugateGradient):
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
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import GradientDescent
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=GradientDescent(), alpha=1.0, tol=1e-3).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-3)
    True
    """

    name = "gd"
    summary = "steepest descent, for comparison"
    synonyms = ("gradient_descent", "steepest_descent")
    _within = 0.9
    _by_decrease = False

    def _turn(self, problem: Problem, gradient: Array, turn: Array, direction: Array) -> None:
        """The next direction, in place: the negative gradient."""
        np.negative(gradient, out=direction)


#: The least beta, in parts of that which would make d flat.
_LEAST = 0.4

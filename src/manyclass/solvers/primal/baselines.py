"""Nonlinear conjugate gradients and steepest descent, for comparison with the other primal solvers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.dense import sweep_nbytes
from manyclass.solvers.primal.descent import DescentSolver

__all__ = ["ConjugateGradient", "GradientDescent"]


class ConjugateGradient(DescentSolver):
    """Nonlinear conjugate gradients (Hager & Zhang 2005) for a smooth loss and a smooth penalty.

    With g the gradient, d the direction and y the last change of g,

        d = -g + max(beta, 0.4 <d, g> / ||d||^2) d,      beta = <y - 2 d ||y||^2 / <d, y>, g> / <d, y>

    which is a descent direction for any line search. The lower bound on beta, which restarts the method, is that of
    their later CG_DESCENT and does not depend on the scale. The line search starts at the step size that promises the
    same decrease as the last step, and ends when the slope along d is at most a tenth of that at the start (secants).

    Passes over the data: one per trial step (scores and gradient), and one at the start.

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
    #: A step is accepted if the slope there is at most this fraction of the slope at its start.
    _within = 0.1
    #: The first trial step: the one that promises the last decrease, or, if False, the last step size.
    _by_decrease = True

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        return {
            **state,
            # The next direction (0: the negative gradient), and what its first trial step repeats: the last decrease to
            # first order, step size times slope, or the last step size.
            "direction": np.zeros_like(state["point"]),
            "last": np.zeros(()),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {
            "weights (two points, two gradients, a direction, a buffer)": 6 * (problem.n_features + 1) * size,
            "gradients of the losses": problem.n_samples * size,
            **sweep_nbytes(problem),
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        gradient, trial, buffer = (np.empty_like(state["point"]) for _ in range(3))
        direction = state["direction"]
        if state["iteration"] == 0:  # a new run, possibly a warm start
            direction[:], state["last"], state["passes"] = 0, np.zeros(()), np.ones(())
        # Not in the state: a warm start may have other data, and so another objective.
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
                    problem, state, direction, value, fall, trial, buffer, first=first, within=self._within
                )
                if step:
                    value, last = found, step * (fall if self._by_decrease else 1.0)
                    state["point"], trial = trial, state["point"]
                    gradient, buffer = buffer, gradient
                    # The previous gradient is in ``buffer``, which may be overwritten.
                    self._turn(problem, gradient, np.subtract(gradient, buffer, out=buffer), direction)
            state["last"] = np.asarray(last)
            yield self._ended(state, tried, self._estimate(problem, gradient, value))

    def _turn(self, problem: Problem, gradient: Array, turn: Array, direction: Array) -> None:
        """Replace the direction by the next one; ``turn`` is the change of the gradient, y."""
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
    """Steepest descent with a line search for a smooth loss and a smooth penalty.

    The line search starts at the last step size and ends when the slope along the direction is at most 0.9 of that at
    the start (a more exact search makes the method slower). It is linearly convergent, and slow on ill-conditioned
    problems: it is here for comparison.

    Passes over the data: one per trial step (scores and gradient), and one at the start.

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
        """Replace the direction by the negative gradient."""
        np.negative(gradient, out=direction)


#: The lower bound on beta is this times <d, g> / ||d||^2.
_LEAST = 0.4

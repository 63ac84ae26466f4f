"""L-BFGS: limited-memory quasi-Newton steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.base import ROWS
from manyclass.solvers.primal.dense import sweep_nbytes
from manyclass.solvers.primal.descent import DescentSolver, Found, set_product

__all__ = ["LBFGS", "scaling"]


class LBFGS(DescentSolver):
    """Limited-memory BFGS (Liu & Nocedal 1989) for a smooth loss and a smooth penalty.

    Step sizes meet the weak Wolfe conditions, found by doubling and bisection (Lewis & Overton 2013); where rounding
    hides differences of the objective, Hager and Zhang's approximate decrease is tested instead.

    Passes over the data: one per trial step (scores and gradient), and one at the start; usually one per iteration.
    The outputs of a separable loss are problems of their own: each has its own approximation of the inverse Hessian,
    from its own columns of the pairs (not on arrays of other libraries); the step size is that of all.

    With many dense rows the first trial step is near the minimum along the direction, estimated from every sixteenth
    row.

    Parameters
    ----------
    history_size : int, default=10
        Number of pairs (change of the weights, change of the gradient) that are kept, >= 1.

    Raises
    ------
    ValueError
        If ``history_size`` is less than 1, the loss has a kink, or the penalty has no gradient (l1 and elastic net).

    References
    ----------
    Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Programming 1989. Lewis and
    Overton, "Nonsmooth optimization via quasi-Newton methods", Math. Programming 2013, algorithm 2.6. Hager and Zhang,
    "A new conjugate gradient method with guaranteed descent and an efficient line search", SIAM J. Optimization 2005,
    equation 4.1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import LBFGS
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=LBFGS(), alpha=0.1, tol=1e-6).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    """

    name = "lbfgs"
    summary = "limited-memory quasi-Newton"
    takes_standard = True
    synonyms: ClassVar[tuple[str, ...]] = ("l_bfgs", "bfgs")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "history_size": [Interval(Integral, 1, None, closed="left")]
    }

    def __init__(self, *, history_size: int = 10) -> None:
        self.history_size = history_size

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        shape = self.history_size, *state["point"].shape
        return {
            **state,
            "moves": problem.blank(shape),
            "turns": problem.blank(shape),
            "pairs": np.zeros((), np.int64),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {
            f"weights (two points, two gradients, a direction, two buffers, {self.history_size} pairs)": (
                7 + 2 * self.history_size
            )
            * (problem.n_features + 1)
            * size,
            "gradients of the losses": problem.n_samples * size,
            **sweep_nbytes(problem),
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        point = state["point"]
        gradient, direction, trial, buffer = (problem.blank(point.shape) for _ in range(4))
        #: Slot of a pair -> the inner product of its move and its turn, see `_bend`.
        self._bends: dict[int, Any] = {}
        if state["iteration"] == 0:  # a new run, possibly a warm start
            self._start(problem, state, seed)
        # Not in the state: a warm start may have other data, and so another objective.
        value = self._descend(problem, point, state, gradient)
        while True:
            point = state["point"]
            if self._outdated(state):
                value = self._descend(problem, point, state, gradient)
            self._direct(problem, state, gradient, direction)
            fall = problem.inner_product(gradient, direction)
            found = Found(0.0, value, 0)
            if fall < 0:
                first = self._likely_step(problem, point, direction, value, fall)
                found = self._search(problem, state, direction, value, fall, trial, buffer, first=first)
            if found.step:
                value = found.value
                self._remember(problem, state, trial, gradient, buffer)
                state["point"], trial = trial, point
                gradient, buffer = buffer, gradient
            else:
                # The limit of rounding, or a bad approximation of the Hessian: restart from the gradient.
                state["pairs"] = np.zeros((), np.int64)
            estimate = self._estimate(problem, gradient, value)
            self._judge(state, found, estimate)
            yield self._ended(state, found.tried, estimate)

    def _outdated(self, state: State) -> bool:
        """Whether the gradient is to be computed again: another one is known to be more exact."""
        return False

    def _judge(self, state: State, found: Found, estimate: Certificate) -> None:
        """Decide how exact the next pass is, after a line search."""

    def _start(self, problem: Problem, state: State, seed: int) -> None:
        """Set what iterations change, of the state of a new run; its ``passes`` include that of the first gradient."""
        state["pairs"], state["passes"] = np.zeros((), np.int64), np.ones(())

    def _direct(self, problem: Problem, state: State, gradient: Array, direction: Array) -> None:
        """Set ``direction = -H gradient`` by the two-loop recursion."""
        slots = self._slots(state)
        moves, turns = state["moves"], state["turns"]
        set_product(direction, -1.0, gradient)
        for slot in slots:
            if slot not in self._bends:
                self._bends[slot] = self._bend(problem, moves[slot, ...], turns[slot, ...])
        shares = {}
        for slot in reversed(slots):
            shares[slot] = self._inner(problem, moves[slot, ...], direction) / self._bends[slot]
            direction -= _narrow(problem, shares[slot]) * turns[slot, ...]
        if slots:
            self._begin(problem, state, direction, turns[slots[-1], ...], self._bends[slots[-1]])
        else:
            self._begin(problem, state, direction, None, 0.0)
        for slot in slots:
            share = shares[slot] - self._inner(problem, turns[slot, ...], direction) / self._bends[slot]
            direction += _narrow(problem, share) * moves[slot, ...]

    @staticmethod
    def _inner(problem: Problem, one: Array, two: Array) -> Any:
        """<A, B>; of each column, (K,) in float64, where the outputs are problems of their own and arrays NumPy's.

        Summed in the type of the weights within `ROWS` rows: a third of the time, and only steps depend on it.
        """
        if problem.loss.joint or problem.n_outputs == 1 or not isinstance(one, np.ndarray):
            return problem.inner_product(one, two)
        sums = run(
            lambda begin, end: np.einsum("ij,ij->j", one[begin:end], two[begin:end]),
            ranges(len(one), ROWS),
            problem.n_threads,
        )
        return np.sum(sums, axis=0, dtype=np.float64)

    def _bend(self, problem: Problem, move: Array, turn: Array) -> Any:
        """<S, Y>; infinite for an output for which it is not positive beyond rounding: the pair then has no effect."""
        found = self._inner(problem, move, turn)
        if isinstance(found, float):
            return found
        lengths = np.sqrt(self._inner(problem, move, move) * self._inner(problem, turn, turn))
        return np.where(found > float(np.finfo(problem.dtype).eps) * lengths, found, np.inf)

    def _slots(self, state: State) -> list[int]:
        """The slots of the pairs, the oldest first."""
        pairs = int(state["pairs"])
        return [pair % self.history_size for pair in range(max(0, pairs - self.history_size), pairs)]

    def _begin(self, problem: Problem, state: State, direction: Array, turn: Array | None, bend: Any) -> None:
        """Multiply ``direction`` by the initial inverse Hessian: the identity, scaled by the newest pair."""
        if turn is None:
            direction *= self._cautious(problem)
        else:
            scale = scaling(bend, self._inner(problem, turn, turn), self._cautious(problem))
            direction *= _narrow(problem, scale)

    def _remember(self, problem: Problem, state: State, new: Array, old_gradient: Array, new_gradient: Array) -> None:
        """Add a pair; if its curvature is not positive beyond rounding, drop all pairs instead."""
        slot = int(state["pairs"]) % self.history_size
        self._bends.pop(slot, None)
        move, turn = state["moves"][slot, ...], state["turns"][slot, ...]
        move[...] = new - state["point"]
        turn[...] = new_gradient - old_gradient
        lengths = math.sqrt(problem.inner_product(move, move) * problem.inner_product(turn, turn))
        sound = problem.inner_product(move, turn) > float(np.finfo(problem.dtype).eps) * lengths
        state["pairs"] = np.asarray(state["pairs"] + 1 if sound else 0, np.int64)


def scaling(bend: Any, length: Any, otherwise: float) -> Any:
    """``bend / length``, of the newest pair; ``otherwise`` for an output that has no pair."""
    if isinstance(bend, float):
        return bend / length
    known = np.isfinite(bend) & (length > 0)
    return np.where(known, bend / np.where(known, length, 1.0), otherwise)


def _narrow(problem: Problem, factor: Any) -> Any:
    """A number, or one for each output in the type of the weights."""
    return factor if isinstance(factor, float) else factor.astype(problem.dtype)

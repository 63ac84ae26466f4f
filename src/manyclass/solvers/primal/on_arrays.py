"""Batch solvers on rows that are an array of another library, or of half precision: nothing but matrix products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from manyclass.objective.array_problem import ArrayProblem, Descent
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.arrays import as_type, namespace, products, to_numpy
from manyclass.solvers.base import Progress, State
from manyclass.solvers.least_squares.solver import lipschitz
from manyclass.solvers.least_squares.systems import Factor
from manyclass.solvers.primal.base import BatchSolver, constant
from manyclass.solvers.primal.descent import Found, set_product
from manyclass.solvers.primal.lbfgs import LBFGS, scaling
from manyclass.solvers.primal.preconditioned import PreconditionedLBFGS

__all__ = ["ArrayLBFGS", "ArrayPreconditionedLBFGS", "OnArrays", "root_of"]

#: Estimated relative gap to which passes by short products are made, most iterations with them, and how much more than
#: others they round.
_SHORT, _MOST_SHORT, _SHORTER = 1e-4, 100, 8.0
#: Certificates that were not good enough, after which passes are exact.
_DOUBTS = 3.0


def is_exact(state: State) -> bool:
    """Whether the next pass takes exact products."""
    return bool(state.get("doubts", _DOUBTS) >= _DOUBTS)


class OnArrays(BatchSolver):
    """Mixin of a batch solver: passes by blocks, no array of n rows, and a state beside the rows."""

    def _dual(self, problem: Problem) -> State:
        return {}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        needs: dict[str, int] = super().nbytes(problem)  # type: ignore[safe-super]
        needs.pop("gradients of the losses")
        return needs

    def require_memory(self, problem: Problem, more: Mapping[str, int]) -> None:
        """Checks the memory of NumPy's arrays; what a device has left only its library knows."""
        if not _of(problem).foreign:
            super().require_memory(problem, more)

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        if "doubts" in state:  # the estimate said that it would be the last
            state["doubts"] = np.asarray(state["doubts"] + 1)
        return _of(problem).certified(*self.weights(problem, state))

    def pack(self, state: State) -> dict[str, Array]:
        packed = super().pack(state)
        return {name: to_numpy(array) for name, array in packed.items()}

    def unpack(self, problem: Problem, state: State, arrays: dict[str, Array]) -> None:
        held = self.pack(state)
        super().unpack(problem, held, arrays)
        for name, array in held.items():
            state[name] = array if isinstance(state[name], np.ndarray) else problem.there(array)

    def _descended(self, problem: Problem, point: Any, state: State) -> Descent:
        """The losses at a point; sets ``state["slope"]`` to the gradient of their mean. One pass."""
        short = not is_exact(state)
        found, slope = _of(problem).descend(*self._split(problem, point), short=short), state["slope"]
        slope[:-1, :] = _narrow(problem, found.image / -problem.n_samples)
        slope[-1, :] = (
            _narrow(problem, found.sums * (-constant(problem) / problem.n_samples)) if problem.intercept else 0
        )
        return found


class ArrayLBFGS(OnArrays, LBFGS):
    """`LBFGS` on an `ArrayProblem`.

    Where a device has short products (`ArrayProblem.has_short_products`), passes take them until the estimated relative
    gap is 1e-4, a line search fails, a hundred iterations are made, or three certificates were not good enough; later
    passes are exact, and certificates always are.
    """

    def state(self, problem: Problem) -> State:
        state = super().state(problem)
        return {**state, "doubts": np.zeros(())} if _of(problem).has_short_products else state

    def _start(self, problem: Problem, state: State, seed: int) -> None:
        super()._start(problem, state, seed)
        if "doubts" in state:
            state["doubts"] = np.zeros(())

    def _descend(self, problem: Problem, point: Any, state: State, gradient: Any) -> float:
        self._exact = is_exact(state)
        found = self._descended(problem, point, state)
        self._add_penalty(problem, point, state, gradient)
        self._seen = found.spread / problem.n_samples
        if np.isnan(self._seen) and np.isfinite(found.losses):
            self._seen = lipschitz(problem) * float(np.mean(np.asarray(problem.sample_weight), dtype=np.float64))
        return problem.objective(found.losses, problem.penalty_value(self._split(problem, point)[0]))

    def _direct(self, problem: Problem, state: State, gradient: Any, direction: Any) -> None:
        """The two-loop recursion on numbers, with all pairs at once: on a device an operation costs a launch.

        With S and Y the moves and the turns: the recursion needs S'g, S'Y above the diagonal, and Y'r in its middle.
        """
        if not _of(problem).foreign:
            super()._direct(problem, state, gradient, direction)
            return
        slots = self._slots(state)
        count = len(slots)
        moves, turns = (state[name] for name in ("moves", "turns"))
        S, Y = (namespace(array).reshape(array, (array.shape[0], -1)) for array in (moves, turns))
        flat = namespace(gradient).reshape(gradient, (-1,))
        G = np.zeros((count, count))
        for j, slot in enumerate(slots):
            if slot not in self._columns:
                self._columns[slot] = to_numpy(S @ Y[slot, :]).astype(np.float64)
            G[:, j] = self._columns[slot][slots]
        heads, shares = -to_numpy(S @ flat).astype(np.float64)[slots], np.zeros(count)
        for i in reversed(range(count)):
            shares[i] = (heads[i] - G[i, i + 1 :] @ shares[i + 1 :]) / G[i, i]
        set_product(direction, -1.0, gradient)
        if count:
            direction -= namespace(flat).reshape(self._spread_out(problem, slots, shares) @ Y, direction.shape)
        newest = turns[slots[-1], ...] if count else None
        self._begin(problem, state, direction, newest, float(G[-1, -1]) if count else 0.0)
        if count:
            tails = to_numpy(Y @ namespace(flat).reshape(direction, (-1,))).astype(np.float64)[slots]
            later = np.zeros(count)
            for i in range(count):
                later[i] = shares[i] - (tails[i] + G[:i, i] @ later[:i]) / G[i, i]
            direction += namespace(flat).reshape(self._spread_out(problem, slots, later) @ S, direction.shape)

    def _spread_out(self, problem: Problem, slots: list[int], shares: Array) -> Any:
        """A number for each slot of the history, where the rows are."""
        found = np.zeros(self.history_size)
        found[slots] = shares
        return problem.there(found)

    def _remember(self, problem: Problem, state: State, new: Any, old_gradient: Any, new_gradient: Any) -> None:
        self._columns.pop(int(state["pairs"]) % self.history_size, None)
        super()._remember(problem, state, new, old_gradient, new_gradient)

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        #: Slot of a pair -> the products of all moves with its turn.
        self._columns: dict[int, Array] = {}
        yield from super().iterate(problem, state, seed)

    def _outdated(self, state: State) -> bool:
        return is_exact(state) and not self._exact

    def _judge(self, state: State, found: Found, estimate: Certificate) -> None:
        late = int(state["iteration"]) + 1 >= _MOST_SHORT
        if not self._exact and (late or not found.step or estimate.relative_gap <= _SHORT):
            state["doubts"] = np.asarray(_DOUBTS)

    def _rounding(self, problem: Problem, value: float) -> float:
        return super()._rounding(problem, value) * (1.0 if self._exact else _SHORTER)

    def _changes(self, problem: Problem, weights: Any, direction: Any) -> Any:
        with products(_of(problem).x, short=not self._exact):
            return _of(problem).changes_along(*weights, *direction)


class ArrayPreconditionedLBFGS(ArrayLBFGS, PreconditionedLBFGS):
    """`PreconditionedLBFGS` on an `ArrayProblem`."""

    def _measure(self, problem: Problem, state: State) -> None:
        super()._measure(problem, state)
        self._root: tuple[Factor | list[Factor], Any] | None = None

    @staticmethod
    def _responses(problem: Problem, W: Any, bias: Any) -> Array:
        dual = np.empty((problem.n_samples, problem.n_outputs), problem.dtype)
        for begin, end, A in _of(problem).responses(W, bias):
            dual[begin:end] = to_numpy(A)
        return dual

    def _begin(self, problem: Problem, state: State, direction: Any, turn: Any, bend: Any) -> None:
        factor = self._classes(problem, state) or self._held(problem, state)
        if self._root is None or self._root[0] is not factor:
            self._root = None  # not two at a time
            made = root_of(problem, factor) if isinstance(factor, Factor) else _roots_of(problem, factor)
            self._root = factor, made
        root = self._root[1]
        if not isinstance(factor, Factor):
            stepped = _by_class(problem, root, direction)
            if turn is not None:
                stepped *= scaling(bend, self._inner(problem, turn, _by_class(problem, root, turn)), 1.0)
        else:
            stepped = root.T @ (root @ direction)
            if turn is not None:
                half = root @ turn
                stepped *= scaling(bend, self._inner(problem, half, half), 1.0)
        direction[...] = stepped


def root_of(problem: Problem, factor: Factor) -> Any:
    """R where the rows are, with R'R the inverse of a factored matrix, for points of shape (d + 1, K).

    A system is so solved by two matrix products. R'R is positive semidefinite however much rounding there is, and
    differs from the inverse by the rounding error times the root of the condition number.
    """
    root = factor.inverse_root()
    padded = np.zeros((len(root), problem.n_features + 1))
    padded[:, : root.shape[1]] = root  # without an intercept there is no last feature
    padded[:, -1] /= constant(problem) or 1.0  # the constant feature is 1 in the matrix, and `constant` in a point
    return problem.there(padded)


def _roots_of(problem: Problem, factors: list[Factor]) -> Any:
    """`root_of` each factor, with as many rows of zeros as it lacks, (K, d + 1, d + 1)."""
    size = problem.n_features + 1
    roots = problem.blank((len(factors), size, size))
    for k, factor in enumerate(factors):
        root = root_of(problem, factor)
        roots[k, : root.shape[0], :] = root
    return roots


def _by_class(problem: Problem, roots: Any, gradient: Any) -> Any:
    """The inverse of the blocks times a gradient; with a joint loss that of the Hessian for its mean over classes."""
    xp, d = namespace(gradient), problem.n_features
    mean = xp.mean(gradient, axis=1, keepdims=True) * float(bool(problem.loss.joint))
    half = xp.matmul(roots, xp.permute_dims(gradient - mean, (1, 0))[:, :, None])
    found = xp.permute_dims(xp.matmul(xp.permute_dims(roots, (0, 2, 1)), half)[:, :, 0], (1, 0))
    if problem.loss.joint:
        found = found - xp.mean(found, axis=1, keepdims=True)
        found[:d, :] = found[:d, :] + mean[:d, :] / problem.lam
    return found


def _of(problem: Problem) -> ArrayProblem:
    return cast(ArrayProblem, problem)


def _narrow(problem: Problem, array: Any) -> Any:
    """An array of the type of sums in that of the weights."""
    return as_type(array, problem.dtype.name) if _of(problem).foreign else array.astype(problem.dtype)

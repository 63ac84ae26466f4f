"""L-BFGS with the inverse of a least-squares matrix as initial inverse Hessian."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np

from manyclass.kernels.rows import CSRRows
from manyclass.kernels.targets import ClassTargets, SoftTargets, soft_matrix
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.losses import (
    LogisticLoss,
    MultinomialLoss,
    SoftLogisticLoss,
    SoftMultinomialLoss,
    SquaredHingeLoss,
)
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import single_blas
from manyclass.solvers.base import Progress, State, row_matrix
from manyclass.solvers.dual.condition import is_ill_conditioned
from manyclass.solvers.least_squares.design import Design, Moments
from manyclass.solvers.least_squares.solver import lipschitz
from manyclass.solvers.least_squares.systems import FACTORED, Factor
from manyclass.solvers.primal.base import constant
from manyclass.solvers.primal.dense import suits_sweep, those
from manyclass.solvers.primal.lbfgs import LBFGS, scaling

__all__ = ["PreconditionedLBFGS"]

#: Rows per feature from which the second moments are estimated unless the problem is ill-conditioned. Generated
#: embeddings, 50 000 x 1 024, 100 classes, alpha 1e-3 to 1e-7: as many iterations as with all rows, 1 to 24; MNIST,
#: alpha 1e-4 and 1e-6: 78 for 68, and more than 300 for 245.
_ROWS_PER_FEATURE = 4
#: The matrix is factored again when the mean curvature of the losses has changed by this factor.
_CHANGE = 1.5
#: One matrix for each class: fewest rows per feature from which it is estimated, fewest iterations before, and
#: iterations that so many rows cost per (d^2 / n). MNIST, alpha 1e-4 to 1e-7: 22 to 59 iterations instead of 69 to 679.
#: As many rows as the iterations before cost, for rare features: with 8 a feature covtype takes 349 iterations at alpha
#: 1e-4, with all 36.
_ROWS_OF_CLASS, _FEWEST, _COST = 8, 10, 1.5
#: They are computed again after as many iterations as they cost and half of those before.
_AGAIN = 1.5
#: Bytes that they may take even if the rows take less.
_LITTLE = 2**26
#: Rows by which second moments are known again.
_MARKS = 16
#: The losses whose curvature differs from row to row.
_VARYING = (MultinomialLoss, SoftMultinomialLoss, LogisticLoss, SoftLogisticLoss, SquaredHingeLoss)
#: The least curvature of the loss of a row, of those that are at most 1/4.
_LEAST = 1e-7


class PreconditionedLBFGS(LBFGS):
    """L-BFGS whose initial inverse Hessian is a multiple of (h Sigma + lam I)^-1 instead of the identity.

    Sigma = X' diag(c) X / n with the sample weights c. h is the mean curvature of the losses at the current weights:
    the mean of p (1 - p) over rows and classes for multinomial and log loss, for other losses their Lipschitz constant.
    The number of iterations then hardly depends on the conditioning of X. For dense, correlated features, not too many,
    it is a fraction of that of `LBFGS` and of `GeneralizedLeastSquares`. Memory: (d + 1)^2 numbers in float64 for Sigma
    and as many for a Cholesky factor, which is computed again a few times as h decreases.

    Passes over the data: one for the matrix (which for a well-conditioned problem with many rows is estimated from four
    random rows per feature; a warm start on the same rows has it), one at the start, one per trial step; dense rows are
    read once for both scores and gradient, in blocks that stay in the cache.

    Parameters
    ----------
    history_size : int, default=10
        Number of pairs (change of the weights, change of the gradient) that are kept, >= 1.

    Raises
    ------
    ValueError
        If ``history_size`` is less than 1, the loss has a kink, the penalty is not l2, or there are 10 000 features or
        more, for which the factorization, of cubic cost, takes minutes.

    References
    ----------
    Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Programming 1989. Agarwal,
    Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class prediction",
    ICML 2014, for the matrix.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import PreconditionedLBFGS
    >>> X, y = load_iris(return_X_y=True)
    >>> X[:, 0] *= 1000  # an ill-conditioned problem
    >>> model = LinearClassifier("multinomial", solver=PreconditionedLBFGS(), alpha=0.1, tol=1e-6).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    """

    name = "preconditioned_lbfgs"
    takes_standard = False  # its products are those of the rows
    summary = "L-BFGS preconditioned by the second moments of X; for dense, correlated features"
    synonyms: ClassVar[tuple[str, ...]] = ("preconditioned",)  # not those of L-BFGS
    default_max_iter = 1000  # the squared hinge takes 656 on USPS at alpha 1e-5

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if problem.n_features >= FACTORED:
            raise ValueError(
                f"solver {self.name!r} factors a matrix of shape (n_features, n_features) and needs fewer than "
                f"{FACTORED} features, got {problem.n_features}: choose solver 'lbfgs', or for sparse rows 'auto'"
            )

    def state(self, problem: Problem) -> State:
        state = {**super().state(problem), "curvature": np.zeros(())}
        if self._has_classes(problem):
            # Where the curvature of the classes was taken, and at which iteration: -1 if it was not yet.
            state["anchor"], state["anchored"] = problem.blank(state["point"].shape), np.full((), -1)
        return state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        # The other temporary arrays of the second moments are smaller than the factor, which is allocated after them.
        square = 8 * (problem.n_features + 1) ** 2
        found = {**super().nbytes(problem), "second moments": square, "their factor": square}
        if self._may_sample(problem):
            found["rows of the second moments"] = 8 * _ROWS_PER_FEATURE * problem.n_features**2
        return found | (self._bytes_of_classes(problem) if self._has_classes(problem) else {})

    @staticmethod
    def _bytes_of_classes(problem: Problem) -> dict[str, int]:
        """Size in bytes of what the matrices of the classes take, by a description."""
        n, d, K, size = problem.n_samples, problem.n_features, problem.n_outputs, problem.dtype.itemsize
        return {
            "factors of the classes": 8 * K * (d + 1) ** 2,
            "weights for them, curvatures": size * ((d + 1) * K + 4 * n * K),
            "rows of the second moments of a class": 2 * size * _rows_of_class(problem) * d,
        }

    @classmethod
    def _has_classes(cls, problem: Problem) -> bool:
        """Whether the classes can have matrices of their own: few, of dense rows, with losses of varying curvature."""
        if not (isinstance(problem, ArrayProblem) or suits_sweep(problem)):
            return False
        if not isinstance(problem.loss, _VARYING):
            return False
        rows = problem.n_samples * problem.n_features * problem.dtype.itemsize
        return bool(sum(cls._bytes_of_classes(problem).values()) <= max(rows, _LITTLE))

    @staticmethod
    def _may_sample(problem: Problem) -> bool:
        """Whether there are enough dense rows to estimate the second moments from some of them."""
        enough = 2 * _ROWS_PER_FEATURE * problem.n_features <= problem.n_samples
        return enough and not isinstance(problem.rows, CSRRows)

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        self._measure(problem, state)
        yield from super().iterate(problem, state, seed)

    def pack(self, state: State) -> dict[str, Array]:
        return {name: array for name, array in super().pack(state).items() if name not in ("moments", "moments_of")}

    def _measure(self, problem: Problem, state: State) -> None:
        """Compute the second moments, one pass or part of one, unless the state has them, from a fit of other alpha."""
        sampled = self._may_sample(problem) and not is_ill_conditioned(problem)
        weights, n, d = np.asarray(problem.sample_weight), problem.n_samples, problem.n_features
        trace = np.dot(weights.astype(np.float64), problem.norms)
        rows = np.linspace(0, n - 1, _MARKS).astype(np.int64)
        some = problem.taken(rows) if isinstance(problem, ArrayProblem) else row_matrix(problem)[rows]
        marks = some @ np.arange(1.0, d + 1)  # which differ for rows turned or in another order
        these = np.array([sampled, problem.intercept, n, d, trace, *marks])
        self._computed = not np.array_equal(state.get("moments_of", np.zeros(0)), these)
        if self._computed:
            state.pop("moments", None)  # not two at a time
            X = row_matrix(problem)
            if sampled:
                # Whatever the seed, so that a fit without one has the same bits again.
                rows = np.sort(np.random.default_rng(0).choice(n, _ROWS_PER_FEATURE * d, replace=False))
                X = _picked(problem, rows)
                weights = weights[rows] / (weights[rows].mean() or 1.0)
            design = Design(
                X, weights=weights, intercept=problem.intercept, dtype=problem.dtype, n_threads=problem.n_threads
            )
            # Of products in float32 no more is needed: rounding is far below what another curvature would change.
            state["moments"], state["moments_of"] = design.moments(math.inf).matrix, these
        self._moments = Moments(state["moments"], None, d)
        self._factor: Factor | None = None
        self._of_classes: list[Factor] | None = None
        self._measure_rows = partial(_spread, problem)

    def _start(self, problem: Problem, state: State, seed: int) -> None:
        super()._start(problem, state, seed)
        state["curvature"] = np.zeros(())
        state["passes"] = np.asarray(1.0 + self._computed)
        if "anchored" in state:
            state["anchored"] = np.full((), -1)

    def _due(self, problem: Problem, state: State) -> bool:
        """Whether the matrices of the classes are to be computed: at first after as many iterations as they cost."""
        done, last, wait = int(state["iteration"]), int(state["anchored"]), _wait(problem)
        return done >= (wait if last < 0 else _AGAIN * last + wait)

    def _classes(self, problem: Problem, state: State) -> list[Factor] | None:
        """The factors of the classes; None: they have none yet."""
        if "anchored" not in state:
            return None
        if self._due(problem, state):
            state["anchor"][...] = state["point"]
            state["anchored"], self._of_classes = np.asarray(state["iteration"]), None
            state["passes"] = np.asarray(state["passes"] + 1)
        if self._of_classes is None and state["anchored"] >= 0:  # from the state, as a resumed run does
            bends = _curvatures(problem, self._responses(problem, *self._split(problem, state["anchor"])))
            rng = np.random.default_rng(0)
            self._of_classes = [self._factor_of(problem, bends[:, k], rng) for k in range(problem.n_outputs)]
        return self._of_classes

    @staticmethod
    def _responses(problem: Problem, W: Array, bias: Array) -> Array:
        """The negative gradients of the losses, (n, K)."""
        dual: Array = problem.blank((problem.n_samples, problem.n_outputs))
        problem.respond(W, bias, dual)
        return dual

    @staticmethod
    def _factor_of(problem: Problem, bends: Array, rng: np.random.Generator) -> Factor:
        """The factor of a class, whose losses have the curvatures ``bends``."""
        sizes = np.maximum(bends.astype(np.float64), _LEAST) * np.asarray(problem.sample_weight)
        rows, weights = _in_proportion(sizes, _rows_of_class(problem), rng)
        X = _picked(problem, rows)
        design = Design(X, weights=weights, intercept=problem.intercept, dtype=problem.dtype)
        moments, share = design.moments(math.inf), len(rows) / problem.n_samples
        noise = 2.0 * float(np.finfo(problem.dtype).eps) * share * moments.trace
        return moments.factor(max(problem.lam, noise), share)

    def _held(self, problem: Problem, state: State) -> Factor:
        """The factor, for the present curvature of the losses."""
        # In the state, so that a resumed run continues with the same factor.
        held, seen = float(state["curvature"]), self._seen
        if not held / _CHANGE <= seen <= held * _CHANGE:
            held, self._factor = seen, None
            state["curvature"] = np.asarray(held)
        if self._factor is None:
            # No less than what rounding can take from the products of the matrix.
            noise = 2.0 * float(np.finfo(problem.dtype).eps) * held * self._moments.trace
            self._factor = self._moments.factor(max(problem.lam, noise), held, keep=True)
        return self._factor

    def _begin(self, problem: Problem, state: State, direction: Array, turn: Array | None, bend: Any) -> None:
        factor = self._classes(problem, state) or self._held(problem, state)
        stepped = self._solved(problem, factor, direction)
        if turn is not None:
            with single_blas():  # or threads of the BLAS would wait, at full speed, for more of it during the next pass
                turned = self._solved(problem, factor, turn)
                length = float(np.vdot(turn, turned)) if isinstance(bend, float) else self._inner(problem, turn, turned)
                stepped *= scaling(bend, length, 1.0)
        direction[:] = stepped

    @staticmethod
    def _solved(problem: Problem, factor: Factor | list[Factor], gradient: Array) -> Array:
        """The inverse times a gradient; the constant feature is 1 in the matrix, and `constant` in a point."""
        d, q, scale = problem.n_features, problem.n_features + int(problem.intercept), constant(problem) or 1.0
        given = np.concatenate([gradient[:d], gradient[d:q] / scale]).astype(np.float64)
        solved = factor.solve(given) if isinstance(factor, Factor) else _solved_by_class(problem, factor, given)
        solved[d:] /= scale
        return solved if q > d else np.concatenate([solved, np.zeros((1, solved.shape[1]))])

    def _losses(self, problem: Problem, point: Array, state: State) -> float:
        losses = super()._losses(problem, point, state)
        if not suits_sweep(problem):
            everything = those(problem.targets, slice(None))
            seen = _spread(problem, state["dual"], np.asarray(problem.sample_weight), everything)
        else:
            seen = self._measured
        self._seen = seen / problem.n_samples
        return losses


def _picked(problem: Problem, rows: Array) -> Any:
    """Some rows, of the kind of all."""
    return problem.picked(rows) if isinstance(problem, ArrayProblem) else row_matrix(problem)[rows]


def _wait(problem: Problem) -> int:
    """Iterations before the matrices of the classes: as long as they take."""
    return max(_FEWEST, round(_COST * problem.n_features**2 / problem.n_samples))


def _rows_of_class(problem: Problem) -> int:
    """The number of rows that a matrix of a class is estimated from, at most n."""
    n, d = problem.n_samples, problem.n_features
    affordable = _ROWS_OF_CLASS / _COST * _wait(problem) * n / max(d, 1)
    return min(n, max(_ROWS_OF_CLASS * d, round(affordable)))


def _solved_by_class(problem: Problem, factors: list[Factor], gradient: Array) -> Array:
    """The inverse of the blocks times a gradient; with a joint loss that of the Hessian for its mean over classes."""
    mean = gradient.mean(axis=1, keepdims=True) * bool(problem.loss.joint)
    found: Array = gradient - mean
    for k, factor in enumerate(factors):
        found[:, k] = factor.solve(found[:, k : k + 1])[:, 0]
    if problem.loss.joint:
        found -= found.mean(axis=1, keepdims=True)
        found[: problem.n_features] += mean[: problem.n_features] / problem.lam
    return found


def _in_proportion(sizes: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """About ``count`` rows, each with a probability p = min(1, size / t), and size / p of these; none of size 0."""
    present = np.flatnonzero(sizes)
    sizes = sizes[present]
    if count >= len(sizes):
        return present, sizes
    falling = np.sort(sizes)[::-1]
    left = np.cumsum(falling[::-1])[::-1][:count]  # the sum from here on
    each = left / np.arange(count, 0, -1)
    t = each[int(np.argmax(falling[:count] <= each))]
    total = np.floor(np.cumsum(np.minimum(1.0, sizes / t)) + rng.random())
    rows = np.flatnonzero(np.diff(total, prepend=0.0))
    return present[rows], np.maximum(sizes[rows], t)


def _curvatures(problem: Problem, dual: Array) -> Array:
    """The second derivatives of the losses along each score, (n, K), from their negative gradients."""
    if isinstance(problem.loss, SquaredHingeLoss):
        return np.asarray(lipschitz(problem) * (dual != 0))
    if isinstance(problem.targets, SoftTargets):
        p = soft_matrix(problem.targets).toarray() - dual
        return np.asarray(p * (1 - p))
    sizes: Array = np.abs(dual)  # p, and 1 - p for the class of the row
    return np.asarray(sizes * (1 - sizes))


def _spread(problem: Problem, dual: Array, weights: Array, targets: Any) -> float:
    """The sum over rows of the mean curvature of their losses; from a = y - p, as abs(a) (1 - abs(a)) = p (1 - p)."""
    if isinstance(problem.targets, SoftTargets):
        p = targets.toarray() - dual
        return float(np.dot(weights.astype(np.float64), np.maximum((p * (1 - p)).mean(axis=1), 1e-6)))
    if not isinstance(problem.loss, MultinomialLoss | LogisticLoss):
        return lipschitz(problem) * float(weights.sum(dtype=np.float64))
    squares = np.einsum("ik,ik->i", dual, dual)
    if isinstance(problem.targets, ClassTargets):  # the other entries sum to minus that of the row's class
        sizes = 2.0 * dual[np.arange(len(dual)), targets]
    else:
        sizes = np.abs(dual).sum(axis=1)
    return float(np.dot(weights.astype(np.float64), np.maximum((sizes - squares) / problem.n_outputs, 1e-6)))

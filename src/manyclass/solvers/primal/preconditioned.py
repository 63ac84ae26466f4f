"""L-BFGS with the inverse of a least-squares matrix as initial inverse Hessian."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np

from manyclass.kernels.rows import CSRRows
from manyclass.kernels.targets import ClassTargets, SoftTargets
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.losses import LogisticLoss, MultinomialLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import single_blas
from manyclass.solvers.base import Progress, State, row_matrix
from manyclass.solvers.dual.condition import is_ill_conditioned
from manyclass.solvers.least_squares.design import Design, Moments
from manyclass.solvers.least_squares.solver import lipschitz
from manyclass.solvers.least_squares.systems import FACTORED, Factor
from manyclass.solvers.primal.base import constant
from manyclass.solvers.primal.dense import suits_sweep, those
from manyclass.solvers.primal.lbfgs import LBFGS

__all__ = ["PreconditionedLBFGS"]

#: Rows per feature from which the second moments are estimated unless the problem is ill-conditioned. Generated
#: embeddings, 50 000 x 1 024, 100 classes, alpha 1e-3 to 1e-7: as many iterations as with all rows, 1 to 24; MNIST,
#: alpha 1e-4 and 1e-6: 78 for 68, and more than 300 for 245.
_ROWS_PER_FEATURE = 4
#: The matrix is factored again when the mean curvature of the losses has changed by this factor.
_CHANGE = 1.5


class PreconditionedLBFGS(LBFGS):
    """L-BFGS whose initial inverse Hessian is a multiple of (h Sigma + lam I)^-1 instead of the identity.

    Sigma = X' diag(c) X / n with the sample weights c. h is the mean curvature of the losses at the current weights:
    the mean of p (1 - p) over rows and classes for multinomial and log loss, for other losses their Lipschitz constant.
    The number of iterations then hardly depends on the conditioning of X. For dense, correlated features, not too many,
    it is a fraction of that of `LBFGS` and of `GeneralizedLeastSquares`. Memory: (d + 1)^2 numbers in float64 for Sigma
    and as many for a Cholesky factor, which is computed again a few times as h decreases.

    Passes over the data: one for the matrix (which for a well-conditioned problem with many rows is estimated from four
    random rows per feature), one at the start, one per trial step; dense rows are read once for both
    scores and gradient, in blocks that stay in the cache.

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
        return {**super().state(problem), "curvature": np.zeros(())}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        # The other temporary arrays of the second moments are smaller than the factor, which is allocated after them.
        square = 8 * (problem.n_features + 1) ** 2
        found = {**super().nbytes(problem), "second moments": square, "their factor": square}
        if self._may_sample(problem):
            found["rows of the second moments"] = 8 * _ROWS_PER_FEATURE * problem.n_features**2
        return found

    @staticmethod
    def _may_sample(problem: Problem) -> bool:
        """Whether there are enough dense rows to estimate the second moments from some of them."""
        enough = 2 * _ROWS_PER_FEATURE * problem.n_features <= problem.n_samples
        return enough and not isinstance(problem.rows, CSRRows)

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        self._measure(problem)
        yield from super().iterate(problem, state, seed)

    def _measure(self, problem: Problem) -> None:
        """Compute the second moments; one pass, or part of one."""
        X, weights, n = row_matrix(problem), problem.sample_weight, problem.n_samples
        few = _ROWS_PER_FEATURE * problem.n_features
        if self._may_sample(problem) and not is_ill_conditioned(problem):
            # Whatever the seed, so that a fit without one has the same bits again.
            rows = np.sort(np.random.default_rng(0).choice(n, few, replace=False))
            X = problem.picked(rows) if isinstance(problem, ArrayProblem) else X[rows]
            weights = np.asarray(weights)[rows]
            weights = weights / (weights.mean() or 1.0)
        design = Design(
            X, weights=weights, intercept=problem.intercept, dtype=problem.dtype, n_threads=problem.n_threads
        )
        # Of products in float32 no more is needed: rounding is far below what another curvature would change.
        self._moments: Moments = design.moments(math.inf)
        self._factor: Factor | None = None
        self._measure_rows = partial(_spread, problem)

    def _start(self, problem: Problem, state: State, seed: int) -> None:
        super()._start(problem, state, seed)
        state["curvature"] = np.zeros(())
        state["passes"] = np.asarray(2.0)  # with the one for the matrix

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

    def _begin(self, problem: Problem, state: State, direction: Array, turn: Array | None, bend: float) -> None:
        factor = self._held(problem, state)
        stepped = self._solved(problem, factor, direction)
        if turn is not None:
            with single_blas():  # or threads of the BLAS would wait, at full speed, for more of it during the next pass
                stepped *= bend / float(np.vdot(turn, self._solved(problem, factor, turn)))
        direction[:] = stepped

    @staticmethod
    def _solved(problem: Problem, factor: Factor, gradient: Array) -> Array:
        """The inverse times a gradient; the constant feature is 1 in the matrix, and `constant` in a point."""
        d, q, scale = problem.n_features, problem.n_features + int(problem.intercept), constant(problem) or 1.0
        solved = factor.solve(np.concatenate([gradient[:d], gradient[d:q] / scale]).astype(np.float64))
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

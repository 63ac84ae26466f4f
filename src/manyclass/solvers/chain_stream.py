"""Linear-chain conditional random fields on sequences that arrive in a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import chain as kernels
from manyclass.objective.problem import Array
from manyclass.solvers.chain import ChainProblem, parts
from manyclass.solvers.primal.descent import OPTIMISM, DescentSolver
from manyclass.solvers.primal.on_values import Smooth, on_values

__all__ = ["ChainStream"]

#: A batch is fitted to this relative gap, or with so many iterations: most take 3 to 10.
_GAP, _MOST = 1e-2, 30


class ChainStream:
    """The parameters of a chain, and how well they are known: a mean and a precision for each of them.

    A batch of sequences changes the parameters to the minimum of

        sum_i c_i (log Z_i - score(y_i)) + sum_j h_j (theta_j - m_j)^2 / 2

    where m are the parameters before it, and the precisions h are the penalty and the sum of the curvatures of all
    earlier batches: the mean and the diagonal of Laplace's approximation of what these say (Opper and Winther, "A
    Bayesian approach to on-line learning", 1998). Of the curvature, the variances of the counts of features and labels
    in a sequence, the covariances of tokens are left out. There is no step size.

    Parameters
    ----------
    shape : tuple of int
        Shape of a point, see `ChainProblem`.
    alpha : float or None
        Strength of the penalty of each sequence; None: 1 for all of them together.

    Attributes
    ----------
    point, precision : ndarray of shape ``shape``
        m and h.
    seen : int
        Number of sequences so far.
    """

    def __init__(self, shape: tuple[int, int], alpha: float | None) -> None:
        self.alpha, self.seen = alpha, 0
        self.point, self.precision = np.zeros(shape), np.full(shape, self.least)

    @property
    def least(self) -> float:
        """The precision of parameters of which nothing is known but the penalty."""
        return 1.0 if self.alpha is None else self.alpha * self.seen

    def known(self) -> list[tuple[Array, float]]:
        """What is known: means and precisions, each with that of parameters of which nothing is known."""
        return [(self.point, 0.0), (self.precision, self.least)]

    def grow(self, point: Array, precision: Array) -> None:
        """Replace what is known by that of more parameters."""
        self.point, self.precision = point, precision

    def take(
        self, solver: DescentSolver, X: Any, edges: Array, y: Array, weights: Array, *, n_threads: int = 1
    ) -> None:
        """Update the parameters by a batch of sequences, see `ChainProblem`; ``weights`` are not scaled.

        An interrupt leaves the state of the batch before.
        """
        K, d = self.point.shape[1], len(self.point) - self.point.shape[1] - 2
        columns = np.arange(d)
        if sp.issparse(X):  # the features of the batch: the others do not change
            columns, places = np.unique(X.indices, return_inverse=True)
            places = places.reshape(-1).astype(X.indices.dtype)
            X = sp.csr_matrix((X.data, places, X.indptr), (X.shape[0], len(columns)))
        rows = np.concatenate([columns, d + np.arange(K + 2)])
        more = 0.0 if self.alpha is None else self.alpha * (len(edges) - 1)
        # The penalty of these sequences, which draws to 0, and what is known are together one quadratic.
        mean = self.point * (self.precision / (self.precision + more)) if more else self.point.copy()
        precision = self.precision[rows] + more
        problem = ChainProblem(X, edges, y, K, weights, 0.0, n_threads)
        batch = _Centered(problem, mean[rows], precision)
        descent = on_values(solver)
        state = descent.state(batch)  # type: ignore[arg-type]
        for progress in descent.iterate(batch, state, 0):  # type: ignore[arg-type]
            known = progress.estimate
            if progress.iteration == _MOST or (known is not None and known.relative_gap <= _GAP):
                break
        mean[rows] = batch.point(state["point"])
        precision += _curvatures(problem, mean[rows])
        if more:
            self.precision += more
        self.precision[rows] = precision
        self.point, self.seen = mean, self.seen + len(edges) - 1


class _Centered(Smooth):
    """The objective of a batch as a function of u = (theta - m) sqrt(h), of which the penalty is ||u||^2 / 2."""

    lam = 1.0

    def __init__(self, problem: ChainProblem, mean: Array, precision: Array) -> None:
        self._problem, self._mean, self._scale = problem, mean, 1.0 / np.sqrt(precision)
        self.shape, self._steep = problem.shape, 1.0

    @property
    def curvature(self) -> float:
        """That with which the first trial step has the length 1: a precision is that of a few sequences at least."""
        return OPTIMISM * self._steep

    def point(self, u: Array) -> Array:
        """theta."""
        return self._mean + u * self._scale

    def value(self, point: Array, gradient: Array) -> float:
        losses = self._problem.value(self.point(point), gradient)
        gradient *= self._scale
        gradient += point
        self._steep = float(np.linalg.norm(gradient))
        return losses + 0.5 * float(np.vdot(point, point))


def _curvatures(problem: ChainProblem, point: Array) -> Array:
    """The diagonal of the Hessian of the losses, without the covariances of different tokens."""
    W, A, first, last = parts(point)
    edges, K = problem.edges, W.shape[1]
    found, pairs, moves = np.empty_like(point), np.zeros_like(A), 0.0
    V = np.empty((len(problem.y), K))
    for begin, end in problem.pieces:
        S, losses = problem.scores(W, begin, end), np.empty(end - begin)
        none = np.empty(0, np.int64)
        kernels.chain_losses(S, none, edges, begin, end, problem.scale, A, first, last, pairs, losses)
        here = slice(int(edges[begin]), int(edges[end]))
        V[here] = S * (1.0 - S) * problem.weight[here, None]
    moves = max(float(problem.scale @ (np.diff(edges) - 1)), 1e-300)
    squares = problem.X.multiply(problem.X) if sp.issparse(problem.X) else problem.X.astype(np.float64) ** 2
    found[: len(W)] = squares.T @ V
    found[len(W) : len(W) + K] = pairs * (1.0 - pairs / moves)  # as if each pair of tokens had the mean probabilities
    found[-2], found[-1] = V[edges[:-1]].sum(axis=0), V[edges[1:] - 1].sum(axis=0)
    return np.maximum(found, 0.0)

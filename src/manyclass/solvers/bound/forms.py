"""Where the features of the labels come from: the maps between parameters and scores of labels.

A log-linear model gives label y of example i the score theta . f_i(y). What a solver asks of the features is here:
scores of a range of examples, the transposed map, and the matrix sum_i F_i' C_i F_i of blocks C_i in the space of the
labels (see `manyclass.solvers.bound.labels`). For softmax regression f_i(y) = x_i (kron) e_y, and none of them ever
forms it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np

from manyclass.kernels import bound as kernels
from manyclass.kernels.rows import CSRRows, DenseRows, Rows, n_stored
from manyclass.kernels.targets import ClassTargets, SignTargets
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.bound.labels import Labels

__all__ = ["Form", "KroneckerForm"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Rows whose scores are made at a time. Fixed: the sums must not depend on the number of threads.
PIECE = 1024
#: Numbers in the blocks of such a piece.
_BLOCKS = 2**21
#: Columns of a product that feeds BLAS well.
_PANEL = 512
#: Share of stored values up to which outer products of sparse rows are cheaper than dense ones by BLAS.
_SPARSE = 0.2
_PLAIN = L2()


class Form(ABC):
    """A log-linear model's features. A point is a (rows, n_outputs) array of float64.

    Attributes
    ----------
    n : int
        Examples.
    shape : tuple
        Of a point.
    scale : ndarray of shape (n,)
        c_i / n: the objective is a weighted mean.
    offsets : ndarray of shape (n + 1,)
        Where the labels of an example begin.
    true : ndarray of shape (n,)
        The position of the observed label.
    penalized : ndarray of shape (rows, 1)
        1 where a row of the point bears the penalty, 0 for an intercept.
    reduced : int
        Parameters that are left without what changes no probability: the size of a full curvature.
    """

    n: int
    shape: tuple[int, int]
    scale: Array
    offsets: Array
    true: Array
    penalized: Array
    reduced: int

    @abstractmethod
    def scores(self, V: Array, begin: int, end: int) -> Array:
        """What a point adds to the logarithms of a range of examples, a column for each of V's, before `spread`."""

    @abstractmethod
    def add_slope(self, R: Array, begin: int, end: int, V: Array) -> None:
        """``V += F' R``: the transposed map of `scores`."""

    def rows_of(self, begin: int, end: int) -> slice:
        """Which rows of what `scores` returns for all examples belong to a range of them."""
        return slice(begin, end)

    def spread(self, S: Array) -> Array:
        """Scores of labels, flat, of what `scores` returns for one point."""
        return S.reshape(-1)

    def gather(self, r: Array) -> Array:
        """The transposed map of `spread`."""
        return r.reshape(-1, self.shape[1])

    @abstractmethod
    def measured(self, S: Array, begin: int, end: int) -> Array:
        """log a(y): `spread`, and the logarithm of the base measure; a new array."""

    @abstractmethod
    def take(self, index: Array) -> Form:
        """Some examples, their features dense."""

    def pieces(self) -> list[tuple[int, int]]:
        """Ranges of examples to work on at a time, so that their blocks take a few megabytes."""
        squares = float(np.mean(np.diff(self.offsets).astype(np.float64) ** 2)) if self.n else 1.0
        return ranges(self.n, max(1, min(PIECE, int(_BLOCKS / squares))))

    @abstractmethod
    def add_diagonal(self, labels: Labels, share: float, begin: int, end: int, V: Array) -> None:
        """Add the diagonal of the curvature of a range of examples to a point."""

    # --- full rank ---

    @abstractmethod
    def add_gram(self, C: Array, begin: int, end: int, G: Array) -> None:
        """``G += sum_i F_i' C_i F_i`` in reduced parameters, for blocks C of a range; `finish_gram` has to follow."""

    def finish_gram(self, G: Array) -> None:  # noqa: B027 - a hook: nothing to do is the default
        """Fill what `add_gram` has left to symmetry."""

    @abstractmethod
    def add_penalty(self, lam: float, G: Array, *, intercept: bool = False) -> None:
        """Add the Hessian of lam ||theta||^2 / 2 in reduced parameters; of the intercept too, where asked for."""

    @abstractmethod
    def reduce(self, V: Array) -> Array:
        """A gradient in reduced parameters, (reduced,)."""

    @abstractmethod
    def expand(self, u: Array) -> Array:
        """Reduced parameters as a point."""

    @abstractmethod
    def times(self, M: Array, C: Array) -> tuple[Array, Array]:
        """``M Z`` and ``Z' M Z`` for a factor Z of the matrix of all blocks, sum_i F_i' C_i F_i = Z Z'."""

    def settle(self, point: Array) -> None:  # noqa: B027 - a hook
        """Take out of a point, in place, what changes no probability and only costs penalty."""


class KroneckerForm(Form):
    """Softmax regression, and logistic regression as its case of two labels with one of the scores at rest.

    Softmax leaves a freedom: the same vector added to the weights of all classes changes no probability. In the
    curvature it is taken out: K - 1 classes are left, the last weights are minus the sum of the others, and the
    unpenalized intercept is determined.
    """

    def __init__(
        self,
        rows: Rows,
        y: Array,
        n_outputs: int,
        scale: Array,
        *,
        n_features: int,
        constant: float = 0.0,
        margin: float = 0.0,
        binary: bool = False,
        n_threads: int = 1,
    ) -> None:
        self.rows, self.y, self.binary = rows, y, binary
        self.n = len(y)
        self.shape = n_features + 1, n_outputs
        self.scale = scale
        self.constant, self.margin = constant, margin
        self.n_threads = n_threads
        self.labels = 2 if binary else n_outputs
        self.free = self.labels - 1
        self.width = n_features + (1 if constant else 0)
        self.reduced = self.free * self.width
        self.offsets = np.arange(self.n + 1, dtype=np.int64) * self.labels
        self.true = self.offsets[:-1] + y
        self.penalized = np.ones((n_features + 1, 1))
        self.penalized[-1] = 0.0
        self._sparse = isinstance(rows, CSRRows) and n_stored(rows) <= _SPARSE * self.n * n_features

    @classmethod
    def of(cls, problem: Problem, constant: float) -> KroneckerForm:
        """The form of a problem with loss `MultinomialLoss`, or `LogisticLoss` of one margin.

        ``constant`` is the value of the feature that carries an intercept, 0 without one.
        """
        targets = problem.targets
        if isinstance(targets, ClassTargets):
            y = np.asarray(targets.y, np.int64)
        elif isinstance(targets, SignTargets):
            y = np.diff(targets.indptr).astype(np.int64)
        else:
            raise TypeError("unreachable: the solver has refused such targets")
        return cls(
            problem.rows,
            y,
            problem.n_outputs,
            np.asarray(problem.sample_weight, np.float64) / problem.n_samples,
            n_features=problem.n_features,
            constant=constant,
            margin=float(problem.loss.margin),
            binary=isinstance(targets, SignTargets),
            n_threads=problem.n_threads,
        )

    def scores(self, V: Array, begin: int, end: int) -> Array:
        W, bias = V[:-1], self.constant * V[-1]
        if isinstance(self.rows, DenseRows):
            x = self.rows.x[begin:end].astype(np.float64, copy=False)
            S: Array = x @ W
        else:
            S = np.empty((end - begin, V.shape[1]))
            run(
                lambda b, e: kernels.range_scores(self.rows, W, _PLAIN, begin + b, begin + e, S[b:e]),
                ranges(end - begin, max(1, PIECE // (4 * self.n_threads))),
                self.n_threads,
            )
        S += bias
        return S

    def add_slope(self, R: Array, begin: int, end: int, V: Array) -> None:
        if isinstance(self.rows, DenseRows):
            V[:-1] += self.rows.x[begin:end].astype(np.float64, copy=False).T @ R
        else:
            run(
                lambda lo, hi: kernels.add_images(self.rows, R, begin, end, lo, hi, V),
                ranges(R.shape[1], max(8, -(-R.shape[1] // self.n_threads))),
                self.n_threads,
            )
        if self.constant:
            V[-1] += self.constant * R.sum(axis=0)

    def spread(self, S: Array) -> Array:
        if not self.binary:
            return S.reshape(-1)
        L = np.zeros((len(S), 2))
        L[:, 1] = S[:, 0]
        return L.reshape(-1)

    def gather(self, r: Array) -> Array:
        r = r.reshape(-1, self.labels)
        return np.ascontiguousarray(r[:, 1:]) if self.binary else r

    def measured(self, S: Array, begin: int, end: int) -> Array:
        L = self.spread(S)
        L = L.copy() if L.base is not None else L
        if self.margin:
            L += self.margin
            L[self.true[begin:end] - self.offsets[begin]] -= self.margin
        return L

    def take(self, index: Array) -> KroneckerForm:
        x = np.empty((len(index), self.shape[0] - 1))
        kernels.gather(self.rows, np.asarray(index, np.int64), self.shape[0] - 1, x)
        return KroneckerForm(
            DenseRows(x),
            self.y[index],
            self.shape[1],
            self.scale[index],
            n_features=self.shape[0] - 1,
            constant=self.constant,
            margin=self.margin,
            binary=self.binary,
        )

    def add_diagonal(self, labels: Labels, share: float, begin: int, end: int, V: Array) -> None:
        R = self.gather(labels.diagonal(share))
        if isinstance(self.rows, DenseRows):
            squared: Rows = DenseRows(self.rows.x[begin:end].astype(np.float64) ** 2)
        else:
            first, last = self.rows.indptr[begin], self.rows.indptr[end]
            squared = CSRRows(
                self.rows.data[first:last].astype(np.float64) ** 2,
                self.rows.indices[first:last],
                self.rows.indptr[begin : end + 1] - first,
            )
        part = KroneckerForm(
            squared,
            self.y[begin:end],
            self.shape[1],
            self.scale[begin:end],
            n_features=self.shape[0] - 1,
            constant=self.constant**2,
            n_threads=self.n_threads,
        )
        part.add_slope(R, 0, end - begin, V)

    # --- full rank: parameters class by class, so that the curvature is K - 1 by K - 1 blocks X' diag(c_ab) X ---

    def add_gram(self, C: Array, begin: int, end: int, G: Array) -> None:
        C = self._reduced_blocks(C)
        G = G.reshape(self.free, self.width, self.free, self.width)
        if self._sparse:
            rows: Any = self.rows
            index = np.arange(begin, end)
            run(
                lambda a, b: kernels.fill_gram(rows.data, rows.indices, rows.indptr, index, self.constant, C, G, a, b),
                ranges(self.free, 1),
                self.n_threads,
            )
            return
        x = self._dense(begin, end)
        panel = max(1, _PANEL // self.width)

        def part(a: int, _: int) -> None:
            for lo in range(0, a + 1, panel):
                hi = min(a + 1, lo + panel)
                scaled = (C[:, a, lo:hi, None] * x[:, None, :]).reshape(len(x), -1)
                G[a, :, lo:hi] += (x.T @ scaled).reshape(self.width, hi - lo, self.width)

        run(part, ranges(self.free, 1), self.n_threads)

    def finish_gram(self, G: Array) -> None:
        blocks = G.reshape(self.free, self.width, self.free, self.width)
        for a in range(self.free):
            for b in range(a):
                blocks[b, :, a] = blocks[a, :, b].T

    def add_penalty(self, lam: float, G: Array, *, intercept: bool = False) -> None:
        blocks = G.reshape(self.free, self.width, self.free, self.width)
        at = np.arange(self.width if intercept else self.shape[0] - 1)
        for a in range(self.free):
            for b in range(self.free):
                # The last weights are minus the sum of the others: every pair of classes meets in them.
                blocks[a, at, b, at] += lam * ((a == b) + (not self.binary))

    def reduce(self, V: Array) -> Array:
        V = V[: self.width]
        if not self.binary:
            V = V[:, :-1] - V[:, -1:]
        return np.ascontiguousarray(V.T).reshape(-1)

    def expand(self, u: Array) -> Array:
        V = np.zeros(self.shape)
        given = u.reshape(self.free, self.width).T
        if self.binary:
            V[: self.width] = given
        else:
            V[: self.width, :-1] = given
            V[: self.width, -1] = -given.sum(axis=1)
        return V

    def settle(self, point: Array) -> None:
        if not self.binary:
            point -= point.mean(axis=1, keepdims=True)

    def times(self, M: Array, C: Array) -> tuple[Array, Array]:
        """``M Z`` and ``Z' M Z`` for a factor Z of the blocks' matrix, F' C F = Z Z', in reduced parameters.

        Z has K - 1 columns an example and is never formed: x_i (kron) the factor of C_i.
        """
        C = self._reduced_blocks(C)
        root = _roots(C)
        x = self._dense(0, self.n)
        Y = (M.reshape(self.reduced * self.free, self.width) @ x.T).reshape(self.reduced, self.free, self.n)
        Y = np.einsum("ial,lab->ilb", Y, root).reshape(self.reduced, -1)
        T = (x @ Y.reshape(self.free, self.width, -1)).reshape(self.free, self.n, -1)
        return Y, np.einsum("alr,lab->lbr", T, root).reshape(Y.shape[1], -1)

    def _dense(self, begin: int, end: int) -> Array:
        """Rows with the constant feature, float64."""
        x = np.empty((end - begin, self.width))
        if isinstance(self.rows, DenseRows):
            x[:, : self.shape[0] - 1] = self.rows.x[begin:end]
        else:
            kernels.gather(self.rows, np.arange(begin, end), self.shape[0] - 1, x)
        if self.constant:
            x[:, -1] = self.constant
        return x

    def _reduced_blocks(self, C: Array) -> Array:
        C = C.reshape(-1, self.labels, self.labels)
        if self.binary:
            return np.ascontiguousarray(C[:, 1:, 1:])
        found: Array = C[:, :-1, :-1] - C[:, :-1, -1:] - C[:, -1:, :-1] + C[:, -1:, -1:]
        return found


def _roots(C: Array) -> Array:
    """Factors R with R R' = C of small positive semi-definite matrices, (n, m, m)."""
    if C.shape[1] == 1:
        return np.sqrt(np.maximum(C, 0.0))
    w, U = np.linalg.eigh(C)
    found: Array = U * np.sqrt(np.maximum(w, 0.0))[:, None, :]
    return found

"""The linear maps between parameters and scores of the labels of log-linear models.

The score of label y of sample i is theta . f_i(y). With the features F_i of all labels of sample i as rows, a `Form`
computes scores, products with the transposes F_i', and sum_i F_i' C_i F_i for the matrices C_i of
`manyclass.solvers.bound.labels`. Softmax regression has f_i(y) = x_i (kron) e_y, which is never formed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from manyclass.kernels import bound as kernels
from manyclass.kernels.rows import CSRRows, DenseRows, Rows, n_stored
from manyclass.kernels.targets import ClassTargets, SignTargets
from manyclass.objective.problem import Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import PLAIN
from manyclass.solvers.bound.labels import Labels

__all__ = ["Form", "KroneckerForm"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Samples that are processed at a time. Fixed: sums must not depend on the number of threads.
PIECE = 1024
#: Maximum number of elements of the matrices C_i that are held at a time.
_BLOCKS = 2**21
#: Columns of a matrix product at which BLAS is efficient.
_PANEL = 512
#: Maximum density at which outer products of sparse rows are faster than dense products by BLAS.
_SPARSE = 0.2


class Form(ABC):
    """The features of a log-linear model. A point (its parameters) is a float64 array of shape (rows, n_outputs).

    Attributes
    ----------
    n : int
        Number of samples.
    shape : tuple
        Shape of a point.
    scale : ndarray of shape (n,)
        c_i / n, with the sample weights c: the objective is a weighted mean.
    offsets : ndarray of shape (n + 1,)
        Index of the first label of each sample.
    true : ndarray of shape (n,)
        Index of the observed label of each sample.
    penalized : ndarray of shape (rows, 1)
        1 for penalized rows of a point, 0 for an intercept.
    reduced : int
        Number of reduced parameters, those that are left when directions which change no probability are eliminated:
        the size of a full curvature.
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
        """The scores of a range of samples at a point V, or at several points stacked as columns."""

    @abstractmethod
    def add_slope(self, R: Array, begin: int, end: int, V: Array) -> None:
        """``V += F' R``, the transpose of `scores`."""

    def rows_of(self, begin: int, end: int) -> slice:
        """The rows of the scores of all samples that belong to a range of samples."""
        return slice(begin, end)

    def spread(self, S: Array) -> Array:
        """The scores of all labels, flat, from the result of `scores` at one point."""
        return S.reshape(-1)

    def gather(self, r: Array) -> Array:
        """The transpose of `spread`."""
        return r.reshape(-1, self.shape[1])

    @abstractmethod
    def measured(self, S: Array, begin: int, end: int) -> Array:
        """log a(y), the result of `spread` plus the logarithm of the base measure; a new array."""

    @abstractmethod
    def take(self, index: Array) -> Form:
        """The form of some samples, with dense features."""

    def pieces(self) -> list[tuple[int, int]]:
        """Ranges of samples whose matrices C_i take at most a few megabytes."""
        squares = float(np.mean(np.diff(self.offsets).astype(np.float64) ** 2)) if self.n else 1.0
        return ranges(self.n, max(1, min(PIECE, int(_BLOCKS / squares))))

    @abstractmethod
    def add_diagonal(self, labels: Labels, share: float, begin: int, end: int, V: Array) -> None:
        """Add the diagonal of the curvature of a range of samples to V, which has the shape of a point."""

    # --- full rank ---

    @abstractmethod
    def add_gram(self, C: Array, begin: int, end: int, G: Array) -> None:
        """``G += sum_i F_i' C_i F_i`` over a range, in reduced parameters; call `finish_gram` after the last range."""

    def finish_gram(self, G: Array) -> None:  # noqa: B027 - empty by default
        """Complete, by symmetry, the part of G that `add_gram` does not compute."""

    @abstractmethod
    def add_penalty(self, lam: float, G: Array, *, intercept: bool = False) -> None:
        """Add the Hessian of lam ||theta||^2 / 2 in reduced parameters, with ``intercept`` including the intercept."""

    @abstractmethod
    def reduce(self, V: Array) -> Array:
        """A gradient, of the shape of a point, in reduced parameters, of shape (reduced,)."""

    @abstractmethod
    def expand(self, u: Array) -> Array:
        """The point of reduced parameters."""

    @abstractmethod
    def times(self, M: Array, C: Array) -> tuple[Array, Array]:
        """``M Z`` and ``Z' M Z`` for a factor Z of the curvature of all samples, Z Z' = sum_i F_i' C_i F_i."""

    @abstractmethod
    def factor_rows(self, C: Array, limit: int) -> Iterator[Array]:
        """The rows of a factor Z' of the curvature of all samples, at most ``limit`` at a time.

        Each has as many numbers as a point; m_i - 1 rows for a sample with m_i labels, as a C_i has row sums of 0.
        """

    def settle(self, point: Array) -> None:  # noqa: B027 - empty by default
        """Remove from a point, in place, the component that changes no probability but increases the penalty."""


class KroneckerForm(Form):
    """Softmax regression; and logistic regression, as two labels of which the first has score 0.

    A vector added to the weights of all classes changes no probability of softmax regression. The reduced parameters
    eliminate it: the weights of the last class are minus the sum of the others, and the unpenalized intercept is
    unique.
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
        """The form of a problem with loss `MultinomialLoss`, or `LogisticLoss` with one output.

        ``constant`` is the value of the constant feature of the intercept, 0 without an intercept.
        """
        targets = problem.targets
        if isinstance(targets, ClassTargets):
            y = np.asarray(targets.y, np.int64)
        elif isinstance(targets, SignTargets):
            y = np.diff(targets.indptr).astype(np.int64)
        else:
            raise TypeError("unreachable: check_problem allows no other targets")
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
                lambda b, e: kernels.range_scores(self.rows, W, PLAIN, begin + b, begin + e, S[b:e]),
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
                # The last class, minus the sum of the others, contributes to the blocks of all pairs of classes.
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
        """As `Form.times`; Z, x_i (kron) the factor of C_i, has K - 1 columns per sample and is never formed."""
        C = self._reduced_blocks(C)
        root = _roots(C)
        x = self._dense(0, self.n)
        Y = (M.reshape(self.reduced * self.free, self.width) @ x.T).reshape(self.reduced, self.free, self.n)
        Y = np.einsum("ial,lab->ilb", Y, root).reshape(self.reduced, -1)
        T = (x @ Y.reshape(self.free, self.width, -1)).reshape(self.free, self.n, -1)
        return Y, np.einsum("alr,lab->lbr", T, root).reshape(Y.shape[1], -1)

    def factor_rows(self, C: Array, limit: int) -> Iterator[Array]:
        C = C.reshape(-1, self.labels, self.labels)
        # Eigenvalues ascend: the first is that of the vector of ones, 0.
        roots = _roots(C[:, 1:, 1:]) if self.binary else _roots(C)[:, :, 1:]
        roots = np.ascontiguousarray(roots.transpose(0, 2, 1)).reshape(-1, self.shape[1])
        x = np.zeros((self.n, self.shape[0]))
        x[:, : self.width] = self._dense(0, self.n)
        for begin, end in ranges(len(roots), limit):
            samples = np.arange(begin, end) // self.free
            yield (x[samples, :, None] * roots[begin:end, None, :]).reshape(end - begin, -1)

    def _dense(self, begin: int, end: int) -> Array:
        """Dense float64 rows, including the constant feature."""
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
    """Factors R, R R' = C, of positive semidefinite matrices of shape (n, m, m)."""
    if C.shape[1] == 1:
        return np.sqrt(np.maximum(C, 0.0))
    w, U = np.linalg.eigh(C)
    found: Array = U * np.sqrt(np.maximum(w, 0.0))[:, None, :]
    return found

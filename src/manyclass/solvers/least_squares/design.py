"""The design matrix of a least-squares fit, in chunks of rows: X, or features that a feature block computes from X."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from manyclass.features.base import projection
from manyclass.features.elsewhere import transform_there
from manyclass.kernels.gram import add_sparse_gram
from manyclass.kernels.rows import read_only
from manyclass.runtime.arrays import Array, as_double, as_type, detached, is_foreign, like, to_numpy
from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.least_squares.systems import ConjugateGradients, Factor, System, needed, rounding

if TYPE_CHECKING:
    from manyclass.features import FeatureBlock

__all__ = ["Design", "Moments"]

#: Maximum number of elements of a chunk; minimum number of rows, for efficient symmetric products.
_CHUNK, _LEAST_ROWS = 2**23, 1024


class Design:
    """Products with the features F, of shape (n, p), and a constant feature, in passes over chunks of rows.

    One chunk of features is in memory at a time. Those of a feature block are computed again in each pass.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        In memory, memory-mapped, or an array of another library, which then computes the products.
    block : FeatureBlock, optional
        A fitted feature block. None: the features are the columns of X.
    weights : ndarray of shape (n,), optional
        Sample weights with mean 1. None: all 1.
    intercept : bool, default=True
        Whether there is a constant feature, which is last and not penalized.
    dtype : dtype, default=float64
        float32 or float64, of features, products and scores.
    rows : int, optional
        Rows per chunk, >= 1. None: chosen from the number of features.
    n_threads : int, default=1
        Threads for the second moments of sparse rows, >= 1; the result does not depend on it.
    """

    def __init__(
        self,
        X: Any,
        block: FeatureBlock | None = None,
        *,
        weights: Array | None = None,
        intercept: bool = True,
        dtype: Any = np.float64,
        rows: int | None = None,
        n_threads: int = 1,
    ) -> None:
        # Weights of 1 are none: rows times their roots would be a copy of each chunk.
        self.weights = None if weights is None or bool(np.all(weights == 1)) else weights
        self.X, self.block, self.intercept = X, block, intercept
        self.dtype = np.dtype(dtype)
        self.n_threads = n_threads
        self.n_samples = int(X.shape[0])
        self.n_features = int(X.shape[1]) if block is None else _width(block, X)
        #: Number of rows of the weights: p, plus 1 with an intercept.
        self.q = self.n_features + int(intercept)
        wide = max(1, self.n_features, int(X.shape[1]) if block is not None and not sp.issparse(X) else 1)
        self.rows = rows or min(2 * _LEAST_ROWS * 8, max(_LEAST_ROWS, _CHUNK // wide))

    def chunks(self) -> Iterator[tuple[int, int, Any]]:
        """First row, last row + 1, and features of each chunk: an array, CSR matrix, or array of another library."""
        foreign = is_foreign(self.X)
        for begin, end in ranges(self.n_samples, self.rows):
            part = self.X[begin:end, :] if foreign else self.X[begin:end]
            there = transform_there(self.block, part) if foreign and self.block is not None else None
            if there is not None:
                yield begin, end, as_type(there, self.dtype.name)
                continue
            if self.block is not None:
                made = self.block.transform(to_numpy(part) if foreign else part)
                if sp.issparse(made):
                    made = made.tocsr()
                if foreign and not sp.issparse(made):
                    yield begin, end, like(made, part)
                    continue
                part = made
            if foreign and self.block is None:
                part = as_type(detached(part), self.dtype.name)
            else:
                part = part.astype(self.dtype, copy=False) if sp.issparse(part) else np.asarray(part, self.dtype)
            yield begin, end, part

    def needs(self) -> dict[str, int]:
        """Size in bytes of the second moments, by a description of each array."""
        return {**needed(self.q), "a chunk of features": 2 * 8 * self.rows * self.n_features}

    # --- passes -----------------------------------------------------------------------------------------------------

    def moments(self, ridge: float, responses: Array | None = None) -> Moments:
        """F' diag(c) F / n, and F' diag(c) R / n for ``responses`` R of shape (n, K). One pass, or two.

        Products of float32 features are computed in float32 and summed over the chunks in float64. If that is not
        accurate enough for ``ridge`` (`systems.rounding`), a second pass computes them in float64.
        """
        require(self.needs(), "a smaller block of features, or system='cg' if there is no feature block")
        found = self._moments(self.dtype, responses)
        if self.dtype == np.float32 and rounding(ridge, found.trace):
            found = self._moments(np.dtype(np.float64), responses)
        return found

    def _moments(self, dtype: np.dtype[Any], responses: Array | None) -> Moments:
        p, q = self.n_features, self.q
        storage = np.zeros(q * q)
        features = storage[: p * p].reshape(p, p)
        sums = np.zeros(p)
        cross = None if responses is None else np.zeros((q, responses.shape[1]))
        buffer = np.zeros((p, p), dtype) if dtype == np.float32 else None
        for begin, end, F in self.chunks():
            c = None if self.weights is None else self.weights[begin:end]
            self._add_square(F, c, features, buffer)
            sums += self._sum(F, np.ones(end - begin) if c is None else c)
            if cross is not None and responses is not None:
                self._add_cross(F, responses[begin:end], c, cross)
        matrix = storage.reshape(q, q)
        if self.intercept:
            # From p x p to q x q in place, from the last row on: a second matrix would double the memory.
            for row in range(p - 1, 0, -1):
                matrix[row, :p] = storage[row * p : (row + 1) * p].copy()
            matrix[p, :p] = sums
            matrix[p, p] = self.n_samples if self.weights is None else self.weights.sum()
        matrix /= self.n_samples
        return Moments(matrix, None if cross is None else cross / self.n_samples, p)

    def _add_square(self, F: Any, c: Array | None, G: Array, buffer: Array | None) -> None:
        """``G += F' diag(c) F``, lower triangle only."""
        if sp.issparse(F):
            parts = read_only(F.data), read_only(F.indices), read_only(F.indptr)
            weights = np.ones(F.shape[0]) if c is None else c
            run(
                lambda first, last: add_sparse_gram(*parts, read_only(weights), first, last, G),
                ranges(self.n_features, max(1, -(-self.n_features // self.n_threads))),
                self.n_threads,
            )
            return
        if not isinstance(F, np.ndarray):
            F = as_double(F) if buffer is None else F
            weighted = F if c is None else F * like(c[:, None], F)
            G += to_numpy(weighted.T @ F)
            return
        if c is not None:
            F = F * np.sqrt(c).astype(F.dtype)[:, None]
        if buffer is None:
            # BLAS is column-major: it gets transposes, whose upper triangle is our lower one, and adds to G in place.
            F = np.ascontiguousarray(F, np.float64)
            blas.dsyrk(1.0, F.T, beta=1.0, c=G.T, overwrite_c=1, lower=0)
        else:
            F = np.ascontiguousarray(F)
            blas.ssyrk(1.0, F.T, beta=0.0, c=buffer.T, overwrite_c=1, lower=0)
            for begin, end in ranges(self.n_features, 512):
                G[begin:end, :end] += buffer[begin:end, :end]

    @staticmethod
    def _sum(F: Any, c: Array) -> Array:
        if sp.issparse(F):
            return np.asarray(F.T @ c, np.float64)
        sums: Array = to_numpy(like(c[None, :], F) @ F)[0].astype(np.float64)
        return sums

    def _add_cross(self, F: Any, R: Array, c: Array | None, cross: Array) -> None:
        """``cross += [F, 1]' diag(c) R``."""
        if c is not None:
            R = R * c[:, None].astype(R.dtype)
        p = self.n_features
        cross[:p] += F.T @ R if sp.issparse(F) else to_numpy(F.T @ like(R, F))
        if self.intercept:
            cross[p] += R.sum(axis=0, dtype=np.float64)

    def cross(self, responses: Array) -> Array:
        """[F, 1]' diag(c) R / n for ``responses`` R, of shape (q, K), in float64. One pass."""
        total = np.zeros((self.q, responses.shape[1]))
        for begin, end, F in self.chunks():
            self.add_chunk_cross(F, begin, end, responses[begin:end], total)
        return total / self.n_samples

    def add_chunk_cross(self, F: Any, begin: int, end: int, responses: Array, total: Array) -> None:
        """``total += [F, 1]' diag(c) R`` for the rows begin to end - 1, a chunk with features F and ``responses`` R."""
        self._add_cross(F, responses, None if self.weights is None else self.weights[begin:end], total)

    def add_scores(self, W: Array, scores: Array) -> None:
        """``scores += [F, 1] W`` for W of shape (q, K). One pass."""
        project = None if is_foreign(self.X) else projection(self.block, W[: self.n_features].astype(self.dtype))
        if project is not None:
            for begin, end in ranges(self.n_samples, self.rows):
                scores[begin:end] += project(self.X[begin:end])
            if self.intercept:
                scores += W[self.n_features].astype(scores.dtype)
            return
        for begin, end, F in self.chunks():
            self.add_chunk_scores(F, W, scores[begin:end])

    def add_chunk_scores(self, F: Any, W: Array, scores: Array) -> None:
        """As `add_scores`, for the features F of a chunk and the scores of its rows."""
        top = W[: self.n_features]
        scores += F @ top.astype(self.dtype) if sp.issparse(F) else to_numpy(F @ like(top, F))
        if self.intercept:
            scores += W[self.n_features].astype(scores.dtype)

    # --- systems ----------------------------------------------------------------------------------------------------

    def system(
        self, alpha: float, lipschitz: float, *, factored: bool, moments: Moments | None = None, tol: float = 1e-3
    ) -> System:
        """The system L Sigma + alpha I over the features and the constant feature, which is not penalized.

        Parameters
        ----------
        alpha, lipschitz : float
            Strength of the penalty; L.
        factored : bool
            Whether to solve by Cholesky; else by conjugate gradients, with two passes over the data per product.
        moments : Moments, optional
            The second moments, not changed. None: they are computed.
        tol : float, default=1e-3
            Tolerance of conjugate gradients.
        """
        if factored:
            found = self.moments(alpha / lipschitz) if moments is None else moments
            return found.factor(alpha, lipschitz, keep=moments is not None)
        p = self.n_features

        def times(W: Array) -> Array:
            scores = np.zeros((self.n_samples, W.shape[1]), self.dtype)
            self.add_scores(W, scores)
            product = lipschitz * self.cross(scores)
            product[:p] += alpha * W[:p]
            return product

        diagonal = lipschitz * self._squares()
        diagonal[:p] += alpha
        return ConjugateGradients(times, diagonal, tol=tol)

    def _squares(self) -> Array:
        """The diagonal of [F, 1]' diag(c) [F, 1] / n. One pass."""
        total = np.zeros(self.q)
        for begin, end, F in self.chunks():
            c = np.ones(end - begin) if self.weights is None else np.asarray(self.weights[begin:end], np.float64)
            square = F.multiply(F) if sp.issparse(F) else F * F
            total[: self.n_features] += self._sum(square, c)
            total[self.n_features :] += c.sum()
        return total / self.n_samples

    def release(self) -> None:
        """Free the memory of what the feature block can compute again."""
        release = getattr(self.block, "release", None)  # transformers of scikit-learn have none
        if release is not None:
            release()


def _width(block: Any, X: Any) -> int:
    """The number of features of a fitted feature block."""
    found = getattr(block, "n_features_out_", None)
    if found is None:
        found = block.transform(to_numpy(X[:1, :]) if is_foreign(X) else X[:1]).shape[1]
    return int(found)


class Moments:
    """Second moments of the features and the constant feature, and their products with responses.

    Parameters
    ----------
    matrix : ndarray of shape (q, q)
        Lower triangle of [F, 1]' diag(c) [F, 1] / n.
    cross : ndarray of shape (q, K), optional
        [F, 1]' diag(c) R / n.
    n_features : int
        p, the number of penalized rows of the weights.
    """

    def __init__(self, matrix: Array, cross: Array | None, n_features: int) -> None:
        self.matrix, self.cross, self.n_features = matrix, cross, n_features

    @property
    def trace(self) -> float:
        """The trace of F' diag(c) F / n, the mean squared norm of the rows."""
        return float(self.matrix.diagonal()[: self.n_features].sum())

    def factor(self, alpha: float, lipschitz: float = 1.0, *, keep: bool = False) -> Factor:
        """The Cholesky factor of L Sigma + alpha I; the constant feature is not penalized.

        Without ``keep`` the second moments are overwritten.
        """
        matrix = self.matrix.copy() if keep else self.matrix
        if lipschitz != 1.0:
            matrix *= lipschitz
        inner = np.arange(self.n_features)
        matrix[inner, inner] += alpha
        return Factor(matrix)

"""The objective of linear-chain conditional random fields.

    P(theta) = sum_i scale_i (log Z_i - score(y_i)) + lam ||theta||^2 / 2

A point theta has the shape (d + K + 2, K): the weights of the d features, the transitions A from each label, and the
weights of the first and of the last label of a sequence.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import bound as products, chain as kernels
from manyclass.kernels.rows import make_rows
from manyclass.runtime.threads import run
from manyclass.solvers.base import PLAIN
from manyclass.solvers.primal.on_values import Smooth

__all__ = ["ChainProblem", "Chains", "parts"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Tokens, and features, that are processed at a time. Fixed: sums must not depend on the number of threads.
_TOKENS, _FEATURES = 4096, 2048


class Chains:
    """The tokens of some sequences, and what a point says of them.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (N, d)
        The features of all tokens.
    edges : ndarray of int64 of shape (n + 1,)
        The tokens of sequence i are the rows edges[i] .. edges[i + 1] - 1; no sequence is empty.
    n_threads : int, default=1
        Number of threads; results do not depend on it.
    """

    def __init__(self, X: Any, edges: Array, n_threads: int = 1) -> None:
        self.X, self.edges, self.n_threads = X, edges, n_threads
        self.rows = make_rows(X)
        # The first sequence that begins at or after each multiple of the size, so that a piece has one at least.
        cuts = np.searchsorted(edges, np.arange(0, edges[-1], _TOKENS))
        cuts = np.unique(np.append(cuts, len(edges) - 1))
        self.pieces = list(zip(cuts[:-1].tolist(), cuts[1:].tolist()))

    def scores(self, W: Array, begin: int, end: int) -> Array:
        """The scores of the labels of the tokens of a range of sequences, by the weights of the features."""
        first, last = int(self.edges[begin]), int(self.edges[end])
        if not sp.issparse(self.X):
            return np.asarray(self.X[first:last].astype(np.float64, copy=False) @ W)
        S = np.empty((last - first, W.shape[1]))
        products.range_scores(self.rows, W, PLAIN, first, last, S)
        return S

    def read(self, point: Array, y: Array | None = None) -> tuple[Array, Array]:
        """The marginals P(y_t = k) of all tokens, and log Z of each sequence, or with ``y`` minus its log-likelihood.

        ``y`` are the observed labels of all tokens.
        """
        W, A, first, last = parts(point)
        marginals, losses = np.empty((int(self.edges[-1]), point.shape[1])), np.empty(len(self.edges) - 1)
        given, ones = np.empty(0, np.int64) if y is None else y, np.ones(len(losses))

        def part(begin: int, end: int) -> None:
            S = self.scores(W, begin, end)
            pairs = np.zeros(A.shape)
            kernels.chain_losses(S, given, self.edges, begin, end, ones, A, first, last, pairs, losses[begin:end])
            marginals[self.edges[begin] : self.edges[end]] = S

        run(part, self.pieces, self.n_threads)
        return marginals, losses

    def best(self, point: Array) -> Array:
        """The labels of all tokens on the most probable path of each sequence."""
        W, A, first, last = parts(point)
        path = np.empty(int(self.edges[-1]), np.int64)

        def part(begin: int, end: int) -> None:
            here = path[self.edges[begin] : self.edges[end]]
            kernels.best_paths(self.scores(W, begin, end), self.edges, begin, end, A, first, last, here)

        run(part, self.pieces, self.n_threads)
        return path


class ChainProblem(Chains, Smooth):
    """The objective P of a linear-chain conditional random field.

    Parameters
    ----------
    X, edges, n_threads
        See `Chains`.
    y : ndarray of int64 of shape (N,)
        The observed labels of all tokens, 0 to K - 1.
    n_labels : int
        K.
    scale : ndarray of shape (n,)
        c_i / n, with the weights c of the sequences.
    lam : float
        Strength of the penalty, > 0.
    """

    def __init__(
        self, X: Any, edges: Array, y: Array, n_labels: int, scale: Array, lam: float, n_threads: int = 1
    ) -> None:
        super().__init__(X, edges, n_threads)
        self.y, self.scale, self.lam = y, scale, lam
        self.shape = X.shape[1] + n_labels + 2, n_labels
        self.weight = np.repeat(scale, np.diff(edges))
        self._columns = make_rows(sp.csr_matrix(X.T)) if sp.issparse(X) else None
        inside = np.ones(len(y), bool)
        inside[edges[1:] - 1] = False
        before = np.flatnonzero(inside)
        self._pairs = np.zeros((n_labels, n_labels))
        np.add.at(self._pairs, (y[before], y[before + 1]), self.weight[before])

    def value(self, point: Array, gradient: Array) -> float:
        """P at a point, whose ``gradient`` is written."""
        W, A, first, last = parts(point)
        d, K = W.shape
        R, edges = np.empty((len(self.y), K)), self.edges

        def part(begin: int, end: int) -> tuple[float, Array]:
            S, pairs = self.scores(W, begin, end), np.zeros((K, K))
            losses = np.empty(end - begin)
            loss = kernels.chain_losses(S, self.y, edges, begin, end, self.scale, A, first, last, pairs, losses)
            here = slice(int(edges[begin]), int(edges[end]))
            S[np.arange(len(S)), self.y[here]] -= 1.0
            np.multiply(S, self.weight[here, None], out=R[here])
            return float(loss), pairs

        found = run(part, self.pieces, self.n_threads)
        np.multiply(point, self.lam, out=gradient)
        self._add_images(R, gradient[:d])
        gradient[d : d + K] += np.sum([pairs for _, pairs in found], axis=0) - self._pairs
        gradient[d + K] += R[edges[:-1]].sum(axis=0)
        gradient[d + K + 1] += R[edges[1:] - 1].sum(axis=0)
        return float(np.sum([loss for loss, _ in found])) + 0.5 * self.lam * float(np.vdot(point, point))

    def _add_images(self, R: Array, V: Array) -> None:
        """``V += X' R``."""
        if self._columns is None:
            V += self.X.T.astype(np.float64, copy=False) @ R
            return

        def part(begin: int, end: int) -> None:
            image = np.empty((end - begin, R.shape[1]))
            products.range_scores(self._columns, R, PLAIN, begin, end, image)
            V[begin:end] += image

        d = len(V)
        run(part, [(begin, min(begin + _FEATURES, d)) for begin in range(0, d, _FEATURES)], self.n_threads)

    @property
    def curvature(self) -> float:
        """An estimate of the largest curvature of the losses: the mean sum of the squared norms of the tokens."""
        squares = self.X.multiply(self.X).sum(axis=1) if sp.issparse(self.X) else np.einsum("nd,nd->n", self.X, self.X)
        return float(self.weight @ (np.asarray(squares, np.float64).reshape(-1) + 1.0))


def parts(point: Array) -> tuple[Array, Array, Array, Array]:
    """The weights of the features (d, K), the transitions (K, K), the weights of the first and the last label (K,)."""
    K = point.shape[1]
    d = len(point) - K - 2
    return point[:d], point[d : d + K], point[d + K], point[d + K + 1]

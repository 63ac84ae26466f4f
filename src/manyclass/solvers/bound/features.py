"""Log-linear models with explicit joint features: f(x, y) and h(x, y) for every label y of every sample x."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import bound as kernels
from manyclass.runtime.threads import ranges
from manyclass.solvers.bound.forms import PIECE, Form
from manyclass.solvers.bound.labels import Labels

__all__ = ["FeatureForm"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Elements of the dense features that are processed at a time.
_PIECE_SIZE = 2**21


class FeatureForm(Form):
    """A `Form` with one row of features per label of each sample; a point has shape (D, 1), and is penalized.

    Parameters
    ----------
    features : ndarray or CSR matrix of shape (N, D)
        f(x, y) of all labels, sample by sample.
    offsets : ndarray of shape (n + 1,)
        Index of the first row of each sample.
    y : ndarray of shape (n,)
        Index of the observed label among those of the sample.
    scale : ndarray of shape (n,)
        c_i / n, with the sample weights c.
    log_measure : ndarray of shape (N,), optional
        log h(x, y). None: zeros.
    """

    def __init__(self, features: Any, offsets: Array, y: Array, scale: Array, log_measure: Array | None = None) -> None:
        self.features = features
        self.n = len(offsets) - 1
        self.offsets = offsets
        self.true = offsets[:-1] + y
        self.scale = scale
        self.log_measure = log_measure
        self.reduced = int(features.shape[1])
        self.shape = self.reduced, 1
        self.penalized = np.ones((self.reduced, 1))

    def rows_of(self, begin: int, end: int) -> slice:
        return slice(int(self.offsets[begin]), int(self.offsets[end]))

    def pieces(self) -> list[tuple[int, int]]:
        labels = max(1.0, float(np.diff(self.offsets).mean()))
        width = max(1, self.reduced, int(labels))
        return ranges(self.n, max(1, min(PIECE, int(_PIECE_SIZE / (labels * width)))))

    def scores(self, V: Array, begin: int, end: int) -> Array:
        S: Array = np.asarray(self.features[self.rows_of(begin, end)] @ V, np.float64)
        return S

    def add_slope(self, R: Array, begin: int, end: int, V: Array) -> None:
        V += self.features[self.rows_of(begin, end)].T @ R

    def gather(self, r: Array) -> Array:
        return r.reshape(-1, 1)

    def measured(self, S: Array, begin: int, end: int) -> Array:
        L = S.reshape(-1).copy()
        if self.log_measure is not None:
            L += self.log_measure[self.rows_of(begin, end)]
        return L

    def take(self, index: Array) -> FeatureForm:
        sizes = np.diff(self.offsets)[index]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        # Index within the sample, plus the index of its first row.
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], sizes)
        measure = None if self.log_measure is None else self.log_measure[rows]
        return FeatureForm(
            _dense(self.features[rows]), offsets, (self.true - self.offsets[:-1])[index], self.scale[index], measure
        )

    def add_diagonal(self, labels: Labels, share: float, begin: int, end: int, V: Array) -> None:
        F, mixed = self._mixed(labels.blocks(share), begin, end)
        V[:, 0] += np.einsum("nd,nd->d", F, mixed)

    def add_gram(self, C: Array, begin: int, end: int, G: Array) -> None:
        F, mixed = self._mixed(C, begin, end)
        G += F.T @ mixed

    def finish_gram(self, G: Array) -> None:
        G += G.T
        G *= 0.5

    def add_penalty(self, lam: float, G: Array, *, intercept: bool = False) -> None:
        G[np.diag_indices_from(G)] += lam

    def reduce(self, V: Array) -> Array:
        return V.reshape(-1).copy()

    def expand(self, u: Array) -> Array:
        return u.reshape(-1, 1).copy()

    def times(self, M: Array, C: Array) -> tuple[Array, Array]:
        F = _dense(self.features)
        columns = []
        at = 0
        for i in range(self.n):
            b, e = int(self.offsets[i]), int(self.offsets[i + 1])
            w, U = np.linalg.eigh(C[at : at + (e - b) ** 2].reshape(e - b, e - b))
            columns.append(F[b:e].T @ (U * np.sqrt(np.maximum(w, 0.0))))
            at += (e - b) ** 2
        Z = np.hstack(columns)
        Y = M @ Z
        return Y, Z.T @ Y

    def factor_rows(self, C: Array, limit: int) -> Iterator[Array]:
        F = _dense(self.features)
        at = 0
        for i in range(self.n):
            b, e = int(self.offsets[i]), int(self.offsets[i + 1])
            w, U = np.linalg.eigh(C[at : at + (e - b) ** 2].reshape(e - b, e - b))
            roots = (U * np.sqrt(np.maximum(w, 0.0)))[:, 1:].T
            for lo, hi in ranges(len(roots), limit):
                yield roots[lo:hi] @ F[b:e]
            at += (e - b) ** 2

    def _mixed(self, C: Array, begin: int, end: int) -> tuple[Array, Array]:
        """The dense features F of a range of samples, and C F."""
        F = _dense(self.features[self.rows_of(begin, end)])
        offsets = self.offsets[begin : end + 1]
        squares = np.concatenate([[0], np.cumsum(np.diff(offsets) ** 2)])
        mixed = np.empty_like(F)
        kernels.mix_rows(C, offsets, squares, F, mixed)
        return F, mixed


def _dense(features: Any) -> Array:
    """Rows as a float64 array."""
    return np.ascontiguousarray(features.toarray() if sp.issparse(features) else features, np.float64)

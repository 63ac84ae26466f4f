"""Standardized columns of X: (x_ij - m_j) / s_j, applied to the weights in place of the rows, or to a copy of them.

With D = diag(s), scores of the standardized rows are X (D^-1 W) + (b - m^T D^-1 W), and a sum over rows a_i is
D^-1 (X^T a - m 1^T a): d x K numbers are changed for each pass over the data, and X is read as it is. A problem with
such columns is the problem of the standardized rows; `Standard.raw` gives the weights and the intercept for X. Solvers
that read the rows themselves get a copy, `Standard.copy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges

__all__ = ["Standard"]

_Array = np.ndarray[Any, np.dtype[Any]]

#: Rows that are read at a time.
_ROWS = 4096
_REMEDY = "dtype=np.float32, or a solver that reads X as it is ('lbfgs' for an l2 penalty, 'fista')"


class Standard(NamedTuple):
    """What is subtracted from each column, and by what it is then multiplied: (d,) float64 each.

    Examples
    --------
    >>> import numpy as np
    >>> of = Standard.of(np.array([[1.0, 5.0], [5.0, 5.0]]), None, center=True)
    >>> of.mean.tolist(), of.factor.tolist()  # a constant column becomes zero
    ([3.0, 5.0], [0.5, 0.0])
    """

    mean: _Array
    factor: _Array

    @classmethod
    def of(cls, X: Any, weights: _Array | None, *, center: bool) -> Standard:
        """The weighted means (zeros without ``center``) and 1 / standard deviations of the columns of an array or CSR
        matrix, in float64. A constant column is zero after centering, and is not changed without.

        The deviations are summed about the means in a second pass over X.
        """
        n, d = X.shape
        c = np.ones(n) if weights is None else np.asarray(weights, np.float64)
        total = float(c.sum())
        mean, variance, present = np.zeros(d), np.zeros(d), np.zeros(d)
        for rows, begin, end in _blocks(X):
            mean += c[begin:end] @ rows / total
        for rows, begin, end in _blocks(X):
            if sp.issparse(X):
                share = np.repeat(c[begin:end], np.diff(rows.indptr))
                present += np.bincount(rows.indices, share, d)
                variance += np.bincount(rows.indices, share * (rows.data - mean[rows.indices]) ** 2, d)
            else:
                rows -= mean
                variance += c[begin:end] @ np.square(rows, out=rows)
        if sp.issparse(X):  # a value that is not stored is a zero, -mean from the mean
            variance += np.maximum(total - present, 0.0) * mean**2
        variance /= total
        # The bound of scikit-learn's StandardScaler.
        eps = float(np.finfo(X.dtype).eps)
        constant = variance <= n * eps * variance + (n * mean * eps) ** 2
        factor = np.where(constant, 0.0 if center else 1.0, 1.0 / np.sqrt(np.where(constant, 1.0, variance)))
        return cls(mean if center else np.zeros(d), factor)

    def raw(self, W: Any, intercept: _Array) -> tuple[Any, _Array]:
        """The weights (an array, or a CSR matrix) and the intercept for X of a model for the standardized columns."""
        factor = self.factor.astype(W.dtype)
        V = sp.csr_matrix(sp.diags(factor) @ W) if sp.issparse(W) else W * factor[:, None]
        return V, (intercept - self._along_mean(V)).astype(W.dtype)

    def standardized(self, V: _Array, intercept: _Array) -> tuple[_Array, _Array]:
        """The inverse of `raw`."""
        scale = np.divide(1.0, self.factor, out=np.zeros_like(self.factor), where=self.factor > 0)
        return V * scale.astype(V.dtype)[:, None], (intercept + self._along_mean(V)).astype(V.dtype)

    def _along_mean(self, V: Any) -> _Array:
        """``mean^T V`` in float64."""
        found = np.zeros(V.shape[1])
        for begin, end in _pieces(V):
            found += self.mean[begin:end] @ V[begin:end]
        return found

    def pulled(self, V: _Array, total: _Array) -> None:
        """Change ``V = X^T a`` to that of the standardized rows, in place, for a of sum ``total`` over the rows."""
        K = len(total)
        for begin, end in _pieces(V):
            part = V[begin:end, :K] - np.outer(self.mean[begin:end], total)
            V[begin:end, :K] = part * self.factor[begin:end, None]

    def copy(self, X: Any, intercept: bool) -> tuple[Any, Standard]:
        """A standardized copy of X, and what `raw` needs for a model of it.

        Sparse columns are not centered, which takes an intercept to be the same problem; without one, ``mean`` is zero.
        """
        if not sp.issparse(X):
            require({"a standardized copy of X": X.nbytes}, _REMEDY)
            copied = np.empty_like(X, order="C")
            for rows, begin, end in _blocks(X):
                rows -= self.mean
                rows *= self.factor
                copied[begin:end] = rows
            return copied, self
        assert intercept or not self.mean.any()
        require({"standardized values of X": X.data.nbytes}, _REMEDY)
        data = X.data * self.factor.astype(X.dtype)[X.indices]
        return sp.csr_matrix((data, X.indices, X.indptr), shape=X.shape), self._replace(mean=np.zeros_like(self.mean))

    def norms(self, X: Any) -> _Array:
        """The squared norms of the standardized rows, (n,)."""
        found, square = np.empty(X.shape[0]), self.factor**2
        for rows, begin, end in _blocks(X):
            if sp.issparse(rows):
                across = rows @ (self.mean * square)
                rows.data **= 2
                found[begin:end] = rows @ square - 2.0 * across + float(self.mean**2 @ square)
            else:
                rows -= self.mean
                found[begin:end] = np.square(rows, out=rows) @ square
        return np.maximum(found, 0.0)


def _pieces(V: Any) -> list[tuple[int, int]]:
    """Ranges of the rows of V with some 2^20 numbers each, for what is computed in float64."""
    return ranges(V.shape[0], max(1, (1 << 20) // max(V.shape[1], 1)))


def _blocks(X: Any) -> Iterator[tuple[Any, int, int]]:
    """``(rows, begin, end)``: X by blocks of rows, each a copy in float64."""
    for begin, end in ranges(X.shape[0], _ROWS):
        yield X[begin:end].astype(np.float64), begin, end

"""Bounds and Hessians of log-partition functions as functions of the scores of the labels."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from manyclass.kernels import bound as kernels

__all__ = ["ORDERS", "Labels"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Sign of the scores by which the bound sorts the labels; 0: not sorted.
ORDERS = {"ascending": 1.0, "descending": -1.0, "given": 0.0}


class Labels:
    """Probabilities of the labels of some samples, and the curvatures C_i = scale_i ((1 - share) H_i + share B_i).

    As functions of the scores of the labels, H_i = diag(p) - p p' is the Hessian of log Z_i, and B_i the curvature of
    its bound (Jebara and Choromanska 2012, algorithm 1): log Z_i(L + u) <= log Z_i(L) + p . u + u' B_i u / 2 for all u.

    Parameters
    ----------
    L : ndarray of shape (N,)
        log a(y) = log h(y) + theta . f(y) of all labels, sample by sample.
    offsets : ndarray of shape (n + 1,)
        Index of the first label of each sample, from 0 on.
    scale : ndarray of shape (n,)
        The factor of each sample, >= 0.
    order : {"ascending", "descending", "given"}, default="ascending"
        The order in which the bound processes the labels: by increasing or decreasing score, or as given.
    """

    def __init__(self, L: Array, offsets: Array, scale: Array, order: str = "ascending") -> None:
        self.offsets = offsets
        self.scale = scale
        self.p = np.empty_like(L)
        kernels.soften(L, offsets, self.p)
        self._order = np.empty(len(L), np.int64)
        self._beta = np.empty_like(L)
        self._kappa = np.empty_like(L)
        kernels.label_terms(L, offsets, ORDERS[order], self._order, self._beta, self._kappa)

    def squares(self) -> Array:
        """Index of the first element of each C_i in `blocks`, of shape (n + 1,)."""
        return np.concatenate([[0], np.cumsum(np.diff(self.offsets) ** 2)])

    def blocks(self, share: float) -> Array:
        """All C_i, of shape (m_i, m_i) each, in one flat array."""
        squares = self.squares()
        C = np.empty(int(squares[-1]))
        kernels.blocks(self.p, self._order, self._beta, self._kappa, self.offsets, squares, self.scale, float(share), C)
        return C

    def diagonal(self, share: float) -> Array:
        """The diagonals of all C_i, of shape (N,)."""
        out = np.empty_like(self.p)
        kernels.block_diagonal(
            self.p, self._order, self._beta, self._kappa, self.offsets, self.scale, float(share), out
        )
        return out

    def apply(self, share: float, v: Array) -> Array:
        """The products ``C_i v_i`` of all samples, of shape (N,), in O(N) operations."""
        out = np.empty_like(self.p)
        kernels.apply_blocks(
            self.p, self._order, self._beta, self._kappa, self.offsets, self.scale, float(share), v, out
        )
        return out

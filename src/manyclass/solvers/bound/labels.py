"""What bounds and Hessians of partition functions say of the labels, before any features come in."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from manyclass.kernels import bound as kernels

__all__ = ["ORDERS", "Labels"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: By their scores, lowest or highest first, or as they are numbered.
ORDERS = {"ascending": 1.0, "descending": -1.0, "given": 0.0}


class Labels:
    """Some examples' labels at one point: probabilities, and the blocks C_i = scale_i ((1 - share) H_i + share B_i).

    H_i = diag(p) - p p' is the Hessian of log Z_i in the space of the labels, B_i the curvature of its bound
    (Jebara and Choromanska 2012, algorithm 1): log Z_i(L + u) <= log Z_i(L) + p . u + u' B_i u / 2 for EVERY u.

    Parameters
    ----------
    L : ndarray of shape (N,)
        log a(y) = log h(y) + theta . f(y) of all labels, one example after the other.
    offsets : ndarray of shape (n + 1,)
        Where an example's labels begin, from 0 on.
    scale : ndarray of shape (n,)
        A factor for each example.
    order : {"ascending", "descending", "given"}
        In which the bound takes the labels: by score, lowest or highest first, or as they are. It decides how tight the
        bound is.
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
        """Where the blocks of `blocks` begin, (n + 1,)."""
        return np.concatenate([[0], np.cumsum(np.diff(self.offsets) ** 2)])

    def blocks(self, share: float) -> Array:
        """All C_i, m_i x m_i each, in one flat array."""
        squares = self.squares()
        C = np.empty(int(squares[-1]))
        kernels.blocks(self.p, self._order, self._beta, self._kappa, self.offsets, squares, self.scale, float(share), C)
        return C

    def diagonal(self, share: float) -> Array:
        """The diagonals of all C_i, (N,)."""
        out = np.empty_like(self.p)
        kernels.block_diagonal(
            self.p, self._order, self._beta, self._kappa, self.offsets, self.scale, float(share), out
        )
        return out

    def apply(self, share: float, v: Array) -> Array:
        """``C_i v_i`` of all examples, (N,), in O(N)."""
        out = np.empty_like(self.p)
        kernels.apply_blocks(
            self.p, self._order, self._beta, self._kappa, self.offsets, self.scale, float(share), v, out
        )
        return out

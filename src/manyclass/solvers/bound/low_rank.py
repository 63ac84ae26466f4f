"""Curvatures of low rank plus a diagonal: safe updates, inverses by Woodbury's formula."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy import linalg

__all__ = ["LowRankDiagonal"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class LowRankDiagonal:
    """``V' diag(s) V + diag(d)``: V with k orthonormal rows, s and d not negative.

    Memory is k + 1 numbers a parameter. `add` keeps it above all that has been added, in the order of symmetric
    matrices; what no longer fits the rank goes to the diagonal.

    Parameters
    ----------
    diagonal : ndarray of shape (size,)
        d at the start, such as the weight of a penalty; not negative.
    rank : int
        k, at least 1; at most the size is used.

    Attributes
    ----------
    basis : ndarray of shape (k, size)
        V; rows of zeros where s is still zero.
    values : ndarray of shape (k,)
        s, in descending order.
    diagonal : ndarray of shape (size,)
        d.

    Raises
    ------
    ValueError
        If the rank is less than 1, or a number of the diagonal is negative or not finite.

    Notes
    -----
    The update often given, to project sqrt(w) l on V and to put what is left over into the diagonal, loses the cross
    term between the two and is no upper bound. Here the residual joins the basis, the (k + 1) x (k + 1) matrix is
    diagonalised, and the least eigenpair (w, u) is replaced by diag(w |u_i| sum_l |u_l|), which lies above w u u':
    2 |u_i u_l x_i x_l| <= |u_i u_l| (x_i^2 + x_l^2).

    References
    ----------
    Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, section 5, with this correction.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(20, 6))
    >>> curvature = LowRankDiagonal(np.ones(6), rank=2)
    >>> for row in rows:
    ...     curvature.add(row)
    >>> bool(np.linalg.eigvalsh(curvature.dense() - rows.T @ rows - np.eye(6)).min() > 0)
    True
    >>> u = rng.normal(size=6)
    >>> np.allclose(curvature.solve(u), np.linalg.solve(curvature.dense(), u))
    True
    """

    def __init__(self, diagonal: Array, rank: int) -> None:
        found = np.array(diagonal, np.float64)
        if found.ndim != 1 or not np.isfinite(found).all() or found.min(initial=0.0) < 0:
            raise ValueError("diagonal must be a one-dimensional array of finite numbers of at least 0")
        if rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, got {rank!r}")
        self.diagonal = found
        rank = min(int(rank), len(found))
        self.basis = np.zeros((rank, len(found)))
        self.values = np.zeros(rank)

    def add(self, row: Array, weight: float = 1.0) -> None:
        """Add ``weight l l'``, for l = ``row`` and a weight of at least 0: the result lies above the sum. O(k size)."""
        q = np.sqrt(weight) * np.asarray(row, np.float64)
        share = self.basis @ q
        rest = q - share @ self.basis
        again = self.basis @ rest  # once more: the residual of a row close to the basis is rounding otherwise
        rest -= again @ self.basis
        share += again
        length = float(np.linalg.norm(rest))
        if length <= 1e-14 * float(np.linalg.norm(q)):
            rest, length = np.zeros_like(q), 0.0
        else:
            rest /= length
        joint = np.diag(np.append(self.values, 0.0))
        tail = np.append(share, length)
        joint += np.outer(tail, tail)
        w, U = np.linalg.eigh(joint)
        rows = U.T @ np.vstack([self.basis, rest])
        self._drop(max(float(w[0]), 0.0) * 1.0, rows[0])
        self.values = np.maximum(w[:0:-1], 0.0)
        self.basis = rows[:0:-1]

    def _drop(self, value: float, row: Array) -> None:
        size = np.abs(row)
        self.diagonal += value * size * size.sum()

    def solve(self, u: Array) -> Array:
        """The inverse times ``u``: D^-1 u - D^-1 V' (S^-1 + V D^-1 V')^-1 V D^-1 u, with the minus.

        Raises
        ------
        ValueError
            If a number of the diagonal is zero.
        """
        if not self.diagonal.min() > 0:
            raise ValueError("the diagonal has a zero: the inverse does not exist, add a penalty")
        return woodbury(self.diagonal, np.sqrt(self.values)[:, None] * self.basis, np.asarray(u, np.float64))

    def dense(self) -> Array:
        """The matrix itself, (size, size)."""
        found: Array = (self.basis.T * self.values) @ self.basis
        found[np.diag_indices_from(found)] += self.diagonal
        return found


def woodbury(diagonal: Array, rows: Array, u: Array) -> Array:
    """``(rows' rows + diag)^-1 u``, in O(k size)."""
    scaled = rows / diagonal
    inner = scaled @ rows.T
    inner[np.diag_indices_from(inner)] += 1.0
    found: Array = u / diagonal - scaled.T @ linalg.solve(inner, scaled @ u, assume_a="pos")
    return found


def nystrom(basis: Array, products: Array) -> Array:
    """Rows B with B'B <= A, equal to A on the span of ``basis`` (k, size) where ``products`` are A's with it."""
    inner = basis @ products.T
    w, U = np.linalg.eigh(0.5 * (inner + inner.T))
    kept = w > 1e-12 * max(float(w.max(initial=0.0)), 1e-300)
    found: Array = (U[:, kept] / np.sqrt(w[kept])).T @ products
    return found

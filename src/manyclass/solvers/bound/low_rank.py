"""Low-rank plus diagonal matrices: updates that keep an upper bound, and inverses by Woodbury's formula."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy import linalg

__all__ = ["LowRankDiagonal"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class LowRankDiagonal:
    """The matrix ``V' diag(s) V + diag(d)`` with k orthonormal rows V and nonnegative s and d.

    It takes k + 1 numbers per parameter. After `add` it is an upper bound, in the Loewner order, on the sum of all
    terms so far: what exceeds rank k is added to the diagonal.

    Parameters
    ----------
    diagonal : ndarray of shape (size,)
        The first d, such as the strength of a penalty; finite, >= 0.
    rank : int
        k, >= 1; reduced to ``size`` if larger.

    Attributes
    ----------
    basis : ndarray of shape (k, size)
        V; a row is zero while its s is zero.
    values : ndarray of shape (k,)
        s, in descending order.
    diagonal : ndarray of shape (size,)
        d.

    Raises
    ------
    ValueError
        If ``rank`` is less than 1, or an element of ``diagonal`` is negative or not finite.

    Notes
    -----
    The published update, which projects sqrt(w) l on V and adds the residual to the diagonal, omits the cross term of
    the two and is not an upper bound. Here the residual extends the basis, the (k + 1) x (k + 1) matrix is
    diagonalized, and the smallest eigenpair (w, u) is replaced by its upper bound diag(w |u_i| sum_l |u_l|):
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
            raise ValueError(
                f"diagonal must be a vector of finite numbers >= 0, got shape {found.shape} with minimum "
                f"{found.min(initial=0.0)}: check its numbers"
            )
        if rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, got {rank!r}")
        self.diagonal = found
        rank = min(int(rank), len(found))
        self.basis = np.zeros((rank, len(found)))
        self.values = np.zeros(rank)

    def add(self, row: Array, weight: float = 1.0) -> None:
        """Add ``weight l l'`` for l = ``row`` and ``weight`` >= 0, or an upper bound on it; O(k size) operations."""
        q = np.sqrt(weight) * np.asarray(row, np.float64)
        share = self.basis @ q
        rest = q - share @ self.basis
        again = self.basis @ rest  # a second time, because rounding dominates the residual of a row near the span
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
        size = np.abs(rows[0])
        self.diagonal += max(float(w[0]), 0.0) * size * size.sum()
        self.values = np.maximum(w[:0:-1], 0.0)
        self.basis = rows[:0:-1]

    def solve(self, u: Array) -> Array:
        """The inverse times ``u``: D^-1 u - D^-1 V' (S^-1 + V D^-1 V')^-1 V D^-1 u.

        Raises
        ------
        ValueError
            If an element of the diagonal is zero.
        """
        if not self.diagonal.min() > 0:
            raise ValueError("diagonal must be positive to solve, got a zero: add a penalty to the diagonal")
        return woodbury(self.diagonal, np.sqrt(self.values)[:, None] * self.basis, np.asarray(u, np.float64))

    def dense(self) -> Array:
        """The matrix as an array of shape (size, size)."""
        found: Array = (self.basis.T * self.values) @ self.basis
        found[np.diag_indices_from(found)] += self.diagonal
        return found


def woodbury(diagonal: Array, rows: Array, u: Array) -> Array:
    """``(rows' rows + diag)^-1 u`` by Woodbury's formula, in O(k^2 size) operations."""
    scaled = rows / diagonal
    inner = scaled @ rows.T
    inner[np.diag_indices_from(inner)] += 1.0
    found: Array = u / diagonal - scaled.T @ linalg.solve(inner, scaled @ u, assume_a="pos")
    return found


def nystrom(basis: Array, products: Array) -> Array:
    """The Nystrom approximation B'B <= A, exact on the span of ``basis``, as B; ``products`` is ``basis @ A``."""
    inner = basis @ products.T
    w, U = np.linalg.eigh(0.5 * (inner + inner.T))
    kept = w > 1e-12 * max(float(w.max(initial=0.0)), 1e-300)
    found: Array = (U[:, kept] / np.sqrt(w[kept])).T @ products
    return found

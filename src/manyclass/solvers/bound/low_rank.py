"""Low-rank plus diagonal matrices: updates that keep an upper bound, and inverses by Woodbury's formula."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy import linalg

__all__ = ["LowRankDiagonal"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class LowRankDiagonal:
    """The matrix ``rows' rows + diag(d)`` with k rows and nonnegative d.

    It takes k + 1 numbers per parameter. After `add` it is an upper bound, in the Loewner order, on the sum of all
    terms so far: what exceeds rank k is added to the diagonal.

    Parameters
    ----------
    diagonal : ndarray of shape (size,)
        The first d, such as the strength of a penalty; finite, >= 0.
    rank : int
        k, >= 1; reduced to ``size`` if larger.
    safe : bool, default=True
        Whether the matrix is an upper bound. False: only the diagonal of what exceeds rank k is added to d, which has
        the diagonal of the exact sum, but is no upper bound on it.

    Attributes
    ----------
    rows : ndarray of shape (k, size)
        Orthogonal rows, in descending order of their lengths: sqrt(S) V of the form V' S V + D with orthonormal V.
    diagonal : ndarray of shape (size,)
        d.

    Raises
    ------
    ValueError
        If ``rank`` is less than 1, or an element of ``diagonal`` is negative or not finite.

    Notes
    -----
    The published update, which projects sqrt(w) l on V and adds the residual to the diagonal, omits the cross term of
    the two and is not an upper bound. Here the new rows extend the old ones, an orthogonal transformation makes all
    rows orthogonal, and each row u that is not among the k longest is replaced by an upper bound on u u',
    diag(|u_i| sum_l |u_l|): 2 |u_i u_l x_i x_l| <= |u_i u_l| (x_i^2 + x_l^2).

    References
    ----------
    Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, section 5, with this correction.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(20, 6))
    >>> curvature = LowRankDiagonal(np.ones(6), rank=2)
    >>> curvature.add(rows)
    >>> bool(np.linalg.eigvalsh(curvature.dense() - rows.T @ rows - np.eye(6)).min() > 0)
    True
    >>> u = rng.normal(size=6)
    >>> np.allclose(curvature.solve(u), np.linalg.solve(curvature.dense(), u))
    True
    """

    def __init__(self, diagonal: Array, rank: int, *, safe: bool = True) -> None:
        found = np.array(diagonal, np.float64)
        if found.ndim != 1 or not np.isfinite(found).all() or found.min(initial=0.0) < 0:
            raise ValueError(
                f"diagonal must be a vector of finite numbers >= 0, got shape {found.shape} with minimum "
                f"{found.min(initial=0.0)}: check its numbers"
            )
        if rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, got {rank!r}")
        self.diagonal = found
        self.rows = np.zeros((min(int(rank), len(found)), len(found)))
        self.safe = safe

    def add(self, rows: Array) -> None:
        """Add ``rows' rows``, or an upper bound on it, for an array of shape (r, size) or (size,).

        k rows at a time: O(k size) operations for each row.
        """
        rank = len(self.rows)
        given = np.asarray(rows, np.float64).reshape(-1, len(self.diagonal))
        for begin in range(0, len(given), rank):
            joint = np.vstack([self.rows, given[begin : begin + rank]])
            _, U = np.linalg.eigh(joint @ joint.T)
            joint = U[:, ::-1].T @ joint
            rest = joint[rank:]
            if self.safe:
                size = np.abs(rest)
                self.diagonal += size.sum(axis=1) @ size
            else:
                self.diagonal += np.einsum("rs,rs->s", rest, rest)
            self.rows = joint[:rank]

    def solve(self, u: Array) -> Array:
        """The inverse times ``u``: D^-1 u - D^-1 B' (I + B D^-1 B')^-1 B D^-1 u, with B the ``rows``.

        Raises
        ------
        ValueError
            If an element of the diagonal is zero.
        """
        if not self.diagonal.min() > 0:
            raise ValueError("diagonal must be positive to solve, got a zero: add a penalty to the diagonal")
        return woodbury(self.diagonal, self.rows, np.asarray(u, np.float64))

    def dense(self) -> Array:
        """The matrix as an array of shape (size, size)."""
        found: Array = self.rows.T @ self.rows
        found[np.diag_indices_from(found)] += self.diagonal
        return found


def woodbury(diagonal: Array, rows: Array, u: Array) -> Array:
    """``(rows' rows + diag)^-1 u`` by Woodbury's formula, in O(k^2 size) operations."""
    scaled = rows / diagonal
    inner = scaled @ rows.T
    inner[np.diag_indices_from(inner)] += 1.0
    try:
        factor = linalg.cho_factor(inner, check_finite=False)
    except linalg.LinAlgError as error:
        raise ValueError("the curvature is numerically singular: scale the features, or raise alpha") from error
    found: Array = u / diagonal - scaled.T @ linalg.cho_solve(factor, scaled @ u, check_finite=False)
    return found


def nystrom(basis: Array, products: Array) -> Array:
    """The Nystrom approximation B'B <= A, exact on the span of ``basis``, as B; ``products`` is ``basis @ A``."""
    inner = basis @ products.T
    w, U = np.linalg.eigh(0.5 * (inner + inner.T))
    kept = w > 1e-12 * max(float(w.max(initial=0.0)), 1e-300)
    found: Array = (U[:, kept] / np.sqrt(w[kept])).T @ products
    return found

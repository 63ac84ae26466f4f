"""Solvers of (L Sigma + alpha I) X = B: a Cholesky factor, or conjugate gradients if that is too large."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from manyclass.runtime import memory
from manyclass.runtime.arrays import Array
from manyclass.runtime.threads import ranges, single_blas

__all__ = ["FACTORED", "SYSTEMS", "ConjugateGradients", "Factor", "System", "is_factored", "needed", "rounding"]

SYSTEMS = ("auto", "cholesky", "cg")
#: Maximum number of unknowns for which "auto" factors the matrix; with more, the cubic cost is minutes.
FACTORED = 10_000

#: Rows of a triangle that are mirrored at a time.
_BAND = 512
#: Maximum number of unknowns for which LAPACK factors the whole matrix; columns of a panel with more.
_WHOLE, _PANEL = 8192, 1024


class System(Protocol):
    """A positive semidefinite linear system with several right-hand sides."""

    def solve(self, B: Array) -> Array:
        """The solution X of A X = B, in float64, for B of shape (q, K) in the range of A."""


class Factor:
    """The Cholesky factor of a positive semidefinite matrix, pivoted if it is singular.

    The matrix is first scaled to unit diagonal, so that the result does not depend on the units of the features. A
    pivot below q times the rounding error of float64 counts as singular. Then pivoted Cholesky (LAPACK's pstrf) finds
    rows that span all others, and `solve` sets the other unknowns to 0. This is a solution for every right-hand side in
    the range of the matrix, as gradients of least-squares problems are. Where several choices of rows span the others
    equally well, rounding decides between them; the solution of minimum norm does not depend on the choice.

    Parameters
    ----------
    matrix : float64 ndarray of shape (q, q), C order
        The lower triangle is read; the array is overwritten.
    noise : float, default=0.0
        Relative rounding error of the matrix, if larger than that of float64.
    minimum_norm : bool, default=False
        Whether a singular matrix gets the solution of minimum norm (of the scaled unknowns): another array of q x rank
        numbers and q rank^2 operations.

    Attributes
    ----------
    rank : int
        Numerical rank of the matrix.
    """

    def __init__(self, matrix: Array, noise: float = 0.0, *, minimum_norm: bool = False) -> None:
        q = len(matrix)
        least = q * max(noise, float(np.finfo(np.float64).eps))
        diagonal = matrix.diagonal().copy()
        if not np.isfinite(diagonal).all():
            raise ValueError("the second moments of X must be finite, got NaN or infinity: scale the features")
        # The right-hand side of a zero feature is 0, and so is its weight.
        self._scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        for begin, end in ranges(q, _BAND):
            matrix[begin:end] *= self._scale[begin:end, None]
            matrix[begin:end] *= self._scale
            block = np.tril(matrix[begin:end, begin:end], -1)
            matrix[begin:end, begin:end] = block + block.T
            matrix[:begin, begin:end] = matrix[begin:end, :begin].T
        np.fill_diagonal(matrix, 1.0)
        # LAPACK is column-major: our lower triangle is the upper one of the transpose.
        fault = _factor(matrix)
        factor = matrix.T
        pivots = factor.diagonal()
        self.rank = q
        self._picked: Array | None = None
        self._span: Array | None = None
        if fault or pivots.min(initial=1.0) ** 2 < least:
            # The upper triangle still has the matrix.
            np.fill_diagonal(matrix, 1.0)
            factor, order, self.rank, _ = lapack.dpstrf(matrix.T, lower=1, overwrite_a=1, tol=least)
            self._picked = order[: None if minimum_norm else self.rank] - 1
            if minimum_norm:
                # P'AP = L L' = Q R R' Q' with L of shape (q, rank), so that the pseudoinverse is Q (R R')^-1 Q'.
                self._span, self._triangle = qr(np.tril(factor[:, : self.rank]), mode="economic", overwrite_a=True)
                return
            factor = np.asfortranarray(factor[: self.rank, : self.rank])
        self._factor = factor

    def solve(self, B: Array) -> Array:
        """The solution X of A X = B, of shape (q, K), for B in the range of A."""
        with single_blas():  # SciPy's would take a core from NumPy's, which computes B
            return self._solve(B)

    def _solve(self, B: Array) -> Array:
        scaled = np.asarray(B, np.float64) * self._scale[:, None]
        if self._picked is None:
            found: Array = lapack.dpotrs(self._factor, scaled, lower=0)[0]
        else:
            found = np.zeros_like(scaled)
            if self._span is not None:
                inner = solve_triangular(self._triangle, self._span.T @ scaled[self._picked])
                found[self._picked] = self._span @ solve_triangular(self._triangle, inner, trans="T")
            elif self.rank:
                found[self._picked] = lapack.dpotrs(self._factor, scaled[self._picked], lower=1)[0]
        return np.ascontiguousarray(found * self._scale[:, None])

    def inverse_root(self) -> Array:
        """R of shape (rank, q) with ``solve(B) == R.T @ (R @ B)``, for systems whose products are computed elsewhere.

        Not for a factor of minimum norm. Takes q rank^2 operations.
        """
        assert self._span is None
        if self._picked is None:
            return np.asarray(np.triu(lapack.dtrtri(self._factor)[0]).T * self._scale)
        found = np.zeros((self.rank, len(self._scale)))
        if self.rank:
            found[:, self._picked] = np.tril(lapack.dtrtri(self._factor, lower=1)[0]) * self._scale[self._picked]
        return found


def _factor(matrix: Array) -> int:
    """Replace the lower triangle of a C-ordered matrix A by L, L L' = A; returns 0 if A is positive definite.

    OpenBLAS fails with a segmentation fault on some matrices of 20 000 unknowns: large ones are factored in panels.
    """
    q = len(matrix)
    if q <= _WHOLE:
        return int(lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)[1])
    for begin, end in ranges(q, _PANEL):
        pivot, fault = lapack.dpotrf(matrix[begin:end, begin:end], lower=1, clean=1)
        if fault:
            return int(begin + fault)
        lower = np.tril_indices(end - begin)
        matrix[begin:end, begin:end][lower] = pivot[lower]
        if end < q:
            panel = solve_triangular(pivot, matrix[end:, begin:end].T, lower=True, check_finite=False).T
            matrix[end:, begin:end] = panel
            for first, last in ranges(q - end, _PANEL):
                part = matrix[end + first : end + last]
                part[:, end : end + first] -= panel[first:last] @ panel[:first].T
                corner = np.tril_indices(last - first)
                square = part[:, end + first : end + last]
                square[corner] -= (panel[first:last] @ panel[first:last].T)[corner]
    return 0


class ConjugateGradients:
    """Conjugate gradients with a diagonal preconditioner, run for each right-hand side at the same time.

    Each iterate decreases the quadratic (1/2) <X, A X> - <B, X> from its value at 0. An inexact solution therefore
    still gives a majorization-minimization step that decreases the objective.

    Parameters
    ----------
    times : callable
        Returns A X for X of shape (q, K).
    diagonal : ndarray of shape (q,)
        The diagonal of A.
    tol : float, default=1e-3
        Residual at which a column is solved, relative to B, in the norm of the preconditioner; > 0.
    max_iter : int, default=200
        Maximum number of iterations.
    """

    def __init__(
        self, times: Callable[[Array], Array], diagonal: Array, *, tol: float = 1e-3, max_iter: int = 200
    ) -> None:
        self._times = times
        self._inverse = 1.0 / np.where(diagonal > 0, diagonal, 1.0)[:, None]
        self.tol, self.max_iter = tol, max_iter
        self.n_products = 0

    def solve(self, B: Array) -> Array:
        """The solution X of A X = B to tolerance ``tol``."""
        residual = np.array(B, np.float64)
        X = np.zeros_like(residual)
        towards = self._inverse * residual
        direction = towards.copy()
        size = _columns(residual, towards)
        goal = self.tol**2 * size
        for _ in range(self.max_iter):
            if np.all(size <= goal):
                break
            product = self._times(direction)
            self.n_products += 1
            bend = _columns(direction, product)
            # Columns that are solved, or have no curvature, get step size 0.
            step = np.where((size > goal) & (bend > 0), size / np.where(bend > 0, bend, 1.0), 0.0)
            X += step * direction
            residual -= step * product
            towards = self._inverse * residual
            new = _columns(residual, towards)
            direction = towards + np.where(size > 0, new / np.where(size > 0, size, 1.0), 0.0) * direction
            size = np.where(step > 0, new, np.minimum(size, goal))
        return X


def _columns(one: Array, other: Array) -> Array:
    """The inner products of corresponding columns."""
    found: Array = np.einsum("jk,jk->k", one, other)
    return found


def rounding(alpha: float, trace: float) -> bool:
    """Whether products in float32 are too inaccurate for ridge ``alpha`` and second moments with this trace.

    Their error is about the rounding error of float32 times the largest eigenvalue, which is at most the trace. It
    matters if the ridge is smaller: eigenvalues of the sum could be negative.
    """
    return not (math.isfinite(trace) and alpha >= 2.0 * float(np.finfo(np.float32).eps) * trace)


def needed(q: int) -> dict[str, int]:
    """Size in bytes of a factored system with q unknowns, by a description of each array."""
    return {"second moments and their factor": 8 * q * q, "second moments of a chunk": 4 * q * q}


def is_factored(system: str, q: int) -> bool:
    """Whether a system with q unknowns is factored, for ``system`` in `SYSTEMS`."""
    if system != "auto":
        return system == "cholesky"
    there = memory.available()
    return q <= FACTORED and (there is None or 2 * sum(needed(q).values()) < there)

"""Solving (L Sigma + alpha I) X = B: by one Cholesky factor, or by conjugate gradients where that is too large."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.linalg import lapack, solve_triangular

from manyclass.runtime import memory
from manyclass.runtime.threads import ranges
from manyclass.solvers.least_squares.arrays import Array

__all__ = ["FACTORED", "SYSTEMS", "ConjugateGradients", "Factor", "System", "is_factored", "needed", "rounding"]

SYSTEMS = ("auto", "cholesky", "cg")
#: Unknowns up to which "auto" factors a matrix: beyond, the cube of their number is a matter of minutes.
FACTORED = 10_000

#: Columns of a triangle that are mirrored at a time.
_BAND = 512
#: Unknowns up to which LAPACK factors the whole matrix; and the columns of a panel beyond that.
_WHOLE, _PANEL = 8192, 1024


class System(Protocol):
    """A positive semi-definite system that can be solved for several right-hand sides."""

    def solve(self, B: Array) -> Array:
        """X with A X = B, float64, for B of shape (q, K) in the range of A."""


class Factor:
    """The Cholesky factor of a positive semi-definite matrix, pivoted where it is singular.

    The matrix is scaled to a unit diagonal first, so that features in different units cost no digits, and what is
    singular does not depend on units. A pivot below q times the rounding of float64 says singular: then pivoted
    Cholesky (LAPACK's pstrf) finds rank-many rows that span all others, and `solve` leaves the other unknowns zero.
    That solves the system for every right-hand side in its range, which gradients of a least-squares fit are.

    Parameters
    ----------
    matrix : float64 ndarray of shape (q, q), C order
        Its lower triangle is read, and all of it overwritten.
    noise : float
        Relative rounding of the products in it, where that is more than float64's.

    Attributes
    ----------
    rank : int
    """

    def __init__(self, matrix: Array, noise: float = 0.0) -> None:
        q = len(matrix)
        least = q * max(noise, float(np.finfo(np.float64).eps))
        diagonal = matrix.diagonal().copy()
        if not np.isfinite(diagonal).all():
            raise ValueError("the second moments of X are not finite: scale the features")
        # A feature that is zero everywhere has right-hand side zero, and stays zero.
        self._scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        for begin, end in ranges(q, _BAND):
            matrix[begin:end] *= self._scale[begin:end, None]
            matrix[begin:end] *= self._scale
            block = np.tril(matrix[begin:end, begin:end], -1)
            matrix[begin:end, begin:end] = block + block.T
            matrix[:begin, begin:end] = matrix[begin:end, :begin].T
        np.fill_diagonal(matrix, 1.0)
        # To LAPACK, which thinks in columns, our lower triangle is an upper one.
        fault = _factor(matrix)
        factor = matrix.T
        pivots = factor.diagonal()
        self.rank = q
        self._picked: Array | None = None
        if fault or pivots.min(initial=1.0) ** 2 < least:
            # The other triangle still holds the matrix.
            np.fill_diagonal(matrix, 1.0)
            factor, order, self.rank, _ = lapack.dpstrf(matrix.T, lower=1, overwrite_a=1, tol=least)
            self._picked = order[: self.rank] - 1
            factor = np.asfortranarray(factor[: self.rank, : self.rank])
        self._factor, self._lower = factor, int(self._picked is not None)

    def solve(self, B: Array) -> Array:
        """X with A X = B, (q, K), where B is in the range of A."""
        scaled = np.asarray(B, np.float64) * self._scale[:, None]
        if self._picked is None:
            found: Array = lapack.dpotrs(self._factor, scaled, lower=0)[0]
        else:
            found = np.zeros_like(scaled)
            if self.rank:
                found[self._picked] = lapack.dpotrs(self._factor, scaled[self._picked], lower=1)[0]
        return np.ascontiguousarray(found * self._scale[:, None])


def _factor(matrix: Array) -> int:
    """L with L L' = A in place of the lower triangle of a C ordered matrix; not 0 where it is not positive definite.

    OpenBLAS ends in a segmentation fault on some matrices of 20 000 unknowns: LAPACK sees large ones in panels.
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
    """Conjugate gradients with a diagonal preconditioner, each right-hand side with steps of its own.

    From zero, each iterate is the least of the quadratic (1/2) <X, A X> - <B, X> over a growing space: a solution that
    stops early still lowers it, so that a majorization-minimization step taken with it still lowers the objective.

    Parameters
    ----------
    times : callable
        A X, for X of shape (q, K).
    diagonal : ndarray of shape (q,)
        Of A.
    tol : float
        Residual to stop at, relative to B, in the norm of the preconditioner.
    max_iter : int
        Most iterations.
    """

    def __init__(
        self, times: Callable[[Array], Array], diagonal: Array, *, tol: float = 1e-3, max_iter: int = 200
    ) -> None:
        self._times = times
        self._inverse = 1.0 / np.where(diagonal > 0, diagonal, 1.0)[:, None]
        self.tol, self.max_iter = tol, max_iter
        self.n_products = 0

    def solve(self, B: Array) -> Array:
        """X with A X = B up to ``tol``."""
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
            # A column that is done, or has no curvature left, stands still.
            step = np.where((size > goal) & (bend > 0), size / np.where(bend > 0, bend, 1.0), 0.0)
            X += step * direction
            residual -= step * product
            towards = self._inverse * residual
            new = _columns(residual, towards)
            direction = towards + np.where(size > 0, new / np.where(size > 0, size, 1.0), 0.0) * direction
            size = np.where(step > 0, new, np.minimum(size, goal))
        return X


def _columns(one: Array, other: Array) -> Array:
    """The inner product of each column."""
    found: Array = np.einsum("jk,jk->k", one, other)
    return found


def rounding(alpha: float, trace: float) -> bool:
    """Whether products in float32 are too coarse for a ridge ``alpha`` beside second moments of this trace.

    They are off by about the rounding of float32 times the largest eigenvalue, which the trace bounds. Where the ridge
    is above that it drowns the error; below it, small eigenvalues would be noise, negative ones even.
    """
    return not (math.isfinite(trace) and alpha >= 2.0 * float(np.finfo(np.float32).eps) * trace)


def needed(q: int) -> dict[str, int]:
    """Bytes of a system of q unknowns that is factored, by what they are."""
    return {"second moments and their factor": 8 * q * q, "second moments of a chunk": 4 * q * q}


def is_factored(system: str, q: int) -> bool:
    """Whether q unknowns are found by a factor, for one of `SYSTEMS`."""
    if system != "auto":
        return system == "cholesky"
    there = memory.available()
    return q <= FACTORED and (there is None or 2 * sum(needed(q).values()) < there)

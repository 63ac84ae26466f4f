"""Rows times weights, for `LinearModel`: checks the rows, splits them into tiles and distributes these over threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import predict as kernels
from manyclass.kernels.best import best_mixed
from manyclass.kernels.candidates import best_candidates
from manyclass.kernels.mixed import MixedWeights
from manyclass.kernels.rows import CSRRows, Rows, csr_form_fault, make_rows, read_only
from manyclass.runtime.threads import ranges, resolve_n_jobs, run

__all__ = ["Scorer", "all_finite", "check_rows", "row_fault", "spread"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: The end of a message about the arrays of a CSR matrix.
DAMAGED = "the CSR matrix is damaged, X.check_format() names the fault"
#: Largest number of rows in one task of a thread.
_PIECE = 1024


class Scorer:
    """Scores, rankings and positive classes of rows for given weights.

    Parameters
    ----------
    weights : ndarray or CSR matrix of shape (d, K)
        Valid (see `manyclass.models.parts.check_weights`); viewed, not copied.
    intercept : ndarray of shape (K,)
    """

    def __init__(self, weights: Any, intercept: Array) -> None:
        self.n_features, self.n_outputs = (int(size) for size in weights.shape)
        self._given = weights
        self._weights = kernels.make_weights(weights)
        self._intercept = read_only(intercept)

    def scores(self, X: Any, n_jobs: int | None) -> Array:
        """``X @ weights + intercept``, (n, K)."""
        rows, n, dtype = self._checked(X)
        out = np.empty((n, self.n_outputs), dtype)

        def use(first: int, last: int, lo: int, hi: int, S: Array) -> None:
            out[first:last, lo:hi] = S[: last - first, : hi - lo]

        spread(lambda begin, end: self._tiles(rows, begin, end, dtype, use), n, n_jobs)
        return out

    def best(
        self,
        X: Any,
        k: int,
        n_jobs: int | None,
        exclude: Array | None = None,
        closed: Array | None = None,
        each: Callable[[int, int, Array], None] | None = None,
    ) -> tuple[Array, Array]:
        """Indices and scores of the k best columns of each row, best first, (n, k) each.

        The columns ``closed`` are left out, and for row i the column ``exclude[i]`` unless it is negative. At least k
        columns must remain. ``each(first, last, S)`` is called with the scores of each tile, rows first .. last - 1.
        """
        rows, n, dtype = self._checked(X)
        numbers, values = np.empty((n, k), np.int64), np.empty((n, k), dtype)

        def use(first: int, last: int, lo: int, hi: int, S: Array) -> None:
            if each is not None:
                each(first, last, S[: last - first, : hi - lo])
            if closed is not None:
                S[: last - first, closed[(closed >= lo) & (closed < hi)] - lo] = np.nan
            if exclude is not None:
                out = np.flatnonzero((exclude[first:last] >= lo) & (exclude[first:last] < hi))
                S[out, exclude[first:last][out] - lo] = np.nan
            kernels.keep_best(S, lo, hi, self.n_outputs, values[first:last], numbers[first:last])

        spread(lambda begin, end: self._tiles(rows, begin, end, dtype, use), n, n_jobs)
        return numbers, values

    def best_mixed(self, X: Any, k: int, n_jobs: int | None, weights: MixedWeights) -> tuple[Array, Array]:
        """The result of `best` for CSR rows, from the mixed view of the weights, whose lists must be sorted."""
        rows, n, dtype = self._checked(X)
        numbers, values = np.empty((n, k), np.int64), np.empty((n, k), dtype)

        def task(begin: int, end: int) -> None:
            self._refuse(rows, begin, end)
            best_mixed(rows, weights, self._intercept, begin, end, values, numbers)

        spread(task, n, n_jobs)
        return numbers, values

    def best_of(self, X: Any, k: int, n_jobs: int | None, indptr: Array, columns: Array) -> tuple[Array, Array]:
        """Indices and scores of the k best candidates of each row, best first; where there are fewer, NaN behind them.

        Row i has the candidates ``columns[indptr[i]:indptr[i + 1]]``, ascending; all rows have the same if ``indptr``
        has two entries. The index behind the last candidate is the largest integer.
        """
        rows, n, dtype = self._checked(X)
        weights, step = self._weights, 0 if len(indptr) == 2 else 1
        if sp.issparse(self._given) and not self._given.has_canonical_format:
            canonical = self._given.copy()
            canonical.sum_duplicates()
            weights = kernels.make_weights(canonical)
        numbers, values = np.empty((n, k), np.int64), np.empty((n, k), dtype)

        def task(begin: int, end: int) -> None:
            self._refuse(rows, begin, end)
            best_candidates(rows, weights, self._intercept, begin, end, step, indptr, columns, values, numbers)

        spread(task, n, n_jobs)
        return numbers, values

    def positive(self, X: Any, n_jobs: int | None) -> sp.csr_matrix[Any]:
        """The classes with a positive score, as a sparse int8 indicator matrix (n, K)."""
        rows, n, dtype = self._checked(X)

        def task(begin: int, end: int) -> tuple[Array, Array]:
            found: list[Array] = []
            columns: list[Array] = []

            def use(first: int, last: int, lo: int, hi: int, S: Array) -> None:
                row, column = np.nonzero(S[: last - first, : hi - lo] > 0)
                found.append(row + (first - begin))
                columns.append((column + lo).astype(np.int32))

            self._tiles(rows, begin, end, dtype, use)
            of_row, of_column = np.concatenate(found), np.concatenate(columns)
            # Stable sort by row: the blocks of columns were visited in ascending order.
            return np.bincount(of_row, minlength=end - begin), of_column[np.argsort(of_row, kind="stable")]

        parts = spread(task, n, n_jobs)
        indptr = np.zeros(n + 1, np.int64)
        np.cumsum(np.concatenate([np.zeros(0, np.int64), *(counts for counts, _ in parts)]), out=indptr[1:])
        indices = np.concatenate([np.zeros(0, np.int32), *(columns for _, columns in parts)])
        return sp.csr_matrix((np.ones(len(indices), np.int8), indices, indptr), shape=(n, self.n_outputs))

    def _tiles(
        self, rows: Rows, begin: int, end: int, dtype: Any, use: Callable[[int, int, int, int, Array], None]
    ) -> None:
        """Call ``use(first, last, lo, hi, S)`` with the scores S of rows first .. last - 1, columns lo .. hi - 1.

        For all tiles of the rows begin .. end - 1; tiles of the same rows follow each other, columns ascending.
        """
        self._refuse(rows, begin, end)
        height, width = kernels.tile_shape(self._weights, self.n_outputs)
        S = np.empty((min(height, end - begin), width), dtype)
        for first, last in ranges(end - begin, height):
            for lo, hi in ranges(self.n_outputs, width):
                kernels.fill_tile(rows, self._weights, self._intercept, begin + first, begin + last, lo, hi, S)
                use(begin + first, begin + last, lo, hi, S)

    def _refuse(self, rows: Rows, begin: int, end: int) -> None:
        fault = row_fault(rows, begin, end, self.n_features)
        if fault:
            raise ValueError(f"X has {fault}")

    def _checked(self, X: Any) -> tuple[Rows, int, np.dtype[Any]]:
        """The view of X, its number of rows, and the type of its scores."""
        dtype = check_rows(X, "X")
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, and this model was fitted with {self.n_features}: pass the columns of "
                "the fit, in the same order (readers of sparse files take the number of features as n_features)"
            )
        return make_rows(X), int(X.shape[0]), np.result_type(dtype, self._intercept.dtype)


def check_rows(X: Any, name: str) -> np.dtype[Any]:
    """The dtype of an array or a CSR matrix of numbers; anything else is a ValueError."""
    if sp.issparse(X):
        if X.format != "csr":
            raise ValueError(f"{name} must be an array or a CSR matrix, got a {X.format} matrix: pass {name}.tocsr()")
        fault = csr_form_fault(X.data, X.indices, X.indptr, X.shape[0])
        if fault is None and X.indptr[0] != 0:
            fault = f"indptr begins with {X.indptr[0]}, expected 0"
        if fault:
            raise ValueError(
                f"{name} is a damaged sparse matrix of shape {X.shape}: {fault}. Build it again from its rows"
            )
    elif not isinstance(X, np.ndarray):
        raise ValueError(f"{name} must be an array or a CSR matrix, got {type(X).__name__}: pass np.asarray({name})")
    if X.ndim != 2:
        raise ValueError(
            f"{name} must have two dimensions, got shape {X.shape}: for one row pass {name}.reshape(1, -1)"
        )
    dtype: np.dtype[Any] = np.dtype(X.dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or dtype == np.float16 or not dtype.isnative:
        raise ValueError(
            f"{name} must hold integers, float32 or float64 in native byte order, got "
            f"{dtype if dtype.isnative else dtype.str}: pass {name}.astype(np.float64)"
        )
    return dtype


def spread(task: Callable[[int, int], Any], n: int, n_jobs: int | None) -> list[Any]:
    """Call ``task(begin, end)`` for pieces of n rows, on threads. For tasks that treat each row independently."""
    n_threads = resolve_n_jobs(n_jobs)
    # Rows are independent, so that the size of the pieces may depend on the number of threads.
    return run(task, ranges(n, max(1, min(_PIECE, -(-n // n_threads)))), n_threads)


def row_fault(rows: Rows, begin: int, end: int, n_features: int) -> str | None:
    """Why the rows begin .. end - 1 cannot be scored: an index out of range, NaN or infinity; None if they can be."""
    if not isinstance(rows, CSRRows):
        values = rows.x[begin:end]
        if all_finite(values):
            return None
        return _not_finite(begin + int(np.argmin(np.isfinite(values).all(axis=1))))
    bounds = rows.indptr[begin : end + 1]
    if bounds[0] < 0 or bounds[-1] > min(len(rows.data), len(rows.indices)) or np.any(bounds[1:] < bounds[:-1]):
        return f"row pointers that decrease or are out of range: {DAMAGED}"
    stored = slice(bounds[0], bounds[-1])
    indices, values = rows.indices[stored], rows.data[stored]
    # As an unsigned integer, a negative index is very large.
    if len(indices) and indices.view(f"u{indices.itemsize}").max() >= n_features:
        return f"column indices that are out of range: {DAMAGED}"
    if all_finite(values):
        return None
    first = int(np.argmin(np.isfinite(values))) + int(bounds[0])
    return _not_finite(begin + int(np.searchsorted(bounds, first, side="right")) - 1)


def all_finite(values: Array) -> bool:
    """Whether the values have neither NaN nor infinity."""
    if values.dtype.kind != "f":
        return True
    # One fast pass for a sum; only if it is not finite, a slow pass decides.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def _not_finite(row: int) -> str:
    return f"NaN or infinity in row {row}: replace such values or remove the row"

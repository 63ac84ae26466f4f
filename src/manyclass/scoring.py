"""Rows times weights: what `LinearModel` predicts with. Checks the rows, and spreads them over threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import predict as kernels
from manyclass.kernels.rows import Rows, make_rows, read_only
from manyclass.parallel import ranges, resolve_n_jobs, run

__all__ = ["Scorer"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Most rows that one call of a kernel takes: the grain of threads and of interrupts.
_PIECE = 1024
#: Numbers in a buffer of whole rows of scores.
_BUFFER = 2**20


class Scorer:
    """Scores, rankings and signs of rows under given weights.

    Parameters
    ----------
    weights : ndarray or CSR matrix of shape (d, K)
        Valid (see `manyclass.model_parts.check_weights`); viewed, not copied.
    intercept : ndarray of shape (K,)
    """

    def __init__(self, weights: Any, intercept: Array) -> None:
        self.n_features, self.n_outputs = (int(size) for size in weights.shape)
        self._weights = kernels.make_weights(weights)
        self._intercept = read_only(intercept)
        self._tile = kernels.tile_shape(self._weights, self.n_outputs)

    def scores(self, X: Any, n_jobs: int | None) -> Array:
        """``X @ weights + intercept``, (n, K)."""
        rows, n, dtype = self._checked(X)
        out = np.empty((n, self.n_outputs), dtype)
        _spread(lambda begin, end: self._score(rows, begin, end, out[begin:end]), n, n_jobs)
        return out

    def best(self, X: Any, k: int, n_jobs: int | None) -> tuple[Array, Array]:
        """Numbers and scores of the k best columns of each row, best first, (n, k) each."""
        rows, n, dtype = self._checked(X)
        number, value = np.empty((n, k), np.int64), np.empty((n, k), dtype)

        def task(begin: int, end: int) -> None:
            view, bias, d, (height, width) = self._weights, self._intercept, self.n_features, self._tile
            _refuse(*kernels.best_rows(rows, view, bias, d, begin, end, height, width, value, number))

        _spread(task, n, n_jobs)
        return number, value

    def positive(self, X: Any, n_jobs: int | None, *, dense: bool) -> Any:
        """Where the score is positive: an int8 indicator (n, K), CSR or an array; a few rows of scores at a time."""
        rows, n, dtype = self._checked(X)
        K = self.n_outputs
        indicator = np.empty((n, K), np.int8) if dense else None

        def task(begin: int, end: int) -> tuple[Array, Array] | None:
            scores = np.empty((end - begin, K), dtype)
            self._score(rows, begin, end, scores)
            if indicator is not None:
                np.greater(scores, 0, out=indicator[begin:end].view(np.bool_))
                return None
            found, columns = np.nonzero(scores > 0)
            return np.bincount(found, minlength=end - begin), columns.astype(np.int32)

        parts = _spread(task, n, n_jobs, min(_PIECE, max(1, _BUFFER // K)))
        if indicator is not None:
            return indicator
        indptr = np.zeros(n + 1, np.int64)
        np.cumsum(np.concatenate([np.zeros(0, np.int64), *(counts for counts, _ in parts)]), out=indptr[1:])
        columns = np.concatenate([np.zeros(0, np.int32), *(columns for _, columns in parts)])
        return sp.csr_matrix((np.ones(len(columns), np.int8), columns, indptr), shape=(n, K))

    def _score(self, rows: Rows, begin: int, end: int, out: Array) -> None:
        view, bias, d, (height, width) = self._weights, self._intercept, self.n_features, self._tile
        _refuse(*kernels.score_rows(rows, view, bias, d, begin, end, height, width, out))

    def _checked(self, X: Any) -> tuple[Rows, int, np.dtype[Any]]:
        """The view of X, its number of rows, and the type of its scores."""
        if sp.issparse(X):
            if X.format != "csr":
                raise ValueError(f"X must be an array or a CSR matrix, got a {X.format} matrix: pass X.tocsr()")
        elif not isinstance(X, np.ndarray):
            raise ValueError(f"X must be an array or a CSR matrix, got {type(X).__name__}: pass np.asarray(X)")
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got shape {X.shape}: for one row pass X.reshape(1, -1)")
        dtype = np.dtype(X.dtype)
        if dtype.kind not in "biuf" or dtype.itemsize > 8 or dtype == np.float16 or not dtype.isnative:
            raise ValueError(
                "X must hold integers, float32 or float64 in native byte order, got "
                f"{dtype.newbyteorder('=') if dtype.isnative else dtype.str}: pass X.astype(np.float64)"
            )
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, and this model was fitted with {self.n_features}: give the columns of "
                "the fit, in their order (readers of sparse files can be told the number of features)"
            )
        return make_rows(X), int(X.shape[0]), np.result_type(dtype, self._intercept.dtype)


def _spread(task: Callable[[int, int], Any], n: int, n_jobs: int | None, most: int = _PIECE) -> list[Any]:
    n_threads = resolve_n_jobs(n_jobs)
    # Rows do not depend on each other, so that the pieces may depend on the threads.
    return run(task, ranges(n, max(1, min(most, -(-n // n_threads)))), n_threads)


def _refuse(row: int, fault: int) -> None:
    if fault:
        what, remedy = kernels.FAULTS[fault]
        raise ValueError(f"X has {what} in row {row}: {remedy}")

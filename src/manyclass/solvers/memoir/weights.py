"""Storage of the unscaled weights U of MEMOIR, as an array or a sparse table, and the exact search for rivals on it."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import memoir as kernels, table as tables
from manyclass.kernels.live_bounds import BLOCK, LiveBounds, Scratch, follow, make_bounds, make_scratch, no_bounds
from manyclass.kernels.rows import CSRRows, make_rows
from manyclass.kernels.scoring import Scorer
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import PLAIN
from manyclass.solvers.dual._image import larger_table, table_matrix, table_nonzeros

__all__ = ["DenseWeights", "TableWeights", "Weights", "pair_scores", "part", "rows_of"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Rows whose scores of all classes are held at a time.
_ROWS = 64
#: Minimum number of classes for which upper bounds on the scores of blocks of classes are used.
_BOUNDED = 512
#: Entries read per entry of the table after which the bounds are recomputed.
_REFRESHED = 16
_NONE: Array = np.empty(0)


class Weights(Protocol):
    """Interface of both storages. Batches are CSR matrices with the dtype of the weights."""

    dtype: np.dtype[Any]
    n_classes: int

    def rivals(
        self, batch: Any, y: Array, n_threads: int, scale: float = 0.0, most: int = 0
    ) -> tuple[Array, Array, Array]:
        """The best rival of each row, its score, and the score of y: see `manyclass.kernels.memoir.table_rivals`."""

    def add(self, batch: Any, y: Array, rivals: Array, steps: Array, squares: Array = _NONE) -> float:
        """``u_y += step x``, ``u_r -= step x`` for each row; returns the increase of ||U||^2.

        ``squares`` are the ||u_k||^2, which are updated, or empty.
        """

    def view(self) -> Any:
        """The array or table that kernels take."""

    def settle(self, features: Array, total: float, stamp: Array) -> None:
        """Apply the pending truncation, ``total - stamp``, to these features."""

    def truncate(self, chosen: Array, tau: float) -> None:
        """Soft-threshold the classes of the mask ``chosen``."""

    def scale(self, factor: float) -> None:
        """``U *= factor``."""

    def grow(self, n_classes: int) -> None:
        """Increase the number of classes; new ones have weights 0."""

    def vectors(self, ids: Array) -> Any:
        """The weights of some classes, one class per row."""

    def export(self) -> Any:
        """A copy of U: an array, or a CSR matrix with sorted rows."""

    def put(self, weights: Any) -> None:
        """Set U, which must be zero, to an array or a CSR matrix."""

    def tidy(self) -> None:
        """Bring the storage into the form that `export`, `put` and `resume` restore, independent of earlier steps."""

    def pace(self) -> Array:
        """The counters, besides U, that determine when bounds are recomputed."""

    def resume(self, pace: Array) -> None:
        """Restore the counters from `pace`; call after `put`."""

    def squares(self) -> float:
        """||U||^2."""

    def nonzeros(self) -> int:
        """Number of weights that are not 0."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


class DenseWeights:
    """The weights as an array of shape (d, K)."""

    def __init__(self, n_features: int, n_classes: int, dtype: Any, n_threads: int) -> None:
        self._U: Array = np.zeros((n_features, n_classes), dtype)
        self.dtype = self._U.dtype
        self.n_classes = n_classes

    def rivals(
        self, batch: Any, y: Array, n_threads: int, scale: float = 0.0, most: int = 0
    ) -> tuple[Array, Array, Array]:
        scorer = Scorer(self._U, np.zeros(self.n_classes, self.dtype))
        numbers, values = scorer.best(batch, 1, n_threads, exclude=np.asarray(y, np.int64))
        rivals, best = numbers[:, 0].astype(np.int32), values[:, 0]
        for begin, end in ranges(len(tied := np.flatnonzero(best == 0)), _ROWS):
            # Ties at 0: the first class after y, cyclically, with score 0.
            some = tied[begin:end]
            zero = scorer.scores(batch[some], n_threads) == 0
            around = (y[some, None] + np.arange(1, self.n_classes)) % self.n_classes
            first = np.take_along_axis(zero, around, axis=1).argmax(axis=1)
            rivals[some] = around[np.arange(len(some)), first]
        own, _ = pair_scores(self, batch, y, y)
        return rivals, best, own

    def add(self, batch: Any, y: Array, rivals: Array, steps: Array, squares: Array = _NONE) -> float:
        return float(kernels.add_steps(make_rows(batch), y, rivals, steps, self._U, 0, squares)[1])

    def view(self) -> Any:
        return self._U

    def settle(self, features: Array, total: float, stamp: Array) -> None:
        none = np.empty(0, np.int64), np.empty(0, self.dtype)
        kernels.settle(self._U, features, total, stamp, no_bounds(self.dtype), *none)

    def truncate(self, chosen: Array, tau: float) -> None:
        part = self._U[:, chosen]
        self._U[:, chosen] = part - np.clip(part, -tau, tau)

    def scale(self, factor: float) -> None:
        self._U *= self.dtype.type(factor)

    def grow(self, n_classes: int) -> None:
        more = np.zeros((len(self._U), n_classes - self.n_classes), self.dtype)
        self._U = np.hstack([self._U, more])
        self.n_classes = n_classes

    def vectors(self, ids: Array) -> Any:
        return np.ascontiguousarray(self._U[:, ids].T)

    def export(self) -> Any:
        return self._U.copy()

    def put(self, weights: Any) -> None:
        self._U[:] = weights.toarray() if sp.issparse(weights) else weights

    def tidy(self) -> None:
        pass

    def pace(self) -> Array:
        return np.zeros(0, np.int64)

    def resume(self, pace: Array) -> None:
        pass

    def squares(self) -> float:
        return float(kernels.sum_of_squares(self._U))

    def nonzeros(self) -> int:
        return int(np.count_nonzero(self._U))

    @property
    def nbytes(self) -> int:
        return int(self._U.nbytes)


class TableWeights:
    """The weights as a `WeightTable`, with memory in proportion to the number of nonzero weights."""

    def __init__(self, n_features: int, n_classes: int, dtype: Any, n_threads: int) -> None:
        self._n_threads = n_threads
        self._table = tables.make_table(n_features, 1 << 10, dtype)
        self.dtype = np.dtype(dtype)
        self.n_classes = n_classes
        self._scratch: dict[int, Scratch] = {}
        self._bounds, self._read = no_bounds(self.dtype), 0

    def rivals(
        self, batch: Any, y: Array, n_threads: int, scale: float = 0.0, most: int = 0
    ) -> tuple[Array, Array, Array]:
        bounds = self._bounds_for(batch)
        n, rows = len(y), make_rows(batch)
        rivals, best, own = np.empty(n, np.int32), np.empty(n, self.dtype), np.empty(n, self.dtype)
        # One task per thread, each with a scratch array; the result does not depend on the division of the rows.
        size = max(1, -(-n // n_threads))
        work = np.zeros(-(-n // size) if n else 0, np.int64)

        def task(begin: int, end: int) -> None:
            some, scratch = slice(begin, end), self._scratch_of(begin // size)
            found = rivals[some], best[some], own[some]
            work[begin // size] = kernels.table_rivals(
                part(rows, begin, end), y[some], self._table, bounds, scale, most, scratch, *found
            )

        run(task, ranges(n, size), n_threads)
        self._read += int(work.sum())
        return rivals, best, own

    def _bounds_for(self, batch: Any) -> LiveBounds:
        """The bounds, recomputed if that costs less than the entries read since they were computed."""
        if self.n_classes >= max(_BOUNDED, BLOCK):
            reads = self._read
            if not self._bounds.bound.shape[1]:
                reads += int(self._table.held[batch.indices].sum(dtype=np.int64))
            if reads > _REFRESHED * (int(self._table.held.sum(dtype=np.int64)) + len(self._table.held)):
                self._bounds, self._read = make_bounds(self._table, self.n_classes), 0
        return self._bounds

    def _forget_bounds(self) -> None:
        self._bounds, self._read = no_bounds(self.dtype), 0

    def _scratch_of(self, piece: int) -> Scratch:
        found = self._scratch.get(piece)
        if found is None or len(found.full) != self.n_classes + 1 or len(found.sums) != self._bounds.bound.shape[1]:
            found = self._scratch[piece] = make_scratch(self.n_classes, self._bounds)
        return found

    def add(self, batch: Any, y: Array, rivals: Array, steps: Array, squares: Array = _NONE) -> float:
        rows, total, done = make_rows(batch), 0.0, 0
        while done < len(y):
            done, change = kernels.add_steps(rows, y, rivals, steps, self._table, done, squares)
            total += change
            if done < len(y):
                self._enlarge()
        if self._bounds.bound.shape[1]:
            follow(rows, y, rivals, steps, self._table, self._bounds)
        return total

    def _enlarge(self) -> None:
        old = self._table
        live = int(old.capacity.sum(dtype=np.int64))
        # Half as many slots again as are in use: few copies are made, and slots that truncation has freed are dropped.
        self._table = larger_table(old, live + max(live // 2, 1 << 12), self._n_threads)

    def view(self) -> Any:
        return self._table

    def settle(self, features: Array, total: float, stamp: Array) -> None:
        scratch = np.empty(self.n_classes, np.int64), np.empty(self.n_classes, self.dtype)
        kernels.settle(self._table, features, total, stamp, self._bounds, *scratch)

    def truncate(self, chosen: Array, tau: float) -> None:
        kernels.truncate(self._table, chosen, tau)
        self._forget_bounds()

    def scale(self, factor: float) -> None:
        # Slots of rows that were moved within the table are scaled too, but never read.
        used = int(self._table.used[0])
        values = self._table.values[1 : 2 * used : 2]
        held = self._table.keys[: 2 * used : 2] >= 0
        values[held] *= self.dtype.type(factor)
        self._forget_bounds()

    def grow(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self._forget_bounds()

    def vectors(self, ids: Array) -> Any:
        place = np.full(self.n_classes, -1, np.int64)
        place[ids] = np.arange(len(ids))
        indptr = np.zeros(len(ids) + 1, np.int64)
        kernels.columns(self._table, place, indptr, np.empty(0, np.int32), np.empty(0, self.dtype))
        np.cumsum(indptr, out=indptr)
        indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], self.dtype)
        if len(indices):
            kernels.columns(self._table, place, indptr.copy(), indices, data)
        return sp.csr_matrix((data, indices, indptr), shape=(len(ids), len(self._table.start)), copy=False)

    def export(self) -> Any:
        return table_matrix(self._table, PLAIN, self.n_classes, self._n_threads)

    def put(self, weights: Any) -> None:
        rows = sp.csr_matrix(weights, dtype=self.dtype)
        held = np.diff(rows.indptr).astype(np.int64)
        # The smallest power of two that is not too full.
        capacity = np.where(held > 0, 4, 0).astype(np.int64)
        while (small := held > tables.FULLEST * capacity).any():
            capacity[small] *= 2
        table = tables.make_table(len(held), int(capacity.sum()) + (1 << 10), self.dtype)
        table.start[:] = np.cumsum(capacity) - capacity
        table.capacity[:] = capacity
        table.used[0] = capacity.sum()
        table.keys[: 2 * table.used[0]] = -1
        kernels.fill(table, make_rows(rows))
        self._table = table
        self._forget_bounds()

    def tidy(self) -> None:
        # The order of the slots, which depends on earlier steps, determines the rounding of sums.
        pace = self.pace()
        self.put(self.export())
        self.resume(pace)

    def pace(self) -> Array:
        return np.array([self._bounds.bound.shape[1] > 0, self._read], np.int64)

    def resume(self, pace: Array) -> None:
        bounded, read = pace.tolist()
        if bounded:
            self._bounds = make_bounds(self._table, self.n_classes)
        self._read = read

    def squares(self) -> float:
        # `table_sums` returns ||U||^2 / 2, the l2 penalty.
        return 2.0 * float(tables.table_sums(self._table, PLAIN, 0, len(self._table.start))[0])

    def nonzeros(self) -> int:
        return table_nonzeros(self._table, PLAIN, self._n_threads)

    @property
    def nbytes(self) -> int:
        arrays = [*self._table.arrays().values(), *self._bounds]
        return sum(int(array.nbytes) for array in arrays)


def pair_scores(weights: Weights, batch: Any, first: Array, second: Array) -> tuple[Array, Array]:
    """The scores ``x . u_k`` of each row for two classes."""
    of_first, of_second = np.empty(len(first), weights.dtype), np.empty(len(first), weights.dtype)
    kernels.pair_scores(make_rows(batch), first, second, weights.view(), of_first, of_second)
    return of_first, of_second


def rows_of(X: Any, chosen: Any, dtype: np.dtype[Any]) -> sp.csr_matrix[Any]:
    """The ``chosen`` rows as a CSR matrix of that dtype with int32 indices, for which the kernels are compiled."""
    batch = sp.csr_matrix(X[chosen], dtype=dtype)
    batch.indices = batch.indices.astype(np.int32, copy=False)
    batch.indptr = batch.indptr.astype(np.int32, copy=False)
    return batch


def part(rows: Any, begin: int, end: int) -> CSRRows:
    """The rows begin .. end - 1."""
    return CSRRows(rows.data, rows.indices, rows.indptr[begin : end + 1])

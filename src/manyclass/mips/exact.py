"""Exact maximum inner product search."""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import prune as kernels
from manyclass.kernels.predict import SparseWeights, make_weights
from manyclass.kernels.rows import csr_fault, make_rows, read_only
from manyclass.kernels.scoring import Scorer, spread
from manyclass.mips.base import SearchIndex

__all__ = ["ExactSearch"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Several threads may query an index at the same time; the first query after a change merges the change.
_MERGING = threading.Lock()


class ExactSearch(SearchIndex):
    """Exact search over weights stored by feature.

    For each non-zero of a row, the weights of its feature are added to the scores of the classes; scores of all rows
    and classes are never in memory together. *Dense* weights are read in tiles that are used for several rows. *Sparse*
    weights are inverted lists with upper bounds that make it possible to skip most of a list: for non-negative rows
    (tf-idf), the largest positive weight of each feature in each block of 16 classes gives bounds on all scores, and
    only blocks that can contain one of the k best classes are scored (block-max pruning [1]_). For rows with a negative
    value all classes are scored.

    Dense weights are not copied: queries see later changes of the array. The first `insert`, `update` or `delete` makes
    a copy. Changes of sparse weights are collected and merged at the next query, in one pass over the weights.

    Parameters
    ----------
    prune : bool, default=True
        Whether to skip blocks by bounds, with sparse weights. The result is the same; False is for comparing times.

    References
    ----------
    .. [1] A. Mallia, T. Suel and N. Tonellotto, Faster learned sparse retrieval with block-max pruning, SIGIR 2024;
       maxima of lists were introduced by H. Turtle and J. Flood, Query evaluation: strategies and optimizations, 1995
       (MaxScore).

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> W = sp.csr_matrix(np.array([[1.0, 0.0, -2.0], [0.0, 1.0, 2.0]]))
    >>> index = ExactSearch().build(W)
    >>> index.update([1], np.array([[3.0, 0.0]]))
    >>> index.query(np.array([[1.0, 0.5]]), k=3)[0].tolist()
    [[1, 0, 2]]
    """

    kind = "exact"

    def __init__(self, *, prune: bool = True) -> None:
        if not isinstance(prune, bool):
            raise ValueError(f"prune must be True or False, got {prune!r}")
        self.prune = prune

    # --- building and changing --------------------------------------------------------------------------------------

    def _build(self, weights: Any, n_jobs: int | None) -> None:
        self._hold(weights, owned=False)

    def _hold(self, weights: Any, *, owned: bool) -> None:
        self._weights: Any = weights
        self._owned = owned
        self._blocks = _blocks(weights) if sp.issparse(weights) else None
        self._pending: list[tuple[Array, Any]] = []

    def _insert(self, ids: Array, vectors: Any) -> None:
        self._open(ids)
        self._update(ids, vectors)

    def _update(self, ids: Array, vectors: Any) -> None:
        if sp.issparse(self._weights):
            self._pending.append((ids, sp.csr_matrix(vectors, dtype=self.dtype, copy=True)))
            return
        self._own()
        self._weights[:, ids] = (vectors.toarray() if sp.issparse(vectors) else vectors).T

    def _delete(self, ids: Array) -> None:
        self._alive[ids] = False
        if sp.issparse(self._weights):
            self._pending.append((ids, sp.csr_matrix((len(ids), self._d), dtype=self.dtype)))
            return
        self._own()
        self._weights[:, ids] = 0

    def _own(self) -> None:
        """Copy dense weights to an array with a column for every class number."""
        more = len(self._alive) - self._weights.shape[1]
        if more or not self._owned:
            self._weights = np.hstack([self._weights, np.zeros((self._d, more), self.dtype)])
            self._owned = True

    def _merge(self) -> None:
        """Merge the pending changes into sparse weights."""
        with _MERGING:
            if self._pending:
                self._merge_pending()

    def _merge_pending(self) -> None:
        K = len(self._alive)
        changed = np.concatenate([ids for ids, _ in self._pending])
        # Of several changes of a class only the last is applied.
        _, last = np.unique(changed[::-1], return_index=True)
        last = len(changed) - 1 - last
        new = sp.vstack([vectors for _, vectors in self._pending], format="csr")[last].tocoo()
        old = self._weights.tocoo()
        gone = np.zeros(K, bool)
        gone[changed] = True
        stays = ~gone[old.col]
        merged = sp.csr_matrix(
            (
                np.concatenate([old.data[stays], new.data]),
                (
                    np.concatenate([old.row[stays], new.col]),
                    np.concatenate([old.col[stays], changed[last][new.row]]),
                ),
            ),
            shape=(self._d, K),
        )
        merged.sort_indices()
        self._hold(merged, owned=True)

    # --- queries ----------------------------------------------------------------------------------------------------

    def _query(self, X: Any, exclude: Array, classes: Array, scores: Array, n_jobs: int | None) -> None:
        self._merge()
        if sp.issparse(self._weights):
            self._pruned(X, exclude, classes, scores, n_jobs)
            return
        closed = np.flatnonzero(~self._alive)
        scorer = Scorer(self._weights, np.zeros(self._weights.shape[1], self.dtype))
        classes[:], scores[:] = scorer.best(X, classes.shape[1], n_jobs, exclude, closed)

    def _pruned(self, X: Any, exclude: Array, classes: Array, scores: Array, n_jobs: int | None) -> Array:
        work = np.zeros(len(classes), np.int64)
        weights, blocks, alive = make_weights(self._weights), self._blocks, read_only(self._alive)

        def task(begin: int, end: int) -> None:
            part = slice(begin, end)
            rows = make_rows(self._piece(X, begin, end, scores.dtype))
            kernels.pruned_best(
                rows, weights, blocks, alive, exclude[part], self.prune, scores[part], classes[part], work[part]
            )

        spread(task, len(classes), n_jobs)
        return work

    def multiply_adds(self, X: Any, k: int = 1, exclude: Any = None) -> Array:
        """The number of multiply-adds of `query` for each row of X, with those for the bounds: (n,), int64.

        Measures the effect of pruning independently of the machine. Parameters as in `query`.

        Examples
        --------
        >>> import numpy as np
        >>> ExactSearch().build(np.ones((3, 5))).multiply_adds(np.array([[0.0, 2.0, 1.0]])).tolist()
        [10]
        """
        classes, scores = self.query(X, k, exclude)
        if sp.issparse(self._weights):
            banned = np.full(len(classes), -1, np.int64) if exclude is None else np.asarray(exclude, np.int64)
            return self._pruned(X, banned, classes, scores, None)
        nonzeros = (X != 0).sum(axis=1)
        counts: Array = np.asarray(nonzeros, np.int64).ravel() * self._weights.shape[1]
        return counts

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        self._require_built()
        dtype: np.dtype[Any] = self._weights.dtype
        return dtype

    @property
    def nbytes(self) -> int:
        self._require_built()
        self._merge()
        arrays = [self._alive, *self._state()[1].values(), *(self._blocks or ())]
        return sum(int(array.nbytes) for array in arrays)

    def weights(self) -> Any:
        self._require_built()
        self._merge()
        return self._weights

    # --- files ------------------------------------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        self._merge()
        options = {"prune": self.prune}
        if self._blocks is None:
            return options, {"weights": self._weights}
        return options, {name: getattr(self._weights, name) for name in ("data", "indices", "indptr")}

    def _restore(self, arrays: dict[str, Array]) -> None:
        shape = (self._d, len(self._alive))
        if "weights" in arrays:
            weights = arrays["weights"]
            if weights.shape != shape:
                raise ValueError(f"weights must have shape {shape}, got {weights.shape}")
        else:
            data, indices, indptr = (arrays[name] for name in ("data", "indices", "indptr"))
            fault = csr_fault(data, indices, indptr, shape)
            if fault:
                raise ValueError(fault)
            weights = sp.csr_matrix((data, indices, indptr), shape=shape, copy=False)
            if not weights.has_canonical_format:
                raise ValueError("the class numbers of each feature must be ascending")
        self._hold(weights, owned=False)


def _blocks(weights: Any) -> kernels.Blocks:
    view = make_weights(weights)
    assert isinstance(view, SparseWeights)
    segment_ptr, bound_ptr = np.empty(weights.shape[0] + 1, np.int64), np.empty(weights.shape[0] + 1, np.int64)
    kernels.count_blocks(view, segment_ptr, bound_ptr)
    segments, bounds = int(segment_ptr[-1]), int(bound_ptr[-1])
    index = weights.indptr.dtype
    blocks = kernels.Blocks(
        segment_ptr.astype(index),
        np.empty(segments, np.int32),
        np.empty(segments + 1, index),
        bound_ptr.astype(index),
        np.empty(bounds, np.int32),
        np.empty(bounds, weights.dtype),
    )
    kernels.block_bounds(view, blocks)
    return kernels.Blocks(*map(read_only, blocks))

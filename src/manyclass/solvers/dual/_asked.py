"""Queries of a search index for the rival classes of all samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import CSRRows
from manyclass.kernels.targets import ClassTargets
from manyclass.mips import SearchIndex
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges

__all__ = ["ask"]

#: Rows per query.
_ROWS = 4096


def ask(index: SearchIndex, problem: Problem, weights: Any, intercept: Array, most: int) -> Array:
    """The ``most`` rival classes with the largest scores of each sample, of shape (n, min(most, K - 1)).

    The index is built from the weights, an array or CSR matrix of shape (d, K). An intercept is the weight of a
    constant feature.
    """
    assert isinstance(problem.targets, ClassTargets)  # losses with a sparse dual have no other targets
    shifted = bool(np.any(intercept))
    if shifted:
        row = np.asarray(intercept, weights.dtype)[None]
        weights = sp.vstack([weights, row], format="csr") if sp.issparse(weights) else np.vstack([weights, row])
    index.build(weights, n_jobs=problem.n_threads)
    k = min(most, problem.n_outputs - 1)
    asked = np.empty((problem.n_samples, k), np.int32)
    for begin, end in ranges(problem.n_samples, _ROWS):
        X = _part(problem, begin, end, shifted)
        asked[begin:end] = index.query(X, k, problem.targets.y[begin:end], n_jobs=problem.n_threads)[0]
    return asked


def _part(problem: Problem, begin: int, end: int, shifted: bool) -> Any:
    rows = problem.rows
    if not isinstance(rows, CSRRows):
        part = np.asarray(rows.x[begin:end], problem.dtype)
        return np.hstack([part, np.ones((end - begin, 1), part.dtype)]) if shifted else part
    lo, hi = rows.indptr[begin], rows.indptr[end]
    found = sp.csr_matrix(
        (rows.data[lo:hi], rows.indices[lo:hi], rows.indptr[begin : end + 1] - lo),
        shape=(end - begin, problem.n_features),
        copy=False,
    )
    return sp.hstack([found, np.ones((end - begin, 1), found.dtype)], format="csr") if shifted else found

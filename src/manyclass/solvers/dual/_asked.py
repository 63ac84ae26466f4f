"""Queries of a search index for the rival classes of all samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.targets import ClassTargets
from manyclass.mips import SearchIndex
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges
from manyclass.solvers.base import row_matrix

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
    rows = row_matrix(problem)
    for begin, end in ranges(problem.n_samples, _ROWS):
        X = rows[begin:end] if sp.issparse(rows) else np.asarray(rows[begin:end], problem.dtype)
        if shifted:
            ones = np.ones((end - begin, 1), X.dtype)
            X = sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])
        asked[begin:end] = index.query(X, k, problem.targets.y[begin:end], n_jobs=problem.n_threads)[0]
    return asked

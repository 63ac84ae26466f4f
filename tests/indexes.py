"""The registry of search indexes, and what their laws are run on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.mips import ExactSearch, SimpleLSH, SmallWorldGraph

#: name -> a new index, not yet built.
INDEXES: dict[str, Any] = {
    "exact": lambda: ExactSearch(),
    "exact-unpruned": lambda: ExactSearch(prune=False),
    "simple_lsh": lambda: SimpleLSH(bits=128, candidates=64),
    "simple_lsh-hashed": lambda: SimpleLSH(bits=128, candidates=64, hashed_features=32),
    "small_world": lambda: SmallWorldGraph(degree=8, width=32, build_width=32),
}

#: The same, with options under which every class is scored: they must equal brute force.
THOROUGH: dict[str, Any] = {
    "exact": lambda: ExactSearch(),
    "exact-unpruned": lambda: ExactSearch(prune=False),
    "simple_lsh": lambda: SimpleLSH(bits=64, candidates=10**6),
    "simple_lsh-hashed": lambda: SimpleLSH(bits=64, candidates=10**6, hashed_features=16),
    "small_world": lambda: SmallWorldGraph(degree=8, width=10**3, build_width=32),
}


def brute_force(X, W, k, exclude=None, alive=None):
    """Classes and scores of the k best, ties to the lower number, in float64 and without an index."""
    S = np.asarray((X @ W).toarray() if sp.issparse(X) and sp.issparse(W) else X @ W, np.float64)
    S = S.reshape(X.shape[0], W.shape[1]).copy()
    if alive is not None:
        S[:, ~alive] = -np.inf
    if exclude is not None:
        rows = np.flatnonzero(np.asarray(exclude) >= 0)
        S[rows, np.asarray(exclude)[rows]] = -np.inf
    order = np.argsort(-S, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(S, order, axis=1)


def whole_weights(rng, d, K, *, density=0.3, sparse=True, dtype=np.float64):
    """Small whole numbers: inner products are exact in any order, and ties are many."""
    W = rng.integers(-3, 4, (d, K)) * (rng.random((d, K)) < density)
    return sp.csr_matrix(W.astype(dtype)) if sparse else W.astype(dtype)


def whole_rows(rng, n, d, *, density=0.3, sparse=True, dtype=np.float64, lowest=0):
    """Rows for them; with ``lowest=0`` such as the pruning can serve."""
    X = rng.integers(lowest, 4, (n, d)) * (rng.random((n, d)) < density)
    return sp.csr_matrix(X.astype(dtype)) if sparse else X.astype(dtype)

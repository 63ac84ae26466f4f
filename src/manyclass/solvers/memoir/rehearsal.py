"""Rows made from the weights of classes, for batches that have rows of new classes alone.

New classes are pushed above the classes of a batch, and no row speaks for those that the batch lacks: a stream forgets
them. A row whose features are drawn from the weights of a class stands for the rows of it that are not there any more
(pseudorehearsal: A. Robins, Catastrophic forgetting, rehearsal and pseudorehearsal, Connection Science 7, 1995).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

__all__ = ["interleaved", "made_rows"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def made_rows(vectors: Any, X: Any, rng: np.random.Generator) -> tuple[Any, Array]:
    """Rows like those of X, one for each class, and which of the classes they are for.

    Parameters
    ----------
    vectors : array or CSR matrix of shape (m, n_features)
        The weights of m classes.
    X : array or CSR matrix of shape (n, n_features)
        Rows, whose mean squared norm, and mean number of values if they are sparse, the made ones have.
    rng : Generator
        Draws the features of sparse rows, with probability in proportion to the size of the weight; only from positive
        weights if no value of X is negative. Their values have equal sizes, and the signs of the weights.

    Returns
    -------
    rows : array or CSR matrix of shape (at most m, n_features)
        The rows. A class without weights gets none; a dense row is the vector of weights at another length.
    classes : ndarray of int
        For each row the number of the class, 0 to m - 1.
    """
    if not sp.issparse(X):
        dense = vectors.toarray() if sp.issparse(vectors) else np.asarray(vectors)
        lengths = np.sqrt(np.einsum("kj,kj->k", dense, dense))
        held = np.flatnonzero(lengths > 0)
        size = np.sqrt(np.mean(np.einsum("ij,ij->i", X, X)))
        return (dense[held] * (size / lengths[held])[:, None]).astype(X.dtype), held
    weights = sp.csr_matrix(vectors)
    allowed = weights.data > 0 if X.data.min(initial=0.0) >= 0 else weights.data != 0
    row = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))[allowed]
    feature, weight = weights.indices[allowed], weights.data[allowed].astype(np.float64)
    # The first of a row by log(p) plus Gumbel noise are a sample without replacement.
    order = np.lexsort((-np.log(np.abs(weight)) - rng.gumbel(size=len(weight)), row))
    row, feature, weight = row[order], feature[order], weight[order]
    counts = np.bincount(row, minlength=weights.shape[0])
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    most = max(1, round(X.nnz / max(X.shape[0], 1)))
    drawn = place < most
    row, feature, weight = row[drawn], feature[drawn], weight[drawn]
    counts = np.minimum(counts, most)
    held = np.flatnonzero(counts)
    size = np.sqrt(float(np.dot(X.data.astype(np.float64), X.data)) / max(X.shape[0], 1))
    values = (np.sign(weight) * size / np.sqrt(counts[row])).astype(X.dtype)
    indptr = np.concatenate([[0], np.cumsum(counts[held])])
    return sp.csr_matrix((values, feature, indptr), shape=(len(held), X.shape[1])), held


def interleaved(n: int, m: int, rng: np.random.Generator) -> Array:
    """An order of n rows, which keep theirs, and m more behind them, which come in between at random."""
    where = np.concatenate([(np.arange(n) + 0.5) / max(n, 1), rng.random(m)])
    return np.argsort(where, kind="stable")

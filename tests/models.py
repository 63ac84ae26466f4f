"""Models and rows whose scores are exact, and what NumPy says of them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from manyclass.models.linear import LinearModel

D, K = 7, 11


def weights_of(rng, d, k, dtype, layout):
    """Small multiples of 1/4, half of them zero: sums are exact in float32, and scores are often equal."""
    W = rng.integers(-4, 5, (d, k)) / 4 * (rng.random((d, k)) < 0.5)
    W = W.astype(dtype)
    return sp.csr_matrix(W) if layout == "sparse" else W


def model_of(rng, dtype=np.float64, layout="dense", *, d=D, k=K, task="multiclass", link="identity", **more):
    classes = None if task == "regression" else np.array([f"class {c}" for c in range(2 if task == "binary" else k)])
    intercept = (rng.integers(-2, 3, k) / 4).astype(dtype)
    return LinearModel(weights_of(rng, d, k, dtype, layout), intercept, classes, task, link, **more)


def rows_of(rng, n, d=D, dtype=np.float64):
    X = rng.integers(-4, 5, (n, d)) / 4 * (rng.random((n, d)) < 0.6)
    X[n // 2] = 0
    return X.astype(dtype)


def dense(weights):
    return weights.toarray() if sp.issparse(weights) else weights


def ranking(scores):
    """Column numbers, best first, ties by number: the definition."""
    return np.argsort(-scores, axis=1, kind="stable")


def labels_of(classes, columns):
    return np.array([[classes[c] for c in row] for row in columns])

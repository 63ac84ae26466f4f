"""scikit-learn's bundled digits: 1 347 x 64, 10 classes, dense."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split

FILES = ()
SOURCE = "bundled with scikit-learn"


def build(folder: Path, variant: str) -> Split:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, y = (X / 16).astype(np.float32), y.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 3 // 4], order[len(y) * 3 // 4 :]
    return Split(X[train], y[train], X[test], y[test])

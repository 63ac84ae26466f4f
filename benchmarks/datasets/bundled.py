"""Iris (150 x 4, 3 classes), wine (178 x 13, 3) and breast cancer (569 x 30, 2), dense, standardized."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split

FILES = ()
SOURCE = "bundled with scikit-learn"
VARIANTS = ("iris", "wine", "breast_cancer")


def build(folder: Path, variant: str) -> Split:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{variant}")(return_X_y=True)
    train = np.random.default_rng(0).permutation(len(y)) < 0.75 * len(y)
    X = ((X - X[train].mean(axis=0)) / X[train].std(axis=0)).astype(np.float32)
    y = y.astype(np.int64)
    return Split(X[train], y[train], X[~train], y[~train])

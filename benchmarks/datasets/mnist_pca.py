"""The first 10 000 MNIST digits on their 50 principal components: 9 000 x 50, 10 classes, dense."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split
from benchmarks.datasets import mnist

FILES = mnist.FILES
SOURCE = mnist.SOURCE

_ROWS, _TEST, _COMPONENTS = 10_000, 1_000, 50


def sources() -> list[Path]:
    return [Path(mnist.__file__)]


def build(folder: Path, variant: str) -> Split:
    """Pixels in [0, 1]; mean and components of the training rows."""
    whole = mnist.build(folder, "")
    X, y = whole.X[:_ROWS].astype(np.float64), whole.y[:_ROWS]
    train, test = slice(0, _ROWS - _TEST), slice(_ROWS - _TEST, _ROWS)
    X -= X[train].mean(axis=0)
    axes = np.linalg.eigh(X[train].T @ X[train])[1][:, : -_COMPONENTS - 1 : -1]
    X = (X @ axes).astype(np.float32)
    return Split(X[train], y[train], X[test], y[test])

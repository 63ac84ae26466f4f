"""Generated regression, dense: many rows and few features (tall), or few rows and many correlated features (wide)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split

FILES = ()
SOURCE = "generated"
VARIANTS = ("tall", "wide")


def build(folder: Path, variant: str) -> Split:
    """Features follow one another with correlation 0.5 (tall) or 0.9 (wide); y is a sparse linear model and noise."""
    n, d, used, correlation = {"tall": (20000, 300, 60, 0.5), "wide": (1000, 10000, 100, 0.9)}[variant]
    rng = np.random.default_rng(0)
    m = n + n // 5
    X = rng.normal(size=(m, d))
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    w = np.zeros(d)
    w[rng.permutation(d)[:used]] = rng.choice([-1.0, 1.0], used)
    y = X @ w
    y += rng.normal(size=m) * y.std() / 3
    return Split(X[:n], y[:n], X[n:], y[n:])

"""Generated rows like a network's embeddings, dense: unit length, falling spectrum, overlapping classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split

FILES = ()
SOURCE = "generated"
VARIANTS = ("100", "1000", "imagenet", "small")

#: rows, features, classes, and standard deviation within classes in units of that of their centers; a fifth of the rows
#: more are for the test.
_SIZES = {
    "100": (50_000, 1024, 100, 5.0),
    "1000": (100_000, 512, 1000, 3.0),
    "imagenet": (1_280_000, 1024, 1000, 4.0),
    "small": (4000, 64, 10, 2.0),
}


def build(folder: Path, variant: str) -> Split:
    """Centers of the classes, and rows about them, are normal with the standard deviation j^-1/2 along direction j.

    The directions are turned by a random orthogonal matrix, and the rows scaled to length 1.
    """
    n, d, K, within = _SIZES[variant]
    rng = np.random.default_rng(0)
    spectrum = (np.arange(1, d + 1) ** -0.5).astype(np.float32)
    centers = rng.standard_normal((K, d), dtype=np.float32) * spectrum
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n + n // 5 - K)])
    X = rng.standard_normal((len(y), d), dtype=np.float32)
    X *= within * spectrum
    X += centers[y]
    X = X @ turn
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Split(X[:n], y[:n], X[n:], y[n:])

"""Stands in for gisette, made as that was: MNIST fours and nines, 1 350 x 5 000, half of the features without meaning.

Gisette (Guyon et al., NIPS 2003 feature selection challenge) has pixels of the two digits, products of pairs of these,
and as many probes: features of the same distribution, shuffled among the rows. So has this.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split
from benchmarks.datasets import mnist

FILES = mnist.FILES
SOURCE = mnist.SOURCE

_ROWS, _TEST, _REAL = 1_500, 150, 2_500


def sources() -> list[Path]:
    return [Path(mnist.__file__)]


def build(folder: Path, variant: str) -> Split:
    rng = np.random.default_rng(0)
    whole = mnist.build(folder, "")
    kept = rng.permutation(np.flatnonzero(np.isin(whole.y, (4, 9))))[:_ROWS]
    pixels, y = whole.X[kept], (whole.y[kept] == 9).astype(np.int64)
    pixels = pixels[:, (pixels > 0).mean(axis=0) > 0.01]
    pairs = rng.integers(0, pixels.shape[1], (2, _REAL - pixels.shape[1]))
    real = np.hstack([pixels, pixels[:, pairs[0]] * pixels[:, pairs[1]]])
    probes = rng.permuted(real, axis=0)
    X = np.hstack([real, probes])[:, rng.permutation(2 * _REAL)]
    return Split(X[_TEST:], y[_TEST:], X[:_TEST], y[:_TEST])

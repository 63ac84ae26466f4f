"""Forest cover, the first 20 000 records shuffled: 15 000 x 54, 7 classes, dense, standardized."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import Split

FILES = ("covtype/covtype.20k.data.gz",)
SOURCE = "smalldata/covtype/covtype.20k.data of the h2o-3 repository, gzipped"


def build(folder: Path, variant: str) -> Split:
    table = np.loadtxt(folder / FILES[0], delimiter=",")
    # The file is not a random sample of the whole, and is sorted in part.
    table = table[np.random.default_rng(0).permutation(len(table))]
    train, test = table[:15000], table[15000:]
    mean, scale = train[:, :-1].mean(axis=0), train[:, :-1].std(axis=0)
    scale[scale == 0] = 1
    X, X_test = (((part[:, :-1] - mean) / scale).astype(np.float32) for part in (train, test))
    return Split(X, train[:, -1].astype(np.int64) - 1, X_test, test[:, -1].astype(np.int64) - 1)

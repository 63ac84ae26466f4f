"""a9a and w8a, two classes, 0/1 features, sparse: 32 561 x 123 and 44 774 x 300 (a tenth of w8a for the test)."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Split

VARIANTS = ("a9a", "w8a")
FILES = ("libsvm_binary/a9a.gz", "libsvm_binary/a9a.t.gz", "libsvm_binary/w8a.gz")
SOURCE = "a9a and a9a.t of the ML2017-lab-02 repository, w8a of AccSPD, gzipped"


def build(folder: Path, variant: str) -> Split:
    if variant == "a9a":
        (X, y), (X_test, y_test) = (_read(folder / file, 123) for file in FILES[:2])
        return Split(X, y, X_test, y_test)
    X, y = _read(folder / FILES[2], 300)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = np.sort(order[: len(y) // 10]), np.sort(order[len(y) // 10 :])
    return Split(X[train], y[train], X[test], y[test])


def _read(path: Path, n_features: int) -> tuple[sp.csr_matrix, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(io.BytesIO(gzip.decompress(path.read_bytes())), n_features=n_features, dtype=np.float32)
    return X, (y > 0).astype(np.int64)

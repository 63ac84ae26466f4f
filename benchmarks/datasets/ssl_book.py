"""Sets of the book on semi-supervised learning, two classes: digit1, text (sparse), secstr (sparse, 0/1), g241c."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Split, encode

VARIANTS = ("digit1", "text", "secstr", "g241c")
FILES = tuple(f"ssl_book/{name}.mat.gz" for name in VARIANTS)
SOURCE = "data/SSL,set=K,data.mat of the star_svm repository, gzipped and named after the sets"


def build(folder: Path, variant: str) -> Split:
    """A tenth of the rows, drawn at random, for the test: the sets have no split for supervised learning."""
    from scipy.io import loadmat

    found = loadmat(io.BytesIO(gzip.decompress((folder / f"ssl_book/{variant}.mat.gz").read_bytes())))
    X = _one_hot(found["T"]) if variant == "secstr" else found["X"]
    X = sp.csr_matrix(X, dtype=np.float32) if sp.issparse(X) else X.astype(np.float32)
    labels = found["y"].ravel()
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = np.sort(order[: len(labels) // 10]), np.sort(order[len(labels) // 10 :])
    y, y_test = encode(labels[train], labels[test])
    return Split(X[train], y, X[test], y_test)


def _one_hot(codes: np.ndarray) -> sp.csr_matrix:
    """A column for each value of each position."""
    n, positions = codes.shape
    values = int(codes.max()) + 1
    indices = codes.astype(np.int32) + values * np.arange(positions, dtype=np.int32)
    data = np.ones(n * positions, np.float32)
    return sp.csr_matrix((data, indices.ravel(), positions * np.arange(n + 1)), shape=(n, values * positions))

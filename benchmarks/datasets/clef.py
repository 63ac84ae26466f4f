"""ImageCLEF07A, codes of X-ray images: 10 000 rows, 80 features (edge histograms, standardized), 63 classes, dense."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from benchmarks.data import Split, encode

FILES = ("clef/image_clef_train.arff.gz", "clef/image_clef_test.arff.gz")
SOURCE = "the ImageCLEF07A training and test rows, multilabel/ of shogun-data: 80 numbers and the path of the label"
VARIANTS = ("",)


def build(folder: Path, variant: str) -> Split:
    (X, labels), (X_test, labels_test) = (_read(folder / file) for file in FILES)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    deviation[deviation == 0] = 1
    y, y_test = encode(labels, labels_test)
    X, X_test = (np.ascontiguousarray((part - mean) / deviation, np.float32) for part in (X, X_test))
    return Split(X, y, X_test, y_test)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features, and the deepest label of each path."""
    with gzip.open(path, "rt") as handle:
        lines = handle.read().split("@DATA", 1)[1].split()
    cells = [line.split(",") for line in lines]
    X = np.array([row[:-1] for row in cells], np.float64)
    return X, np.array([row[-1].rsplit("@", 1)[-1] for row in cells])

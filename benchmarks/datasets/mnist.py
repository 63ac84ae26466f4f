"""MNIST digits: 60 000 x 784, 10 classes, dense."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Split

_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
FILES = tuple(f"mnist/{part}-ubyte.gz" for part in _PARTS)
SOURCE = "the four idx files of MNIST, gzipped"


def build(folder: Path, variant: str) -> Split:
    X, y, X_test, y_test = (_idx(folder / file) for file in FILES)
    X, X_test = ((images.reshape(len(images), -1) / np.float32(255)).astype(np.float32) for images in (X, X_test))
    return Split(X, y.astype(np.int64), X_test, y_test.astype(np.int64))


def _idx(path: Path) -> Any:
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)

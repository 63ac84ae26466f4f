"""USPS digits: 7 291 x 256, 10 classes, dense, in [0, 1]."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np

from benchmarks.data import Split

FILES = ("usps/USPS.mat.gz",)
SOURCE = "data/USPS.mat of the SEMMDL repository, gzipped"


def build(folder: Path, variant: str) -> Split:
    from scipy.io import loadmat

    found = loadmat(io.BytesIO(gzip.decompress((folder / FILES[0]).read_bytes())))
    X, X_test = (np.ascontiguousarray(found[name].T, np.float32) for name in ("Train_DAT", "Test_DAT"))
    y, y_test = (found[name].ravel().astype(np.int64) - 1 for name in ("trainlabels", "testlabels"))
    return Split(X, y, X_test, y_test)

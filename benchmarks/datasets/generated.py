"""A generated problem shaped like text (manyclass.datasets.make_many_classes): text, small, wide or many, sparse."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from benchmarks.data import Split, encode

FILES = ()
SOURCE = "generated"
VARIANTS = ("text", "small", "wide", "many", "tall", "100k")

#: rows, features, classes, words a row; a fifth of the rows more are for the test.
_SIZES = {
    "text": (12000, 130000, 20, 150),
    "small": (2000, 3000, 30, 20),
    "wide": (20000, 20000, 500, 80),
    "many": (100000, 50000, 10000, 20),
    "tall": (500000, 5000, 300, 20),
    "100k": (500000, 200000, 100000, 20),
}


def sources() -> list[Path]:
    found = find_spec("manyclass.datasets.synthetic")
    return [Path(found.origin)] if found and found.origin else []


def build(folder: Path, variant: str) -> Split:
    from manyclass.datasets import make_many_classes

    n, d, K, words = _SIZES[variant]
    X, y = make_many_classes(n + n // 5, d, K, nnz_per_row=words, random_state=0)
    labels, labels_test = encode(y[:n], y[n:])
    return Split(X[:n], labels, X[n:], labels_test)

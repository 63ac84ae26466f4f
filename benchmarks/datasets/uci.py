"""Six sets of the UCI repository, dense, standardized: ecoli, vowel, pendigits, optdigits, segment, letter."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Split, encode

VARIANTS = ("ecoli", "vowel", "pendigits", "optdigits", "segment", "letter")
FILES = tuple(f"uci/{name}.arff.gz" for name in VARIANTS)
SOURCE = "the ARFF files of those names from classification/ of the arff-datasets repository, gzipped"

#: Rows in front that are for training, where the set has a split of its own.
_FIRST = {"pendigits": 7494, "optdigits": 3823}


def build(folder: Path, variant: str) -> Split:
    rows = _rows(folder / f"uci/{variant}.arff.gz")
    labels = np.array([row[-1] for row in rows])
    if variant == "vowel":  # Train or Test, the speaker, the sex, ten numbers
        train = np.array([row[0] == "Train" for row in rows])
        X = np.array([row[3:-1] for row in rows], float)
    else:
        X = np.array([row[:-1] for row in rows], float)
        if variant in _FIRST:
            train = np.arange(len(rows)) < _FIRST[variant]
        else:
            train = np.random.default_rng(0).permutation(len(rows)) < 0.75 * len(rows)
    mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
    scale[scale == 0] = 1
    X = ((X - mean) / scale).astype(np.float32)
    y, y_test = encode(labels[train], labels[~train])
    return Split(X[train], y, X[~train], y_test)


def _rows(path: Path) -> list[list[Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as handle:
        lines = [line.strip() for line in handle]
    start = next(number for number, line in enumerate(lines) if line.lower() == "@data")
    return [[part.strip() for part in line.split(",")] for line in lines[start + 1 :] if line and line[0] != "%"]

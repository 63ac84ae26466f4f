"""ICD-10-CM descriptions to the first 4 (or 3) characters of the code: 112 480 x 43 676, 10 275 classes, sparse."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

FILES = ("icd10cm/icd10cm.tsv.gz",)
SOURCE = "a table of code, short and long description of the 72 748 billable ICD-10-CM 2022 codes"
VARIANTS = ("4", "3")
#: Both descriptions of a code, one after the other: whoever holds rows out holds out both.
GROUP = 2


def build(folder: Path, variant: str) -> Split:
    with gzip.open(folder / FILES[0], "rt", encoding="utf-8") as handle:
        lines = [line.rstrip("\n").split("\t") for line in handle]
    # Split by code, so that the codes of the test are unseen; only in classes of at least 3 codes (at 4 characters).
    prefix = np.array([code[:4] for code, *_ in lines])
    size = dict(zip(*np.unique(prefix, return_counts=True)))
    large = np.array([size[p] >= 3 for p in prefix])
    test = (np.random.default_rng(0).random(len(lines)) < 0.25) & large
    label = np.array([code[: int(variant)] for code, *_ in lines])

    def both(chosen: np.ndarray) -> tuple[list[str], np.ndarray]:
        rows = np.flatnonzero(chosen)
        return [text for i in rows for text in lines[i][1:3]], np.repeat(label[rows], 2)

    texts, y = both(~test)
    texts_test, y_test = both(test)
    return tfidf(texts, y, texts_test, y_test, ngram_range=(1, 2), token_pattern=r"[A-Za-z0-9]+")

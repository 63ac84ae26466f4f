"""The verse (or chapter, or book) of a verse's text in another translation: 124 256 rows, 31 064 classes, sparse."""

from __future__ import annotations

import gzip
from pathlib import Path

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

TRAIN, TEST = ("kjv", "asv", "bbe", "ylt"), "web"
FILES = tuple(f"bible_verses/{version}.tsv.gz" for version in (*TRAIN, TEST))
SOURCE = "tables of verse number BBCCCVVV and text, of five translations in the public domain"
VARIANTS = ("verse", "chapter", "book")

_DIGITS = {"verse": 8, "chapter": 5, "book": 2}


def build(folder: Path, variant: str) -> Split:
    texts = {version: _read(folder / f"bible_verses/{version}.tsv.gz") for version in (*TRAIN, TEST)}
    common = sorted(set.intersection(*(set(text) for text in texts.values())))
    label = [number[: _DIGITS[variant]] for number in common]
    train = [texts[version][number] for version in TRAIN for number in common]
    return tfidf(train, label * len(TRAIN), [texts[TEST][number] for number in common], label)


def _read(path: Path) -> dict[str, str]:
    with gzip.open(path, "rt", encoding="utf-8") as handle:
        rows = (line.rstrip("\n").partition("\t") for line in handle)
        return {number: text for number, _, text in rows if text.strip()}

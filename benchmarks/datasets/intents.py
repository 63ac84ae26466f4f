"""Intents of short questions: banking77 (77 classes), hwu64 (64), clinc150 (150); tf-idf of words and pairs, sparse."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

VARIANTS = ("banking77", "hwu64", "clinc150")
FILES = (
    *(f"banking77/{part}.csv.gz" for part in ("train", "test")),
    *(f"hwu64/{part}.{what}.gz" for part in ("train", "test") for what in ("seq.in", "label")),
    "clinc150/data_full.json.gz",
)
SOURCE = "banking_data of task-specific-datasets, HWU64 of Few-Shot-Intent-Detection, data_full of oos-eval, gzipped"


def build(folder: Path, variant: str) -> Split:
    parts = [_read(folder, variant, part) for part in ("train", "test")]
    texts, labels = ([list(column) for column in columns] for columns in zip(*(zip(*part) for part in parts)))
    return tfidf(texts[0], labels[0], texts[1], labels[1], ngram_range=(1, 2))


def _read(folder: Path, variant: str, part: str) -> list[tuple[str, str]]:
    """Pairs of text and label."""
    if variant == "banking77":
        rows = csv.reader(io.StringIO(_text(folder / f"banking77/{part}.csv.gz")))
        return [(row[0], row[1]) for row in rows][1:]
    if variant == "hwu64":
        texts, labels = (_text(folder / f"hwu64/{part}.{what}.gz").splitlines() for what in ("seq.in", "label"))
        return list(zip(texts, labels))
    return [(text, label) for text, label in json.loads(_text(folder / FILES[-1]))[part]]


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8")

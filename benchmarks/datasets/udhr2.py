"""The language of a paragraph of the Declaration of Human Rights: 388 classes, tf-idf of 1-3 characters, sparse."""

from __future__ import annotations

import zipfile
from pathlib import Path

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

FILES = ("udhr2/udhr2.zip",)
SOURCE = "packages/corpora/udhr2.zip of the nltk_data repository"


def build(folder: Path, variant: str) -> Split:
    """Of the lines of each file that are not blank, every fifth is for the test."""
    rows: dict[bool, tuple[list[str], list[str]]] = {False: ([], []), True: ([], [])}
    with zipfile.ZipFile(folder / FILES[0]) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith("/"):
                continue
            lines = filter(None, map(str.strip, archive.read(name).decode("utf-8").splitlines()))
            for number, line in enumerate(lines):
                texts, labels = rows[number % 5 == 4]
                texts.append(line)
                labels.append(name.rsplit("/", 1)[-1])
    return tfidf(*rows[False], *rows[True], analyzer="char_wb", ngram_range=(1, 3))

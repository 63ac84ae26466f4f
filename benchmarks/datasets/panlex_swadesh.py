"""The language of a word (PanLex Swadesh lists), character 1-4-grams: 264 695 rows, 2 111 classes, sparse.

``110-frequent`` has the 27 063 n-grams alone that ten training rows have: for methods that hold many dense copies of W.
"""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

FILES = ("panlex_swadesh/panlex_swadesh.zip",)
SOURCE = "packages/corpora/panlex_swadesh.zip of nltk_data"
VARIANTS = ("110", "207", "110-frequent")


def build(folder: Path, variant: str) -> Split:
    lists, _, frequent = variant.partition("-")
    rows: dict[bool, tuple[list[str], list[str]]] = {False: ([], []), True: ([], [])}
    with zipfile.ZipFile(folder / FILES[0]) as archive:
        for name in sorted(archive.namelist()):
            path = PurePosixPath(name)
            if path.suffix != ".txt" or path.parent.name != f"swadesh{lists}":
                continue
            for concept, line in enumerate(archive.read(name).decode("utf-8").split("\n"), start=1):
                words, languages = rows[concept % 5 == 0]
                for word in filter(None, line.rstrip("\r").split("\t")):
                    words.append(word)
                    languages.append(path.stem)
    (train, y), (test, y_test) = rows[False], rows[True]
    return tfidf(train, y, test, y_test, analyzer="char", ngram_range=(1, 4), min_df=10 if frequent else 1)

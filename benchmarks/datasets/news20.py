"""20 Newsgroups by date, tf-idf of words (130 108) or of words and pairs (386 308): 11 314 rows, 20 classes, sparse."""

from __future__ import annotations

import tarfile
from pathlib import Path

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

FILES = ("20news/20news-bydate.tar.xz",)
SOURCE = (
    "the archive of the by-date split, packed with xz: 20news-bydate-train/<group>/<id> and "
    "20news-bydate-test/<group>/<id>"
)
VARIANTS = ("", "bigrams")

#: Words keep what joins them: names of programs, numbers, addresses. Pairs of words that occur once say nothing.
_BIGRAMS = {"ngram_range": (1, 2), "min_df": 2, "token_pattern": r"[A-Za-z0-9_.@'-]*[A-Za-z0-9]"}


def build(folder: Path, variant: str) -> Split:
    posts: dict[str, list[tuple[str, str, str]]] = {"train": [], "test": []}
    with tarfile.open(folder / FILES[0]) as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            if handle is not None:
                part, group, number = member.name.split("/")[-3:]
                posts[part.rsplit("-", 1)[1]].append((group, number, handle.read().decode("latin-1")))
    train, test = sorted(posts["train"]), sorted(posts["test"])
    options = _BIGRAMS if variant == "bigrams" else {}
    labels, labels_test = ([post[0] for post in part] for part in (train, test))
    return tfidf([post[2] for post in train], labels, [post[2] for post in test], labels_test, **options)

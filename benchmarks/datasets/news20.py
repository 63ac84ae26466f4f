"""20 Newsgroups by date, tf-idf: 11 314 x 130 108, 20 classes, sparse."""

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


def build(folder: Path, variant: str) -> Split:
    posts: dict[str, list[tuple[str, str, str]]] = {"train": [], "test": []}
    with tarfile.open(folder / FILES[0]) as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            if handle is not None:
                part, group, number = member.name.split("/")[-3:]
                posts[part.rsplit("-", 1)[1]].append((group, number, handle.read().decode("latin-1")))
    train, test = sorted(posts["train"]), sorted(posts["test"])
    return tfidf([p[2] for p in train], [p[0] for p in train], [p[2] for p in test], [p[0] for p in test])

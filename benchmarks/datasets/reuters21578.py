"""Reuters-21578, ModApte, the articles of one topic: 6 552 rows, about 60 topics, tf-idf of words, sparse."""

from __future__ import annotations

import html
import re
import tarfile
from pathlib import Path

from benchmarks.data import Split
from benchmarks.datasets._text import tfidf

FILES = ("reuters21578/reuters21578_sgm.tar.xz",)
SOURCE = "the 22 files reut2-NNN.sgm of Reuters-21578, Distribution 1.0, in one archive"

_ARTICLE = re.compile(r"<REUTERS(.*?)>(.*?)</REUTERS>", re.DOTALL)
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
_BODY = re.compile(r"<TEXT.*?>(.*?)</TEXT>", re.DOTALL)


def build(folder: Path, variant: str) -> Split:
    found: dict[str, tuple[list[str], list[str]]] = {"TRAIN": ([], []), "TEST": ([], [])}
    with tarfile.open(folder / FILES[0]) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            handle = archive.extractfile(member) if member.name.endswith(".sgm") else None
            if handle is None:
                continue
            for head, article in _ARTICLE.findall(handle.read().decode("latin-1")):
                split = re.search(r'LEWISSPLIT="(TRAIN|TEST)"', head)
                topics = re.findall(r"<D>(.*?)</D>", _TOPICS.search(article)[1])
                if split and 'TOPICS="YES"' in head and len(topics) == 1:
                    text = re.sub(r"<.*?>", " ", _BODY.search(article)[1])
                    found[split[1]][0].append(html.unescape(text))
                    found[split[1]][1].append(topics[0])
    return tfidf(*found["TRAIN"], *found["TEST"])

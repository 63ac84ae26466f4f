"""20 Newsgroups by date, tf-idf of words (130 108) or of words and pairs (386 308): 11 314 rows, 20 classes, sparse.

``log_counts`` is another split and other features, those of Agarwal et al., Least squares revisited: 15 000 rows drawn
at random of all 18 846, log(1 + count) of the words that occur at least three times in them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from benchmarks.data import Split, encode
from benchmarks.datasets._text import tfidf

FILES = ("20news/20news-bydate.tar.xz",)
SOURCE = (
    "the archive of the by-date split, packed with xz: 20news-bydate-train/<group>/<id> and "
    "20news-bydate-test/<group>/<id>"
)
VARIANTS = ("", "bigrams", "log_counts")

#: Of ``log_counts``: posts to train on, and how often a word occurs in them at least.
N_TRAIN, LEAST = 15_000, 3

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
    if variant == "log_counts":
        return _log_counts(train + test)
    options = _BIGRAMS if variant == "bigrams" else {}
    labels, labels_test = ([post[0] for post in part] for part in (train, test))
    return tfidf([post[2] for post in train], labels, [post[2] for post in test], labels_test, **options)


def _log_counts(posts: list[tuple[str, str, str]]) -> Split:
    from sklearn.feature_extraction.text import CountVectorizer

    order = np.random.default_rng(0).permutation(len(posts))
    texts, labels = [posts[i][2] for i in order], np.array([posts[i][0] for i in order])
    vectorizer = CountVectorizer(dtype=np.float32)
    X, X_test = vectorizer.fit_transform(texts[:N_TRAIN]), vectorizer.transform(texts[N_TRAIN:])
    kept = np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() >= LEAST)
    X, X_test = X[:, kept].log1p(), X_test[:, kept].log1p()
    y, y_test = encode(labels[:N_TRAIN], labels[N_TRAIN:])
    return Split(X, y, X_test, y_test)

"""Sequences of tokens from verses of the Bible; the objective of a chain, in NumPy; CRFsuite's models."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

__all__ = ["FIRST", "LAST", "TASKS", "Chain", "Sequences", "judge", "marked", "read"]

#: Attributes of the first and of the last token, which stand for the weights of the first and of the last label.
FIRST, LAST = "<first>", "<last>"

Tokens = list[list[str]]
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Sequences:
    """Sequences of tokens, each a list of names of features, and their labels."""

    X: list[Tokens]
    y: list[list[str]]
    X_test: list[Tokens]
    y_test: list[list[str]]


@dataclass(frozen=True)
class Chain:
    """The weights of a linear-chain conditional random field."""

    columns: dict[str, int]
    labels: list[str]
    W: Array
    transitions: Array
    first: Array
    last: Array


def _segmentation(text: str) -> tuple[Tokens, list[str]]:
    """Letters without the spaces between words, pieces of one to four around each; B, I, E or S."""
    words = re.findall(r"[a-z]+", text.lower())
    padded = f"^^^{''.join(words)}$$$"
    pieces = [(a, b) for a in range(7) for b in range(a + 1, min(a + 4, 7) + 1)]
    tokens = [[f"{a - 3}:{padded[t + a : t + b]}" for a, b in pieces] for t in range(len(padded) - 6)]
    return tokens, [*"".join("S" if len(word) == 1 else f"B{'I' * (len(word) - 2)}E" for word in words)]


def _punctuation(text: str) -> tuple[Tokens, list[str]]:
    """Words without punctuation and capitals, and those around each; the sign that follows, or -."""
    found = re.findall(r"([A-Za-z']+)([^A-Za-z']*)", text)
    words = ["^", "^", *(word.lower() for word, _ in found), "$", "$", "$"]
    tokens = []
    for t in range(2, len(found) + 2):
        token = [f"{k}:{words[t + k]}" for k in range(-2, 4)]
        token += [f"{k}:{words[t + k]} {words[t + k + 1]}" for k in range(-2, 2)]
        tokens.append([*token, f"end:{words[t][-2:]}"])
    return tokens, [next((sign for sign in after if sign in ",.;:?!"), "-") for _, after in found]


#: Name of a data set -> its file, its tokens and labels, and the numbers of sequences to learn from and to test on.
TASKS = {
    "bible_verses/segmentation": ("bible_verses/bbe.tsv.gz", _segmentation, 1000, 1000),
    "bible_verses/punctuation": ("bible_verses/kjv.tsv.gz", _punctuation, 3000, 2000),
}


def read(name: str, folder: Path, quick: bool) -> Sequences:
    """The sequences of a task, verses in a random order.

    Raises
    ------
    FileNotFoundError
        If the folder does not have the raw file.
    """
    file, convert, n, n_test = TASKS[name]
    with gzip.open(folder / file, "rt", encoding="utf-8") as handle:
        texts = [line.rstrip("\n").partition("\t")[2] for line in handle]
    order = np.random.default_rng(0).permutation(len(texts))
    made = [pair for pair in (convert(texts[place]) for place in order) if pair[0]]
    if quick:
        n, n_test = 30, 20
    train, test = made[:n], made[n : n + n_test]
    return Sequences([x for x, _ in train], [y for _, y in train], [x for x, _ in test], [y for _, y in test])


def marked(sequence: Tokens) -> Tokens:
    """The tokens, of which the first and the last say that they are that."""
    copy = [list(token) for token in sequence]
    copy[0].append(FIRST)
    copy[-1].append(LAST)
    return copy


def judge(data: Sequences, chain: Chain, alpha: float) -> dict[str, float]:
    """The objective mean_i -log p(y_i | x_i) + (alpha / 2) ||theta||^2, and the shares of right labels of test tokens
    and test sequences; in float64, by sums of logarithms, independent of both libraries."""
    losses = _losses(data.X, data.y, chain)
    theta = (chain.W, chain.transitions, chain.first, chain.last)
    objective = float(losses.mean()) + 0.5 * alpha * float(sum(np.sum(part**2) for part in theta))
    paths = [_best(scores, chain) for scores in _scores(data.X_test, chain)]
    truth = [[chain.labels.index(label) if label in chain.labels else -1 for label in part] for part in data.y_test]
    right = [np.asarray(path) == np.asarray(own) for path, own in zip(paths, truth)]
    return {
        "objective": objective,
        "accuracy": float(np.mean(np.concatenate(right))),
        "sequences_right": float(np.mean([part.all() for part in right])),
    }


def _scores(X: list[Tokens], chain: Chain) -> list[Array]:
    """The scores of the labels of the tokens of each sequence, with those of the first and the last label."""
    listed = [[chain.columns[name] for name in token if name in chain.columns] for part in X for token in part]
    indptr = np.cumsum([0, *map(len, listed)])
    places = np.concatenate([np.asarray(part, np.int64) for part in listed])
    rows = sp.csr_matrix((np.ones(len(places)), places, indptr), shape=(len(listed), len(chain.W)))
    parts = np.split(rows @ chain.W, np.cumsum([len(part) for part in X])[:-1])
    for part in parts:
        part[0] += chain.first
        part[-1] += chain.last
    return parts


def _losses(X: list[Tokens], y: list[list[str]], chain: Chain) -> Array:
    number = {label: k for k, label in enumerate(chain.labels)}
    found = []
    for scores, labels in zip(_scores(X, chain), y):
        path = [number[label] for label in labels]
        own = scores[np.arange(len(path)), path].sum() + sum(chain.transitions[pair] for pair in pairwise(path))
        forward = scores[0]
        for now in scores[1:]:
            forward = logsumexp(forward[:, None] + chain.transitions, axis=0) + now
        found.append(logsumexp(forward) - own)
    return np.array(found)


def _best(scores: Array, chain: Chain) -> list[int]:
    best, origins = scores[0], []
    for now in scores[1:]:
        reached = best[:, None] + chain.transitions
        origins.append(reached.argmax(axis=0))
        best = reached.max(axis=0) + now
    path = [int(best.argmax())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return path[::-1]

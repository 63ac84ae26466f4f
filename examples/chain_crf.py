"""
A conditional random field with label sets that differ
======================================================

A small chain-structured conditional random field finds the part-of-speech tags of short sentences.
The label of a sentence is its sequence of tags. All sequences can be listed (3 tags, up to 4 words: at most 81), so the
model is a `LogLinearModel`: joint features count pairs of word and tag, and pairs of neighboring tags. Sequences that a
grammar forbids get the base measure zero.
"""

from __future__ import annotations

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from manyclass import LogLinearModel

TAGS = ("noun", "verb", "determiner")
WORDS = ("dog", "walk", "the", "runs", "a", "sees", "man")
N_TAGS, N_WORDS = len(TAGS), len(WORDS)


def sequences(length):
    """All label sequences of a length, (N_TAGS ** length, length)."""
    return np.array(list(product(range(N_TAGS), repeat=length)))


def joint_features(words):
    """f(x, y) of all sequences y of a sentence, a CSR row each: pairs of word and tag, and pairs of tags."""
    labels = sequences(len(words))
    rows = np.arange(len(labels))
    columns = [word * N_TAGS + labels[:, at] for at, word in enumerate(words)]
    columns += [N_WORDS * N_TAGS + labels[:, at] * N_TAGS + labels[:, at + 1] for at in range(len(words) - 1)]
    counts = sp.csr_matrix(
        (np.ones(len(columns) * len(labels)), (np.tile(rows, len(columns)), np.concatenate(columns))),
        shape=(len(labels), N_WORDS * N_TAGS + N_TAGS * N_TAGS),
    )
    counts.sum_duplicates()
    return counts


def log_measure(length):
    """0 for allowed sequences, minus infinity where a determiner ends the sentence."""
    return np.where(sequences(length)[:, -1] == TAGS.index("determiner"), -np.inf, 0.0)


def sentences(n, rng):
    """Random sentences, and the number of each one's true sequence."""
    follow = np.array([[0.1, 0.8, 0.1], [0.3, 0.1, 0.6], [1.0, 0.0, 0.0]])
    emit = np.array([[4, 2, 0, 1, 0, 0, 4], [0, 3, 0, 4, 0, 4, 0], [0, 0, 5, 0, 5, 0, 0]]) + 0.05
    found, numbers = [], []
    while len(found) < n:
        length = int(rng.integers(2, 5))
        tags = [int(rng.integers(3))]
        while len(tags) < length:
            tags.append(int(rng.choice(3, p=follow[tags[-1]])))
        if tags[-1] != TAGS.index("determiner"):
            found.append([int(rng.choice(N_WORDS, p=emit[t] / emit[t].sum())) for t in tags])
            numbers.append(int(np.ravel_multi_index(tags, (N_TAGS,) * length)))
    return found, np.array(numbers)


def main():
    rng = np.random.default_rng(0)
    words, y = sentences(400, rng)
    features = [joint_features(sentence) for sentence in words]
    measures = [log_measure(len(sentence)) for sentence in words]
    train, test = slice(0, 300), slice(300, 400)

    model = LogLinearModel(alpha=1e-3, tol=1e-8).fit(features[train], y[train], log_measure=measures[train])
    print(f"{model.n_iter_} iterations, relative gap {model.duality_gap_:.1e}")
    likelihood = model.score(features[test], y[test], log_measure=measures[test])
    print(f"mean log-likelihood of unseen sentences: {likelihood:.3f}")
    right = model.predict(features[test], log_measure=measures[test]) == y[test]
    print(f"whole sequences right: {right.mean():.0%}")
    sentence = [WORDS.index(word) for word in ("the", "man", "sees", "dog")]
    best = model.predict([joint_features(sentence)], log_measure=[log_measure(4)])[0]
    print("the man sees dog:", ", ".join(TAGS[tag] for tag in sequences(4)[best]))
    return model, right.mean()


def draw(model):
    """The weights: of words with tags, and of neighboring tags."""
    words, pairs = np.split(model.coef_, [N_WORDS * N_TAGS])
    figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for panel, table, names in ((panels[0], words, WORDS), (panels[1], pairs, TAGS)):
        image = panel.imshow(table.reshape(-1, N_TAGS), cmap="RdBu_r", vmin=-5, vmax=5)
        panel.set_xticks(range(N_TAGS), TAGS)
        panel.set_yticks(range(len(names)), names)
    panels[0].set_title("word and tag")
    panels[1].set_title("tag, and the one that follows")
    figure.colorbar(image, ax=panels, label="weight")
    plt.show()


if __name__ == "__main__":
    draw(main()[0])

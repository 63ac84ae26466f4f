"""
Words in text without spaces
============================

Chinese, Thai and hashtags have no spaces: where does each word begin? A conditional random field labels every character
of a line: B begins a word of several characters, I is inside, E ends it, S is a word of its own. Only some labels may
follow each other, which `LinearChainCRF` learns with the rest. The text is that of Python's own help pages, without its
spaces; lines are learned on some pages and cut into words on others.
"""

import re
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from manyclass import LinearChainCRF, LinearClassifier


def sentences(pages):
    """The words of all sentences of at least four words."""
    text = " ".join(" ".join(topics[page].lower().split()) for page in pages)
    found = [re.findall(r"[a-z]+", part) for part in re.split(r"[.:;?!]\s", text)]
    return [words for words in found if 4 <= len(words) <= 40]


pages = sorted(topics)
train = sentences([page for number, page in enumerate(pages) if number % 4])[:1200]
test = sentences(pages[::4])[:300]
print(f"{len(train)} sentences, {sum(map(len, train))} words to learn from")

# %%
# Features of a character are the pieces of one to four characters around it, with their position. They are names: there
# is no vocabulary to prepare.


def features(line, reach=2):
    """For each character the pieces of up to four characters, at most two characters away."""
    padded = "^" * reach + line + "$" * reach
    pieces = [(a, b) for a in range(2 * reach + 1) for b in range(a + 1, min(a + 4, 2 * reach + 1) + 1)]
    return [[f"{a - reach}:{padded[t + a : t + b]}" for a, b in pieces] for t in range(len(line))]


def labels(words):
    """B, I, E or S for each character."""
    return [label for word in words for label in ("S" if len(word) == 1 else "B" + "I" * (len(word) - 2) + "E")]


X, y = [features("".join(words)) for words in train], [labels(words) for words in train]
X_test, y_test = [features("".join(words)) for words in test], [labels(words) for words in test]
model = LinearChainCRF(tol=1e-2).fit(X, y)
print(f"{model.n_features_in_} features, {model.n_iter_} iterations, {model.score(X_test, y_test):.1%} of labels right")

# %%
# What counts are words. The same features without the chain, a classifier of single characters, find fewer of them: its
# labels do not fit together.


def cuts(path):
    """Begin and end of each word that the labels of a line say; a word ends where the next one begins."""
    edges = [t for t, label in enumerate(path) if t == 0 or label in "BS" or path[t - 1] in "ES"]
    return set(zip(edges, [*edges[1:], len(path)]))


def f1(paths):
    """The harmonic mean of precision and recall of the words."""
    pairs = [(cuts(path), cuts(true)) for path, true in zip(paths, y_test)]
    both, found, true = (sum(map(len, part)) for part in zip(*((a & b, a, b) for a, b in pairs)))
    return 2 * both / (found + true)


def rows(lines):
    """The characters of all lines as rows of a sparse matrix, one column for each name of the chain."""
    column = {name: place for place, name in enumerate(model.feature_names_)}
    listed = [[column[name] for name in token if name in column] for line in lines for token in line]
    indptr = np.cumsum([0, *map(len, listed)])
    return sp.csr_matrix((np.ones(indptr[-1]), np.concatenate(listed), indptr), shape=(len(listed), len(column)))


alone = LinearClassifier(tol=1e-2, random_state=0).fit(rows(X), np.concatenate(y))
single = np.split(alone.predict(rows(X_test)), np.cumsum([len(line) for line in X_test])[:-1])
scores = {"each character alone": f1(single), "chain": f1(model.predict(X_test))}
print({name: round(score, 3) for name, score in scores.items()})

line = "theseareonlythewordsofonesentence"
path = model.predict([features(line)])[0]
print(" ".join(line[begin:end] for begin, end in sorted(cuts(path))))

# %%
# The probability that a word begins at a character is a sum of marginals, which the chain has exactly. The weights of
# neighboring labels: B is followed by I or E, never by B or S.

starts = model.predict_proba([features(line)])[0][:, np.isin(model.classes_, ["B", "S"])].sum(axis=1)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), width_ratios=[3, 1.2, 1], layout="constrained")
axes[0].bar(range(len(line)), starts)
axes[0].set_xticks(range(len(line)), list(line))
axes[0].set_ylabel("probability that a word begins here")
image = axes[1].imshow(model.transitions_, cmap="RdBu_r", vmin=-6, vmax=6)
axes[1].set_xticks(range(4), model.classes_)
axes[1].set_yticks(range(4), model.classes_)
axes[1].set_title("label, and the next one")
figure.colorbar(image, ax=axes[1], label="weight")
axes[2].bar(list(scores), list(scores.values()))
axes[2].set_ylim(0.5, 1)
axes[2].set_title("F1 of words")
axes[2].tick_params("x", rotation=15)
plt.show()

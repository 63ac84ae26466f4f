"""
Short texts with hundreds of labels
===================================

Job titles, product names, symptoms: a few words, hundreds of labels, and most labels rare. alpha has the largest
effect: with many classes softmax regression needs one far below the default of 1/n, the multiclass SVM depends on it
less. The texts are generated: each label has words of its own, shares others with its group, and some words are
misspelled.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from manyclass import LinearClassifier, TextVectorizer

rng = np.random.default_rng(0)
N_LABELS, N_TEXTS = 300, 4000
syllables = ["ka", "lo", "mi", "ter", "ran", "vis", "pol", "du", "sen", "gra", "be", "nix"]


def word():
    """A word of three syllables."""
    return "".join(rng.choice(syllables, 3))


common = [word() for _ in range(40)]
groups = [[word() for _ in range(4)] for _ in range(30)]
own = [[word() for _ in range(3)] for _ in range(N_LABELS)]


def text(label):
    """Two words of the label, one of its group, one of all; one in five has a letter missing."""
    words = [*rng.choice(own[label], 2), rng.choice(groups[label % 30]), rng.choice(common)]
    words = [w if rng.random() > 0.2 else w[:3] + w[4:] for w in words]
    return " ".join(rng.permutation(words))


share = 1 / np.arange(1, N_LABELS + 1)  # a few labels are frequent
labels = rng.choice(N_LABELS, N_TEXTS, p=share / share.sum())
texts = [text(label) for label in labels]
print(texts[:3])

# %%
# Character n-grams within words forgive the misspellings.

train_texts, test_texts, y_train, y_test = train_test_split(texts, labels, random_state=0)
vectorizer = TextVectorizer(analyzer="char_wb", ngram_range=(2, 4))
X_train, X_test = vectorizer.fit_transform(train_texts), vectorizer.transform(test_texts)

alphas = np.logspace(-2, -5, 4)
models = {
    "multinomial": LinearClassifier(tol=1e-2, random_state=0),
    "crammer_singer": LinearClassifier("crammer_singer", tol=1e-2, solver="sdca_active", random_state=0),
}
scores = {
    name: [model.set_params(alpha=alpha).fit(X_train, y_train).score(X_test, y_test) for alpha in alphas]
    for name, model in models.items()
}
tuned = LinearClassifier(alpha="auto", random_state=0).fit(X_train, y_train)
print(f"alpha='auto': {tuned.alpha_:.1e}, accuracy {tuned.score(X_test, y_test):.3f}")

figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
for loss, found in scores.items():
    panel.semilogx(alphas, found, "o-", label=loss)
panel.axvline(1 / len(y_train), color="gray", linestyle="--", label="alpha=None: 1 / n_samples")
panel.plot(tuned.alpha_, tuned.score(X_test, y_test), "k*", markersize=14, label='multinomial, alpha="auto"')
panel.set(xlabel="alpha", ylabel="accuracy on test rows")
panel.legend()
plt.show()

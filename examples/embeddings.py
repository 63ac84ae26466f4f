"""
A probe of embeddings, from a few rows of each class
====================================================

Features of a network are dense columns of different scales. ``standardize=True`` is the penalty of columns of variance
1, without a copy of X, and the saved weights are for the features as they are. How much do a few rows of each class
give, and ``class_weight="balanced"`` where some classes have far fewer rows than others?
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score

from manyclass import LinearClassifier, load
from manyclass.metrics import log_loss

# In place of a network: random ReLU features of images, whose columns have different scales.
images, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
first = rng.standard_normal((64, 1024)) / 64
X = (np.maximum(images @ first, 0) * 10.0 ** rng.uniform(-1.5, 1.5, 1024)).astype(np.float32)
order = rng.permutation(len(y))
train, held, test = order[:1000], order[1000:1200], order[1200:]

# %%
# Few rows of each class, more features than rows: the fit is as exact as any other, its duality gap says so. Here the
# two penalties do equally well, because 1024 random columns have enough of every scale.
sizes, accuracy = [1, 2, 5, 10, 20, 50], {False: [], True: []}
for size in sizes:
    few = np.concatenate([train[y[train] == digit][:size] for digit in range(10)])
    for standardize, found in accuracy.items():
        probe = LinearClassifier(standardize=standardize, random_state=0).fit(X[few], y[few])
        assert probe.duality_gap_ <= 1e-3
        found.append(probe.score(X[test], y[test]))
figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
for standardize, found in accuracy.items():
    panel.plot(sizes, found, "o-", label=f"standardize={standardize}")
panel.set(xscale="log", xlabel="rows of each class", ylabel="accuracy")
panel.set_xticks(sizes, [str(size) for size in sizes])
panel.legend()
plt.show()

# %%
# Three classes with a twentieth of the rows of the others: mean recall with and without balanced weights.
rare = np.isin(y[train], [1, 8, 9]) & (rng.random(len(train)) < 0.95)
uneven = train[~rare]
for weight in (None, "balanced"):
    probe = LinearClassifier(alpha=1e-1, standardize=True, class_weight=weight, random_state=0)
    recall = balanced_accuracy_score(y[test], probe.fit(X[uneven], y[uneven]).predict(X[test]))
    print(f"class_weight={weight}: mean recall {recall:.3f}")

# %%
# Calibrated on rows that the fit has not seen, saved, and loaded where it is served: features as they come.
probe = LinearClassifier(standardize=True, random_state=0).fit(X[train], y[train])
before = log_loss(y[test], probe.predict_proba(X[test]))
probe.calibrate(X[held], y[held])
with tempfile.TemporaryDirectory() as folder:
    probe.save(Path(folder) / "probe.model")
    served = load(Path(folder) / "probe.model")
labels, chances = served.topk_probabilities(X[test[:3]], 2)
print(f"log loss {before:.3f}, calibrated {log_loss(y[test], served.probabilities(X[test])):.3f}")
print(labels.tolist(), chances.round(2).tolist())

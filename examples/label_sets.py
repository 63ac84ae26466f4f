"""
Several labels for each row
===========================

With an indicator matrix as y each label is a problem of its own, with a probability. Whatever threshold is applied to
these, more labels are found at the price of more wrong ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_multilabel_classification

from manyclass import LinearClassifier
from manyclass.metrics import ndcg_at_k, precision_at_k

X, Y = make_multilabel_classification(3000, 200, n_classes=30, n_labels=3, random_state=0)
X = X / np.linalg.norm(X, axis=1, keepdims=True)
X_train, X_test, Y_train, Y_test = X[:2000], X[2000:], Y[:2000], Y[2000:]

model = LinearClassifier("log_loss", alpha="auto", random_state=0).fit(X_train, Y_train)
chances = model.predict_proba(X_test)
ranked, _ = model.predict_topk(X_test, k=5)
print(f"alpha {model.alpha_:.1e}, relative gap {model.duality_gap_:.1e}")
print("P@k   ", np.round([precision_at_k(Y_test, ranked, k) for k in (1, 3, 5)], 3))
print("nDCG@k", np.round([ndcg_at_k(Y_test, ranked, k) for k in (1, 3, 5)], 3))

thresholds = np.linspace(0.02, 0.9, 45)
hits = np.array([((chances >= t) & (Y_test == 1)).sum() for t in thresholds])
named = np.array([(chances >= t).sum() for t in thresholds])
precision, recall = hits / np.maximum(named, 1), hits / Y_test.sum()
f1 = 2 * hits / (named + Y_test.sum())

figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
for values, name in ((precision, "precision"), (recall, "recall"), (f1, "micro-F1")):
    panel.plot(thresholds, values, label=name)
panel.axvline(0.5, color="gray", linestyle="--", label="predict: 0.5")
panel.set(xlabel="threshold of the probability")
panel.legend()
plt.show()

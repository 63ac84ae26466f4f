"""
Frequent and rare classes
=========================

One accuracy hides what happens to rare classes. The same data, three losses, and the share of test rows that each gets
right by how often the class occurred in the training rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from manyclass import LinearClassifier
from manyclass.datasets import make_many_classes
from manyclass.metrics import report

X, y = make_many_classes(9000, 3000, 400, random_state=0)
X_train, X_test, y_train, y_test = X[:6000], X[6000:], y[:6000], y[6000:]
seen = np.bincount(y_train, minlength=400)[y_test]
edges = [1, 4, 16, 64, seen.max() + 1]
groups = [(seen >= low) & (seen < high) for low, high in zip(edges, edges[1:])]

models = {
    "multinomial": LinearClassifier(alpha=1e-5, random_state=0),
    "the same, balanced": LinearClassifier(alpha=1e-5, class_weight="balanced", random_state=0),
    "crammer_singer": LinearClassifier("crammer_singer", alpha=1e-4, tol=1e-2, random_state=0),
}
figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
for at, (name, model) in enumerate(models.items()):
    right = model.fit(X_train, y_train).predict(X_test) == y_test
    panel.bar(np.arange(4) + 0.27 * at, [right[group].mean() for group in groups], 0.25, label=name)
    found = report(y_test, model.predict(X_test))
    print(name, {key: round(float(value), 3) for key, value in found.items() if np.isscalar(value)})
panel.set_xticks(
    np.arange(4) + 0.27,
    [f"{low} to {high - 1}\n{group.sum()} test rows" for low, high, group in zip(edges, edges[1:], groups)],
)
panel.set(xlabel="training rows of the class", ylabel="share that was right")
panel.legend()
plt.show()

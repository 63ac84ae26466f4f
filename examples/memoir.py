"""
MEMOIR: thousands of classes in little memory
=============================================

With thousands of classes an array of all weights is the problem, not the time. MEMOIR keeps the weights that its steps
have changed, in a hash table, and takes new classes in later batches.
"""

import matplotlib.pyplot as plt

from manyclass import CrammerSinger, LinearClassifier, Memoir
from manyclass.datasets import make_many_classes

counts = [250, 500, 1000, 2000]
stored, arrays, scores = [], [], []
for n_classes in counts:
    X, y = make_many_classes(5 * n_classes, 4000, n_classes, random_state=0)
    X, y, X_test, y_test = X[n_classes:], y[n_classes:], X[:n_classes], y[:n_classes]
    model = LinearClassifier(CrammerSinger(gamma=0), alpha=1e-6, solver=Memoir(), max_iter=3, random_state=0)
    model.fit(X, y)
    stored.append(8 * model.sparse_coef_.nnz / 2**20)  # a value and an index
    arrays.append(4 * X.shape[1] * n_classes / 2**20)
    scores.append(model.score(X_test, y_test))
    print(f"{n_classes} classes: {stored[-1]:.1f} MiB, as an array {arrays[-1]:.1f} MiB, accuracy {scores[-1]:.2f}")

# %%
# A pruned model is smaller still, and classes that nobody has seen yet come with a later batch.

report = model.prune(X_test, y_test, max_loss=0.01)
print(f"{report.nonzeros_before} weights, accuracy {report.accuracy_before:.3f}")
print(f"{report.nonzeros} weights, accuracy {report.accuracy:.3f}, after pruning")
model.partial_fit(X[:2000], y[:2000] + n_classes)
print(f"{len(model.classes_)} classes after partial_fit")

figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
panel.loglog(counts, arrays, "s--", label="array of all weights, float32")
panel.loglog(counts, stored, "o-", label="weights that MEMOIR has")
panel.set(xlabel="classes", ylabel="MiB")
panel.legend()
plt.show()

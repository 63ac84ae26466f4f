"""
The certificate of a fit
========================

A fit computes two numbers as it goes on: the objective of its weights, which is above the minimum, and the objective of
a dual point, which is below it. Their difference, the duality gap, bounds the distance to the minimum although the
minimum is not known. Here it is known, from a longer fit, so that the bound can be compared with what it bounds.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from manyclass import LinearClassifier

X, y = load_digits(return_X_y=True)
fit = LinearClassifier(alpha=1e-3, tol=1e-6, solver="sdca", random_state=0).fit(X / 16, y).history_
minimum = LinearClassifier(alpha=1e-3, tol=1e-9, random_state=0).fit(X / 16, y).objective_
print(fit.table())

epochs, primal, dual = (np.array(fit.column(name)) for name in ("iteration", "primal", "dual"))
assert (dual <= minimum + 1e-12).all()
assert (primal >= minimum - 1e-12).all()

figure, (bounds, distances) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
shown = np.flatnonzero((epochs > 1) & (primal - dual > 1e-3 * minimum))
at = shown[len(shown) // 3]
bounds.fill_between(epochs[shown], dual[shown], primal[shown], alpha=0.2, label="the minimum is in here")
bounds.plot(epochs[shown], primal[shown], label="objective")
bounds.plot(epochs[shown], dual[shown], label="dual objective")
bounds.axhline(minimum, color="black", linestyle=":", label="minimum, unknown in a fit")
bounds.annotate("", (epochs[at], dual[at]), (epochs[at], primal[at]), arrowprops={"arrowstyle": "<->"})
bounds.text(epochs[at], primal[at], "  duality gap", verticalalignment="bottom")
bounds.set(xlabel="epochs", title="bounds on the minimum")
bounds.legend()
distances.semilogy(epochs, fit.column("relative_gap"), label="relative duality gap, computed")
distances.semilogy(epochs[:-1], (primal[:-1] - minimum) / primal[:-1], label="relative distance, unknown in a fit")
distances.axhline(1e-3, color="gray", linestyle="--", label="tol=1e-3, the default")
distances.set(xlabel="epochs", title="the gap bounds the distance")
distances.legend()
plt.show()

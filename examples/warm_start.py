"""
Warm starts
===========

A fit that begins where an earlier one ended needs fewer epochs: when it was stopped too early, and when several alphas
are compared. The rows must be the same: their dual variables are kept.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass import LinearClassifier
from manyclass.datasets import make_many_classes

X, y = make_many_classes(5000, 2000, 30, random_state=0)

# %%
# A fit that was given too few iterations goes on where it stopped; it does not begin again.

model = LinearClassifier(alpha=1e-5, tol=1e-4, max_iter=5, warm_start=True, random_state=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # on purpose
    model.fit(X, y)
print(f"{model.n_iter_} epochs: relative gap {model.duality_gap_:.1e}")
model.set_params(max_iter=100).fit(X, y)
print(f"{model.n_iter_} more: relative gap {model.duality_gap_:.1e}")

# %%
# Alphas from large to small, each from the last: this is what `regularization_path` does.

alphas = np.logspace(-2, -5, 8)
epochs = {"from zero": [], "from the last alpha": []}
walking = LinearClassifier(tol=1e-3, warm_start=True, random_state=0)
for alpha in alphas:
    epochs["from zero"].append(LinearClassifier(alpha=alpha, tol=1e-3, random_state=0).fit(X, y).n_iter_)
    epochs["from the last alpha"].append(walking.set_params(alpha=alpha).fit(X, y).n_iter_)

figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
for name, needed in epochs.items():
    panel.semilogx(alphas, needed, "o-", label=f"{name}: {sum(needed)} epochs in all")
panel.invert_xaxis()
panel.set(xlabel="alpha", ylabel="epochs to a gap of 1e-3")
panel.legend()
plt.show()

"""
Probabilities of a model of any loss
====================================

The multiclass SVM has scores. ``calibrate`` finds the link and the temperature T for which the probabilities of
scores / T have the least log loss on rows that the fit has not seen, here 200, without another fit.
"""

import matplotlib.pyplot as plt

from manyclass import LinearClassifier
from manyclass.datasets import make_many_classes
from manyclass.metrics import log_loss, reliability

X, y = make_many_classes(6000, 1500, 20, random_state=0)
train, held, test = slice(0, 4000), slice(4000, 4200), slice(4200, None)

figure, panel = plt.subplots(figsize=(6, 5), layout="constrained")
panel.plot([0, 1], [0, 1], color="gray", linestyle=":", label="calibrated")
for loss in ("crammer_singer", "squared_hinge", "multinomial"):
    model = LinearClassifier(loss, alpha=1e-3, random_state=0).fit(X[train], y[train])
    model.calibrate(X[held], y[held])
    labels, chances = model.predict_topk(X[test], 1, proba=True)
    print(
        f"{loss:15} T = {model.model_.temperature:.3f}, log loss {log_loss(y[test], model.predict_proba(X[test])):.3f}"
    )
    points = reliability(labels[:, 0] == y[test], chances[:, 0], n_bins=8)
    panel.plot(points.confidence, points.accuracy, "o-", label=loss)
panel.set(xlabel="probability of the predicted class", ylabel="share that was right")
panel.legend()
plt.show()

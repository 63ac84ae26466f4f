"""
Are the probabilities true?
===========================

Of the predictions made with probability 0.8, eight in ten should be right. Softmax regression has probabilities; their
calibration depends on alpha. The multiclass SVM has scores, which scikit-learn's wrapper turns into probabilities on
held-out rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss

from manyclass import LinearClassifier
from manyclass.datasets import make_many_classes

X, y = make_many_classes(6000, 1500, 20, random_state=0)
X_train, X_test, y_train, y_test = X[:4000], X[4000:], y[:4000], y[4000:]

svm = LinearClassifier("crammer_singer", alpha=1e-3, random_state=0)
models = {
    "multinomial, alpha=1e-2": LinearClassifier(alpha=1e-2, random_state=0),
    'multinomial, alpha="auto"': LinearClassifier(alpha="auto", random_state=0),
    "crammer_singer, sigmoid": CalibratedClassifierCV(svm, method="sigmoid", cv=3),
}

figure, panel = plt.subplots(figsize=(6, 5), layout="constrained")
panel.plot([0, 1], [0, 1], color="gray", linestyle=":", label="calibrated")
for name, model in models.items():
    chances = model.fit(X_train, y_train).predict_proba(X_test)
    right = model.classes_[chances.argmax(axis=1)] == y_test
    order = np.array_split(np.argsort(chances.max(axis=1)), 8)  # eight groups of the same size
    said, was = (np.array([values[part].mean() for part in order]) for values in (chances.max(axis=1), right))
    print(
        f"{name:26} accuracy {right.mean():.3f}  log loss {log_loss(y_test, chances):.3f}  "
        f"expected calibration error {np.abs(said - was).mean():.3f}"
    )
    panel.plot(said, was, "o-", label=name)
panel.set(xlabel="probability of the predicted class", ylabel="share that was right")
panel.legend()
plt.show()

"""
Images: patches instead of pixels
=================================

A linear model of pixels does not know that a stroke may be one pixel further left. `StagewiseClassifier.for_images`
learns small patches by k-means, pools how strongly each occurs in each part of the image, and fits blocks of kernel
features to that; `StagewiseClassifier()` does not know that the columns are pixels.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from manyclass import LinearClassifier, StagewiseClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.4, random_state=0)

models = {
    "LinearClassifier()": LinearClassifier(random_state=0),
    "StagewiseClassifier()": StagewiseClassifier(random_state=0),
    ".for_images((8, 8, 1))": StagewiseClassifier.for_images((8, 8, 1), random_state=0),
}
errors = {name: 1 - model.fit(X_train, y_train).score(X_test, y_test) for name, model in models.items()}
for name, error in errors.items():
    print(f"{name:24} error on {len(y_test)} test images: {error:.1%}")

figure, panel = plt.subplots(figsize=(7, 3), layout="constrained")
bars = panel.barh(list(errors), [100 * error for error in errors.values()])
panel.bar_label(bars, fmt="%.1f %%")
panel.set(xlabel="test error in percent")
panel.invert_yaxis()
plt.show()

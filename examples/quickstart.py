"""
Fit, certify, predict, save
===========================

Softmax regression on handwritten digits: the certificate of the fit, the best classes of each image, and a file that
other processes map into memory.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from manyclass import LinearClassifier, load

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)

model = LinearClassifier(loss="multinomial", tol=1e-3, random_state=0).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}, certified relative gap {model.duality_gap_:.1e}")

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "digits.model")
    again = load(Path(folder) / "digits.model")  # memory-mapped, no pickle
    print((again.predict(X_test) == model.predict(X_test)).all())

# %%
# The images that it gets wrong, with the two best classes and their probabilities:

wrong = (model.predict(X_test) != y_test).nonzero()[0][:8]
classes, chances = again.topk_probabilities(X_test[wrong], 2)
figure, panels = plt.subplots(1, 8, figsize=(12, 2.2))
for panel, image, true, names, shares in zip(panels, X_test[wrong], y_test[wrong], classes, chances):
    panel.imshow(image.reshape(8, 8), cmap="gray_r")
    panel.set_title(f"a {true}\n{names[0]}: {shares[0]:.2f}\n{names[1]}: {shares[1]:.2f}", fontsize=9)
    panel.axis("off")
figure.tight_layout()
plt.show()

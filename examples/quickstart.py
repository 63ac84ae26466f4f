"""Fit, read the certificate, predict the best classes, save, load.

python examples/quickstart.py
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from manyclass import LinearClassifier, load

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)

model = LinearClassifier(loss="multinomial", tol=1e-3, random_state=0).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}, certified relative gap {model.duality_gap_:.1e}")
classes, scores = model.predict_topk(X_test[:3], k=2)
print(classes)

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "digits.model")
    again = load(Path(folder) / "digits.model")  # memory-mapped, no pickle
    print((again.predict(X_test) == model.predict(X_test)).all())

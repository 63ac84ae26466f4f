"""
Regularization path and cross-validation
========================================

Which features enter when, and which alpha to take: the elastic net on the diabetes data, and softmax regression with an
elastic-net penalty on the digits.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import scale

from manyclass import LinearClassifierCV, LinearRegressor, LinearRegressorCV, regularization_path

X, y = load_diabetes(return_X_y=True)
X = scale(X)

# %%
# The elastic net at 30 alphas: each fit starts where the last one ended.

path = regularization_path(LinearRegressor(l1_ratio=0.9, tol=1e-6, max_iter=1000, random_state=0), X, y, n_alphas=30)
print(path)
print(path.table())

# %%
# The alpha: the simplest model within a standard error of the best.

search = LinearRegressorCV(l1_ratio=0.9, n_alphas=30, max_iter=1000, selection="one_se", random_state=0).fit(X, y)
print(f"diabetes: alpha {search.alpha_:.3g} (best: {search.alpha_best_:.3g}), {(search.coef_ != 0).sum()} features")

digits, labels = load_digits(return_X_y=True)
chosen = LinearClassifierCV(l1_ratio=0.5, n_alphas=8, eps=1e-2, cv=3, max_iter=500, random_state=0)
chosen.fit(digits / 16, labels)
print(f"digits: alpha {chosen.alpha_:.3g}, log-likelihood of the folds {chosen.mean_scores_.max():.3f}")

figure = plt.figure(figsize=(16, 5))
panels = figure.subplots(1, 3, gridspec_kw={"left": 0.05, "right": 0.98, "wspace": 0.4})
path.plot(panels[0]).set_title("diabetes: weights along the path")
search.plot(panels[1]).set_title("diabetes: cross-validation")
chosen.plot(panels[2]).set_title("digits: cross-validation")
plt.show()

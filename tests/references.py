"""Independent solvers: the least objective of a small problem, from scikit-learn or SciPy alone.

Each minimizes exactly ``helpers.objective`` by a method that shares nothing with the package, and returns the
objective of the point it ends at: never less than the true optimum.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet as SklearnElasticNet, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from helpers import Data, objective
from manyclass.objective.losses import CrammerSingerLoss, SquaredHingeLoss


def quasi_newton(case: Any, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    """L-BFGS-B on the smooth objective; an l1 term as linear cost of the positive and the negative parts of W."""
    n, d = data.X.shape
    K = data.K
    c = (np.ones(n) if data.weights is None else data.weights / data.weights.mean()) / n
    threshold = getattr(reg, "threshold", 0.0)

    def unpack(z):
        W = z[: d * K].reshape(d, K) - z[d * K : 2 * d * K].reshape(d, K)
        return W, z[2 * d * K :] if intercept else np.zeros(K)

    def cost(z):
        W, b = unpack(z)
        losses, G = case.formula(data.X @ W + b, data.T)
        G = c[:, None] * G
        slope = data.X.T @ G + lam * W
        gradient = [(slope + lam * threshold).ravel(), (-slope + lam * threshold).ravel(), G.sum(0)]
        value = c @ losses + lam * (0.5 * (W**2).sum() + threshold * z[: 2 * d * K].sum())
        return value, np.concatenate(gradient if intercept else gradient[:2])

    # Without a threshold the second half stays at zero and the first is free.
    first = (0, None) if threshold else (None, None)
    bounds = [first] * (d * K) + [(0, None if threshold else 0)] * (d * K) + [(None, None)] * (K * intercept)
    options = {"maxiter": 50_000, "maxfun": 200_000, "ftol": 0, "gtol": 1e-11, "maxcor": 50}
    z = minimize(cost, np.zeros(len(bounds)), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return objective(case.formula, data, reg, lam, *unpack(z))


def quadratic_program(case: Any, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    """Hinges as a quadratic program with slacks, by SLSQP: small problems, l2 alone."""
    n, d = data.X.shape
    K = data.K
    c = (np.ones(n) if data.weights is None else data.weights / data.weights.mean()) / n
    design = np.hstack([data.X, np.full((n, 1), float(intercept))])

    def solved(rows, slacks, size):
        """min lam/2 ||w||^2 + c.xi  with  rows w + xi[slacks] >= 1, xi >= 0; the last entry of each column is free."""
        free = np.tile(np.r_[np.ones(d), 0.0], size // (d + 1))
        A = np.hstack([rows, np.eye(n)[slacks]])
        z = minimize(
            lambda z: 0.5 * lam * free @ z[:size] ** 2 + c @ z[size:],
            np.r_[np.zeros(size), np.ones(n)],
            jac=lambda z: np.r_[lam * free * z[:size], c],
            method="SLSQP",
            bounds=[(None, None)] * size + [(0, None)] * n,
            constraints=LinearConstraint(A, lb=1.0),
            options={"maxiter": 1000, "ftol": 1e-15},
        ).x
        return z[:size].reshape(-1, d + 1).T

    if isinstance(case.loss, CrammerSingerLoss):
        pairs = [(i, k) for i in range(n) for k in range(K) if k != data.T[i]]
        rows = np.zeros((len(pairs), K, d + 1))
        for row, (i, k) in zip(rows, pairs):
            row[data.T[i]] += design[i]
            row[k] -= design[i]
        Z = solved(rows.reshape(len(pairs), -1), [i for i, _ in pairs], K * (d + 1))
    else:
        Z = np.hstack([solved(data.T[:, k, None] * design, np.arange(n), d + 1) for k in range(K)])
    return objective(case.formula, data, reg, lam, Z[:d], Z[d] if intercept else 0.0)


def linear_svc(case: Any, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    """LIBLINEAR, without intercept: it would penalize it."""
    assert not intercept
    weights = np.ones(len(data.X)) if data.weights is None else data.weights / data.weights.mean()
    options: dict[str, Any] = {"C": 1 / (lam * len(data.X)), "fit_intercept": False, "tol": 1e-11, "max_iter": 10**6}
    options["random_state"] = 0
    with warnings.catch_warnings():
        # LIBLINEAR's Crammer-Singer solver can go round in circles of rounding errors until max_iter, by its seed. What
        # counts is the objective it has reached, and that is what is compared.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if data.T.ndim == 1:
            W = LinearSVC(multi_class="crammer_singer", **options).fit(data.X, data.T, sample_weight=weights).coef_.T
        else:
            loss = "squared_hinge" if isinstance(case.loss, SquaredHingeLoss) else "hinge"
            fits = [LinearSVC(loss=loss, **options).fit(data.X, y, sample_weight=weights) for y in data.T.T]
            W = np.hstack([fit.coef_.T for fit in fits])
    return objective(case.formula, data, reg, lam, W)


def logistic_regression(case: Any, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    weights = np.ones(len(data.X)) if data.weights is None else data.weights / data.weights.mean()
    fits = [
        LogisticRegression(C=1 / (lam * len(data.X)), fit_intercept=intercept, tol=1e-12, max_iter=10_000).fit(
            data.X, y, sample_weight=weights
        )
        for y in ([data.T] if data.T.ndim == 1 else data.T.T)
    ]
    W, b = np.hstack([fit.coef_.T for fit in fits]), np.hstack([fit.intercept_ for fit in fits])
    return objective(case.formula, data, reg, lam, W, b)


def ridge(case: Any, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    weights = np.ones(len(data.X)) if data.weights is None else data.weights / data.weights.mean()
    fit = Ridge(alpha=lam * len(data.X), fit_intercept=intercept, solver="cholesky").fit(data.X, data.T, weights)
    return objective(case.formula, data, reg, lam, fit.coef_.T, fit.intercept_)


def lasso_and_ridge(case: Any, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    whole = lam * (1 + reg.threshold)
    model = SklearnElasticNet(
        alpha=whole, l1_ratio=lam * reg.threshold / whole, fit_intercept=intercept, tol=1e-13, max_iter=100_000
    )
    fits = [model.fit(data.X, y).coef_.copy() for y in data.T.T]
    bias = data.T.mean(0) - data.X.mean(0) @ np.transpose(fits) if intercept else 0.0
    return objective(case.formula, data, reg, lam, np.transpose(fits), bias)

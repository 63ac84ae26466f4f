"""Regularization paths: each point is the fit at its alpha, reached from the one before."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, xlogy
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, enet_path
from sklearn.metrics import d2_log_loss_score, log_loss, r2_score
from sklearn.preprocessing import StandardScaler

import helpers
from manyclass import (
    CrammerSinger,
    Huber,
    LinearClassifier,
    LinearModel,
    LinearRegressor,
    RegularizationPath,
    SmoothHinge,
    regularization_path,
)
from manyclass.estimators.walk import check, walk
from manyclass.objective.losses import CLASSIFICATION
from manyclass.objective.penalties import L2
from manyclass.solvers import SDCA, SOLVERS, Solver


class Case(NamedTuple):
    """An estimator, and its loss in NumPy."""

    estimator: Any
    formula: helpers.Formula


CASES = {
    "ridge": Case(LinearRegressor(), helpers.squared),
    "elastic net": Case(LinearRegressor(l1_ratio=0.9), helpers.squared),
    "lasso": Case(LinearRegressor(l1_ratio=1.0), helpers.squared),
    "lasso-slight": Case(LinearRegressor(l1_ratio=1.0, solver="accelerated"), helpers.squared),
    "huber": Case(LinearRegressor(Huber(epsilon=30.0)), helpers.huber(30.0)),
    "multinomial": Case(LinearClassifier(), helpers.multinomial),
    "multinomial-accelerated": Case(LinearClassifier(solver="accelerated"), helpers.multinomial),
    "multinomial-fista": Case(LinearClassifier(solver="fista", l1_ratio=1.0), helpers.multinomial),
    "multinomial-lbfgs": Case(LinearClassifier(solver="lbfgs"), helpers.multinomial),
    "softmax_hinge": Case(LinearClassifier("softmax_hinge"), helpers.softmax_hinge),
    "multinomial-l1": Case(LinearClassifier(l1_ratio=0.9), helpers.multinomial),
    "crammer_singer-l1": Case(LinearClassifier("crammer_singer", l1_ratio=0.5), helpers.crammer_singer(0.1)),
    "sdca_active": Case(LinearClassifier("crammer_singer", solver="sdca_active"), helpers.crammer_singer(0.1)),
    "log_loss-l1": Case(LinearClassifier("log_loss", l1_ratio=0.9), helpers.log_loss),
    "smooth_hinge-l1": Case(LinearClassifier(SmoothHinge(gamma=0.5), l1_ratio=0.9), helpers.smooth_hinge(0.5)),
    "squared_hinge": Case(LinearClassifier("squared_hinge"), helpers.squared_hinge),
}
#: FISTA may stop, on its gap, before the last weight is zero.
L1 = [name for name, case in CASES.items() if case.estimator.l1_ratio and case.estimator.solver != "fista"]


def make(name: str, **parameters: Any) -> Any:
    return clone(CASES[name].estimator).set_params(**{"max_iter": 20_000, "random_state": 0, **parameters})


def load(name: str) -> tuple[Any, Any]:
    """Standardized rows; three classes of unequal size."""
    if isinstance(CASES[name].estimator, LinearRegressor):
        X, y = load_diabetes(return_X_y=True)
    else:
        X, y = load_iris(return_X_y=True)
        X, y = X[:130], y[:130]
    return StandardScaler().fit_transform(X) + 0.5, y


def data_of(name: str, X: Any, y: Any, weights: Any = None) -> helpers.Data:
    if isinstance(CASES[name].estimator, LinearRegressor):
        return helpers.Data(X, y[:, None], 1, weights)
    loss = CASES[name].estimator.loss
    by_class = isinstance(loss, str) and CLASSIFICATION[loss].joint
    return helpers.Data(X, y if by_class else np.where(y[:, None] == np.arange(3), 1.0, -1.0), 3, weights)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_each_point_is_the_fit_at_its_alpha(name, form):
    X, y = load(name)
    estimator = make(name, tol=1e-5)
    path = regularization_path(estimator, form(X), y, n_alphas=6, eps=0.02)
    assert len(path) == 6
    assert path.gaps.max() <= 1e-5
    ratio = estimator.l1_ratio
    for point, model in zip(path.points, path.models):
        cold = clone(estimator).set_params(alpha=point.alpha).fit(form(X), y)
        # Both lie above the least objective by no more than their gaps.
        assert point.objective == pytest.approx(cold.objective_, rel=1e-5)
        # The weights kept are those that were certified, whatever the later fits did to the solver's.
        W = model.weights.toarray() if model.is_sparse else model.weights
        found = helpers.objective(CASES[name].formula, data_of(name, X, y), L2(), 0.0, W, model.intercept)
        found += point.alpha * (0.5 * (1 - ratio) * (W**2).sum() + ratio * np.abs(W).sum())
        assert found == pytest.approx(point.objective, rel=1e-9)


@pytest.mark.parametrize("name", L1)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_path_begins_where_the_weights_begin(name, intercept):
    X, y = load(name)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], len(y))
    estimator = make(name, tol=1e-10, fit_intercept=intercept)
    first = regularization_path(estimator, X, y, n_alphas=1, sample_weight=weights).alphas[0]
    # By brute force: the gradient of the mean loss at the intercept that minimizes it.
    data = data_of(name, X, y, weights)
    share = weights / weights.sum()

    def losses(b):
        value, gradient = CASES[name].formula(np.tile(b, (len(y), 1)), data.T)
        return share @ value, share @ gradient

    b = minimize(losses, np.zeros(data.K), jac=True, options={"gtol": 1e-10}).x if intercept else np.zeros(data.K)
    slope = X.T @ (share[:, None] * CASES[name].formula(np.tile(b, (len(y), 1)), data.T)[1])
    assert first == pytest.approx(np.abs(slope).max() / estimator.l1_ratio, rel=1e-5)
    # By its meaning: no weights there, some right below.
    path = regularization_path(estimator, X, y, alphas=[first * 1.00001, first * 0.999], sample_weight=weights)
    assert list(path.n_nonzero > 0) == [False, True]


def test_a_ridge_path_begins_where_the_weights_are_halved():
    X, y = load("ridge")
    for shift in (0.0, 100.0):
        first = regularization_path(make("ridge"), X + shift, y, n_alphas=1).alphas[0]
        assert first == pytest.approx(10.0)  # ten features of variance 1
    first = regularization_path(make("ridge", fit_intercept=False), X, y, n_alphas=1).alphas[0]
    assert first == pytest.approx((X**2).sum(axis=1).mean())
    free = LinearRegression().fit(X[:, :1], y).coef_
    bound = regularization_path(make("ridge", tol=1e-12), X[:, :1], y, n_alphas=1)
    np.testing.assert_allclose(bound.coefs[0][0], free / 2, rtol=1e-4)
    # The default range is longer than with an l1 part.
    assert regularization_path(make("ridge"), X, y, n_alphas=2).alphas[1] == pytest.approx(10.0 * 1e-4)
    l1 = regularization_path(make("elastic net"), X, y, n_alphas=2).alphas
    assert l1[1] == pytest.approx(l1[0] * 1e-3)


@pytest.mark.parametrize("ratio", [0.5, 0.9, 0.99])
def test_supports_and_weights_are_scikit_learns(ratio):
    X, y = load("elastic net")
    alphas, theirs, _ = enet_path(X - X.mean(0), y - y.mean(), l1_ratio=ratio, eps=1e-2, tol=1e-12, max_iter=100_000)
    path = regularization_path(make("elastic net", l1_ratio=ratio, tol=1e-13), X, y, eps=1e-2, n_alphas=100)
    np.testing.assert_allclose(path.alphas, alphas, rtol=1e-9)
    np.testing.assert_allclose([coef.toarray()[0] for coef in path.coefs], theirs.T, atol=2e-3)
    # A weight that has just left zero may be on either side of it.
    certain = (np.abs(theirs) == 0) | (np.abs(theirs) > 2e-3)
    ours = np.array([coef.toarray()[0] != 0 for coef in path.coefs]).T
    np.testing.assert_array_equal(ours[certain][np.abs(theirs[certain]) > 0], True)
    assert np.abs(path.n_features - (theirs != 0).sum(axis=0)).max() <= 1
    assert (path.n_features == (theirs != 0).sum(axis=0)).mean() > 0.95


@pytest.mark.parametrize(
    ("name", "solver", "tol"),
    [
        ("ridge", "auto", 1e-6),  # sdca, then accelerated
        ("ridge", "fista", 1e-6),
        ("elastic net", "sdca", 1e-6),
        ("huber", "accelerated", 1e-6),
        ("lasso-slight", "accelerated", 1e-6),  # through a slight l2 part
        ("multinomial", "auto", 1e-6),
        ("multinomial", "accelerated", 1e-6),
        ("multinomial", "lbfgs", 1e-6),
        ("multinomial-l1", "auto", 1e-6),  # sdca, then accelerated
        ("log_loss-l1", "auto", 1e-6),  # cd
        # At 1e-6 a start saves little: most epochs are those of the last digits at weak penalties.
        ("sdca_active", "sdca_active", 1e-3),
    ],
)
def test_warm_fits_need_fewer_epochs(name, solver, tol):
    X, y = load(name)
    estimator = make(name, tol=tol, solver=solver)
    path = regularization_path(estimator, X, y, n_alphas=20, eps=1e-2)
    cold = sum(clone(estimator).set_params(alpha=alpha).fit(X, y).n_iter_ for alpha in path.alphas)
    assert path.epochs.sum() < 0.9 * cold


def test_duals_pass_from_one_solver_to_another():
    X, y = load("multinomial")
    model = make("multinomial", alpha=0.1, tol=1e-7, warm_start=True)
    for ratio in (0.0, 0.9, 1.0):
        for solver in ("sdca", "accelerated", "sdca", "sdca_async", "accelerated"):
            model.set_params(l1_ratio=ratio, solver=solver, tol=1e-4 if ratio == 1 else 1e-7)
            ends_at = clone(model).fit(X, y)
            model.fit(X, y)
            assert model.solver_.split()[0] == solver
            assert model.duality_gap_ <= model.tol
            assert model.objective_ == pytest.approx(ends_at.objective_, rel=2 * model.tol)
    # It is going on that made it so: the second of two fits has nothing left to do.
    model.set_params(l1_ratio=0.0, tol=1e-7, solver="sdca").fit(X, y)
    for solver in ("accelerated", "sdca"):
        assert model.set_params(solver=solver).fit(X, y).n_iter_ <= 3


def test_duals_that_are_not_feasible_are_not_taken_over():
    X, y = load("huber")
    model = make("huber", alpha=0.1, loss__epsilon=50.0, warm_start=True, solver="sdca", tol=1e-8).fit(X, y)
    model.set_params(loss__epsilon=5.0).fit(X, y)  # its duals are at most 5
    cold = clone(model).set_params(warm_start=False).fit(X, y)
    np.testing.assert_array_equal(model.coef_, cold.coef_)
    assert model.n_iter_ == cold.n_iter_


@pytest.mark.parametrize("name", ["elastic net", "multinomial-l1"])
def test_integer_weights_are_repeated_rows(name):
    X, y = load(name)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    estimator = make(name, tol=1e-8)
    options = {"n_alphas": 6, "eps": 0.05}
    weighted = regularization_path(estimator, X, y, sample_weight=weights, **options)
    repeated = regularization_path(estimator, np.repeat(X, weights, axis=0), np.repeat(y, weights), **options)
    np.testing.assert_allclose(weighted.alphas, repeated.alphas, rtol=1e-9)
    np.testing.assert_allclose(weighted.objectives, repeated.objectives, rtol=1e-8)
    largest = np.abs(repeated.coefs[-1]).max()
    for one, other in zip(weighted.coefs, repeated.coefs):
        np.testing.assert_allclose(one.toarray(), other.toarray(), atol=1e-3 * largest)


def test_alphas_are_sorted_and_checked():
    X, y = load("elastic net")
    estimator = make("elastic net")
    path = regularization_path(estimator, X, y, alphas=[0.1, 1.0, 0.5, 0.1])
    assert path.alphas.tolist() == [1.0, 0.5, 0.1]
    for alphas in ([], [[1.0]], [1.0, 0.0], [1.0, -1.0], [np.nan], [np.inf], ["one"], 3.0):
        with pytest.raises(ValueError, match="alphas must be"):
            regularization_path(estimator, X, y, alphas=alphas)
    for n_alphas in (0, -1, 2.5, True, None):
        with pytest.raises(ValueError, match="n_alphas must be an integer"):
            regularization_path(estimator, X, y, n_alphas=n_alphas)
    for eps in (0.0, 1.0, -1.0, np.nan, "small"):
        with pytest.raises(ValueError, match="eps must be"):
            regularization_path(estimator, X, y, eps=eps)
    with pytest.raises(ValueError, match="estimator must be a LinearClassifier"):
        regularization_path(LinearRegression(), X, y)
    with pytest.raises(ValueError, match="NaN"):
        regularization_path(estimator, np.where(np.arange(len(X))[:, None] == 5, np.nan, X), y)
    with pytest.raises(ValueError, match="l1_ratio"):
        regularization_path(clone(estimator).set_params(l1_ratio=-1.0), X, y)


def test_features_that_say_nothing_have_a_path_too():
    for estimator in (LinearRegressor(l1_ratio=0.9, tol=1e-8), LinearRegressor(tol=1e-8)):
        path = regularization_path(estimator, np.ones((20, 3)), np.arange(20.0), n_alphas=3)
        assert path.alphas[0] == 1.0
        np.testing.assert_allclose(path.intercepts, 9.5, rtol=1e-3)


def test_the_estimator_is_left_alone():
    X, y = load("multinomial")
    state = np.random.RandomState(0)
    estimator = make("multinomial", alpha=-1.0, random_state=state)
    before, drawn = estimator.get_params(), state.get_state()[2]
    regularization_path(estimator, X, y, n_alphas=3, eps=0.1)  # its own alpha is not even looked at
    assert estimator.get_params() == before
    assert state.get_state()[2] == drawn
    assert set(vars(estimator)) == set(before)


def test_the_rows_are_not_copied(monkeypatch):
    X, y = load("multinomial")
    build, seen = LinearClassifier._problem, []
    monkeypatch.setattr(
        LinearClassifier, "_problem", lambda self, X, *rest, **more: seen.append(X) or build(self, X, *rest, **more)
    )
    for given in (X, sp.csr_matrix(X)):
        data = check(make("multinomial"), given, y, None)
        for _ in walk(make("multinomial"), data, [0.2, 0.1]):
            pass
        assert len(seen) == 2
        for found in (data.X, *seen):
            assert np.shares_memory(*(rows.data if sp.issparse(rows) else rows for rows in (found, given)))
        seen.clear()


def test_one_path_is_like_another():
    X, y = load("log_loss-l1")
    paths = [
        regularization_path(make("log_loss-l1", n_jobs=n_jobs), X, y, n_alphas=4, eps=0.1) for n_jobs in (None, 1, 2)
    ]
    for path in paths[1:]:
        for one, other in zip(path.coefs, paths[0].coefs):
            np.testing.assert_array_equal(one.toarray(), other.toarray())
        np.testing.assert_array_equal(path.intercepts, paths[0].intercepts)


def test_forms_of_what_is_kept():
    X, y = load("multinomial")
    sparse = regularization_path(make("multinomial-l1"), X.astype(np.float32), y, n_alphas=3, eps=0.1)
    dense = regularization_path(make("multinomial"), X, y, n_alphas=3, eps=0.1)
    for path, kind in ((sparse, sp.csr_matrix), (dense, np.ndarray)):
        assert isinstance(path, RegularizationPath)
        assert all(isinstance(coef, kind) and coef.shape == (3, 4) for coef in path.coefs)
        assert all(isinstance(model, LinearModel) for model in path.models)
        assert path.intercepts.shape == (3, 3)
        for name in (
            "alphas",
            "objectives",
            "gaps",
            "deviance_explained",
            "n_features",
            "n_nonzero",
            "epochs",
            "seconds",
        ):
            assert getattr(path, name).shape == (3,)
        for coef, nonzero, features in zip(path.coefs, path.n_nonzero, path.n_features):
            full = coef.toarray() if sp.issparse(coef) else coef
            assert np.count_nonzero(full) == nonzero
            assert np.count_nonzero(full.any(axis=0)) == features
        assert path.epochs.min() >= 1
        assert len(path.table().splitlines()) == 4
        assert "3 alphas" in repr(path)
        assert "\n" not in repr(path)
    assert sparse.coefs[0].dtype == np.float32
    assert sparse.n_nonzero[0] == 0
    assert all(0 < coef.nnz < 12 for coef in sparse.coefs[1:])


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("name", ["ridge", "elastic net", "multinomial", "multinomial-l1", "log_loss-l1", "binary"])
def test_the_deviance_explained_is_that_of_scikit_learn(name, standardize):
    """R squared, or d2_log_loss_score, on the weighted rows of the fit."""
    X, y = load("multinomial" if name == "binary" else name)
    if name == "binary":
        name, y = "multinomial-l1", y == 1
    X, weights = X * [1, 2, 3, 4, *[1] * (X.shape[1] - 4)], np.random.default_rng(0).uniform(0.5, 2, len(y))
    estimator = make(name, standardize=standardize, tol=1e-8)
    path = regularization_path(estimator, X, y, n_alphas=4, eps=1e-3, sample_weight=weights)
    for model, found in zip(path.models, path.deviance_explained):
        if name in ("ridge", "elastic net"):
            expected = r2_score(y, model.predict(X), sample_weight=weights)
        elif name.startswith("multinomial"):
            expected = d2_log_loss_score(y, model.probabilities(X), sample_weight=weights)
        else:  # the sum over the classes, each against the others
            p, one = expit(model.decision_function(X)), y[:, None] == model.classes
            share = np.average(one, axis=0, weights=weights)
            losses = [np.average(-xlogy(one, q) - xlogy(~one, 1 - q), axis=0, weights=weights) for q in (p, share)]
            expected = 1 - losses[0].sum() / losses[1].sum()
        assert found == pytest.approx(expected, abs=1e-6)
    assert (np.diff(path.deviance_explained) > 0).all()
    assert path.deviance_explained[-1] > 0.25
    if path.l1_ratio:
        assert path.deviance_explained[0] == pytest.approx(0.0, abs=1e-6)


def test_the_deviance_without_intercept_and_where_there_is_none():
    X, y = load("ridge")
    bare = regularization_path(make("ridge", fit_intercept=False, tol=1e-8), X, y, n_alphas=3)
    residuals = [np.sum((y - model.predict(X)) ** 2) for model in bare.models]
    np.testing.assert_allclose(bare.deviance_explained, 1 - np.array(residuals) / np.sum(y**2), atol=1e-6)
    X, y = load("multinomial")
    free = regularization_path(make("multinomial", fit_intercept=False, tol=1e-8), X, y, n_alphas=2)
    losses = [log_loss(y, model.probabilities(X)) for model in free.models]
    np.testing.assert_allclose(free.deviance_explained, 1 - np.array(losses) / np.log(3), atol=1e-6)
    for name in ("huber", "squared_hinge", "softmax_hinge", "sdca_active"):
        path = regularization_path(make(name), *load(name), n_alphas=2)
        assert np.isnan(path.deviance_explained).all()
        assert "nan" in path.table()
    same = regularization_path(make("ridge"), X, np.ones(len(X)), alphas=[1.0])
    assert np.isnan(same.deviance_explained).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("name", ["elastic net", "lasso", "log_loss-l1"])
def test_the_first_model_of_a_path_has_no_weight_of_rounding(name, standardize, dtype):
    X, y = load_wine(return_X_y=True) if name == "log_loss-l1" else load_diabetes(return_X_y=True)
    for ratio in (0.1, 0.5, 0.9, 1.0):
        estimator = make(name, l1_ratio=ratio, standardize=standardize, dtype=dtype)
        path = regularization_path(estimator, X, y, n_alphas=2, eps=0.9)
        assert path.n_nonzero[0] == 0
        assert path.n_nonzero[1] > 0


def test_models_predict():
    frame, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    path = regularization_path(make("multinomial-l1"), frame, pd.Series(names[y]), n_alphas=10, eps=1e-2)
    model = path.model(path.alphas[-1])
    assert (model.predict(frame.to_numpy()) == names[y]).mean() > 0.9
    assert model.feature_names is not None
    assert list(model.feature_names) == list(frame.columns)
    assert path.model(float(path.alphas[3])) is path.models[3]
    assert path.models[3].parameters["alpha"] == path.alphas[3]
    for alpha in (path.alphas[3] * 1.01, 0.0, -1.0):
        with pytest.raises(ValueError, match="alpha must be one of the 10"):
            path.model(alpha)


def test_several_outputs_two_classes_and_many_labels():
    X, y = load("ridge")
    both = regularization_path(make("elastic net"), X, np.column_stack([y, X[:, 0] * 50]), n_alphas=4, eps=0.1)
    assert both.coefs[0].shape == (2, 10)
    assert both.models[-1].predict(X).shape == (len(y), 2)
    X, y = load("multinomial")
    two = regularization_path(make("multinomial-l1"), X[:100], y[:100], n_alphas=4, eps=0.1)
    assert two.coefs[0].shape == (1, 4)
    X, Y = make_multilabel_classification(100, 8, n_classes=4, random_state=0)
    for form in (np.asarray, sp.csr_matrix):
        many = regularization_path(make("log_loss-l1"), X / X.max(), form(Y), n_alphas=4, eps=0.1)
        assert many.coefs[0].shape == (4, 8)
        assert many.n_features[-1] > 0


class _Interrupted(SDCA):
    """Ctrl-C in the given epoch, counted over all fits."""

    left = 0

    def iterate(self, problem, state, seed):
        for progress in super().iterate(problem, state, seed):
            type(self).left -= 1
            if not type(self).left:
                raise KeyboardInterrupt
            yield progress


def test_an_interrupted_path_keeps_what_it_has(monkeypatch):
    X, y = load("multinomial-l1")
    estimator = make("multinomial-l1", tol=1e-6, solver="sdca")
    whole = regularization_path(estimator, X, y, n_alphas=6, eps=0.1)
    monkeypatch.setitem(SOLVERS, "sdca", _Interrupted)
    _Interrupted.left = int(whole.epochs[:3].sum()) + 1
    with pytest.warns(ConvergenceWarning, match="interrupted: 3 of 6 alphas") as caught:
        path = regularization_path(estimator, X, y, n_alphas=6, eps=0.1)
    assert len(caught) == 1
    assert path.interrupted
    assert "interrupted" in repr(path)
    assert len(path) == len(path.models) == 3
    np.testing.assert_array_equal(path.objectives, whole.objectives[:3])
    _Interrupted.left = 1
    with pytest.raises(KeyboardInterrupt):
        regularization_path(estimator, X, y, n_alphas=6, eps=0.1)


def test_a_solver_without_certificates_walks_a_path_and_warns_of_none():
    X, y = load("multinomial")
    estimator = LinearClassifier(CrammerSinger(gamma=0), solver="memoir", max_iter=3, random_state=0)
    path = regularization_path(estimator, X, y, alphas=[1e-2, 1e-3])
    assert np.isnan(path.gaps).all()
    assert path.column("outcome").tolist() == ["max_iter"] * 2
    assert "no certificates" in repr(path)
    np.testing.assert_array_equal(path.coefs[0], clone(estimator).set_params(alpha=1e-2).fit(X, y).coef_)
    assert not np.array_equal(path.coefs[0], path.coefs[1])


@pytest.mark.parametrize("name", [name for name, solver in SOLVERS.items() if issubclass(solver, Solver)])
def test_every_solver_walks_a_path(name):
    X, y = load("multinomial")
    loss = {
        "sdca_active": "crammer_singer",
        "sdca_dp": "crammer_singer",
        "cd": "log_loss",
        "interior_point": "hinge",
        "memoir": CrammerSinger(gamma=0),
    }.get(name, "multinomial")
    solver = SOLVERS[name]()
    estimator = LinearClassifier(
        loss, solver=solver, tol=0.05, max_iter=2000 if solver.certified else 3, random_state=0
    )
    path = regularization_path(estimator, X, y, alphas=[1.0, 0.1])
    assert (path.gaps <= 0.05).all() == solver.certified
    if solver.certified:
        alone = clone(estimator).set_params(alpha=0.1).fit(X, y)
        assert path.objectives[1] == pytest.approx(alone.objective_, rel=0.06)


def test_fits_above_tol_are_told_of_once():
    X, y = load("multinomial")
    with pytest.warns(ConvergenceWarning, match=r"4 of 4 fits of the path ended above tol=1e-12") as caught:
        path = regularization_path(make("multinomial", tol=1e-12, max_iter=2), X, y, n_alphas=4, eps=0.1)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert path.column("outcome").tolist() == ["max_iter"] * 4


def test_dense_weights_that_do_not_fit_are_refused(monkeypatch):
    X, y = load("multinomial")
    size = X.shape[1] * 3 * 8
    asked = []
    monkeypatch.setattr("manyclass.estimators.path.require", lambda needs, remedy: asked.append((needs, remedy)))
    regularization_path(make("multinomial"), X, y, alphas=[1.0, 0.5, 0.2])
    regularization_path(make("multinomial-l1"), X, y, alphas=[1.0, 0.5, 0.2])
    [(needs, remedy)] = asked
    assert needs == {"weights of the path": 2 * (size + 3 * 8)}
    assert "l1_ratio" in remedy


# The oldest matplotlib calls functions that the newest pyparsing deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["elastic net", "ridge", "multinomial-l1"])
def test_plot(name):
    from matplotlib.figure import Figure

    X, y = load(name)
    path = regularization_path(make(name), X, y, n_alphas=5, eps=0.1)
    figure = Figure()
    ax = figure.subplots()
    assert path.plot(ax) is ax
    lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    coefs = np.array([coef.toarray() if sp.issparse(coef) else coef for coef in path.coefs])
    used = np.flatnonzero(coefs.any(axis=(0, 1)))
    assert list(lines) == [str(feature) for feature in used]
    for feature in used:
        drawn = coefs[:, 0, feature] if coefs.shape[1] == 1 else np.linalg.norm(coefs[:, :, feature], axis=1)
        np.testing.assert_allclose(lines[str(feature)], drawn, rtol=1e-9)
    drawn = {line.get_label(): line for panel in figure.axes for line in panel.get_lines()}
    np.testing.assert_array_equal(drawn["features in use"].get_ydata(), path.n_features)
    np.testing.assert_array_equal(drawn["certified relative gap"].get_ydata(), path.gaps)
    figure.canvas.draw()
    assert len(path.plot(Figure().subplots(), max_features=2).get_lines()) == 2


# The oldest matplotlib calls functions that the newest pyparsing deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_plot_makes_a_figure(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    X, y = load("ridge")
    ax = regularization_path(make("ridge"), X, y, n_alphas=2).plot()
    try:
        assert ax.figure.number in plt.get_fignums()
    finally:
        plt.close(ax.figure)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    X, y = load("ridge")
    path = regularization_path(make("ridge"), X, y, n_alphas=2)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"manyclass\[plot\]"):
        path.plot()


def test_a_path_on_digits_is_monotone():
    X, y = load_digits(return_X_y=True)
    estimator = LinearClassifier(l1_ratio=0.9, max_iter=500, random_state=0)
    path = regularization_path(estimator, X / 16, y, n_alphas=8, eps=0.02)
    assert path.n_features[0] == 0
    assert np.all(np.diff(path.objectives) < 0)  # the least objective falls with alpha
    assert np.all(np.diff(path.n_nonzero) > 0)
    accuracy = [(model.predict(X / 16) == y).mean() for model in path.models]
    assert accuracy[-1] > 0.93 > accuracy[1]

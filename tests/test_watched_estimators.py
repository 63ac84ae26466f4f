"""Held-out rows, early stopping and callbacks of every estimator that is not a solver of the fitting loop alone."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from manyclass import (
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    LinearClassifier,
    LinearRegressor,
    StagewiseClassifier,
    StagewiseRegressor,
)
from manyclass.estimators.streamed import hold_out
from manyclass.features import FeatureSubset

BLOCK = FeatureSubset(16, order="frequency")  # without a seed
#: Estimators of which a fit has several iterations, and the parameters for a fit that its held-out rows end.
CASES = {
    "linear": (LinearClassifier(solver="lbfgs", alpha=1e-7), {"early_stopping": 2}),
    "regression": (LinearRegressor(solver="lbfgs", alpha=1e-7, tol=1e-9), {"early_stopping": 1}),
    "softmax": (GeneralizedLeastSquaresClassifier("softmax", alpha=1e-6, tol=1e-9), {"early_stopping": 2}),
    "features": (
        GeneralizedLeastSquaresClassifier("softmax", alpha=1e-6, tol=1e-9, features=BLOCK),
        {"early_stopping": 2},
    ),
    "calibrated": (CalibratedLeastSquaresClassifier(alpha=1e-6, tol=0.0), {"early_stopping": True, "patience": 2}),
    "stagewise": (
        StagewiseClassifier("fourier:30", n_blocks=25, alpha=1e-8),
        {"early_stopping": True, "patience": 2},
    ),
    "appended": (StagewiseClassifier(BLOCK, update="appended"), {"early_stopping": True, "patience": 1}),
    "passes": (StagewiseClassifier(BLOCK, update="logistic", passes=2), {"early_stopping": True, "patience": 1}),
    "two models": (
        StagewiseClassifier("fourier:30", update="calibrated", n_models=2, n_blocks=3),
        {"early_stopping": True, "patience": 1},
    ),
    "prepared": (StagewiseClassifier("fourier:30", prepare="pca:10", n_blocks=3), {"early_stopping": True}),
    "stagewise regression": (
        StagewiseRegressor("fourier:30", n_blocks=25, alpha=1e-8),
        {"early_stopping": True, "patience": 2},
    ),
}


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    y = np.where(rng.random(len(y)) < 0.3, rng.integers(10, size=len(y)), y)
    return X[:300] / 16, y[:300], X[300:500] / 16, y[300:500]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def made(name, **more):
    return clone(CASES[name][0]).set_params(random_state=0, **more)


def outputs(model, X):
    return model.predict(X) if is_regressor(model) else model.decision_function(X)


def scores(model):
    """The scores along the run, the larger the better."""
    if hasattr(model, "stage_records_"):
        return [-record.validation_error for record in model.stage_records_]
    return [found.score for found in model.history_.validation]


def outcome(model):
    return model.outcome_ if hasattr(model, "outcome_") else model.history_.outcome


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_scores_along_the_run_change_nothing_else(noisy, name, sparse):
    X, y, X_val, y_val = (sp.csr_matrix(part) if sparse and part.ndim == 2 else part for part in noisy)
    seen = []
    model = made(name).fit(X, y, X_val=X_val, y_val=y_val, callback=seen.append)
    plain = made(name).fit(X, y)
    np.testing.assert_array_equal(outputs(model, X_val), outputs(plain, X_val))
    assert outcome(model) == outcome(plain)
    assert len(scores(model)) == len(seen)
    assert [now.iteration for now in seen] == list(range(1, len(seen) + 1))
    assert [now.finished for now in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[-1].max_iter >= len(seen)
    found, right = model.predict(X_val), y_val
    last = -((found - right) ** 2).mean() if is_regressor(model) else np.mean(found == right)
    if name != "two models":  # whose scores are means
        assert seen[-1].validation == pytest.approx(last)


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_given_end_the_fit_at_the_best_score(noisy, name):
    X, y, X_val, y_val = noisy
    model = made(name, **CASES[name][1]).fit(X, y, X_val=X_val, y_val=y_val)
    found = scores(model)
    # No row of the fit is held out: it goes the way of the one without early stopping.
    whole = scores(made(name).fit(X, y, X_val=X_val, y_val=y_val))
    np.testing.assert_allclose(found, whole[: len(found)], atol=1e-12)
    if name in ("two models", "prepared", "passes", "appended"):  # which may have all their stages
        return
    assert outcome(model) in ("patience", "stopped early")
    predicted = model.predict(X_val)
    best = -((predicted - y_val) ** 2).mean() if is_regressor(model) else np.mean(predicted == y_val)
    if isinstance(model, StagewiseRegressor | LinearRegressor):
        assert best == pytest.approx(max(found))
    else:
        assert best == pytest.approx(max(found) + (1.0 if hasattr(model, "stage_records_") else 0.0))


@pytest.mark.parametrize("name", ["calibrated", "appended", "passes"])
def test_rows_that_are_given_are_those_of_a_split(noisy, name):
    X, y, *_ = noisy
    held, kept = hold_out(len(y), 0.1, np.random.RandomState(0), None, np.unique(y, return_inverse=True)[1])
    parameters = CASES[name][1]
    split = made(name, **parameters).fit(X, y)
    given = made(name, **parameters).fit(X, y, sample_weight=kept, X_val=X[held], y_val=y[held])
    np.testing.assert_allclose(scores(given), scores(split), atol=1e-12)
    np.testing.assert_allclose(outputs(given, X), outputs(split, X), atol=1e-9)
    assert outcome(given) == outcome(split)


@pytest.mark.parametrize("name", CASES)
def test_a_callback_ends_every_fit_with_a_usable_model(noisy, name, tmp_path):
    X, y, *_ = noisy
    seen = []

    def end(now):
        seen.append(now.weights())
        return len(seen) == 2

    model = made(name).fit(X, y, callback=end)
    assert len(seen) == 2
    assert outcome(model) == "stopped"
    assert model.predict(X).shape == y.shape
    assert model.score(X, y) > (0.0 if is_regressor(model) else 0.2)
    if hasattr(model, "stage_records_"):
        assert len(model.stage_records_) == 2
        ended, last = model.model_.members[-1][-1], seen[-1][-1][-1]
        np.testing.assert_array_equal(ended.weights, last.weights)
    model.save(tmp_path / "model")


@pytest.mark.parametrize("name", CASES)
def test_what_is_watched_is_no_parameter(noisy, name):
    X, y, *_ = noisy
    estimator = made(name)
    search = GridSearchCV(estimator, {"alpha": [1e-3, 1e-2]}, cv=2).fit(X, y)
    assert search.best_params_["alpha"] in (1e-3, 1e-2)
    before = estimator.get_params()
    estimator.fit(X, y, X_val=X[:50], y_val=y[:50], callback=lambda now: True)
    assert estimator.get_params() == before
    assert clone(estimator).get_params().keys() == before.keys()


@pytest.mark.parametrize("name", CASES)
def test_held_out_rows_are_checked_as_those_of_the_fit(noisy, name):
    X, y, X_val, y_val = noisy
    for wrong, message in (
        ({"X_val": X_val}, "X_val was given without y_val: pass both"),
        ({"X_val": X_val[:, :3], "y_val": y_val}, "X has 3 features, but"),
        ({"X_val": X_val * np.nan, "y_val": y_val}, "Input X_val contains NaN"),
        ({"X_val": X_val, "y_val": y_val[:5]}, "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=message):
            made(name).fit(X, y, **wrong)


@pytest.mark.skipif(find_spec("sklearn.callback") is None, reason="scikit-learn 1.9 has callbacks")
@pytest.mark.parametrize("name", CASES)
def test_callbacks_of_scikit_learn_follow_every_fit(noisy, name):
    from sklearn.callback import ScoringMonitor

    X, y, *_ = noisy
    monitor = ScoringMonitor(scoring="r2" if is_regressor(made(name)) else "accuracy")
    model = made(name).set_callbacks(monitor)
    seen = []
    model.fit(X, y, callback=seen.append)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(rows) == len(seen)
    key = "r2" if is_regressor(model) else "accuracy"
    assert rows[-1][key] == pytest.approx(model.score(X, y))

"""Fits that do not depend on each other on the backends of joblib: ranges of one-vs-rest, and paths of folds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.exceptions import ConvergenceWarning

from manyclass import LinearClassifier, LinearClassifierCV, LinearRegressor, LinearRegressorCV
from manyclass.runtime.backends import chosen, spread


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    X = sp.random(900, 60, 0.2, format="csr", random_state=0)
    y = rng.integers(0, 150, 900)
    y[:150] = np.arange(150)
    return X, y


def test_what_counts_as_chosen():
    assert not chosen()
    for name, counts in (("loky", True), ("multiprocessing", True), ("threading", False), ("sequential", False)):
        with parallel_config(name, n_jobs=2):
            assert chosen() is counts, name
    assert not chosen()


def _square(x, by):
    return by * x * x


def test_results_come_in_order_and_more_than_a_round_of_them():
    with parallel_config("loky", n_jobs=2):
        assert list(spread(_square, ((i, 2) for i in range(20)))) == [2 * i * i for i in range(20)]
        assert list(spread(_square, ())) == []


@pytest.mark.parametrize("loss", ["squared_hinge", "log_loss"])
def test_one_vs_rest_has_the_same_bits(many, loss):
    X, y = many
    told = []
    model = LinearClassifier(loss, alpha=1e-3, random_state=0)
    plain = model.fit(X, y, callback=lambda progress: told.append(progress.iteration)).coef_.copy()
    known, gap = list(told), model.duality_gap_
    told.clear()
    with parallel_config("loky", n_jobs=2):
        model.fit(X, y, callback=lambda progress: told.append(progress.iteration))
    np.testing.assert_array_equal(model.coef_, plain)
    assert model.duality_gap_ == gap <= 1e-3
    assert told == known == [1, 2, 3]
    with parallel_config("loky", n_jobs=2):
        model.fit(X, y, callback=lambda progress: progress.iteration == 2)
    assert model.history_.outcome == "stopped"
    np.testing.assert_array_equal(model.coef_[:128], plain[:128])
    assert not model.coef_[128:].any()


def test_regression_and_sets_of_labels_on_other_workers(many):
    X, _ = many
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(900, 130))
    labels = (rng.random((900, 130)) < 0.05).astype(int)
    for model, y in (
        (LinearRegressor(alpha=0.1, random_state=0), Y),
        (LinearClassifier("hinge", alpha=1e-2, random_state=0), labels),
    ):
        plain = model.fit(X, y).coef_.copy()
        with parallel_config("loky", n_jobs=2):
            np.testing.assert_array_equal(model.fit(X, y).coef_, plain)


def test_one_warning_tells_of_ranges_that_ended_early(many):
    X, y = many
    with parallel_config("loky", n_jobs=2), pytest.warns(ConvergenceWarning, match="3 of 3 ranges") as told:
        LinearClassifier("squared_hinge", alpha=1e-4, max_iter=2, random_state=0).fit(X, y)
    assert len(told) == 1


@pytest.mark.parametrize("kind", [LinearClassifierCV, LinearRegressorCV])
def test_folds_have_the_same_scores(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 8))
    y = (X @ rng.normal(size=8) > 0).astype(int) if kind is LinearClassifierCV else X @ rng.normal(size=8)
    model = kind(n_alphas=4, cv=3, l1_ratio=[0.2, 0.8], random_state=0)
    plain = model.fit(X, y, sample_weight=np.arange(1, 151)).scores_path_.copy()
    with parallel_config("loky", n_jobs=2):
        model.fit(X, y, sample_weight=np.arange(1, 151))
    np.testing.assert_array_equal(model.scores_path_, plain)


def test_an_error_of_a_worker_is_raised():
    X, y = np.eye(30), np.arange(30) % 2

    def fails(estimator, X, y):
        raise ArithmeticError("no score")

    with parallel_config("loky", n_jobs=2), pytest.raises(ArithmeticError, match="no score"):
        LinearClassifierCV(n_alphas=2, cv=2, scoring=fails).fit(X, y)

"""`StagewiseClassifier()` and `StagewiseRegressor()` without parameters: the rule for dense rows, and sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_classification, make_friedman1, make_multilabel_classification
from sklearn.svm import SVC

from manyclass import StagewiseClassifier, StagewiseRegressor, load
from manyclass.features import Nystrom, PrincipalComponents, RandomFourier


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


def test_digits_are_told_apart_as_well_as_by_a_tuned_svc(digits):
    X, y = digits
    model = StagewiseClassifier(random_state=0).fit(X[:1200], y[:1200])
    tuned = max(SVC(C=10, gamma=gamma).fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) for gamma in (0.1, 0.3, 1.0))
    assert model.score(X[1200:], y[1200:]) > tuned - 0.01


def test_the_rule(digits):
    X, y = digits
    model = StagewiseClassifier(random_state=0).fit(X, y)
    assert isinstance(model.features_, Nystrom)
    assert model.features_.n_components == 2048
    assert model.n_stages_ == [1]  # 1797 rows
    assert model.prepare_ is None
    assert any(model.alpha_ == pytest.approx(c / len(y)) for c in (0.1, 1.0, 10.0))
    assert all(stage.calibration is not None for stage in model.model_.members[0])
    assert {stage.block.bandwidth for stage in model.model_.members[0]} == {model.features_.bandwidth}
    assert StagewiseClassifier(random_state=0, block_size=200).fit(X, y).n_stages_ == [6]
    assert StagewiseClassifier(random_state=0, block_size=150, n_blocks=3, alpha=1e-3).fit(X, y).alpha_ == 1e-3


def test_the_bandwidth_follows_the_data():
    """A chessboard needs a narrow kernel, a plane a wide one."""
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    board = (np.floor(6 * X).sum(axis=1) % 2).astype(int)
    narrow = StagewiseClassifier(random_state=0).fit(X[:2000], board[:2000])
    wide = StagewiseRegressor(random_state=0).fit(X[:2000], X[:2000].sum(axis=1))
    assert narrow.features_.bandwidth < 0.1 < 0.3 < wide.features_.bandwidth
    assert narrow.score(X[2000:], board[2000:]) > 0.9


def test_a_seed_decides_all_for_any_number_of_threads(digits):
    X, y = digits
    settings = {"block_size": 100, "n_blocks": 2}
    one, two = (StagewiseClassifier(random_state=0, n_jobs=jobs, **settings).fit(X, y) for jobs in (1, 2))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    assert not np.array_equal(
        one.decision_function(X), StagewiseClassifier(random_state=1, **settings).fit(X, y).decision_function(X)
    )


def test_wide_rows_are_replaced_by_principal_components(tmp_path):
    X, y = make_classification(400, 600, n_informative=20, random_state=0)
    model = StagewiseClassifier(random_state=0, n_blocks=2, block_size=60).fit(X, y)
    assert isinstance(model.prepare_, PrincipalComponents)
    assert model.prepare_.n_components == 100
    model.save(tmp_path / "wide.model")
    np.testing.assert_array_equal(load(tmp_path / "wide.model").predict(X), model.predict(X))
    assert StagewiseClassifier(random_state=0, prepare="pca:7").fit(X, y).prepare_.n_components == 7
    assert StagewiseClassifier("fourier:20", random_state=0).fit(X, y).prepare_ is None


def test_sparse_rows_get_fourier_features_and_linear_updates(digits):
    X, y = sp.csr_matrix(digits[0]), digits[1]
    model = StagewiseClassifier(random_state=0).fit(X, y)
    expected = StagewiseClassifier("fourier", update="linear", random_state=0).fit(X, y)
    assert isinstance(model.features_, RandomFourier)
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))


@pytest.mark.parametrize("n", [2, 3, 12, 60])
def test_few_rows(digits, n):
    X, y = digits[0], digits[1] % 2
    rows = np.r_[np.flatnonzero(y == 0)[: n // 2], np.flatnonzero(y == 1)[: n - n // 2]]
    assert StagewiseClassifier(random_state=0).fit(X[rows], y[rows]).score(X[rows], y[rows]) == 1.0


def test_rows_of_weight_zero_do_not_choose(digits):
    """Nor those held out for early stopping."""
    X, y = digits
    weights = (np.arange(len(y)) < 900).astype(float)
    other = np.where(weights > 0, y, (y + 3) % 10)
    settings = {"random_state": 0, "block_size": 200, "n_blocks": 2}
    one, two = (StagewiseClassifier(**settings).fit(X, labels, sample_weight=weights) for labels in (y, other))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    stopped = StagewiseClassifier(early_stopping=True, **settings).fit(X, y)
    assert 0 < stopped.stage_records_[-1].validation_error < 0.1


def test_several_labels_a_row():
    X, Y = make_multilabel_classification(600, 12, n_classes=5, random_state=0)
    model, before = (StagewiseClassifier(kind, random_state=0).fit(X[:400], Y[:400]) for kind in ("auto", "fourier"))
    right, right_before = (np.mean(fitted.predict(X[400:]) == Y[400:]) for fitted in (model, before))
    assert right > max(0.75, right_before - 0.01)


def test_warm_starts_keep_what_was_chosen(digits):
    X, y = digits
    settings = {"block_size": 60, "random_state": 0}
    model = StagewiseClassifier(n_blocks=2, warm_start=True, **settings).fit(X, y)
    chosen = model.features_.bandwidth, model.alpha_
    model.fit(X, y)
    assert (model.features_.bandwidth, model.alpha_) == chosen
    whole = StagewiseClassifier(n_blocks=4, **settings).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_regression():
    X, y = make_friedman1(1500, noise=1.0, random_state=0)
    model = StagewiseRegressor(random_state=0).fit(X[:1000], y[:1000])
    before = StagewiseRegressor("fourier", random_state=0).fit(X[:1000], y[:1000])
    assert isinstance(model.features_, Nystrom)
    assert model.n_stages_ == [1]
    assert model.score(X[1000:], y[1000:]) > max(0.9, before.score(X[1000:], y[1000:]))


def test_centers_are_drawn_by_the_residuals():
    X = np.random.default_rng(0).normal(size=(200, 3))
    residuals = np.zeros((200, 2))
    residuals[50:80, 1] = -3.0
    block = Nystrom(20, centers="residual", random_state=0).fit(X, residuals)
    assert {tuple(row) for row in block.centers_} <= {tuple(row) for row in X[50:80]}
    # Rows of residual 0 where there are too few others; without residuals all are drawn alike.
    block = Nystrom(40, centers="residual", random_state=0).fit(X, residuals)
    assert len(np.unique(block.centers_, axis=0)) == 40
    np.testing.assert_array_equal(
        Nystrom(20, centers="residual", random_state=0).fit(X).centers_, Nystrom(20, random_state=0).fit(X).centers_
    )

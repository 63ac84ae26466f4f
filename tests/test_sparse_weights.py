"""Weights that are kept as a sparse matrix: after an l1 penalty, and by `sparsify`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler

from manyclass import LinearClassifier, LinearModel, LinearRegressor


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400] / 16.0, y[:400]


@pytest.fixture(scope="module")
def few(digits):
    """A fit that leaves few weights."""
    X, y = digits
    return LinearClassifier(alpha=0.03, l1_ratio=1.0, max_iter=1000, random_state=0).fit(X, y)


def test_few_weights_are_kept_sparse(digits, few, tmp_path):
    X, y = digits
    assert few.model_.is_sparse
    assert isinstance(few.coef_, np.ndarray)
    assert isinstance(few.sparse_coef_, sp.csr_matrix)
    assert few.coef_.shape == few.sparse_coef_.shape == (10, 64)
    np.testing.assert_array_equal(few.sparse_coef_.toarray(), few.coef_)
    assert 0 < few.sparse_coef_.nnz == np.count_nonzero(few.coef_) < 0.3 * few.coef_.size
    np.testing.assert_allclose(few.decision_function(X), X @ few.coef_.T + few.intercept_, atol=1e-12)
    few.model_.save(tmp_path / "m")
    loaded = LinearModel.load(tmp_path / "m")
    assert loaded.is_sparse
    np.testing.assert_array_equal(loaded.predict(X), few.predict(X))
    np.testing.assert_array_equal(loaded.decision_function(X), few.decision_function(X))
    # Without an l1 part the weights stay as they are, and so they do where sparse ones would take as much room.
    dense = LinearClassifier(alpha=0.03, random_state=0).fit(X, y)
    assert not dense.model_.is_sparse
    np.testing.assert_array_equal(dense.sparse_coef_.toarray(), dense.coef_)
    many = LinearClassifier(alpha=1e-4, l1_ratio=0.01, max_iter=500, random_state=0).fit(X, y)
    assert not many.model_.is_sparse


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_sparsify_and_densify(digits, tmp_path, ratio):
    X, y = digits
    model = LinearClassifier(alpha=0.03, l1_ratio=ratio, max_iter=1000, random_state=0).fit(X, y)
    before, predicted, scores = model.coef_.copy(), model.predict(X), model.decision_function(X)
    assert model.sparsify() is model
    assert sp.issparse(model.coef_)
    np.testing.assert_array_equal(model.coef_.toarray(), before)
    np.testing.assert_array_equal(model.predict(X), predicted)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)
    model.model_.save(tmp_path / "m")
    np.testing.assert_array_equal(LinearModel.load(tmp_path / "m").predict(X), predicted)
    assert model.densify() is model
    assert not model.model_.is_sparse
    assert isinstance(model.coef_, np.ndarray)
    np.testing.assert_array_equal(model.coef_, before)
    np.testing.assert_array_equal(model.predict(X), predicted)
    # A later fit begins anew.
    model.sparsify().fit(X, y)
    assert isinstance(model.coef_, np.ndarray)
    np.testing.assert_array_equal(model.coef_, before)


def test_sparse_weights_of_regressions(diabetes):
    X, y = diabetes
    one = LinearRegressor(alpha=20.0, l1_ratio=1.0).fit(X, y)
    assert one.model_.is_sparse
    assert one.coef_.shape == (10,)
    assert one.sparse_coef_.shape == (1, 10)
    np.testing.assert_array_equal(one.sparse_coef_.toarray()[0], one.coef_)
    predicted = one.predict(X)
    np.testing.assert_allclose(predicted, X @ one.coef_ + one.intercept_)
    assert one.sparsify().coef_.shape == (1, 10)
    np.testing.assert_allclose(one.predict(X), predicted)
    two = LinearRegressor(alpha=20.0, l1_ratio=1.0).fit(X, np.column_stack([y, y[::-1]]))
    assert two.coef_.shape == two.sparse_coef_.shape == (2, 10)

"""The linear estimators copy arrays of other libraries from their device: the bits are those of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from manyclass import LinearClassifier, LinearRegressor
from manyclass.solvers import SGD
from manyclass.solvers.least_squares.arrays import is_foreign


def strict(array):
    """On a device from which NumPy itself refuses to convert."""
    library = pytest.importorskip("array_api_strict", minversion="2.2")
    found = library.asarray(array, device=library.Device("device1"))
    with pytest.raises(RuntimeError, match="device1"):
        np.asarray(found)
    return found


def torch(array):
    """Floats with a gradient, which NumPy itself refuses."""
    library = pytest.importorskip("torch")
    found = library.from_numpy(np.ascontiguousarray(array))
    return found.requires_grad_() if found.is_floating_point() else found


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return X, (X @ rng.normal(size=(5, 3))).argmax(axis=1), rng.choice([0.5, 1.0, 2.0], 60)


@pytest.mark.parametrize("library", [strict, torch])
def test_linear_estimators_take_arrays_of_other_libraries(data, library):
    X, y, weights = data
    for estimator, target in ((LinearClassifier, y), (LinearRegressor, X[:, 0] + y)):
        expected = estimator(random_state=0).fit(X, target, sample_weight=weights, X_val=X, y_val=target)
        found = estimator(random_state=0).fit(
            library(X), library(target), sample_weight=library(weights), X_val=library(X), y_val=library(target)
        )
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        assert found.duality_gap_ == expected.duality_gap_
        np.testing.assert_array_equal(found.predict(library(X)), expected.predict(X))
    there = library(X)
    model = LinearClassifier().fit(X, y)
    for method in ("decision_function", "predict_proba"):
        np.testing.assert_array_equal(getattr(model, method)(there), getattr(model, method)(X))


@pytest.mark.parametrize("library", [strict, torch])
def test_streams_take_arrays_of_other_libraries(data, library):
    X, y, weights = data
    model, other = (LinearClassifier(solver=SGD(), alpha=1e-2, random_state=0) for _ in range(2))
    model.partial_fit(X, y, classes=np.arange(3), sample_weight=weights)
    other.partial_fit(library(X), library(y), classes=np.arange(3), sample_weight=library(weights))
    np.testing.assert_array_equal(model.coef_, other.coef_)


def test_arrays_of_other_libraries_in_bfloat16(data):
    library = pytest.importorskip("torch")
    X, y, _ = data
    halves = library.from_numpy(X).to(library.bfloat16)
    found, expected = (LinearClassifier(random_state=0).fit(rows, y) for rows in (halves, halves.float().numpy()))
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_numbers_of_numpy_are_no_arrays_of_other_libraries():
    assert not is_foreign(np.float64(1.0))
    with pytest.raises(ValueError, match="2D"):
        LinearClassifier().fit(np.float64(1.0), [0])

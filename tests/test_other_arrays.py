"""Arrays of other libraries: copies for a fit have the bits of NumPy; predictions are made where the rows are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem

from manyclass import LinearClassifier, LinearModel, LinearRegressor, StagedModel, StagewiseClassifier
from manyclass.features import (
    Chain,
    FeatureSubset,
    Nystrom,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    RandomPolynomial,
    Transformer,
    fresh,
)
from manyclass.features.elsewhere import transform_there, transforms_there
from manyclass.runtime.arrays import is_foreign, namespace, to_numpy
from manyclass.solvers import SGD


def strict(array):
    """On a device from which NumPy itself refuses to convert."""
    library = pytest.importorskip("array_api_strict", minversion="2.3")
    found = library.asarray(array, device=library.Device("device1"))
    with pytest.raises(RuntimeError, match="device1"):
        np.asarray(found)
    return found


def torch(array):
    """Floats with a gradient, which NumPy itself refuses; on a GPU where there is one."""
    library = pytest.importorskip("torch")
    found = library.from_numpy(np.ascontiguousarray(array)).to("cuda" if library.cuda.is_available() else "cpu")
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
        expected = estimator(solver="sdca", random_state=0).fit(X, target, sample_weight=weights, X_val=X, y_val=target)
        found = estimator(solver="sdca", random_state=0).fit(
            library(X), library(target), sample_weight=library(weights), X_val=library(X), y_val=library(target)
        )
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        assert found.duality_gap_ == expected.duality_gap_
        np.testing.assert_allclose(to_numpy(found.predict(library(X))), expected.predict(X), rtol=1e-12)
        assert found.score(library(X), library(target)) == pytest.approx(expected.score(X, target), abs=1e-12)


def model_of(kind, dtype):
    """A model of five features with random weights."""
    rng = np.random.default_rng(1)
    classes, task, link = {
        "softmax": (np.array([3, 5, 7, 9]), "multiclass", "softmax"),
        "sigmoid": (np.array([0.5, 1.0, 2.0, 8.0]), "multiclass", "sigmoid"),
        "texts": (np.array(["ham", "spam", "unsure", "x"]), "multiclass", "softmax"),
        "binary": (np.array([-1, 1]), "binary", "sigmoid"),
        "multilabel": (np.arange(4), "multilabel", "sigmoid"),
        "regression": (None, "regression", "identity"),
    }[kind]
    K = 1 if task == "binary" else 4
    # Scores without rounding, some equal, and some that overflow an exponential that is not shifted.
    W = 40.0 * rng.integers(-2, 3, size=(5, K))
    intercept = 0.25 * rng.integers(-4, 5, size=K)
    return LinearModel(W.astype(dtype), intercept.astype(dtype), classes, task, link, temperature=2.0)


METHODS = ("scores", "decision_function", "predict", "topk", "probabilities", "topk_probabilities")


@pytest.mark.parametrize("library", [strict, torch])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "texts", "binary", "multilabel", "regression"])
def test_models_predict_arrays_of_other_libraries(kind, dtype, library):
    model = model_of(kind, dtype)
    X = np.random.default_rng(2).integers(-2, 3, size=(200, 5)).astype(np.float32)
    there = library(X)
    for method in METHODS:
        if kind == "regression" and method not in ("scores", "decision_function", "predict"):
            with pytest.raises(ValueError, match=r"regression|no probabilities"):
                getattr(model, method)(there, *[1] * method.startswith("topk"))
            continue
        for more in [(1,), (2,)] if method.startswith("topk") else [()]:
            expected, found = getattr(model, method)(X, *more), getattr(model, method)(there, *more)
            for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (expected, found))):
                if hasattr(one, "toarray"):
                    one = one.toarray()
                if one.dtype.kind == "U":
                    np.testing.assert_array_equal(other, one)
                    continue
                assert namespace(other) is namespace(there)
                assert other.device == there.device
                other = to_numpy(other)
                assert other.dtype == one.dtype
                np.testing.assert_allclose(other, one, rtol=2e-6 if dtype == np.float32 else 1e-13, atol=1e-35)


BLOCKS = {
    "fourier": RandomFourier(20),
    "fourier, odd": RandomFourier(20, n_odd=2),
    "logits": RandomLogits(20),
    "logits, odd": RandomLogits(20, n_odd=2),
    "polynomial": RandomPolynomial(20, degree=3, constant=0.5),
    "polynomial, odd": RandomPolynomial(20, n_odd=1),
    "nystrom": Nystrom(30),
    "nystrom, odd": Nystrom(30, n_odd=2),
    "components": PrincipalComponents(3),
    "whitened": PrincipalComponents(3, whiten=True),
    "subset": FeatureSubset(3, order="random"),
    "chain": Chain(PrincipalComponents(4), RandomFourier(20)),
}


@pytest.mark.parametrize("library", [strict, torch])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BLOCKS)
def test_features_of_arrays_of_other_libraries(data, name, dtype, library):
    X = data[0].astype(dtype)
    block = fresh(BLOCKS[name], 0).fit(X)
    expected, there = block.transform(X), library(X)
    assert transforms_there(block)
    for _ in range(2):  # the second time with the matrices that are there
        found = transform_there(block, there)
        assert namespace(found) is namespace(there)
        assert found.device == there.device
        found = to_numpy(found)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, atol=(2e-5 if dtype == np.float32 else 1e-12) * abs(expected).max())
    block.release()
    np.testing.assert_array_equal(to_numpy(transform_there(block, there)), found)


def test_blocks_without_features_of_arrays_of_other_libraries(data):
    X = data[0]
    block = Chain(PrincipalComponents(4), Transformer(Nystroem(n_components=3))).fit(X)
    assert not transforms_there(block)
    assert transform_there(block, torch(X)) is None


@pytest.mark.parametrize("library", [strict, torch])
@pytest.mark.parametrize("prepare", [None, "pca:4"])
def test_staged_models_predict_arrays_of_other_libraries_where_they_are(data, prepare, library, monkeypatch):
    X, y, _ = data
    given = {"block_size": 20, "n_blocks": 2, "prepare": prepare, "update": "logistic", "random_state": 0}
    model = StagewiseClassifier("fourier", n_models=2, **given).fit(X, y).model_
    expected = [model.scores(X), model.probabilities(X), *model.topk(X, 2)]
    there = library(X)
    with monkeypatch.context() as patch:
        patch.setattr(StagedModel, "_scores", None)  # no rows are copied
        found = [model.scores(there), model.probabilities(there), *model.topk(there, 2)]
    for one, other in zip(expected, found):
        np.testing.assert_allclose(to_numpy(other), one, atol=1e-12)
    # Nothing of a device is in a pickle, and a model that was not there predicts the same.
    again = pickle.loads(pickle.dumps(model))
    assert "_placed" not in vars(again)
    np.testing.assert_array_equal(to_numpy(again.scores(there)), to_numpy(found[0]))


@pytest.mark.parametrize("library", [strict, torch])
def test_calibrated_stages_predict_copies_of_arrays_of_other_libraries(data, library):
    X, y, _ = data
    model = StagewiseClassifier("fourier", block_size=20, n_blocks=2, update="calibrated", random_state=0).fit(X, y)
    found = model.predict_proba(library(X))
    assert namespace(found) is namespace(library(X))
    np.testing.assert_array_equal(to_numpy(found), model.predict_proba(X))


@pytest.mark.parametrize("library", [strict, torch])
def test_equal_scores_of_arrays_of_other_libraries(library):
    """Of equal scores the lower index comes first, for a few classes and for a sorted list of all."""
    model = LinearModel(np.ones((1, 40), np.float32), np.zeros(40, np.float32), np.arange(40), "multiclass")
    for k in (1, 3, 30):
        np.testing.assert_array_equal(to_numpy(model.topk(library(np.ones((2, 1))), k)[0]), [range(k)] * 2)


@pytest.mark.parametrize("library", [strict, torch])
def test_predictions_refuse_arrays_of_other_libraries_that_they_refuse_from_numpy(data, library):
    X, y, _ = data
    model = LinearClassifier().fit(X, y)
    wrong = X.copy()
    wrong[17, 2] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in row 17"):
        model.predict(library(wrong))
    with pytest.raises(ValueError, match=r"X must have shape \(n, 5\).* got \(60, 4\)"):
        model.predict(library(X[:, :4]))
    with pytest.raises(ValueError, match="k must be at most 3"):
        model.predict_topk(library(X), 4)
    with pytest.raises(ValueError, match="no probabilities"):
        LinearClassifier("squared_hinge").fit(X, y).model_.probabilities(library(X))


@pytest.mark.parametrize("library", [strict, torch])
def test_candidates_and_sparse_weights_for_arrays_of_other_libraries(data, library):
    """What is computed from a copy of the rows also comes back as an array of their kind."""
    X, y, _ = data
    model = LinearClassifier().fit(X, y)
    labels, scores = model.predict_topk(library(X), 1, candidates=[0, 2])
    assert namespace(labels) is namespace(scores) is namespace(library(X))
    np.testing.assert_array_equal(to_numpy(labels), model.predict_topk(X, 1, candidates=[0, 2])[0])
    model.sparsify()
    np.testing.assert_array_equal(to_numpy(model.predict(library(X))), model.predict(X))


def test_halves_of_arrays_of_other_libraries_are_predicted_in_the_type_of_the_weights(data):
    library = pytest.importorskip("torch")
    X, y, _ = data
    model = LinearClassifier(dtype=np.float32).fit(X.astype(np.float32), y)
    for half in (library.float16, library.bfloat16):
        rows = library.from_numpy(X).to(half)
        found = model.decision_function(rows)
        assert found.dtype == library.float32
        np.testing.assert_allclose(to_numpy(found), model.decision_function(rows.float().numpy()), atol=1e-5)


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
    found, expected = (
        LinearClassifier(solver="sdca", random_state=0).fit(rows, y) for rows in (halves, halves.float().numpy())
    )
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_numbers_of_numpy_are_no_arrays_of_other_libraries():
    assert not is_foreign(np.float64(1.0))
    with pytest.raises(ValueError, match="2D"):
        LinearClassifier().fit(np.float64(1.0), [0])


@pytest.mark.parametrize("library", [strict, torch, np.asarray])
def test_estimators_that_are_not_fitted_say_so(data, library):
    for estimator in (LinearClassifier(), LinearRegressor()):
        with pytest.raises(NotFittedError, match="not fitted"):
            estimator.predict(library(data[0]))

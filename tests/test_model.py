"""What a model says of itself and predicts, for each task; its other forms; which parts it refuses."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from manyclass.models.linear import LinearModel
from models import D, K, dense, model_of, ranking, rows_of, weights_of


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=["dense", "sparse"])
def layout(request):
    return request.param


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_binary(rng, layout):
    model = replace(model_of(rng, layout=layout, k=1, task="binary", link="sigmoid"), intercept=np.zeros(1))
    X = rows_of(rng, 30)
    score = X @ dense(model.weights)[:, 0] + model.intercept[0]
    assert (score == 0).any()
    assert (score > 0).any()
    np.testing.assert_array_equal(model.decision_function(X), score)
    np.testing.assert_array_equal(model.predict(X), model.classes[(score > 0).astype(int)])
    labels, margins = model.topk(X, 2)
    order = ranking(np.column_stack([-score, score]))
    np.testing.assert_array_equal(labels, model.classes[order])
    np.testing.assert_array_equal(margins, np.take_along_axis(np.column_stack([-score, score]), order, axis=1))
    np.testing.assert_array_equal(model.topk(X, 1)[0][:, 0], model.predict(X))
    np.testing.assert_allclose(
        model.probabilities(X), np.column_stack([1 / (1 + np.exp(score)), 1 / (1 + np.exp(-score))])
    )


@pytest.mark.parametrize("k", [1, 5])
def test_multilabel(rng, layout, k):
    model = model_of(rng, layout=layout, k=k, task="multilabel", link="sigmoid")
    X = rows_of(rng, 30)
    expected = X @ dense(model.weights) + model.intercept
    found = model.predict(X)
    assert found.format == "csr"
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found.toarray(), expected > 0)
    array = model.predict(sp.csr_matrix(X), dense=True)
    assert array.dtype == np.int8
    np.testing.assert_array_equal(array, expected > 0)
    np.testing.assert_allclose(model.probabilities(X), 1 / (1 + np.exp(-expected)))
    np.testing.assert_array_equal(model.topk(X, k)[0], model.classes[ranking(expected)])


def test_multilabel_with_more_classes_than_fit_a_tile():
    rng = np.random.default_rng(6)
    k_all = 2**20 + 3
    W = sp.csr_matrix((np.ones(4), ([0, 1, 1, 2], [5, 0, k_all - 1, 7])), shape=(3, k_all))
    model = LinearModel(W, np.zeros(k_all), np.arange(k_all), "multilabel")
    X = rng.standard_normal((3, 3))
    found = model.predict(X)
    expected = sp.csr_matrix(X @ W) > 0
    assert (found.astype(bool) != expected).nnz == 0


def test_regression(rng):
    X = rows_of(rng, 9)
    many = model_of(rng, task="regression", k=3)
    np.testing.assert_array_equal(many.predict(X), many.scores(X))
    one = model_of(rng, task="regression", k=1)
    assert one.predict(X).shape == (9,)
    assert one.decision_function(X).shape == (9, 1)
    with pytest.raises(ValueError, match="no classes to rank"):
        one.topk(X, 1)
    with pytest.raises(ValueError, match="no probabilities"):
        one.probabilities(X)


def test_probabilities_as_scikit_learn_has_them():
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((90, 4)), rng.integers(0, 3, 90)
    softmax = LogisticRegression().fit(X, y)
    model = LinearModel(
        np.ascontiguousarray(softmax.coef_.T), softmax.intercept_, softmax.classes_, "multiclass", "softmax"
    )
    np.testing.assert_allclose(model.probabilities(X), softmax.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), softmax.predict(X))
    rest = OneVsRestClassifier(LogisticRegression()).fit(X, y)
    model = LinearModel(
        np.column_stack([e.coef_[0] for e in rest.estimators_]),
        np.concatenate([e.intercept_ for e in rest.estimators_]),
        rest.classes_,
        "multiclass",
        "sigmoid",
    )
    np.testing.assert_allclose(model.probabilities(X), rest.predict_proba(X), rtol=1e-12)
    two = LogisticRegression().fit(X, y > 0)
    model = LinearModel(np.ascontiguousarray(two.coef_.T), two.intercept_, two.classes_, "binary", "sigmoid")
    np.testing.assert_allclose(model.probabilities(X), two.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), two.predict(X))
    assert model.predict(X).dtype == bool


def test_a_small_probability_of_a_binary_model_keeps_its_digits():
    model = LinearModel(np.array([[50.0]]), np.zeros(1), np.arange(2), "binary", "sigmoid")
    np.testing.assert_allclose(model.probabilities(np.ones((1, 1)))[0, 0], np.exp(-50.0))


# --- forms ------------------------------------------------------------------------------------------------------------


def test_sparsify_densify(rng, layout, dtype):
    model = model_of(rng, dtype, layout, feature_names=np.array([f"f{j}" for j in range(D)]), record={"a": 1})
    X = rows_of(rng, 20, dtype=dtype)
    sparse = model.sparsify()
    assert sparse.is_sparse
    assert sparse.dtype == dtype
    assert sparse.weights.nnz == model.n_nonzero == np.count_nonzero(dense(model.weights))
    np.testing.assert_array_equal(sparse.scores(X), model.scores(X))
    assert (sparse.record, sparse.task, sparse.classes is model.classes) == (model.record, model.task, True)
    back = sparse.densify()
    assert not back.is_sparse
    np.testing.assert_array_equal(back.weights, dense(model.weights))
    assert back.densify() is back
    W = dense(model.weights)
    np.testing.assert_array_equal(model.sparsify(0.5).weights.toarray(), np.where(np.abs(W) > 0.5, W, 0))
    assert model.sparsify(100).n_nonzero == 0
    np.testing.assert_array_equal(model.sparsify(100).scores(X), np.tile(model.intercept, (20, 1)))
    np.testing.assert_array_equal(dense(model.weights), W)
    for bad in (-1, np.nan, np.inf, "1", None):
        with pytest.raises(ValueError, match="threshold must be a finite number of at least 0"):
            model.sparsify(bad)


def test_sparsify_adds_up_duplicates_first():
    W = sp.csr_matrix((np.array([0.6, -0.5, 0.3, 0.3]), np.array([1, 1, 0, 0]), np.array([0, 4])), (1, 2))
    model = LinearModel(W, np.zeros(2), np.arange(2), "multiclass").sparsify(0.5)
    np.testing.assert_array_equal(model.weights.toarray(), [[0.6, 0]])
    assert W.nnz == 4


def test_sparsify_in_pieces(rng):
    W = weights_of(rng, 5, 700_001, np.float32, "dense")
    model = LinearModel(W, np.zeros(700_001, np.float32), None, "regression")
    assert (model.sparsify().weights != sp.csr_matrix(W)).nnz == 0


def test_astype(rng, layout, dtype):
    model = model_of(rng, dtype, layout)
    other = np.float64 if dtype == np.float32 else np.float32
    changed = model.astype(other)
    assert changed.weights.dtype == changed.intercept.dtype == changed.dtype == other
    np.testing.assert_array_equal(dense(changed.weights), dense(model.weights))
    assert model.astype(dtype) is model
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        model.astype(np.int32)


def test_facts(rng, layout):
    model = model_of(rng, np.float32, layout, parameters={"alpha": np.float64(0.5)}, record={"history": np.arange(3)})
    summary = model.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["n_features"], summary["n_outputs"], summary["n_classes"]) == (D, K, K)
    assert summary["n_nonzero"] == model.n_nonzero == np.count_nonzero(dense(model.weights))
    assert summary["density"] == pytest.approx(model.n_nonzero / (D * K))
    assert summary["layout"] == layout
    assert (summary["dtype"], summary["class_type"]) == ("float32", "str")
    assert summary["parameters"] == {"alpha": 0.5}
    assert summary["record"] == {"history": [0, 1, 2]}
    index_bytes = 4 * (D + 1) + 4 * model.n_nonzero if layout == "sparse" else 0
    assert model.nbytes == 4 * (model.n_nonzero if layout == "sparse" else D * K) + index_bytes + 4 * K


def test_top_features(layout):
    W = np.array([[1.0, 0.0], [3.0, -1.0], [3.0, 2.0], [-5.0, 0.0]])
    names = np.array(["a", "b", "c", "d"])
    model = LinearModel(
        sp.csr_matrix(W) if layout == "sparse" else W,
        np.zeros(2),
        np.array(["x", "y"]),
        "multiclass",
        feature_names=names,
    )
    found, weights = model.top_features("x", 3)
    assert (found.tolist(), weights.tolist()) == (["b", "c", "a"], [3, 3, 1])
    assert model.top_features("y", 4)[0].tolist() == ["c", "a", "d", "b"]
    unnamed = replace(model, feature_names=None, classes=np.array([10, 20]))
    assert unnamed.top_features(20, 1)[0].tolist() == [2]
    binary = replace(model, weights=model.weights[:, [0]], intercept=np.zeros(1), task="binary")
    assert binary.top_features("y", 1)[0].tolist() == ["b"]
    assert binary.top_features("x", 1)[0].tolist() == ["d"]
    assert binary.top_features("x", 1)[1].tolist() == [5]
    assert replace(model, classes=None, task="regression").top_features(1, 1)[0].tolist() == ["c"]
    for bad, where in (("z", model), (1, model), (30, unnamed), ("x", unnamed)):
        with pytest.raises(ValueError, match="is not a class of this model"):
            where.top_features(bad)
    with pytest.raises(ValueError, match="index of an output, 0 to 1"):
        replace(model, classes=None, task="regression").top_features(2)
    assert len(model.top_features("x")[0]) == 4


def test_weights_are_not_copied_and_the_model_is_frozen(rng):
    W = weights_of(rng, D, K, np.float64, "dense")
    model = LinearModel(W, np.zeros(K), np.arange(K), "multiclass")
    assert model.weights is W
    assert replace(model, intercept=np.zeros((K, 2))[:, 0]).intercept.flags.c_contiguous
    with pytest.raises(FrozenInstanceError):
        model.task = "binary"
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.weights, W)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None, "3"])
def test_k_that_is_no_number_of_classes(rng, k):
    for call in (lambda k: model_of(rng).topk(rows_of(rng, 2), k), lambda k: model_of(rng).top_features("class 1", k)):
        with pytest.raises(ValueError, match="k must be an integer of at least 1"):
            call(k)


def test_k_beyond_the_classes(rng):
    with pytest.raises(ValueError, match=f"k must be at most {K}, the number of classes of this model, got {K + 1}"):
        model_of(rng).topk(rows_of(rng, 2), K + 1)
    with pytest.raises(ValueError, match="k must be at most 2"):
        model_of(rng, k=1, task="binary").topk(rows_of(rng, 2), 3)


def test_an_integer_of_numpy_is_a_k(rng):
    assert model_of(rng).topk(rows_of(rng, 2), np.int64(2))[0].shape == (2, 2)


def test_no_threads(rng):
    with pytest.raises(ValueError, match="n_jobs must be a non-zero integer"):
        model_of(rng).predict(rows_of(rng, 2), n_jobs=0)


def wrong_csr():
    W = sp.csr_matrix(np.ones((D, K)))
    W.indices[0] = K
    return W


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": [[1.0]]}, "weights must be an array or a CSR matrix, got list"),
        ({"weights": sp.csc_matrix((D, K))}, "weights must be an array or a CSR matrix, got csc_matrix"),
        ({"weights": np.zeros((D, K), np.int64)}, "weights must be float32 or float64 .* got ndarray of int64"),
        ({"weights": np.zeros((0, K))}, r"both at least 1, got ndarray of float64 and shape \(0, 11\)"),
        ({"weights": np.zeros(K)}, r"of shape \(n_features, n_outputs\)"),
        ({"weights": np.zeros((K, D)).T}, "weights of a feature contiguous"),
        ({"weights": wrong_csr()}, "valid CSR matrix: indices run from 0 to 11, expected 0 to 10"),
        ({"intercept": np.zeros(K, np.float32)}, r"intercept must be an array of float64 and shape \(11,\)"),
        ({"intercept": np.zeros(K + 1)}, r"got ndarray of float64 and shape \(12,\)"),
        ({"intercept": 0.0}, "intercept must be an array of float64"),
        ({"classes": np.arange(K - 1)}, "must be an array of 11 labels, got ndarray of int64"),
        ({"classes": list(range(K))}, "must be an array of 11 labels"),
        ({"classes": None}, "must be an array of 11 labels, got None"),
        ({"task": "ranking"}, "task must be one of 'multiclass', .* got 'ranking'"),
        ({"task": "binary"}, "weights of a binary model must have one column, got 11"),
        ({"task": "regression"}, "classes of a regression model must be None"),
        ({"link": "probit"}, "link of a multiclass model must be one of .* got 'probit'"),
        ({"task": "multilabel", "link": "softmax"}, "link of a multilabel model must be one of"),
        ({"feature_names": np.array(["a"])}, "feature_names must be an array of 7 strings"),
        ({"feature_names": np.arange(D)}, "feature_names must be an array of 7 strings"),
        ({"parameters": [1]}, "parameters must be a dict, got list"),
        ({"record": {"f": lambda: 0}}, "record must contain only .* for JSON: got function"),
        ({"vectorizer": {"a": 1}}, r"vectorizer must be a tuple \(dict"),
        ({"vectorizer": ({}, {"a": [1]})}, r"vectorizer\[1\] must map printable names to arrays"),
        ({"vectorizer": (None, {})}, "vectorizer must be a dict, got NoneType"),
        ({"library_version": 1}, "library_version must be a string, got 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(rng, changes, message):
    model = model_of(rng)
    fields = {name: getattr(model, name) for name in ("weights", "intercept", "classes", "task", "link")}
    with pytest.raises(ValueError, match=message):
        LinearModel(**{**fields, **changes})

"""The model predicts what NumPy predicts, whatever holds the weights and the rows, with any number of threads."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from manyclass.model import LinearModel

D, K = 7, 11


def weights_of(rng, d, k, dtype, layout):
    """Small multiples of 1/4, half of them zero: sums are exact in float32, and scores are often equal."""
    W = rng.integers(-4, 5, (d, k)) / 4 * (rng.random((d, k)) < 0.5)
    W = W.astype(dtype)
    return sp.csr_matrix(W) if layout == "sparse" else W


def model_of(rng, dtype=np.float64, layout="dense", *, d=D, k=K, task="multiclass", link="identity", **more):
    classes = None if task == "regression" else np.array([f"class {c}" for c in range(2 if task == "binary" else k)])
    intercept = (rng.integers(-2, 3, k) / 4).astype(dtype)
    return LinearModel(weights_of(rng, d, k, dtype, layout), intercept, classes, task, link, **more)


def rows_of(rng, n, d=D, dtype=np.float64):
    X = rng.integers(-4, 5, (n, d)) / 4 * (rng.random((n, d)) < 0.6)
    X[n // 2] = 0
    return X.astype(dtype)


def dense(weights):
    return weights.toarray() if sp.issparse(weights) else weights


def ranking(scores):
    """Column numbers, best first, ties by number: the definition."""
    return np.argsort(-scores, axis=1, kind="stable")


def labels_of(classes, columns):
    return np.array([[classes[c] for c in row] for row in columns])


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=["dense", "sparse"])
def layout(request):
    return request.param


# --- the laws ---------------------------------------------------------------------------------------------------


def test_scores_and_ranking(rng, view, layout, dtype):
    model = model_of(rng, dtype, layout)
    X = rows_of(rng, 40, dtype=dtype)
    held = view(X)
    expected = X @ dense(model.weights) + model.intercept
    scores = model.scores(held)
    assert scores.dtype == dtype
    np.testing.assert_array_equal(scores, expected)  # exact numbers: no rounding
    order = ranking(expected)
    for k in (1, 2, K - 1, K):
        labels, best = model.topk(held, k)
        assert best.dtype == dtype
        np.testing.assert_array_equal(labels, labels_of(model.classes, order[:, :k]))
        np.testing.assert_array_equal(best, np.take_along_axis(expected, order[:, :k], axis=1))
    np.testing.assert_array_equal(model.predict(held), model.classes[order[:, 0]])


@pytest.mark.parametrize(
    ("form", "x_dtype", "w_dtype", "expected"),
    [
        (sp.csr_matrix, np.float32, np.float64, np.float64),
        (np.asarray, np.float64, np.float32, np.float64),
        (sp.csr_matrix, np.int64, np.float32, np.float64),
        (np.asarray, np.uint8, np.float32, np.float32),
        (sp.csr_matrix, np.bool_, np.float32, np.float32),
    ],
)
def test_type_of_the_scores(rng, form, x_dtype, w_dtype, expected):
    X = rng.integers(0, 3, (9, D)).astype(x_dtype)
    model = model_of(rng, w_dtype)
    scores = model.scores(form(X))
    assert scores.dtype == expected
    np.testing.assert_array_equal(scores, X.astype(np.float64) @ model.weights + model.intercept)


def test_rounding_is_that_of_the_result_type(rng, dtype):
    W = rng.standard_normal((300, 40)).astype(dtype)
    X = rng.standard_normal((50, 300)).astype(dtype)
    model = LinearModel(W, np.zeros(40, dtype), None, "regression")
    expected = X.astype(np.float64) @ W.astype(np.float64)
    bound = 300 * np.finfo(dtype).eps * (np.abs(X) @ np.abs(W))
    for held in (X, sp.csr_matrix(X)):
        assert np.all(np.abs(model.scores(held) - expected) < bound)


@given(data=st.data())
def test_ranking_of_any_scores(data):
    """Ties, infinite and NaN scores, from one row of weights: NaN ranks last, then the lower number first."""
    k_all = data.draw(st.integers(1, 40))
    values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan])
    W = np.array([data.draw(st.lists(values, min_size=k_all, max_size=k_all))])
    model = LinearModel(W, np.zeros(k_all), np.arange(k_all), "multiclass")
    k = data.draw(st.integers(1, k_all))
    labels, scores = model.topk(np.ones((1, 1)), k)
    order = ranking(W)[:, :k]
    np.testing.assert_array_equal(labels, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(W, order, axis=1))


@pytest.mark.parametrize("k_all", [1, 2047, 2048, 2049, 5000])
def test_classes_beyond_a_tile(rng, layout, k_all):
    model = model_of(rng, np.float32, layout, k=k_all)
    X = rows_of(rng, 37, dtype=np.float32)
    expected = X @ dense(model.weights) + model.intercept
    np.testing.assert_array_equal(model.scores(X), expected)
    k = min(k_all, 300)
    labels, best = model.topk(sp.csr_matrix(X), k)
    np.testing.assert_array_equal(labels, model.classes[ranking(expected)[:, :k]])
    np.testing.assert_array_equal(best, -np.sort(-expected, axis=1)[:, :k])


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 63, 64, 65, 130])
def test_features_in_groups_and_beyond(rng, layout, d):
    model = model_of(rng, d=d, layout=layout)
    X = rows_of(rng, 20, d)
    for held in (X, np.asfortranarray(X), sp.csr_matrix(X)):
        np.testing.assert_array_equal(model.scores(held), X @ dense(model.weights) + model.intercept)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "binary"])
def test_threads_change_nothing(layout, task):
    rng = np.random.default_rng(3)
    k = 1 if task == "binary" else 6
    W = rng.standard_normal((20, k))
    W = sp.csr_matrix(W * (rng.random(W.shape) < 0.5)) if layout == "sparse" else W
    model = LinearModel(W, rng.standard_normal(k), np.arange(max(k, 2)), task, "sigmoid")
    X = rng.standard_normal((2501, 20))
    for held in (X, sp.csr_matrix(X)):
        for predict in (
            model.scores,
            model.decision_function,
            model.probabilities,
            lambda X, n_jobs: model.topk(X, 2, n_jobs)[0],
            lambda X, n_jobs: model.topk(X, 2, n_jobs)[1],
            lambda X, n_jobs: dense(model.predict(X, n_jobs)),
        ):
            one = predict(held, n_jobs=1)
            for n_jobs in (None, 2, 3, -1):
                np.testing.assert_array_equal(predict(held, n_jobs=n_jobs), one)


def test_scores_and_ranking_agree_to_the_last_bit_and_rows_do_not_depend_on_each_other(layout, dtype):
    rng = np.random.default_rng(4)
    W = rng.standard_normal((50, 33)).astype(dtype)
    model = LinearModel(
        sp.csr_matrix(W) if layout == "sparse" else W,
        rng.standard_normal(33).astype(dtype),
        np.arange(33),
        "multiclass",
    )
    X = rng.standard_normal((60, 50)).astype(dtype)
    for held in (X, sp.csr_matrix(X)):
        scores = model.scores(held)
        labels, best = model.topk(held, 33)
        np.testing.assert_array_equal(np.take_along_axis(scores, labels, axis=1), best)
        np.testing.assert_array_equal(np.vstack([model.scores(held[i : i + 1]) for i in range(60)]), scores)


def test_unsorted_and_duplicate_entries(rng, layout):
    model = model_of(rng, layout=layout)
    X = sp.csr_matrix((np.array([1.0, 2.0, 0.5, 4.0, -1.0]), np.array([5, 0, 5, 3, 3]), np.array([0, 3, 3, 5])), (3, D))
    kept = X.copy()
    np.testing.assert_array_equal(model.scores(X), X.toarray() @ dense(model.weights) + model.intercept)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(kept, part))
    double = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([4, 1, 4]), np.array([0, 3])), (1, 5))
    model = LinearModel(double, np.zeros(5), np.arange(5), "multiclass")
    np.testing.assert_array_equal(model.scores(np.ones((1, 1))), [[0, 2, 0, 0, 4]])


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_both_kinds_of_sparse_matrices_and_wide_indices(rng, kind):
    W = kind(weights_of(rng, D, K, np.float64, "dense"))
    W.indices, W.indptr = W.indices.astype(np.int64), W.indptr.astype(np.int64)
    model = LinearModel(W, np.zeros(K), np.arange(K), "multiclass")
    X = rows_of(rng, 10)
    np.testing.assert_array_equal(model.scores(kind(X)), X @ W.toarray())


def test_empty_input(rng, layout):
    model = model_of(rng, layout=layout)
    for X in (np.zeros((0, D)), sp.csr_matrix((0, D))):
        assert model.scores(X).shape == (0, K)
        assert model.topk(X, 3)[0].shape == (0, 3)
        assert model.predict(X).shape == (0,)
        assert model_of(rng, task="multilabel").predict(X).shape == (0, K)
    empty = sp.csr_matrix((4, D))
    np.testing.assert_array_equal(model.scores(empty), np.tile(model.intercept, (4, 1)))


def test_two_hundred_thousand_classes_in_little_memory(layout):
    rng = np.random.default_rng(5)
    n, d, k_all = 64, 6, 200_000
    W = sp.random(d, k_all, 0.2, "csr", np.float32, rng) if layout == "sparse" else None
    W = rng.standard_normal((d, k_all), np.float32) if W is None else W
    model = LinearModel(W, np.zeros(k_all, np.float32), np.arange(k_all), "multiclass")
    X = sp.random(n, d, 0.5, "csr", np.float32, rng)
    model.topk(X[:1], 5)  # compiled, if need be, before the count
    tracemalloc.start()
    labels, scores = model.topk(X, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * k_all  # bytes: the scores of two rows, where those of all would take 4 * n * k_all
    expected = model.scores(X)
    np.testing.assert_array_equal(labels, ranking(expected)[:, :5])
    np.testing.assert_array_equal(scores, np.take_along_axis(expected, labels, axis=1))


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


def test_multilabel_with_more_classes_than_fit_a_buffer():
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


# --- forms ---------------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="number of an output, 0 to 1"):
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


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, D + 1)), f"X has {D + 1} features, and this model was fitted with {D}: give the columns"),
        (sp.csr_matrix((2, D - 1)), f"X has {D - 1} features, and this model was fitted with {D}"),
        (sp.csc_matrix((2, D)), "got a csc matrix: pass X.tocsr()"),
        ([[0.0] * D], "got list: pass np.asarray"),
        (np.zeros(D), r"two dimensions, got shape \(7,\): for one row pass"),
        (np.zeros((2, D), complex), "got complex128: pass X.astype"),
        (np.zeros((2, D), object), "got object: pass X.astype"),
        (np.zeros((2, D), np.float16), "got float16: pass X.astype"),
        (np.zeros((2, D), np.longdouble), "pass X.astype"),
        (np.zeros((2, D), np.dtype(np.float64).newbyteorder()), "native byte order"),
    ],
)
def test_rows_of_another_kind_are_refused(rng, X, message):
    model = model_of(rng)
    for call in (model.scores, model.predict, lambda X: model.topk(X, 2), model_of(rng, task="multilabel").predict):
        with pytest.raises(ValueError, match=message):
            call(X)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csr_matrix])
def test_rows_that_are_not_finite_are_refused(rng, form, value):
    X = rows_of(rng, 3000)
    X[2345, 3] = value
    X[2999, 0] = value
    for model in (model_of(rng), model_of(rng, task="multilabel")):
        for n_jobs in (1, 2):
            with pytest.raises(ValueError, match="X has NaN or infinity in row 2345"):
                model.predict(form(X), n_jobs=n_jobs)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("indices", D, "column index that is out of range in row 1"),
        ("indices", -1, "column index that is out of range in row 1"),
        ("indptr", 10**6, "row pointers that do not fit its arrays in row 1"),
        ("indptr", -5, "row pointers that do not fit its arrays in row 1"),
    ],
)
def test_a_damaged_matrix_is_refused_and_not_read(rng, part, value, message):
    X = sp.csr_matrix(np.ones((3, D)))
    getattr(X, part)[{"indices": D, "indptr": 2}[part]] = value
    with pytest.raises(ValueError, match=message):
        model_of(rng).scores(X)


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
        ({"weights": np.zeros((0, K))}, r"neither of them 0, got ndarray of float64 and shape \(0, 11\)"),
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
        ({"record": {"f": lambda: 0}}, "record must hold what JSON can.*function is not one of them"),
        ({"vectorizer": {"a": 1}}, "vectorizer must be a pair"),
        ({"vectorizer": ({}, {"a": [1]})}, "vectorizer must name its arrays"),
        ({"vectorizer": (None, {})}, "vectorizer must be a dict, got NoneType"),
        ({"library_version": 1}, "library_version must be a string, got 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(rng, changes, message):
    model = model_of(rng)
    fields = {name: getattr(model, name) for name in ("weights", "intercept", "classes", "task", "link")}
    with pytest.raises(ValueError, match=message):
        LinearModel(**{**fields, **changes})

"""Scores and rankings are NumPy's, whatever holds the weights and the rows, with any number of threads."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from manyclass.models.linear import LinearModel
from models import D, K, dense, labels_of, model_of, ranking, rows_of, weights_of


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=["dense", "sparse"])
def layout(request):
    return request.param


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


PATHS = {
    "predict": lambda model, X, other: model.predict(X),
    "probabilities of the best": lambda model, X, other: model.topk_probabilities(X, 5),
    "shared candidates": lambda model, X, other: model.topk(X, 5, candidates=other[0]),
    "candidates of each row": lambda model, X, other: model.topk(X, 5, candidates=other),
    "an index": lambda model, X, other: model.topk(X, 5, index=model.build_index()),
}


@pytest.mark.parametrize("path", PATHS)
def test_no_path_of_predictions_holds_all_scores(layout, path):
    rng = np.random.default_rng(6)
    n, d, k_all = 2000, 8, 10_000
    W = rng.standard_normal((d, k_all), np.float32)
    weights = sp.csr_matrix(W) if layout == "sparse" else W
    model = LinearModel(weights, np.zeros(k_all, np.float32), np.arange(k_all), "multiclass", "softmax")
    X, other = sp.csr_matrix(rng.standard_normal((n, d), np.float32)), rng.integers(0, k_all, (n, 20))
    other[:, :5] = np.arange(5)
    PATHS[path](replace(model), X[:64], other[:64])  # compiled, if need be, before the count
    tracemalloc.start()
    PATHS[path](model, X, other)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.1 * 4 * n * k_all


def test_two_hundred_thousand_classes_in_little_memory(layout):
    rng = np.random.default_rng(5)
    n, d, k_all = 64, 6, 200_000
    W = sp.random(d, k_all, 0.2, "csr", np.float32, rng) if layout == "sparse" else None
    W = rng.standard_normal((d, k_all), np.float32) if W is None else W
    model = LinearModel(W, np.zeros(k_all, np.float32), np.arange(k_all), "multiclass")
    X = sp.random(n, d, 0.5, "csr", np.float32, rng)
    replace(model).topk(X, 5)  # compiled, if need be, before the count
    tracemalloc.start()
    labels, scores = model.topk(X, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * k_all  # bytes: the scores of two rows, where those of all would take 4 * n * k_all
    expected = model.scores(X)
    np.testing.assert_array_equal(labels, ranking(expected)[:, :5])
    np.testing.assert_array_equal(scores, np.take_along_axis(expected, labels, axis=1))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, D + 1)), f"X has {D + 1} features, and this model was fitted with {D}: pass the columns"),
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


def test_finite_rows_whose_sum_overflows_are_taken(rng):
    model = model_of(rng).sparsify(100)  # no weight is left to overflow as well
    X = np.full((2, D), 1e308)
    for held in (X, sp.csr_matrix(X)):
        np.testing.assert_array_equal(model.scores(held), np.tile(model.intercept, (2, 1)))
    X[1, 2] = np.inf
    for held in (X, sp.csr_matrix(X)):
        with pytest.raises(ValueError, match="in row 1"):
            model.scores(held)


@pytest.mark.parametrize("stored", [[2, 0, 0, 1, 0, 3], [0, 0, 3, 1, 2, 0]])
def test_the_row_is_named_where_rows_are_empty(rng, stored):
    indptr = np.concatenate([[0], np.cumsum(stored)])
    for position in range(6):
        data = np.ones(6)
        data[position] = np.nan
        X = sp.csr_matrix((data, np.arange(6) % D, indptr), shape=(6, D))
        row = np.repeat(np.arange(6), stored)[position]
        with pytest.raises(ValueError, match=f"NaN or infinity in row {row}:"):
            model_of(rng).predict(X)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("indices", D, "column indices that are out of range: the CSR matrix is damaged"),
        ("indices", -1, "column indices that are out of range"),
        ("indptr", 10**6, "row pointers that decrease or are out of range"),
        ("indptr", -5, "row pointers that decrease or are out of range"),
    ],
)
def test_a_damaged_matrix_is_refused_and_not_read(rng, part, value, message):
    X = sp.csr_matrix(np.ones((3, D)))
    getattr(X, part)[{"indices": D, "indptr": 2}[part]] = value
    with pytest.raises(ValueError, match=message):
        model_of(rng).scores(X)

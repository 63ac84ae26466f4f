"""Metrics: equal to scikit-learn where it has them and to their definitions where it has not, and frugal."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import metrics as reference

from manyclass.metrics import (
    accuracy,
    class_counts,
    f1,
    inverse_propensity,
    log_loss,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    rank_distribution,
    report,
)

AVERAGES = ["macro", "micro", "weighted", None]
NAN = float("nan")

# Labels 0 .. 5 as they may come.
KINDS = {
    "int": lambda y: y,
    "int32": lambda y: y.astype(np.int32),
    "uint8": lambda y: y.astype(np.uint8),
    "wide": lambda y: (y - 2) * 10**17,
    "bool": lambda y: y > 2,
    "float": lambda y: y.astype(np.float64),
    "str": lambda y: np.array([f"class {v}" for v in y]),
    "object": lambda y: np.array([f"class {v}" for v in y], dtype=object),
    "list": lambda y: [f"class {v}" for v in y],
}


@st.composite
def labelled_rows(draw):
    """Two vectors of labels, and weights that are sometimes zero."""
    n = draw(st.integers(1, 30))
    vector = st.lists(st.integers(0, 5), min_size=n, max_size=n)
    y_true, y_pred = np.array(draw(vector)), np.array(draw(vector))
    weights = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=n, max_size=n)))
    weights[draw(st.integers(0, n - 1))] = 1.0
    return y_true, y_pred, weights


@st.composite
def indicators(draw):
    """Two 0/1 matrices of one shape, with empty rows and columns."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(2, 6))
    cells = st.lists(st.integers(0, 1), min_size=n * k, max_size=n * k)
    return (np.array(draw(cells)).reshape(n, k), np.array(draw(cells)).reshape(n, k))


def same(ours, theirs, rel=0.0):
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=rel, atol=0.0, equal_nan=True)


# -- one prediction per row ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(rows=labelled_rows(), average=st.sampled_from(AVERAGES))
def test_labels_equal_scikit_learn(kind, rows, average):
    y_true, y_pred = KINDS[kind](rows[0]), KINDS[kind](rows[1])
    same(accuracy(y_true, y_pred), reference.accuracy_score(y_true, y_pred))
    same(f1(y_true, y_pred, average=average), theirs_f1(y_true, y_pred, average=average))


@pytest.mark.parametrize("average", AVERAGES)
@settings(max_examples=60, deadline=None)
@given(
    rows=labelled_rows(),
    labels=st.lists(st.integers(-1, 8), min_size=1, max_size=5, unique=True),
    zero_division=st.sampled_from([0.0, 1.0, NAN]),
)
def test_label_subsets_and_weights_equal_scikit_learn(average, rows, labels, zero_division):
    y_true, y_pred, weights = rows
    options = {"average": average, "zero_division": zero_division, "labels": labels}
    same(f1(y_true, y_pred, **options), theirs_f1(y_true, y_pred, **options))
    options["sample_weight"] = weights
    same(f1(y_true, y_pred, **options), theirs_f1(y_true, y_pred, **options), rel=1e-12)
    del options["labels"]
    same(f1(y_true, y_pred, **options), theirs_f1(y_true, y_pred, **options), rel=1e-12)
    same(
        accuracy(y_true, y_pred, sample_weight=weights),
        reference.accuracy_score(y_true, y_pred, sample_weight=weights),
        rel=1e-12,
    )


def theirs_f1(y_true, y_pred, *, average, zero_division=0.0, **options):
    return reference.f1_score(y_true, y_pred, average=average, zero_division=zero_division, **options)


AS_MATRIX = {
    "dense": np.asarray,
    "bool": lambda y: np.asarray(y, dtype=bool),
    "float32": lambda y: np.asarray(y, dtype=np.float32),
    "lists": lambda y: y.tolist(),
    "csr": sparse.csr_matrix,
    "csc array": sparse.csc_array,
    "coo": sparse.coo_matrix,
}


@pytest.mark.parametrize("form", AS_MATRIX)
@settings(max_examples=30, deadline=None)
@given(pair=indicators(), average=st.sampled_from(AVERAGES), zero_division=st.sampled_from([0.0, 1.0, NAN]))
def test_indicators_equal_scikit_learn(form, pair, average, zero_division):
    y_true, y_pred = pair
    ours = AS_MATRIX[form](y_true), AS_MATRIX[form](y_pred)
    options = {"average": average, "zero_division": zero_division}
    same(accuracy(*ours), reference.accuracy_score(y_true, y_pred))
    same(f1(*ours, **options), theirs_f1(y_true, y_pred, **options))
    labels = [y_true.shape[1] - 1, 0]
    same(f1(*ours, labels=labels, **options), theirs_f1(y_true, y_pred, labels=labels, **options))
    options["sample_weight"] = np.arange(1.0, len(y_true) + 1)
    same(f1(*ours, **options), theirs_f1(y_true, y_pred, **options), rel=1e-12)


def test_indicator_with_stored_zeros_duplicates_and_unsorted_read_only_indices():
    clean = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0]])
    # Row 0 out of order, row 1 with a stored zero, row 2 with one that duplicates another.
    data = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    indices, indptr = np.array([2, 0, 2, 0, 1, 1]), np.array([0, 2, 4, 6])
    for array in (data, indices, indptr):
        array.setflags(write=False)
    untidy = sparse.csr_matrix((data, indices, indptr), shape=(3, 3))
    assert accuracy(untidy, clean) == 1.0
    assert f1(untidy, clean) == reference.f1_score(clean, clean, average="macro", zero_division=0)
    assert untidy.nnz == 6
    assert untidy.indices.tolist() == [2, 0, 2, 0, 1, 1]


@pytest.mark.parametrize("integers", [True, False])
def test_pandas_columns(integers):
    y_true = pd.Series([1, 2, 3, 1] if integers else ["a", "b", "c", "a"])
    y_pred = pd.Series([1, 2, 1, 1] if integers else ["a", "b", "a", "a"])
    for convert in (lambda s: s, lambda s: s.astype("category")):
        assert accuracy(convert(y_true), convert(y_pred)) == 0.75
        same(f1(convert(y_true), convert(y_pred)), reference.f1_score(y_true, y_pred, average="macro"))


def test_objects_of_python_integers_and_fixed_width_beside_object_strings():
    assert accuracy(np.array([1, 2, 3], dtype=object), [1, 2, 4]) == pytest.approx(2 / 3)
    assert accuracy(np.array(["a", "bb"]), np.array(["a", "b"], dtype=object)) == 0.5
    assert f1(np.array(["a", "bb"]), np.array(["a", "b"], dtype=object), average=None).tolist() == [1, 0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_log_loss_equals_scikit_learn_and_chunks_add_up(dtype, weighted):
    rng = np.random.default_rng(3)
    n, k = 60, 5
    proba = rng.dirichlet(np.ones(k) * 0.2, n).astype(dtype)
    proba[0] = [1, 0, 0, 0, 0]
    proba /= proba.sum(axis=1, keepdims=True)
    names = np.array(["e", "a", "d", "b", "c"])  # not sorted: scikit-learn wants the columns in order of name
    y = names[rng.integers(0, k, n)]
    y[:2] = ["a", "e"]
    weights = rng.random(n) if weighted else None
    ours = log_loss(y, proba, classes=names, sample_weight=weights)
    theirs = reference.log_loss(y, proba[:, np.argsort(names)], labels=np.sort(names), sample_weight=weights)
    assert ours == pytest.approx(theirs, rel=1e-6 if dtype == np.float32 else 1e-12)
    parts = [slice(0, 7), slice(7, 60)]
    total = sum(
        log_loss(
            y[part],
            proba[part],
            classes=names,
            normalize=False,
            sample_weight=None if weights is None else weights[part],
        )
        for part in parts
    )
    assert total / (n if weights is None else weights.sum()) == pytest.approx(ours, rel=1e-12)


# -- the report ----------------------------------------------------------------------------------------------


def test_report_agrees_with_the_single_metrics():
    rng = np.random.default_rng(5)
    n, n_classes = 200, 9
    names = np.array([f"n{c}" for c in range(n_classes)])
    y = names[rng.zipf(1.5, n) % n_classes]
    topk = names[np.argsort(rng.random((n, n_classes)), axis=1)[:, :4]]
    counts = rng.integers(1, 40, n_classes - 1)  # the last class was never seen in training
    found = report(y, topk=topk, ks=(1, 3, 5), classes=names[:-1], train_counts=counts)
    assert found["n_samples"] == n
    assert found["accuracy"] == accuracy(y, topk[:, 0]) == found["recall@1"] == found["precision@1"]
    for average in ("macro", "micro", "weighted"):
        assert found[f"f1_{average}"] == f1(y, topk[:, 0], average=average)
    worth = inverse_propensity(np.append(counts, 0), counts.sum())
    for k in (1, 3):
        assert found[f"precision@{k}"] == precision_at_k(y, topk, k)
        assert found[f"ndcg@{k}"] == ndcg_at_k(y, topk, k)
        assert found[f"psp@{k}"] == pytest.approx(psp_at_k(y, topk, k, worth, classes=names))
        assert found[f"psndcg@{k}"] == pytest.approx(psndcg_at_k(y, topk, k, worth, classes=names))
    ranks = rank_distribution(y, topk=topk)
    assert found["recall@3"] == pytest.approx(ranks.recall_at(3))
    assert (found["mrr"], found["median_rank"]) == (ranks.mean_reciprocal_rank, ranks.median)
    assert not any("5" in name for name in found)

    weights = rng.random(n)
    weighted = report(y, topk=topk, ks=[3], sample_weight=weights)
    assert weighted["ndcg@3"] == ndcg_at_k(y, topk, 3, sample_weight=weights)
    assert "mrr" not in weighted


def test_report_of_indicators():
    y_true, y_pred = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[1, 0, 0], [0, 1, 0]])
    topk = [[0, 1], [1, 0]]
    found = report(sparse.csr_matrix(y_true), y_pred, topk, ks=[2], train_counts=[5, 9, 1], n_train=12)
    assert found["accuracy"] == 0.5
    assert found["f1_macro"] == f1(y_true, y_pred)
    assert found["psp@2"] == psp_at_k(y_true, topk, 2, inverse_propensity([5, 9, 1], 12))
    assert "recall@2" not in found
    assert set(report(y_true, topk=topk, ks=[1])) == {"n_samples", "precision@1", "ndcg@1"}


# -- frugality -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [False, True])
def test_a_hundred_thousand_classes_and_a_million_rows_take_little_memory(text):
    rng = np.random.default_rng(0)
    n, n_classes, k = 1_000_000, 100_000, 3
    y = rng.integers(0, n_classes, n, dtype=np.int32)
    lists = np.stack([np.where(rng.random(n) < 0.5, y, 0), (y + 1) % n_classes, (y + 2) % n_classes], axis=1)
    worth = inverse_propensity(class_counts(y), n)
    truth, guess = y, lists[:, 0]
    if text:
        truth, guess = truth.astype("U6"), guess.astype("U6")
    tracemalloc.start()
    try:
        score = f1(truth, guess)
        right = accuracy(truth, guess)
        judged = tracemalloc.get_traced_memory()[1]
        ranked = [precision_at_k(y, lists, k), psndcg_at_k(y, lists, k, worth)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Ten 8-byte numbers a row, and twenty a listed class: an n x K table of bits would be 12.5 GB.
    assert judged < 10 * 8 * n
    assert peak < 20 * 8 * n * k
    assert right == pytest.approx(0.5, abs=0.01)
    assert 0 < score < 1
    assert ranked == pytest.approx([0.5 / k, 0.5], abs=0.02)


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy([], []), "y_true is empty"),
        (lambda: accuracy([1, 2], [1]), "y_true has 2 rows but y_pred has 1"),
        (lambda: accuracy([1, 2], ["1", "2"]), "y_true holds integers but y_pred holds strings"),
        (lambda: accuracy([1, 2], [[1, 0], [0, 1]]), "y_pred is a 0/1 matrix; both must be of one sort"),
        (lambda: accuracy([[1, 0]], [[1, 0, 0]]), "2 columns but y_pred has 3"),
        (lambda: accuracy([[2, 0]], [[1, 0]]), "y_true is a matrix that holds 2"),
        (lambda: accuracy([["a"], ["b"]], [["a"], ["b"]]), "vector of shape"),
        (lambda: accuracy([[1], [1, 0]], [[1], [0]]), "rows of different lengths"),
        (lambda: accuracy(np.zeros((0, 3)), np.zeros((0, 3))), "neither of them 0"),
        (lambda: accuracy([0.5, 1.0], [1, 1]), "y_true holds 0.5"),
        (lambda: accuracy([1.0, NAN], [1, 1]), "y_true holds nan"),
        (lambda: accuracy(np.array(["a", None], dtype=object), ["a", "b"]), "type NoneType, str"),
        (lambda: accuracy(np.array([1j]), [1]), "dtype complex128"),
        (lambda: accuracy(np.array([2**63 + 5], dtype=np.uint64), [1]), "fit 64 bits"),
        (lambda: accuracy(np.array([2**70], dtype=object), [1]), "fit 64 bits"),
        (lambda: accuracy([1, 2], [1, 2], sample_weight=[1]), "sample_weight has shape"),
        (lambda: accuracy([1, 2], [1, 2], sample_weight=[1, -1]), "none negative"),
        (lambda: accuracy([1, 2], [1, 2], sample_weight=[0, 0]), "not all zero"),
        (lambda: f1([1, 2], [1, 2], average="binary"), "average is 'binary'"),
        (lambda: f1([1, 2], [1, 2], zero_division=0.5), "zero_division is 0.5"),
        (lambda: f1([1, 2], [1, 2], zero_division="warn"), "zero_division is 'warn'"),
        (lambda: f1([1, 2], [1, 2], labels=[1, 1]), "labels names a class twice"),
        (lambda: f1([1, 2], [1, 2], labels=["a"]), "labels holds strings"),
        (lambda: f1([1, 2], [1, 2], labels=[]), "labels is empty"),
        (lambda: f1([[1, 0]], [[1, 0]], labels=[2]), "labels names column 2"),
        (lambda: log_loss([0, 3], [[1, 0], [0, 1]]), "y_true holds 3"),
        (lambda: log_loss(["a"], [[1, 0]]), "pass classes="),
        (lambda: log_loss([0], [[2.0, -1.0]]), "not between 0 and 1"),
        (lambda: log_loss([0], [0.5]), "proba has 1 dimensions"),
        (lambda: log_loss([0, 1], [[0.5, 0.5]]), "proba has 1"),
        (lambda: log_loss(["a"], [[0.5, 0.5]], classes=["a"]), "classes has 1 entries"),
        (lambda: report([0, 1]), "both missing"),
        (lambda: report([0, 1], topk=[[0], [1]], ks=[0]), "ks is"),
        (lambda: report([[1, 0], [0, 1]], topk=[[0], [1]], train_counts=[1, 2]), "n_train is missing"),
        (lambda: report([0, 1], topk=[[0], [1]], classes=[0], train_counts=[1, 2]), "classes has 1 entries"),
    ],
)
def test_refusals_say_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()

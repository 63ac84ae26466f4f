"""Metrics: equal to scikit-learn where it has them and to their definitions where it has not, and frugal."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from sklearn import metrics as reference

from manyclass.metrics import (
    class_counts,
    inverse_propensity,
    log_loss,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    rank_distribution,
    report,
)

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
def labeled_rows(draw):
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
@given(rows=labeled_rows())
def test_a_report_of_labels_equals_scikit_learn(kind, rows):
    y_true, y_pred, weights = KINDS[kind](rows[0]), KINDS[kind](rows[1]), rows[2]
    for options in ({}, {"sample_weight": weights}):
        found = report(y_true, y_pred, **options)
        same(found["accuracy"], reference.accuracy_score(y_true, y_pred, **options), rel=1e-12)
        for average in ("macro", "micro", "weighted"):
            theirs = reference.f1_score(y_true, y_pred, average=average, zero_division=0, **options)
            same(found[f"f1_{average}"], theirs, rel=1e-12)


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
@given(pair=indicators())
def test_a_report_of_indicators_equals_scikit_learn(form, pair):
    y_true, y_pred = pair
    found = report(AS_MATRIX[form](y_true), AS_MATRIX[form](y_pred))
    same(found["accuracy"], reference.accuracy_score(y_true, y_pred))
    for average in ("macro", "micro", "weighted"):
        same(found[f"f1_{average}"], reference.f1_score(y_true, y_pred, average=average, zero_division=0), rel=1e-12)


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
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(y, topk[:, 0]))
    assert found["accuracy"] == found["recall@1"] == found["precision@1"]
    for average in ("macro", "micro", "weighted"):
        theirs = reference.f1_score(y, topk[:, 0], average=average, zero_division=0)
        assert found[f"f1_{average}"] == pytest.approx(theirs)
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


def test_report_of_few_rows_with_many_classes_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert report(np.arange(30), np.arange(30))["f1_macro"] == 1


def test_report_of_indicators():
    y_true, y_pred = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[1, 0, 0], [0, 1, 0]])
    topk = [[0, 1], [1, 0]]
    found = report(sparse.csr_matrix(y_true), y_pred, topk, ks=[2], train_counts=[5, 9, 1], n_train=12)
    assert found["accuracy"] == 0.5
    assert found["f1_macro"] == reference.f1_score(y_true, y_pred, average="macro", zero_division=0)
    assert found["psp@2"] == psp_at_k(y_true, topk, 2, inverse_propensity([5, 9, 1], 12))
    assert "recall@2" not in found
    assert set(report(y_true, topk=topk, ks=[1])) == {"n_samples", "precision@1", "ndcg@1"}


# -- frugality -----------------------------------------------------------------------------------------------


def test_a_hundred_thousand_classes_and_a_million_rows_take_little_memory():
    rng = np.random.default_rng(0)
    n, n_classes, k = 1_000_000, 100_000, 3
    y = rng.integers(0, n_classes, n, dtype=np.int32)
    lists = np.stack([np.where(rng.random(n) < 0.5, y, 0), (y + 1) % n_classes, (y + 2) % n_classes], axis=1)
    worth = inverse_propensity(class_counts(y), n)
    tracemalloc.start()
    try:
        ranked = [precision_at_k(y, lists, k), psndcg_at_k(y, lists, k, worth)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Twenty 8-byte numbers a listed class: an n x K table of bits would be 12.5 GB.
    assert peak < 20 * 8 * n * k
    assert ranked == pytest.approx([0.5 / k, 0.5], abs=0.02)


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: report([], []), "y_true is empty"),
        (lambda: report([1, 2], [1]), "y_true has 2 rows but y_pred has 1"),
        (lambda: report([1, 2], ["1", "2"]), "y_true has integers but y_pred has strings"),
        (lambda: report([1, 2], [[1, 0], [0, 1]]), "y_pred is a 0/1 matrix; both must have one format"),
        (lambda: report([[1, 0]], [[1, 0, 0]]), "2 columns but y_pred has 3"),
        (lambda: report([[2, 0]], [[1, 0]]), "y_true is a matrix with the value 2"),
        (lambda: report([["a"], ["b"]], [["a"], ["b"]]), "vector of shape"),
        (lambda: report([[1], [1, 0]], [[1], [0]]), "rows of different lengths"),
        (lambda: report(np.zeros((0, 3)), np.zeros((0, 3))), "both at least 1"),
        (lambda: report([0.5, 1.0], [1, 1]), "y_true has the label 0.5"),
        (lambda: report([1.0, NAN], [1, 1]), "y_true has the label nan"),
        (lambda: report(np.array(["a", None], dtype=object), ["a", "b"]), "type NoneType, str"),
        (lambda: report(np.array([1j]), [1]), "dtype complex128"),
        (lambda: report(np.array([2**63 + 5], dtype=np.uint64), [1]), "fit a signed 64-bit integer"),
        (lambda: report(np.array([2**70], dtype=object), [1]), "fit a signed 64-bit integer"),
        (lambda: report([1, 2], [1, 2], sample_weight=[1]), "sample_weight has shape"),
        (lambda: report([1, 2], [1, 2], sample_weight=[1, -1]), "non-negative"),
        (lambda: report([1, 2], [1, 2], sample_weight=[0, 0]), "not all zero"),
        (lambda: log_loss([0, 3], [[1, 0], [0, 1]]), "y_true has the label 3"),
        (lambda: log_loss(["a"], [[1, 0]]), "pass classes="),
        (lambda: log_loss([0], [[2.0, -1.0]]), "not between 0 and 1"),
        (lambda: log_loss([0], [0.5]), "proba has 1 dimensions"),
        (lambda: log_loss([0, 1], [[0.5, 0.5]]), "proba has 1"),
        (lambda: log_loss(["a"], [[0.5, 0.5]], classes=["a"]), "classes has 1 entries"),
        (lambda: report([0, 1]), "both None"),
        (lambda: report([0, 1], topk=[[0], [1]], ks=[0]), "ks is"),
        (lambda: report([[1, 0], [0, 1]], topk=[[0], [1]], train_counts=[1, 2]), "n_train is None"),
        (lambda: report([0, 1], topk=[[0], [1]], classes=[0], train_counts=[1, 2]), "classes has 1 entries"),
    ],
)
def test_refusals_say_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()

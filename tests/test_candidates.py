"""Rankings among candidates, and the fast ranking of very many classes, against the scores of all classes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from sklearn.datasets import load_iris

from manyclass import LinearClassifier, LinearModel, LinearRegressor, StagedModel, load
from manyclass.mips import ExactSearch, SearchIndex
from manyclass.models import linear
from manyclass.models.splitting import split_model
from manyclass.models.staged import Stage

D, K, N = 12, 40, 9


def weights_of(rng, d=D, k=K, density=0.3):
    return sp.random(d, k, density=density, random_state=rng, dtype=np.float32, format="csr")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One model with dense and sparse weights, sparse ones out of order, in blocks, and staged."""
    rng = np.random.default_rng(0)
    W = sp.csr_matrix(weights_of(rng))
    b = rng.normal(size=K).astype(np.float32)
    classes = rng.permutation([f"c{k}" for k in range(K)])  # not sorted
    shuffled = W.copy()
    for j in range(D):
        part = slice(shuffled.indptr[j], shuffled.indptr[j + 1])
        order = rng.permutation(part.stop - part.start)
        shuffled.data[part], shuffled.indices[part] = shuffled.data[part][order], shuffled.indices[part][order]
    shuffled.has_sorted_indices = False
    dense = LinearModel(W.toarray(), b, classes, "multiclass", "softmax")
    path = tmp_path_factory.mktemp("blocks") / "m"
    split_model(dense, path, block_classes=7)
    return {
        "dense": dense,
        "sparse": LinearModel(W, b, classes, "multiclass", "softmax"),
        "shuffled": LinearModel(shuffled, b, classes, "multiclass", "softmax"),
        "blocks": load(path),
        "staged": StagedModel(((Stage(None, W.toarray(), b),),), D, classes, "multiclass", "softmax"),
    }


@pytest.mark.parametrize("kind", ["dense", "sparse", "shuffled", "blocks", "staged"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_candidates_are_ranked_as_among_all_classes(models, kind, data):
    model = models[kind]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    X = rng.normal(size=(N, D)).astype(np.float32) * (rng.random((N, D)) < 0.5)
    rows = sp.csr_matrix(X) if data.draw(st.booleans()) else X
    k = data.draw(st.integers(1, 4))
    lists = [rng.choice(K, rng.integers(k, K), replace=False) for _ in range(N)]
    form = data.draw(st.sampled_from(["shared", "table", "lists", "indicator"]))
    if form == "shared":
        lists = [lists[0]] * N
        asked = model.classes[np.append(lists[0], lists[0][:1])]  # one twice
    elif form == "table":
        lists = [one[:k] for one in lists]
        asked = model.classes[np.array(lists)]
    elif form == "lists":
        asked = [model.classes[one].tolist() for one in lists]
    else:
        asked = sp.csr_matrix(np.array([np.isin(np.arange(K), one) for one in lists]))
    labels, scores = model.topk(rows, k, candidates=asked, n_jobs=data.draw(st.sampled_from([1, 2])))
    whole = model.scores(rows)
    columns = np.argsort(model.classes)[np.searchsorted(np.sort(model.classes), labels)]
    for i, one in enumerate(lists):
        assert set(columns[i]) <= set(one)
        assert len(set(columns[i])) == k
        np.testing.assert_allclose(scores[i], -np.sort(-whole[i, one])[:k], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scores[i], whole[i, columns[i]], rtol=1e-5, atol=1e-5)


def test_candidates_of_an_estimator_and_of_two_classes():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    model = LinearClassifier(alpha=0.1, random_state=0).fit(X, y)
    assert model.predict_topk(X, 1, candidates=["b"])[0].ravel().tolist() == ["b"] * 60
    two = LinearClassifier(alpha=0.1, random_state=0).fit(X[:40], y[:40])
    labels, scores = two.predict_topk(X, 1, candidates=["a"])
    assert labels.ravel().tolist() == ["a"] * 60
    np.testing.assert_allclose(scores.ravel(), -two.decision_function(X))
    np.testing.assert_array_equal(two.predict_topk(X, 2, candidates=["a", "b"])[0], two.predict_topk(X, 2)[0])
    with pytest.raises(ValueError, match="proba=True gives probabilities among all classes"):
        model.predict_topk(X, 1, proba=True, candidates=["a"])
    with pytest.raises(ValueError, match="leave out candidates or index"):
        model.predict_topk(X, 1, candidates=["a"], index=model.build_index())
    with pytest.raises(ValueError, match="build the index from this model"):
        model.predict_topk(X, 1, index=LinearClassifier(alpha=0.1).fit(X[:, :4], y).build_index())


@pytest.mark.parametrize("kind", ["exact", "lsh", "graph"])
@pytest.mark.parametrize("change", ["fit", "calibrate", "sparsify"])
def test_an_index_of_other_weights_is_refused(kind, change):
    X, y = load_iris(return_X_y=True)
    model = LinearClassifier("multinomial", alpha=0.01, random_state=0).fit(X, y)
    index = model.build_index(kind)
    assert model.predict_topk(X, 1, index=index)[0].shape == (150, 1)
    if change == "fit":
        model.set_params(alpha=0.011).fit(X, y)
    elif change == "calibrate":
        model.calibrate(X, y, bias=True)
    else:
        model.model_ = model.model_.sparsify(0.5)
    with pytest.raises(ValueError, match="index gives other scores than the model"):
        model.predict_topk(X, 1, index=index)
    assert model.predict_topk(X, 1, index=model.build_index(kind))[0].shape == (150, 1)


@pytest.mark.parametrize("kind", ["exact", "graph"])
@pytest.mark.parametrize("layout", ["dense", "sparse weights"])
def test_an_index_has_the_intercept(tmp_path, kind, layout):
    rng = np.random.default_rng(2)
    y = rng.choice(6, 300, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])
    X = rng.normal(size=(300, 5)) + 0.3 * rng.normal(size=(6, 5))[y]
    model = LinearClassifier("multinomial", alpha=0.01, random_state=0).fit(X, y)
    if layout == "sparse weights":
        model.model_, X = model.model_.sparsify(), sp.csr_matrix(X)
    labels, scores = model.predict_topk(X, 3)
    assert not np.array_equal(labels[:, 0], np.asarray(X @ model.coef_.T).argmax(axis=1))
    model.build_index(kind).save(tmp_path / "i")
    found, own = model.predict_topk(X, 3, index=SearchIndex.load(tmp_path / "i"))
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_allclose(own, scores, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"5 features \(and one for the intercept\).*build_index"):
        model.predict_topk(X, 3, index=ExactSearch().build(model.model_.weights))
    with pytest.raises(
        ValueError, match="two classes share one column of weights: use topk, or predict_topk, without an index"
    ):
        LinearClassifier(alpha=0.1).fit(X, y > 0).build_index()


@pytest.mark.parametrize("kind", ["exact", "lsh", "graph"])
@pytest.mark.parametrize("sparse", [False, True])
def test_model_and_index_come_back_from_two_files(tmp_path, kind, sparse):
    """The ranking of a loaded model by a loaded index is that of the estimator by its own."""
    X, y = load_iris(return_X_y=True)
    X, names = (sp.csr_matrix(X) if sparse else X), np.array(["setosa", "versicolor", "virginica"])[y]
    fitted = LinearClassifier("multinomial", alpha=0.01, random_state=0).fit(X, names)
    fitted.save(tmp_path / "m")
    load(tmp_path / "m").build_index(kind).save(tmp_path / "i")
    model, index = load(tmp_path / "m"), SearchIndex.load(tmp_path / "i")
    labels, scores = model.topk(X, 2, index=index)
    found, own = fitted.predict_topk(X, 2, index=fitted.build_index(kind))
    np.testing.assert_array_equal(labels, found)
    np.testing.assert_array_equal(scores, own)
    assert index.nbytes > 0
    other = LinearClassifier("multinomial", alpha=0.02, random_state=0).fit(X, names)
    with pytest.raises(ValueError, match="index gives other scores than the model"):
        other.model_.topk(X, 2, index=index)
    with pytest.raises(ValueError, match="leave out candidates or index"):
        model.topk(X, 1, candidates=["setosa"], index=index)
    numbers = LinearRegressor().fit(X, y).model_
    with pytest.raises(ValueError, match="no classes to rank"):
        numbers.topk(X, 1, index=index)


@pytest.mark.parametrize(
    ("candidates", "k", "message"),
    [
        (["c1", "zebra"], 1, "'zebra', which is none of the 40 classes"),
        ([1, 2], 1, "candidates has labels such as 1 "),
        (["c1", "c1"], 2, "candidates has 1 classes, and k is 2"),
        ([["c1", "c2"]] + [["c1"]] * (N - 1), 2, "candidates has 1 classes for row 1, and k is 2"),
        ([["c1"]], 1, f"lists for 1 rows, and X has {N} rows"),
        (np.full((3, 2), "c1"), 1, r"got shape \(3, 2\)"),
        (sp.csr_matrix((N, K - 1)), 1, "a column for each class"),
        ([], 1, "candidates has 0 classes"),
    ],
)
def test_candidates_that_cannot_be_used_are_refused(models, candidates, k, message):
    with pytest.raises(ValueError, match=message):
        models["sparse"].topk(np.ones((N, D), np.float32), k, candidates=candidates)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_fast_ranking_of_many_classes_is_that_of_all_scores(monkeypatch, dtype):
    """Coarse dense rows for frequent features: the same to the last bit."""
    monkeypatch.setattr(linear, "_MANY", 100)
    monkeypatch.setattr(linear, "_ASKED", 30)
    rng = np.random.default_rng(2)
    d, k, n = 30, 40_000, 20
    held = np.where(np.arange(d) < 4, 9 * k // 10, 200)
    W = sp.vstack(
        [sp.random(1, k, h / k, random_state=rng, dtype=dtype, data_rvs=rng.standard_normal) for h in held],
        format="csr",
    )
    model = LinearModel(sp.csr_matrix(W), np.round(rng.normal(size=k), 1).astype(dtype), np.arange(k), "multiclass")
    X = sp.random(n, d, density=0.3, random_state=rng, dtype=dtype, format="csr")
    X = sp.csr_matrix(X)
    first = model.topk(X, 7)
    assert "_mixed" not in vars(model)
    for _ in range(2):
        found = model.topk(X, 7, n_jobs=2)
        assert (model._mixed.place >= 0).sum() == 4  # the frequent features, in bytes alone
        assert model._mixed.full.nbytes == 0
        assert model._mixed.coarse.nbytes <= (model.weights.data.nbytes + model.weights.indices.nbytes) / 4
        np.testing.assert_array_equal(found[0], first[0])
        np.testing.assert_array_equal(found[1], first[1])
    scores = model.scores(X)
    np.testing.assert_array_equal(first[0], np.argsort(-scores, axis=1, kind="stable")[:, :7])
    copied = pickle.loads(pickle.dumps(model))
    assert "_mixed" not in vars(copied)
    np.testing.assert_array_equal(copied.topk(X, 7)[0], first[0])
    with pytest.raises(ValueError, match="NaN or infinity in row 1"):
        model.topk(sp.csr_matrix(np.where(np.arange(2)[:, None] == 1, np.nan, np.ones((2, d)))), 1)


def test_ready_rows_skip_no_check():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 4)), np.repeat(["a", "b"], 20)
    model = LinearClassifier(alpha=0.1).fit(X, y)
    bad = sp.csr_matrix(X[:2])
    bad.indices = bad.indices.copy()
    bad.indices[0] = 9
    for wrong, message in (
        (X[:, :3], "X has 3 features, but LinearClassifier is expecting 4"),
        (np.where(np.arange(4) == 1, np.inf, X), "infinity"),
        (sp.csr_matrix(np.where(np.arange(4) == 1, np.nan, X)), "NaN"),
        (X[0], "Expected 2D array"),
        (X[:0], "0 sample"),
        (bad, "damaged sparse matrix"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict_topk(wrong, 1)
    np.testing.assert_array_equal(model.predict(X.tolist()), model.predict(X))
    np.testing.assert_array_equal(model.predict(np.full((1, 4), 1e308)), model.predict(np.full((1, 4), 1e3)))

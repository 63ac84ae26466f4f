"""`MemoirClassifier`: scikit-learn's checks, early stopping, streams with new classes, pruning, indexes, files."""

from __future__ import annotations

import pickle
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import LinearModel, MemoirClassifier
from manyclass.datasets import make_many_classes
from manyclass.mips import ExactSearch, SimpleLSH
from manyclass.solvers import memoir as solver

_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "stochastic steps: another order of rows is another point",
    "check_sample_weight_equivalence_on_sparse_data": "stochastic steps: another order of rows is another point",
    "check_class_weight_classifiers": "asks that one class win everywhere, which planes through the origin cannot do",
}


@parametrize_with_checks(
    [MemoirClassifier(max_iter=5), MemoirClassifier(max_iter=5, l1_ratio=1.0)],
    expected_failed_checks=lambda estimator: _FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        check(estimator)


@pytest.fixture(scope="module")
def data():
    X, y = make_many_classes(3000, 800, 60, nnz_per_row=12, random_state=0)
    return X[:2500], y[:2500], X[2500:], y[2500:]


@pytest.fixture(scope="module")
def fitted(data):
    X, y, _, _ = data
    return MemoirClassifier(alpha=1e-5, max_iter=6, random_state=0).fit(X, y)


def test_public_face(data, fitted):
    _, _, X_test, y_test = data
    assert fitted.score(X_test, y_test) > 0.5
    assert fitted.coef_.shape == (60, 800)
    np.testing.assert_array_equal(fitted.sparse_coef_.toarray(), fitted.coef_)
    assert fitted.n_iter_ == len(fitted.history_) == 6
    assert fitted.outcome_ == "max_iter"
    np.testing.assert_allclose(fitted.decision_function(X_test), X_test @ fitted.coef_.T, rtol=1e-4, atol=1e-4)
    classes, scores = fitted.predict_topk(X_test, 3)
    np.testing.assert_array_equal(classes[:, 0], fitted.predict(X_test))
    assert np.all(np.diff(scores, axis=1) <= 0)
    last = fitted.history_[-1]
    assert last.loss < fitted.history_[0].loss
    assert 0 < last.update_rate < fitted.history_[0].update_rate <= 1
    assert (last.recall, last.margin_error) == (1.0, 0.0)
    assert last.nonzeros == fitted.sparse_coef_.nnz
    assert last.nbytes > 0
    assert np.isnan(last.validation)
    assert fitted.model_.record["epochs"][-1]["nonzeros"] == last.nonzeros


def test_tables_and_arrays_fit_the_same(data, monkeypatch):
    X, y, _, _ = data
    model = MemoirClassifier(alpha=1e-4, l1_ratio=0.5, max_iter=2, random_state=0, dtype=np.float64)
    array = clone(model).fit(X, y)
    monkeypatch.setattr(solver, "_DENSE", 0)
    table = clone(model).fit(X, y)
    assert sp.issparse(table.model_.weights)
    np.testing.assert_allclose(table.coef_, array.coef_, atol=1e-10)
    threads = clone(model).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(threads.coef_, table.coef_)


def test_labels_of_any_kind(data):
    X, y, _, _ = data
    names = np.array([f"class {k:03d}" for k in range(60)])
    model = MemoirClassifier(max_iter=1, random_state=0)
    named, numbered = clone(model).fit(X, names[y]), clone(model).fit(X, y)
    np.testing.assert_array_equal(named.predict(X), names[numbered.predict(X)])


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro"])
def test_early_stopping_keeps_the_best_epoch(data, metric):
    X, y, _, _ = data
    model = MemoirClassifier(
        alpha=1e-5, max_iter=40, early_stopping=True, validation_metric=metric, patience=2, random_state=0
    ).fit(X, y)
    judged = [record.validation for record in model.history_]
    best = int(np.argmax(judged))
    assert model.outcome_ == "patience"
    assert len(judged) == best + 3
    # The weights kept are those of that epoch: so many are not zero.
    assert model.sparse_coef_.nnz == model.history_[best].nonzeros
    unjudged = clone(model).set_params(early_stopping=False, max_iter=2).fit(X, y)
    assert all(np.isnan(record.validation) for record in unjudged.history_)


def test_sample_and_class_weights(data):
    X, y, _, _ = data
    zero = np.where(y < 30, 1.0, 0.0)
    model = MemoirClassifier(max_iter=2, random_state=0).fit(X, y, sample_weight=zero)
    assert (model.predict(X[y < 30]) < 30).mean() > 0.95
    heavy = MemoirClassifier(max_iter=2, random_state=0, class_weight={7: 20.0}).fit(X, y)
    light = MemoirClassifier(max_iter=2, random_state=0).fit(X, y)
    assert (heavy.predict(X) == 7).sum() > (light.predict(X) == 7).sum()


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_of_the_order_of_fit_is_fit(data):
    """The rows of an epoch in its order, in one call: the same weights."""
    X, y, _, _ = data
    model = MemoirClassifier(alpha=1e-4, max_iter=1, random_state=3, average=False, dtype=np.float64)
    fit = clone(model).fit(X, y)
    seed = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    order = np.random.default_rng([seed, 0]).permutation(len(y))
    stream = clone(model).partial_fit(X[order], y[order])
    np.testing.assert_allclose(stream.coef_, fit.coef_, atol=1e-12)
    assert stream.outcome_ == "stream"


@pytest.mark.parametrize("slots", [0, 10**9])
@pytest.mark.parametrize("search", ["exact", "lsh"])
def test_new_classes_in_a_stream(data, monkeypatch, slots, search):
    monkeypatch.setattr(solver, "_DENSE", slots)  # tables, and arrays
    X, y, X_test, y_test = data
    labels = np.array([f"{(k * 7) % 60:02d}" for k in range(60)])  # not in the order of their coming
    model = MemoirClassifier(alpha=1e-5, random_state=0, search=search, batch_size=10)
    for known in (20, 40, 60):
        rows = np.flatnonzero(y < known)
        for _ in range(3):
            model.partial_fit(X[rows], labels[y[rows]])
        assert list(model.classes_) == sorted(labels[:known])
        assert model.coef_.shape == (known, 800)
        test = np.flatnonzero(y_test < known)
        assert model.score(X_test[test], labels[y_test[test]]) > 0.5
    assert not hasattr(model, "history_")


def test_a_stream_goes_on_from_a_fit_and_from_a_pickle(data, fitted):
    X, y, _, _ = data
    model = pickle.loads(pickle.dumps(fitted))
    before = model.coef_.copy()
    model.set_params(eta0=1e-9, average=False)
    model.partial_fit(X[:100], np.where(y[:100] == 5, 1000, y[:100]))
    assert model.classes_[-1] == 1000
    np.testing.assert_allclose(model.coef_[:60], before, atol=1e-4)
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.partial_fit(X[:50], y[:50])
    np.testing.assert_array_equal(copy.coef_, model.coef_)


def test_bad_streams(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match="at least 2 classes"):
        MemoirClassifier().partial_fit(X[:1], y[:1])
    model = MemoirClassifier().partial_fit(X[:50], y[:50])
    with pytest.raises(ValueError, match="give one sort"):
        model.partial_fit(X[:1], np.array(["a"]))
    with pytest.raises(ValueError, match="class_weight is not known for a stream"):
        MemoirClassifier(class_weight="balanced").partial_fit(X, y)


# --- after the fit --------------------------------------------------------------------------------------------------


def test_pruning_measures_what_it_costs(data, fitted):
    _, _, X_test, y_test = data
    before = fitted.score(X_test, y_test)
    model = pickle.loads(pickle.dumps(fitted))
    report = model.prune(X_test, y_test, max_loss=0.01)
    np.testing.assert_allclose(report.accuracy_before, before)
    np.testing.assert_allclose(report.accuracy, model.score(X_test, y_test))
    assert report.accuracy >= before - 0.01
    assert report.nonzeros == model.sparse_coef_.nnz < 0.9 * report.nonzeros_before
    assert np.abs(model.sparse_coef_.data).min() > report.threshold
    given = pickle.loads(pickle.dumps(fitted)).prune(X_test, y_test, threshold=1e9)
    assert (given.nonzeros, given.threshold) == (0, 1e9)
    with pytest.raises(ValueError, match="threshold must be"):
        model.prune(X_test, y_test, threshold=-1.0)


def test_rankings_through_an_index(data, fitted):
    _, _, X_test, _ = data
    classes, scores = fitted.predict_topk(X_test, 5)
    found, their_scores = fitted.predict_topk(X_test, 5, index=fitted.build_index())
    np.testing.assert_array_equal(found, classes)
    np.testing.assert_allclose(their_scores, scores, rtol=1e-5)
    index = fitted.build_index(SimpleLSH(bits=512, candidates=40))
    assert index.recall(X_test, 1) > 0.9
    assert np.mean(fitted.predict_topk(X_test, 1, index=index)[0][:, 0] == classes[:, 0]) > 0.9
    assert isinstance(fitted.build_index("exact"), ExactSearch)
    with pytest.raises(ValueError, match="kind must be"):
        fitted.build_index("tree")


def test_the_file_is_small_and_opens_at_once(tmp_path):
    """4 bytes a weight and 4 for its class, mapped: what is opened is not read."""
    rng = np.random.default_rng(0)
    classes = np.arange(100) * 500 + rng.integers(0, 500, (20_000, 100))
    parts = rng.normal(size=classes.size).astype(np.float32), classes.ravel(), np.arange(0, classes.size + 1, 100)
    weights = sp.csr_matrix(parts, shape=(20_000, 50_000))
    model = LinearModel(weights, np.zeros(50_000, np.float32), classes=np.arange(50_000), task="multiclass")
    model.save(tmp_path / "m")
    size = (tmp_path / "m").stat().st_size
    assert size <= 8 * weights.nnz + 8 * 20_001 + 12 * 50_000 + 10_000
    begun = time.perf_counter()
    LinearModel.load(tmp_path / "m")
    assert time.perf_counter() - begun < 1.0  # far more than it takes; the benchmark says how long


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha must be"),
        ({"search": "tree"}, "search must be one of 'auto', 'exact', 'lsh', 'graph' or a SearchIndex, got 'tree'"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"eta0": -1.0}, "eta0 must be"),
        ({"truncation": "eager"}, "truncation must be one of"),
        ({"average": "no"}, "average must be True, False or 'auto'"),
        ({"average": True, "l1_ratio": 0.5}, "average=True is for l1_ratio=0"),
        ({"validation_metric": "loss"}, "validation_metric must be one of"),
        ({"validation_fraction": 1.0}, "validation_fraction must be"),
        ({"alpha": 10.0, "batch_size": 50, "eta0": 1.0}, "the decay would turn the weights round"),
    ],
)
def test_bad_parameters(data, options, message):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=message):
        MemoirClassifier(**options).fit(X, y)


def test_interrupt_keeps_what_is_reached(data, monkeypatch):
    X, y, X_test, y_test = data
    step, calls = solver.MemoirLearner.step, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 900:
            raise KeyboardInterrupt
        step(self, *args)

    monkeypatch.setattr(solver.MemoirLearner, "step", interrupted)
    model = MemoirClassifier(max_iter=100, random_state=0, batch_size=10).fit(X, y)
    assert model.outcome_ == "interrupted"
    assert model.n_iter_ == 3
    assert model.score(X_test, y_test) > 0.5

"""LinearClassifier with `Memoir`: held-out rows, weights, pruning, indexes, files, checkpoints, refusals."""

from __future__ import annotations

import pickle
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import CrammerSinger, LinearClassifier, LinearModel, Memoir
from manyclass.datasets import make_many_classes
from manyclass.mips import ExactSearch, SimpleLSH
from manyclass.solvers.memoir import learner

_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "stochastic steps: another order of rows is another point",
    "check_sample_weight_equivalence_on_sparse_data": "stochastic steps: another order of rows is another point",
    "check_class_weight_classifiers": "asks that one class win everywhere, which planes through the origin cannot do",
}
#: Parameters of the estimator; the others are the solver's.
_OWN = (
    "early_stopping",
    "alpha",
    "l1_ratio",
    "fit_intercept",
    "class_weight",
    "max_iter",
    "random_state",
    "n_jobs",
    "dtype",
)


def memoir(**options):
    own = {name: options.pop(name) for name in _OWN if name in options}
    return LinearClassifier(CrammerSinger(gamma=0), solver=Memoir(**options), **{"alpha": 1e-6, **own})


@parametrize_with_checks([memoir(max_iter=5, l1_ratio=1.0)], expected_failed_checks=lambda estimator: _FAILURES)
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
    return memoir(alpha=1e-5, max_iter=6, random_state=0).fit(X, y)


def test_public_face(data, fitted):
    _, _, X_test, y_test = data
    assert fitted.score(X_test, y_test) > 0.5
    assert fitted.coef_.shape == (60, 800)
    np.testing.assert_array_equal(fitted.sparse_coef_.toarray(), fitted.coef_)
    assert fitted.n_iter_ == len(fitted.history_) == 6
    assert fitted.history_.outcome == "max_iter"
    assert np.isnan([fitted.duality_gap_, fitted.objective_]).all()
    assert not fitted.intercept_.any()
    np.testing.assert_allclose(fitted.decision_function(X_test), X_test @ fitted.coef_.T, rtol=1e-4, atol=1e-4)
    classes, scores = fitted.predict_topk(X_test, 3)
    np.testing.assert_array_equal(classes[:, 0], fitted.predict(X_test))
    assert np.all(np.diff(scores, axis=1) <= 0)
    first, last = fitted.history_[0].info, fitted.history_[-1].info
    assert last["loss"] < first["loss"]
    assert 0 < last["update_rate"] < first["update_rate"] <= 1
    assert (last["recall"], last["margin_error"]) == (1.0, 0.0)
    assert last["nonzeros"] == fitted.sparse_coef_.nnz
    assert last["nbytes"] > 0
    assert "validation" not in last
    assert fitted.model_.record["history"]["records"][-1]["nonzeros"] == last["nonzeros"]


@pytest.mark.slow
def test_tables_and_arrays_fit_the_same(data, monkeypatch):
    X, y, _, _ = data
    model = memoir(alpha=1e-4, l1_ratio=0.5, max_iter=2, random_state=0, dtype=np.float64)
    array = clone(model).fit(X, y)
    monkeypatch.setattr(learner, "_DENSE", 0)
    table = clone(model).fit(X, y)
    assert sp.issparse(table.model_.weights)
    np.testing.assert_allclose(table.coef_, array.coef_, atol=1e-10)
    threads = clone(model).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(threads.coef_, table.coef_)


def test_labels_of_any_kind(data):
    X, y, _, _ = data
    names = np.array([f"class {k:03d}" for k in range(60)])
    model = memoir(max_iter=1, random_state=0)
    named, numbered = clone(model).fit(X, names[y]), clone(model).fit(X, y)
    np.testing.assert_array_equal(named.predict(X), names[numbered.predict(X)])


@pytest.mark.parametrize("patience", [2, 40])
def test_held_out_rows_keep_the_best_epoch_also_where_max_iter_ends_the_fit(data, patience):
    X, y, _, _ = data
    model = memoir(alpha=1e-5, max_iter=20, early_stopping=patience, random_state=0).fit(X, y)
    best = model.history_.best.iteration
    assert model.history_.outcome == ("patience" if patience == 2 else "max_iter")
    assert best < model.n_iter_ == (best + 2 if patience == 2 else 20)
    # The weights kept are those of that epoch: so many are not zero.
    assert model.sparse_coef_.nnz == model.history_[best - 1].info["nonzeros"]


def test_rows_without_weight_take_no_part(data):
    X, y, _, _ = data
    kept = np.arange(len(y)) % 3 > 0
    model = memoir(max_iter=2, random_state=0, alpha=1e-4, eta0=0.1)
    weighted, fewer = clone(model).fit(X, y, sample_weight=kept), clone(model).fit(X[kept], y[kept])
    np.testing.assert_array_equal(weighted.coef_, fewer.coef_)


def test_the_copy_of_the_best_weights_is_planned_as_those_of_the_solver(data, monkeypatch):
    X, y, _, _ = data
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 10_000)
    monkeypatch.setattr(learner, "_DENSE", 0)
    memoir(max_iter=1, early_stopping=1, random_state=0).fit(X, y)


def test_sample_and_class_weights(data):
    X, y, _, _ = data
    zero = np.where(y < 30, 1.0, 0.0)
    model = memoir(max_iter=2, random_state=0).fit(X, y, sample_weight=zero)
    assert (model.predict(X[y < 30]) < 30).mean() > 0.95
    heavy = memoir(max_iter=2, random_state=0, class_weight={7: 20.0}).fit(X, y)
    light = memoir(max_iter=2, random_state=0).fit(X, y)
    assert (heavy.predict(X) == 7).sum() > (light.predict(X) == 7).sum()


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
    with pytest.raises(ValueError, match="search must be one of 'exact', 'lsh', 'graph'"):
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


# --- checkpoints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [0, 10**9], ids=["table", "array"])
@pytest.mark.parametrize(
    "options",
    [
        {"average": True},
        {"average": False},
        {"l1_ratio": 0.5},
        {"l1_ratio": 1.0, "eta_step": 0.0},
        {"average": False, "alpha": 0.1},  # meets its ball
        {"search": "lsh", "average": False},
        {"early_stopping": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("done", [1, 3])
def test_a_fit_that_was_broken_off_goes_on_to_the_same_bits(data, tmp_path, monkeypatch, slots, options, done):
    monkeypatch.setattr(learner, "_DENSE", slots)
    X, y, _, _ = data
    _goes_on(memoir(**{"alpha": 1e-4, "random_state": 0, **options}), X, y, tmp_path / "run", monkeypatch, done, 5)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_bounds_of_classes_do_not_change_where_it_goes_on(tmp_path, monkeypatch, l1_ratio):
    monkeypatch.setattr(learner, "_DENSE", 0)
    X, y = make_many_classes(2000, 800, 600, nnz_per_row=12, random_state=0)
    model = memoir(alpha=1e-5, l1_ratio=l1_ratio, random_state=0, batch_size=40)
    _goes_on(model, X, y, tmp_path / "run", monkeypatch, 2, 4)


def _goes_on(model, X, y, path, monkeypatch, done, epochs):
    """A fit whose process ends in the middle of an epoch, and one from its checkpoint, are one without a break."""
    whole = clone(model).set_params(max_iter=epochs).fit(X, y)
    step, before = learner.MemoirLearner.step, learner.MemoirLearner.epoch
    calls = []

    def counted(self, *args, **kwargs):
        calls.append("epoch")
        return before(self, *args, **kwargs)

    def broken(self, *args):
        if calls.count("epoch") > done and len(calls) > 10:
            raise ArithmeticError("a bug")
        calls.append("step")
        step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(learner.MemoirLearner, "epoch", counted)
        patch.setattr(learner.MemoirLearner, "step", broken)
        with pytest.raises(ArithmeticError, match="a bug"):
            clone(model).set_params(max_iter=epochs).fit(X, y, checkpoint=path, checkpoint_seconds=0.0)
    found = clone(model).set_params(max_iter=epochs).fit(X, y, checkpoint=path, checkpoint_seconds=0.0)
    assert found.n_iter_ == len(found.history_) == epochs
    assert [record.info for record in found.history_] == [record.info for record in whole.history_]
    np.testing.assert_array_equal(found.coef_, whole.coef_)


def test_the_default_step_shrinks_weights_by_half_at_most():
    X, y = np.eye(8), np.arange(8) % 2
    model = memoir(alpha=10.0, random_state=0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert 0 < np.linalg.norm(model.coef_) <= 2 / np.sqrt(2 * 10.0)  # of the difference of two columns on their ball


def test_checkpoints_of_other_fits_are_refused(data, tmp_path):
    X, y, _, _ = data
    memoir(max_iter=1, random_state=0).fit(X, y, checkpoint=tmp_path / "run")
    for options in ({"random_state": 1}, {"eta0": 0.1}, {"alpha": 1e-3}, {"average": False}):
        with pytest.raises(ValueError, match="belongs to another run"):
            memoir(**{"max_iter": 1, "random_state": 0, **options}).fit(X, y, checkpoint=tmp_path / "run")


# --- refusals, interrupts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "'alpha' parameter"),
        ({"search": "tree"}, "'search' parameter of Memoir must be a str among .* or an instance of"),
        ({"batch_size": 0}, "'batch_size' parameter of Memoir must be an int in the range"),
        ({"eta0": -1.0}, "'eta0' parameter"),
        ({"truncation": "eager"}, "'truncation' parameter"),
        ({"average": "no"}, "'average' parameter"),
        ({"average": True, "l1_ratio": 0.5}, "average=True needs l1_ratio=0"),
        ({"fit_intercept": True}, "fits no intercept"),
        ({"alpha": 10.0, "batch_size": 50, "eta0": 1.0}, "must be positive, got .* lower one of them"),
    ],
)
def test_bad_parameters(data, options, message):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=message):
        memoir(**options).fit(X, y)


@pytest.mark.parametrize("loss", ["multinomial", "hinge", CrammerSinger(gamma=0.1)])
def test_other_losses_are_refused(data, loss):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=r"give loss=CrammerSinger\(gamma=0\)"):
        LinearClassifier(loss, solver="memoir").fit(X, y)


def test_interrupt_keeps_what_is_reached(data, monkeypatch):
    X, y, X_test, y_test = data
    step, calls = learner.MemoirLearner.step, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 900:
            raise KeyboardInterrupt
        step(self, *args)

    monkeypatch.setattr(learner.MemoirLearner, "step", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = memoir(max_iter=100, random_state=0, batch_size=10).fit(X, y)
    assert model.history_.outcome == "interrupted"
    assert model.n_iter_ == 3
    assert model.score(X_test, y_test) > 0.5

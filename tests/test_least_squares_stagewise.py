"""Algorithm 3: blocks that make the direct fit, kinds of data, the best prefix, interrupts, warm starts."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import RBFSampler

from manyclass import GeneralizedLeastSquaresClassifier, StagewiseClassifier, StagewiseRegressor
from manyclass.estimators import stagewise
from manyclass.features import (
    BLOCKS,
    Chain,
    FeatureSubset,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    Transformer,
)
from manyclass.solvers.least_squares.design import Design

UPDATES = ("linear", "appended", "calibrated", "logistic")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


@pytest.fixture(scope="module")
def few(digits):
    X, y = digits
    return X[:400], y[:400]


class Interrupted(FeatureSubset):
    """A subset whose third block is broken off."""

    fits = 0

    def _fit(self, X, y):
        Interrupted.fits += 1
        if Interrupted.fits == 3:
            raise KeyboardInterrupt
        super()._fit(X, y)


# --- the direct fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-4, 1e-1])
def test_all_features_in_one_block_are_the_direct_fit(digits, alpha):
    X, y = digits
    direct = GeneralizedLeastSquaresClassifier(alpha=alpha, tol=1e-9).fit(X, y)
    stage = StagewiseClassifier(FeatureSubset(64), alpha=alpha).fit(X, y)
    assert stage.n_stages_ == [1]
    np.testing.assert_allclose(stage.decision_function(X), direct.decision_function(X), atol=1e-8)


def test_a_logistic_block_of_all_features_is_softmax_regression(digits):
    X, y = digits
    direct = GeneralizedLeastSquaresClassifier("softmax", alpha=1e-2, tol=1e-10, max_iter=1000).fit(X, y)
    stage = StagewiseClassifier(FeatureSubset(64), update="logistic", alpha=1e-2, inner_steps=200).fit(X, y)
    np.testing.assert_allclose(stage.predict_proba(X), direct.predict_proba(X), atol=2e-2)
    for classes in (2, 10):  # and two classes have one score
        rows = y < classes
        stage = StagewiseClassifier(
            FeatureSubset(64), update="logistic", alpha=1e-2, inner_steps=30, passes=20, fit_intercept=False
        ).fit(X[rows], y[rows])
        direct = GeneralizedLeastSquaresClassifier("softmax", alpha=1e-2, tol=1e-12, max_iter=2000, fit_intercept=False)
        direct.fit(X[rows], y[rows])
        np.testing.assert_allclose(stage.predict_proba(X[rows]), direct.predict_proba(X[rows]), atol=1e-4)


@pytest.mark.parametrize("alpha", [1e-3, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_appended_predictions_are_features_of_the_block(few, weighted, alpha):
    """Section 3.1 by hand: at each stage ridge regression of y - yhat on the block, 1 and yhat; kept in a file."""
    X, y = few
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float) if weighted else None
    model = StagewiseClassifier(FeatureSubset(20), update="appended", alpha=alpha, random_state=0).fit(X, y, weights)
    c = np.ones(len(y)) if weights is None else weights / weights.mean()
    Y, scores = np.eye(10)[y], np.zeros((len(y), 10))
    for stage in model.model_.stages:
        F = np.hstack([stage.block.transform(X), scores, np.ones((len(y), 1))])
        ridge = np.append(np.full(F.shape[1] - 1, alpha * len(y)), 0)
        A = np.vstack([F * np.sqrt(c)[:, None], np.diag(np.sqrt(ridge))])
        b = np.vstack([(Y - scores) * np.sqrt(c)[:, None], np.zeros((F.shape[1], 10))])
        scores = scores + F @ np.linalg.lstsq(A, b, rcond=1e-10)[0]
    assert len(model.model_.stages) == 4
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-6)


@pytest.mark.parametrize("order", ["random", "frequency"])
def test_passes_descend_on_the_joint_problem(digits, order):
    """Block coordinate descent: the ridge is on all the weights of a block, and the passes end at the direct fit."""
    X, y = digits
    direct = GeneralizedLeastSquaresClassifier(alpha=0.1, tol=1e-9, fit_intercept=False).fit(X, y)
    stage = StagewiseClassifier(
        FeatureSubset(20, order=order), alpha=0.1, passes=300, random_state=0, fit_intercept=False
    ).fit(X, y)
    assert stage.n_stages_ == [4]  # the same blocks, with weights that grew
    np.testing.assert_allclose(stage.decision_function(X), direct.decision_function(X), atol=1e-6)


def test_passes_of_the_logistic_update_descend_too(few):
    X, y = few
    direct = GeneralizedLeastSquaresClassifier(
        "softmax", alpha=0.05, tol=1e-10, max_iter=1000, fit_intercept=False
    ).fit(X, y)
    stage = StagewiseClassifier(
        FeatureSubset(20), alpha=0.05, passes=80, update="logistic", random_state=0, fit_intercept=False
    ).fit(X, y)
    np.testing.assert_allclose(stage.predict_proba(X), direct.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("update", UPDATES)
def test_losses_fall_from_block_to_block(digits, update):
    X, y = digits
    model = StagewiseClassifier(block_size=60, n_blocks=4, passes=2, update=update, alpha=1e-5, random_state=0).fit(
        X, y
    )
    losses = [record.loss for record in model.stage_records_]
    assert np.all(np.diff(losses) < 0)
    assert model.score(X, y) > 0.97


def test_the_loss_is_that_of_the_model(digits):
    X, y = digits
    Y = np.eye(10)[y]
    for update in UPDATES:
        model = StagewiseClassifier(block_size=50, n_blocks=3, update=update, random_state=0).fit(X, y)
        S = model.decision_function(X)
        if update == "logistic":
            loss = -np.log(np.maximum(model.predict_proba(X)[np.arange(len(y)), y], 1e-300)).mean()
        else:
            loss = ((S - Y) ** 2).sum(1).mean()
        assert model.stage_records_[-1].loss == pytest.approx(loss, rel=1e-9)


# --- kinds of data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", UPDATES)
def test_kinds_of_data_agree(digits, update, tmp_path, monkeypatch):
    X, y = digits
    settings = {"update": update, "alpha": 1e-2, "random_state": 0, "passes": 2}
    pattern = FeatureSubset(25, order="frequency")
    expected = StagewiseClassifier(pattern, **settings).fit(X, y).decision_function(X)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for held in (sp.csr_matrix(X), mapped, np.asfortranarray(X)):
        found = StagewiseClassifier(pattern, **settings).fit(held, y).decision_function(held)
        np.testing.assert_allclose(found, expected, atol=1e-8)
    single = StagewiseClassifier(pattern, **settings).fit(X.astype(np.float32), y)
    assert single.model_.dtype == np.float32
    np.testing.assert_allclose(single.decision_function(X.astype(np.float32)), expected, atol=2e-3)
    monkeypatch.setattr("manyclass.solvers.least_squares.design._CHUNK", 1)
    monkeypatch.setattr("manyclass.solvers.least_squares.design._LEAST_ROWS", 97)
    chunked = StagewiseClassifier(pattern, **settings).fit(X, y)
    np.testing.assert_allclose(chunked.decision_function(X), expected, atol=1e-8)


@pytest.mark.parametrize("update", UPDATES)
def test_weights_are_repetitions(few, update):
    X, y = few
    counts = np.random.default_rng(0).integers(0, 4, 400)
    settings = {"update": update, "alpha": 1e-2, "passes": 2}
    one = StagewiseClassifier(_Fixed(30), **settings).fit(X, y, sample_weight=counts)
    other = StagewiseClassifier(_Fixed(30), **settings).fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-7)
    assert one.stage_records_[-1].loss == pytest.approx(other.stage_records_[-1].loss, rel=1e-9)


class _Fixed(FeatureSubset):
    """Features in the order of X: none that depends on how many rows there are."""

    def _ordered(self, X, y, features):
        return np.sort(features)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("sparse", [False, True])
def test_several_labels_a_row(update, sparse):
    X, Y = make_multilabel_classification(300, 12, n_classes=5, random_state=0)
    X = X / 10
    model = StagewiseClassifier(block_size=40, n_blocks=3, update=update, random_state=0, alpha=1e-3)
    predicted = model.fit(X, sp.csr_matrix(Y) if sparse else Y).predict(X)
    assert sp.issparse(predicted) == sparse
    predicted = predicted.toarray() if sparse else predicted
    assert np.mean(predicted == Y) > 0.8
    held = StagewiseClassifier(
        block_size=40, n_blocks=3, update=update, random_state=0, alpha=1e-3, early_stopping=True
    ).fit(X, Y)
    assert 0 < held.stage_records_[-1].validation_error < 0.4


def test_regression_of_several_targets(digits):
    X, _ = digits
    T = np.stack([np.sin(X.sum(1)), 100 + X[:, 20] * X[:, 30]], axis=1)
    settings = {"features": "fourier", "block_size": 300, "n_blocks": 3, "alpha": 1e-5, "random_state": 0}
    model = StagewiseRegressor(**settings).fit(X, T)
    assert model.predict(X).shape == T.shape
    alone = StagewiseRegressor(**settings).fit(X, T[:, 1])
    assert alone.predict(X).shape == (len(X),)
    np.testing.assert_allclose(alone.predict(X), model.predict(X)[:, 1], rtol=1e-9)
    assert alone.score(X, T[:, 1]) > 0.9
    held = StagewiseRegressor(early_stopping=True, **settings).fit(X, T)
    assert 0 < held.stage_records_[-1].validation_error < 2
    with pytest.raises(ValueError, match="y must contain numbers"):
        StagewiseRegressor().fit(X[:3], ["a", "b", "c"])


# --- blocks ---------------------------------------------------------------------------------------------------------


def test_models_are_on_features_of_their_own(digits):
    X, y = digits
    model = StagewiseClassifier(FeatureSubset(16), n_models=2, random_state=0).fit(X, y)
    taken = [np.concatenate([stage.block.indices_ for stage in member]) for member in model.model_.members]
    assert sorted(np.concatenate(taken)) == list(range(64))
    assert [len(found) for found in taken] == [32, 32]
    parts = []
    for member in model.model_.members:
        scores = np.zeros((len(X), 10))
        for stage in member:
            scores += stage.block.transform(X) @ stage.weights + stage.intercept
        parts.append(scores)
    np.testing.assert_allclose(model.decision_function(X), np.mean(parts, axis=0), atol=1e-9)
    several = StagewiseClassifier(block_size=50, n_blocks=2, n_models=3, random_state=0).fit(X, y)
    seeds = {stage.block.random_state for member in several.model_.members for stage in member}
    assert several.n_stages_ == [2, 2, 2]
    assert len(seeds) == 6


def test_subsets_by_gradient_are_ordered_anew(digits):
    X, y = digits
    model = StagewiseClassifier(FeatureSubset(16, order="gradient"), passes=2).fit(X, y)
    (member,) = model.model_.members
    assert len(member) == 8
    for half in (member[:4], member[4:]):
        assert sorted(np.concatenate([stage.block.indices_ for stage in half])) == list(range(64))
    residuals = np.eye(10)[y]
    first = np.linalg.norm(X.T @ residuals, axis=1)
    assert set(member[0].block.indices_) == set(np.argsort(-first, kind="stable")[:16])


def test_preparations_and_chains(digits):
    X, y = digits
    prepared = StagewiseClassifier(RandomLogits(80), prepare=PrincipalComponents(20), n_blocks=3, random_state=0).fit(
        X, y
    )
    assert prepared.model_.members[0][0].block.n_features_in_ == 20
    assert prepared.score(X, y) > 0.97
    chained = StagewiseClassifier(Chain(PrincipalComponents(20), RandomLogits(80)), n_blocks=3, random_state=0)
    assert chained.fit(X, y).score(X, y) > 0.97
    other = StagewiseClassifier(Transformer(RBFSampler(gamma=0.05, n_components=150)), n_blocks=2, random_state=0).fit(
        X, y
    )
    assert other.score(X, y) > 0.95


@pytest.mark.parametrize("kind", BLOCKS)
def test_features_by_name_are_those_of_the_block(few, kind):
    X, y = few
    settings = {"n_blocks": 1, "random_state": 0}
    blocks = BLOCKS[kind](n_components=15), PrincipalComponents(20)
    for estimator, targets in ((StagewiseClassifier(**settings), y), (StagewiseRegressor(**settings), y / 9.0)):
        named = clone(estimator).set_params(features=f"{kind}:15", prepare="pca:20").fit(X, targets)
        given = clone(estimator).set_params(features=blocks[0], prepare=blocks[1]).fit(X, targets)
        np.testing.assert_array_equal(named.predict(X), given.predict(X))
        assert isinstance(named.model_.members[0][0].block, BLOCKS[kind])
        assert named.model_.members[0][0].block.n_features_out_ == 15


def test_the_ridge_is_one_over_the_rows_by_default(few):
    X, y = few
    weights = np.random.default_rng(0).integers(1, 3, len(y))
    for estimator, targets in ((StagewiseClassifier(n_blocks=1), y), (StagewiseRegressor(n_blocks=1), y / 9.0)):
        estimator.set_params(features=FeatureSubset(64), random_state=0)
        found = clone(estimator).fit(X, targets, sample_weight=weights)
        assert found.alpha_ == pytest.approx(1 / weights.sum())
        expected = clone(estimator).set_params(alpha=1 / weights.sum()).fit(X, targets, sample_weight=weights)
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_the_same_seed_is_the_same_model(digits):
    X, y = digits
    settings = {"block_size": 60, "n_blocks": 3, "early_stopping": True}
    runs = [StagewiseClassifier(random_state=seed, **settings).fit(X, y).decision_function(X) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.allclose(runs[0], runs[2])


# --- stopping, going on ---------------------------------------------------------------------------------------------


def test_the_best_prefix_is_kept(few):
    X, y = few
    noisy = np.where(np.random.default_rng(0).random(len(y)) < 0.3, (y + 1) % 10, y)
    model = StagewiseClassifier(
        block_size=40, n_blocks=30, alpha=1e-8, early_stopping=True, patience=3, random_state=0, update="calibrated"
    ).fit(X, noisy)
    errors = [record.validation_error for record in model.stage_records_]
    assert model.n_stages_ == [int(np.argmin(errors)) + 1]
    assert len(errors) == model.n_stages_[0] + 3
    assert model.outcome_ == "stopped early"
    model.set_params(n_blocks=2).fit(X, noisy)
    assert model.outcome_ == "complete"


def test_the_validation_part_is_not_fitted(few):
    """Its labels change nothing but what is judged."""
    X, y = few
    held = np.random.RandomState(0).permutation(400)[:40]
    other = y.copy()
    other[held] = (other[held] + 3) % 10
    settings = {"block_size": 30, "n_blocks": 2, "early_stopping": True, "random_state": 0}
    one = StagewiseClassifier(**settings).fit(X, y)
    two = StagewiseClassifier(**settings).fit(X, other)
    assert one.stage_records_[0].loss == two.stage_records_[0].loss
    assert one.stage_records_[0].validation_error < two.stage_records_[0].validation_error


def test_an_interrupted_fit_keeps_the_best(digits):
    X, y = digits
    Interrupted.fits = 0
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 stages of model 1 of 1"):
        model = StagewiseClassifier(Interrupted(16, order="frequency")).fit(X, y)
    assert model.outcome_ == "interrupted"
    assert model.n_stages_ == [2]
    whole = StagewiseClassifier(FeatureSubset(16, order="frequency"), n_blocks=2).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), whole.decision_function(X))
    Interrupted.fits = 2
    with pytest.raises(KeyboardInterrupt):  # nothing to keep
        StagewiseClassifier(Interrupted(16)).fit(X, y)


@pytest.mark.parametrize("update", UPDATES)
def test_warm_starts_go_on(digits, update):
    X, y = digits
    settings = {"block_size": 50, "update": update, "random_state": np.random.RandomState(0), "warm_start": True}
    model = StagewiseClassifier(n_blocks=2, **settings).fit(X, y)
    before = model.stage_records_[-1].loss
    model.set_params(n_blocks=3).fit(X, y)
    assert model.n_stages_ == [5]
    assert [record.stage for record in model.stage_records_] == [1, 2, 3, 4, 5]
    assert model.stage_records_[2].loss < before
    whole = StagewiseClassifier(n_blocks=5, block_size=50, update=update, random_state=np.random.RandomState(0)).fit(
        X, y
    )
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-8)
    with pytest.raises(ValueError, match="warm_start=True needs the classes"):
        model.fit(X, y % 3)


def test_progress_goes_to_standard_error(few, capsys):
    X, y = few
    StagewiseClassifier(block_size=20, n_blocks=3, verbose=1, early_stopping=True).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    # An accuracy on few held-out rows, which may be 1.
    assert all(re.search(r"loss 0\.\d+.* validation (0\.\d+|1(\.0+)?)(?!\S)", line) for line in lines)


def test_features_are_never_made_for_all_rows(digits, monkeypatch):
    X, y = digits
    rows = []
    original = RandomFourier._transform
    monkeypatch.setattr(RandomFourier, "_transform", lambda self, X: rows.append(len(X)) or original(self, X))
    monkeypatch.setattr("manyclass.solvers.least_squares.design._CHUNK", 1)
    monkeypatch.setattr("manyclass.solvers.least_squares.design._LEAST_ROWS", 100)
    StagewiseClassifier("fourier:40", n_blocks=2, random_state=0).fit(X, y)
    assert max(rows) <= 100
    assert sum(rows) == 2 * 2 * len(X)  # two blocks, two passes each


def test_blocks_that_do_not_fit_are_refused(few, monkeypatch):
    X, y = few
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 2**20)
    with pytest.raises(MemoryError, match="a smaller block of features"):
        StagewiseClassifier(FeatureSubset(64), block_size=None, random_state=0).fit(np.tile(X, 10), y)


def test_designs_of_sparse_blocks_stay_sparse(digits):
    X = sp.csr_matrix(digits[0])
    block = FeatureSubset(20, order="frequency").fit(X)
    assert all(sp.issparse(F) for _, _, F in Design(X, block).chunks())


BAD = [
    ({"update": "newton"}, "'update' parameter of StagewiseClassifier must be a str among"),
    ({"basis": "quartic"}, "basis must be one of"),
    ({"alpha": -1.0}, "'alpha' parameter"),
    ({"block_size": 0}, "'block_size' parameter"),
    ({"n_blocks": 1.5}, "'n_blocks' parameter"),
    ({"passes": 0}, "'passes' parameter"),
    ({"n_models": 0}, "'n_models' parameter"),
    ({"inner_steps": 0}, "'inner_steps' parameter"),
    ({"patience": 0}, "'patience' parameter"),
    ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
    ({"dtype": np.int32}, "dtype must be"),
    ({"n_jobs": 0}, "n_jobs must be"),
    ({"warm_start": 2}, "'warm_start' parameter"),
    ({"features": None}, "'features' parameter"),
    ({"features": "pcs:20"}, r"features must be one of 'auto', .*: did you mean 'pca'\?"),
    ({"prepare": "pca:-1"}, "prepare must have a number of features of at least 1 after the colon, got 'pca:-1'"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        StagewiseClassifier(**parameters).fit(np.eye(4), [0, 1, 0, 1])


def test_a_continued_fit_is_judged_on_the_same_rows(few, monkeypatch):
    """Others would be rows that its first stages were fitted to."""
    X = few[0]
    seen = []
    monkeypatch.setattr(stagewise, "error_rate", lambda scores, labels, *rest: seen.append(labels.copy()) or 0.5)
    estimator = StagewiseClassifier(block_size=10, n_blocks=2, early_stopping=True, warm_start=True, random_state=0)
    weights = np.arange(400.0) + 1
    for _ in range(2):
        estimator.fit(X, np.arange(400) // 2, sample_weight=weights)
    assert len(seen) >= 2
    assert all(np.array_equal(labels, seen[0]) for labels in seen)


def test_weights_that_leave_no_row_are_refused(few):
    X, y = few
    weights = np.zeros(400)
    weights[np.random.RandomState(0).permutation(400)[:40]] = 1.0
    # The validation rows are drawn from those of positive weight, which once were all held out.
    StagewiseClassifier(block_size=10, n_blocks=1, early_stopping=True, random_state=0).fit(X, y, sample_weight=weights)
    one = np.eye(1, 400, 7)[0]
    with pytest.raises(ValueError, match="validation_fraction must leave training rows"):
        StagewiseRegressor(early_stopping=True, random_state=0).fit(X, y.astype(float), sample_weight=one)
    with pytest.raises(ValueError, match="two rows of positive weight"):
        StagewiseClassifier(early_stopping=True, random_state=0).fit(X, y, sample_weight=one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StagewiseClassifier(block_size=10, n_blocks=1).fit(X, y, sample_weight=weights)

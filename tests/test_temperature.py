"""`calibrate`: the temperature that minimizes the log loss, its probabilities, and scikit-learn's own calibration."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold

import manyclass
from manyclass import (
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    LinearClassifier,
    LinearModel,
    StagewiseClassifier,
)
from manyclass.metrics import expected_calibration_error, log_loss, reliability
from manyclass.models.splitting import split_model
from models import model_of, rows_of
from test_cli_support import refused, run

#: Whether scikit-learn has temperature scaling.
KNOWN = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)


def halves(noise=6.0):
    X, y = load_digits(return_X_y=True)
    X = X / 16 + noise / 16 * np.random.default_rng(0).normal(size=X.shape)
    return X[:600], y[:600], X[600:1200], y[600:1200], X[1200:], y[1200:]


@pytest.fixture(scope="module")
def fitted():
    X, y, *rest = halves()
    return LinearClassifier("crammer_singer", alpha=1e-2, random_state=0).fit(X, y), *rest


@pytest.mark.parametrize("task", ["multiclass", "one-vs-rest", "binary", "multilabel"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_minimizes_the_log_loss(monkeypatch, task, weighted):
    rng = np.random.default_rng(3)
    sigmoids, task = task == "one-vs-rest", "multiclass" if task == "one-vs-rest" else task
    model = model_of(rng, k=1 if task == "binary" else 5, task=task)
    X = rows_of(rng, 200)
    scores = model.scores(X)
    w = rng.uniform(0, 2, 200) if weighted else np.ones(200)
    if task == "multiclass":
        logits = log_expit(scores / 0.2) if sigmoids else scores / 0.4
        y = (logits + rng.gumbel(size=scores.shape)).argmax(axis=1)

        def loss(T):
            logits = log_expit(scores / T) if sigmoids else scores / T
            return -(w * log_softmax(logits, axis=1)[np.arange(200), y]).sum()
    else:
        y = (rng.random(scores.shape) < expit(scores / 0.4)).astype(int)

        def loss(T):
            return -(w[:, None] * np.log(expit(np.where(y > 0, scores, -scores) / T))).sum()

    labels = {"multiclass": lambda: model.classes[y], "binary": lambda: model.classes[y[:, 0]], "multilabel": lambda: y}
    best = minimize_scalar(loss, bounds=(0.01, 10), method="bounded", options={"xatol": 1e-10}).x
    found = model.calibrate(X, labels[task](), w if weighted else None)
    assert found.link == ("softmax" if task == "multiclass" and not sigmoids else "sigmoid")
    assert found.temperature == pytest.approx(best, rel=1e-5)
    assert model.temperature == 1.0
    np.testing.assert_array_equal(found.scores(X), scores)
    monkeypatch.setattr(manyclass.models.temperature, "_PIECE", 50)  # scores recomputed in blocks
    again = model.calibrate(sp.csr_matrix(X), labels[task](), w if weighted else None)
    assert again.temperature == pytest.approx(found.temperature, rel=1e-7)


@pytest.mark.parametrize(
    ("task", "link"), [("multiclass", "softmax"), ("multiclass", "sigmoid"), ("binary", ""), ("multilabel", "")]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_shifted_intercepts_minimize_the_log_loss_and_half_of_their_squares(monkeypatch, task, link, weighted):
    rng = np.random.default_rng(4)
    model = model_of(rng, k=1 if task == "binary" else 4, task=task)
    X = rows_of(rng, 300)
    scores, K = model.scores(X), model.n_outputs
    w = rng.integers(0, 3, 300).astype(float) if weighted else np.ones(300)
    drift = np.linspace(-2, 2, K) if K > 1 else np.array([1.5])
    logits = scores / 0.3 + drift
    if task == "multiclass":
        y = ((log_expit(logits) if link == "sigmoid" else logits) + rng.gumbel(size=scores.shape)).argmax(axis=1)
    else:
        y = (rng.random(scores.shape) < expit(logits)).astype(int)
    labels = {"multiclass": lambda: model.classes[y], "binary": lambda: model.classes[y[:, 0]], "multilabel": lambda: y}

    def loss(point, chosen):
        z = point[0] * scores + point[1:]
        if task == "multiclass":
            z = log_expit(z) if chosen == "sigmoid" else z
            return -(w * log_softmax(z, axis=1)[np.arange(300), y]).sum() + (point[1:] ** 2).sum() / 2
        return -(w[:, None] * log_expit(np.where(y > 0, z, -z))).sum() + (point[1:] ** 2).sum() / 2

    found = model.calibrate(X, labels[task](), w if weighted else None, bias=True)
    shift = (found.intercept - model.intercept) / found.temperature
    reached = loss(np.concatenate([[1 / found.temperature], shift]), found.link)
    best = minimize(loss, np.concatenate([[1.0], np.zeros(K)]), found.link, method="BFGS", options={"gtol": 1e-6})
    assert reached <= best.fun * (1 + 1e-8)
    np.testing.assert_allclose(np.concatenate([[1 / found.temperature], shift]), best.x, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(model.scores(X), scores)
    monkeypatch.setattr(manyclass.models.temperature, "_PIECE", 50)  # scores recomputed in blocks
    again = model.calibrate(X, labels[task](), w if weighted else None, bias=True)
    np.testing.assert_allclose(again.intercept, found.intercept, rtol=1e-4, atol=1e-5)


def test_intercepts_follow_the_frequencies_of_the_classes():
    """The classes of the fit are equally frequent, and later three of them are most."""
    X, y, X_cal, y_cal, X_test, y_test = halves(noise=14.0)
    rng = np.random.default_rng(0)

    def drawn(y):
        chance = np.where(y < 3, 8.0, 1.0)
        return rng.choice(len(y), 400, p=chance / chance.sum())

    some, later = drawn(y_cal), drawn(y_test)
    model = LinearClassifier("multinomial", alpha=1e-2, random_state=0).fit(X, y).model_
    plain = model.calibrate(X_cal[some], y_cal[some])
    shifted = model.calibrate(X_cal[some], y_cal[some], bias=True)
    losses = [log_loss(y_test[later], found.probabilities(X_test[later])) for found in (plain, shifted)]
    assert losses[1] < 0.9 * losses[0]
    accuracy = [np.mean(found.predict(X_test[later]) == y_test[later]) for found in (plain, shifted)]
    assert accuracy[1] > accuracy[0]
    with pytest.raises(ValueError, match="bias=True changes the intercept of a LinearModel"):
        StagewiseClassifier("fourier", n_blocks=1, block_size=16, update="linear").fit(X, y).calibrate(
            X_cal, y_cal, bias=True
        )


def test_probabilities_are_links_of_scores_over_the_temperature():
    rng = np.random.default_rng(0)
    X = rows_of(rng, 30)
    model = model_of(rng, link="softmax", temperature=0.5)
    expected = softmax(model.scores(X) / 0.5, axis=1)
    np.testing.assert_allclose(model.probabilities(X), expected, rtol=1e-12)
    binary = model_of(rng, k=1, task="binary", link="sigmoid", temperature=2.0)
    np.testing.assert_allclose(binary.probabilities(X)[:, 1], expit(binary.scores(X)[:, 0] / 2.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("task", "link"), [("multiclass", "softmax"), ("multiclass", "sigmoid"), ("binary", "sigmoid"),
                       ("multilabel", "sigmoid")]
)  # fmt: skip
def test_the_best_probabilities_are_those_of_all_classes(monkeypatch, task, link):
    rng = np.random.default_rng(1)
    model = model_of(rng, k=1 if task == "binary" else 6, task=task, link=link, temperature=0.7)
    X = rows_of(rng, 40)
    monkeypatch.setattr(manyclass.kernels.predict, "_CLASSES", 4)  # several tiles
    labels, best = model.topk_probabilities(X, 2)
    np.testing.assert_array_equal(labels, model.topk(X, 2)[0])
    whole = model.probabilities(X)
    columns = np.searchsorted(model.classes, labels)
    np.testing.assert_allclose(best, np.take_along_axis(whole, columns, axis=1), rtol=1e-12)


def test_the_best_probabilities_of_many_classes_need_no_array_of_all():
    n, K = 2000, 20_000
    rng = np.random.default_rng(0)
    W = rng.normal(size=(4, K)).astype(np.float32)
    model = LinearModel(W, np.zeros(K, np.float32), np.arange(K), "multiclass", "softmax")
    X = rng.normal(size=(n, 4)).astype(np.float32)
    model.topk_probabilities(X[:2], 3)  # compiles
    tracemalloc.start()
    model.topk_probabilities(X, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * K * 4 / 2


def test_a_calibrated_estimator_has_probabilities_and_keeps_its_ranking(fitted, tmp_path):
    model, X, y, X_test, _ = fitted
    plain = LinearClassifier("crammer_singer", alpha=1e-2, random_state=0).fit(*halves()[:2])
    assert not hasattr(plain, "predict_proba")
    with pytest.raises(ValueError, match="calibrate it on held-out rows"):
        plain.predict_topk(X, proba=True)
    assert plain.calibrate(X, y) is plain
    proba = plain.predict_proba(X_test)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(plain.classes_[proba.argmax(axis=1)], model.predict(X_test))
    labels, best = plain.predict_topk(X_test, 3, proba=True)
    np.testing.assert_array_equal(labels, model.predict_topk(X_test, 3)[0])
    np.testing.assert_allclose(best[:, 0], proba.max(axis=1))
    with pytest.raises(ValueError, match="leave index=None"):
        plain.predict_topk(X_test, 3, proba=True, index=plain.build_index())
    plain.save(tmp_path / "m")
    kept = manyclass.load(tmp_path / "m")
    assert kept.temperature == plain.model_.temperature != 1.0
    np.testing.assert_array_equal(kept.probabilities(X_test), proba)
    split_model(kept, tmp_path / "blocks", block_classes=4)
    blocks = manyclass.load(tmp_path / "blocks")
    np.testing.assert_allclose(blocks.probabilities(X_test), proba)
    np.testing.assert_allclose(blocks.topk_probabilities(X_test, 3)[1], best)
    assert blocks.assemble().temperature == kept.temperature
    plain.fit(X, y)
    assert not hasattr(plain, "predict_proba")


def test_calibration_is_at_least_as_good_as_that_of_scikit_learn(fitted):
    model, X, y, X_test, y_test = fitted
    own = model.model_.calibrate(X, y).probabilities(X_test)
    own_loss = log_loss(y_test, own)
    for method in ("temperature", "sigmoid") if KNOWN else ("sigmoid",):
        peer = CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(X, y)
        assert own_loss <= log_loss(y_test, peer.predict_proba(X_test)) + 0.02
    uniform = np.log(10)
    assert own_loss < 0.7 * uniform


def test_scikit_learn_calibrates_by_cross_validation():
    X, y, X_test, y_test, *_ = halves()
    peer = CalibratedClassifierCV(
        LinearClassifier("hinge", alpha=1e-2, random_state=0),
        method="temperature" if KNOWN else "sigmoid",
        ensemble=False,
        cv=3,
    )
    assert log_loss(y_test, peer.fit(X, y).predict_proba(X_test)) < 1.5


@pytest.mark.parametrize(
    "estimator",
    [
        LinearClassifier("hinge", alpha=1e-2, random_state=0),
        LinearClassifier("log_loss", random_state=0),
        GeneralizedLeastSquaresClassifier(link="identity"),
        StagewiseClassifier("fourier", n_blocks=1, block_size=64, update="linear", random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_classifier_can_be_calibrated(estimator, tmp_path):
    X, y, X_cal, y_cal, X_test, y_test = halves(noise=3.0)
    estimator.fit(X, y).calibrate(X_cal, y_cal)
    proba = estimator.predict_proba(X_test)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    correct = estimator.classes_[proba.argmax(axis=1)] == y_test
    assert log_loss(y_test, proba) < 1.0
    assert expected_calibration_error(correct, proba.max(axis=1)) < 0.1
    estimator.save(tmp_path / "m")
    np.testing.assert_array_equal(manyclass.load(tmp_path / "m").probabilities(X_test), proba)


def test_separated_rows_give_a_finite_temperature():
    model = LinearModel(np.eye(2), np.zeros(2), np.array([0, 1]), "multiclass")
    sure = model.calibrate(np.eye(2), np.array([0, 1]))
    assert 0 < sure.temperature < 0.1
    wrong = model.calibrate(np.eye(2), np.array([1, 0]))
    np.testing.assert_allclose(wrong.probabilities(np.eye(2)), 0.5, atol=1e-4)
    empty = LinearModel(np.zeros((2, 2)), np.zeros(2), np.array([0, 1]), "multiclass")
    assert np.isfinite(empty.calibrate(np.eye(2), np.array([0, 1])).temperature)


def test_wrong_input_is_refused():
    rng = np.random.default_rng(0)
    model, X = model_of(rng), rows_of(rng, 5)
    with pytest.raises(ValueError, match="got the label 'other'"):
        model.calibrate(X, np.array(["class 0"] * 4 + ["other"]))
    with pytest.raises(ValueError, match="a label for each row"):
        model.calibrate(X, model.classes[:3])
    with pytest.raises(ValueError, match="sample_weight"):
        model.calibrate(X, model.classes[:5], -np.ones(5))
    with pytest.raises(ValueError, match="regression"):
        model_of(rng, task="regression").calibrate(X, np.ones(5))
    with pytest.raises(ValueError, match="temperature must be"):
        model_of(rng, temperature=0.0)
    labels = model_of(rng, task="multilabel")
    with pytest.raises(ValueError, match="indicator with 11 columns"):
        labels.calibrate(X, np.ones((5, 3)))


def test_reliability_is_the_mean_in_each_bin():
    rng = np.random.default_rng(0)
    confidence, w = np.r_[rng.random(500), 1.0], rng.uniform(0, 2, 501)
    correct = rng.random(501) < confidence**2
    bins = reliability(correct, confidence, n_bins=7, sample_weight=w)
    error = 0.0
    for b in range(7):
        inside = (confidence >= b / 7) & ((confidence < (b + 1) / 7) | (b == 6))
        assert bins.confidence[b] == pytest.approx(np.average(confidence[inside], weights=w[inside]))
        assert bins.accuracy[b] == pytest.approx(np.average(correct[inside], weights=w[inside]))
        error += w[inside].sum() * abs(bins.confidence[b] - bins.accuracy[b])
    ece = expected_calibration_error(correct, confidence, n_bins=7, sample_weight=w)
    assert ece == pytest.approx(error / w.sum())
    with pytest.raises(ValueError, match="probabilities, not scores"):
        reliability([True], [3.0])


def test_a_model_is_calibrated_from_the_command_line(capsys, tmp_path, fitted):
    model, X, y, *_ = fitted
    model.model_.save(tmp_path / "one.model")
    manyclass.io.write(tmp_path / "held.npz", manyclass.io.Dataset(sp.csr_matrix(X.astype(np.float32)), y))
    ran = run(capsys, "calibrate", tmp_path / "one.model", tmp_path / "held.npz", "-o", tmp_path / "two.model")
    made, known = manyclass.load(tmp_path / "two.model"), model.model_.calibrate(X, y)
    assert (made.link, made.temperature) == (known.link, pytest.approx(known.temperature, rel=1e-4))
    assert made.link in ran.err
    words = ["calibrate", tmp_path / "one.model", tmp_path / "held.npz", "--bias", "-o", tmp_path / "bias.model"]
    assert "intercepts" in run(capsys, *words).err
    changed = manyclass.load(tmp_path / "bias.model").intercept
    np.testing.assert_allclose(changed, model.model_.calibrate(X, y, bias=True).intercept, rtol=1e-3, atol=1e-3)
    unseen = manyclass.io.Dataset(sp.csr_matrix(X.astype(np.float32)), y + 100)
    manyclass.io.write(tmp_path / "other.npz", unseen)
    words = ["calibrate", tmp_path / "one.model", tmp_path / "other.npz", "-o", tmp_path / "three.model"]
    refused(run(capsys, *words), "the fit has not seen")
    assert not (tmp_path / "three.model").exists()


# --- by cross-validation ----------------------------------------------------------------------------------------------


def shuffled():
    """`halves` with the rows in random order: those of the digits are sorted by writer."""
    parts = halves()
    X, y = np.vstack(parts[::2]), np.concatenate(parts[1::2])
    order = np.random.default_rng(1).permutation(len(y))
    cut = np.split(order, [600, 1200])
    return [part for rows in cut for part in (X[rows], y[rows])]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [LinearClassifier("crammer_singer", alpha=1e-2), LinearClassifier("multinomial", alpha=1e-3)],
    ids=["crammer_singer", "multinomial"],
)
def test_calibration_by_cross_validation_is_close_to_that_on_held_out_rows(estimator, weighted):
    X, y, X_held, y_held, X_test, y_test = shuffled()
    weights = {"sample_weight": np.random.default_rng(0).uniform(0.5, 1.5, len(y))} if weighted else {}
    model = estimator.set_params(random_state=0).fit(X, y, **weights)
    before = model.model_
    held = before.calibrate(X_held, y_held)
    model.calibrate(X, y, cv=5, **weights)
    np.testing.assert_array_equal(model.model_.weights, before.weights)
    own, large = (log_loss(y_test, found.probabilities(X_test)) for found in (model.model_, held))
    fooled = log_loss(y_test, before.calibrate(X, y).probabilities(X_test))
    assert own < large + 0.02
    assert own < fooled - 0.1  # by the rows of the fit themselves
    assert model.model_.link == held.link


def test_cross_validation_of_two_classes_label_sets_and_rare_classes():
    X, y, X_held, y_held, X_test, y_test = shuffled()
    two = LinearClassifier("hinge", alpha=1e-2, random_state=0).fit(X, y > 4)
    large = two.model_.calibrate(X_held, y_held > 4)
    two.calibrate(X, y > 4, cv=3)
    assert log_loss(y_test > 4, two.predict_proba(X_test)) < log_loss(y_test > 4, large.probabilities(X_test)) + 0.02
    Y, Y_held, Y_test = (
        np.eye(10, dtype=int)[part] | np.eye(10, dtype=int)[(part + 1) % 10] for part in (y, y_held, y_test)
    )

    def loss(p):
        return -np.log(np.where(Y_test > 0, p, 1 - p)).mean()

    for given in (Y, sp.csr_matrix(Y)):
        sets = LinearClassifier("squared_hinge", alpha=1e-2, random_state=0).fit(X, given)
        large = sets.model_.calibrate(X_held, Y_held)
        assert loss(sets.calibrate(X, given, cv=3).predict_proba(X_test)) < loss(large.probabilities(X_test)) + 0.02
    rare = np.where(np.arange(len(y)) == 7, 99, y)  # one row: in no fold, so that every model has the class
    model = LinearClassifier("crammer_singer", alpha=1e-2, random_state=0).fit(X, rare).calibrate(X, rare, cv=4)
    assert model.predict_proba(X_held).shape == (600, 11)
    shifted = LinearClassifier("crammer_singer", alpha=1e-2, random_state=0, class_weight="balanced").fit(X, y)
    before = shifted.intercept_.copy()
    shifted.calibrate(X, y, cv=3, bias=True)
    assert not np.array_equal(shifted.intercept_, before)


@pytest.mark.parametrize(
    "estimator",
    [
        manyclass.LinearClassifierCV("squared_hinge", alphas=[1e-1, 1e-2], cv=2),
        LinearClassifier("crammer_singer", alpha="auto"),
        GeneralizedLeastSquaresClassifier(alphas=[1e-2, 1e-3]),
        StagewiseClassifier("fourier:30", n_blocks=2),
    ],
    ids=lambda found: type(found).__name__,
)
def test_every_classifier_is_calibrated_by_cross_validation(estimator):
    X, y, X_held, y_held, X_test, y_test = shuffled()
    model = estimator.set_params(random_state=0).fit(X, y)
    labels = model.predict(X_test)
    large = model.model_.calibrate(X_held, y_held)
    model.calibrate(X, y, cv=4)
    np.testing.assert_array_equal(model.predict(X_test), labels)
    assert log_loss(y_test, model.predict_proba(X_test)) < log_loss(y_test, large.probabilities(X_test)) + 0.03


def test_splits_of_scikit_learn_are_those_of_the_calibration():
    X, y, *_ = shuffled()
    rng = np.random.default_rng(0)
    weights, groups = rng.uniform(0.5, 1.5, len(y)), rng.integers(0, 40, len(y))
    estimator = LinearClassifier("crammer_singer", alpha=1e-2, random_state=0).fit(X, y, weights)
    model = estimator.model_
    splitter = StratifiedGroupKFold(4)
    parts = list(splitter.split(X, y, groups))
    models = [clone(estimator).fit(X[train], y[train], weights[train]) for train, _ in parts]
    scores = np.vstack([found.decision_function(X[test]) for found, (_, test) in zip(models, parts)])
    rows = np.concatenate([test for _, test in parts])

    def loss(log_beta):
        return -(weights[rows] * log_softmax(np.exp(log_beta) * scores, axis=1)[np.arange(len(rows)), y[rows]]).sum()

    best = np.exp(-minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}).x)
    for cv in (splitter, parts, iter(parts)):
        estimator.model_ = model
        estimator.calibrate(X, y, weights, cv=cv, groups=groups if cv is splitter else None)
        assert estimator.model_.link == "softmax"
        assert estimator.model_.temperature == pytest.approx(best, rel=1e-4)
    train, test = np.arange(600) < 400, np.arange(600) >= 500  # masks, and rows in neither part
    estimator.calibrate(X, y, cv=[(train, test)])
    Y = sp.csr_matrix(np.eye(10, dtype=int)[y])
    sets = LinearClassifier("squared_hinge", alpha=1e-2, random_state=0).fit(X, Y).calibrate(X, Y, cv=KFold(3))
    assert sets.model_.link == "sigmoid"


def test_splits_that_cannot_calibrate_are_refused(fitted):
    model, X, y, *_ = fitted
    model = clone(model).fit(X, y)
    half = np.arange(len(y)) % 2 == 0
    for cv, message in [
        ([(half, half)], "split 0 of cv has test rows that are training rows"),
        ([(half, ~half), (y != 3, y == 3)], "rows of split 1 of cv have no row of the class 3, so that its model"),
        ([(np.arange(400), np.arange(400, 601))], "the test rows of each split of cv must be numbers from 0 to 599"),
        ([(half, [])], "the test rows of each split of cv"),
        ([], "cv must give at least one split"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.calibrate(X, y, cv=cv)
    with pytest.raises(ValueError, match="groups are for splitters such as"):
        model.calibrate(X, y, cv=3, groups=y)
    with pytest.raises(ValueError, match="groups are for a splitter, and cv is None"):
        model.calibrate(X, y, groups=y)
    with pytest.raises(ValueError, match="groups"):  # of scikit-learn
        model.calibrate(X, y, cv=GroupKFold(3))
    assert model.model_.link == "identity"


@pytest.mark.parametrize(
    "estimator",
    [CalibratedLeastSquaresClassifier(max_iter=3), StagewiseClassifier("fourier:30", n_blocks=2, update="calibrated")],
    ids=lambda found: type(found).__name__,
)
def test_projected_predictions_are_probabilities_already(capsys, tmp_path, estimator):
    X, y, X_held, y_held, X_test, _ = shuffled()
    model = estimator.set_params(random_state=0).fit(X, y)
    proba = model.predict_proba(X_test)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    labels, best = model.predict_topk(X_test, 10, proba=True)
    np.testing.assert_array_equal(best, -np.sort(-proba, axis=1))
    np.testing.assert_array_equal(labels[:, 0], model.predict(X_test))
    for further in ({"cv": 3}, {}):
        with pytest.raises(ValueError, match="the scores of this model are probabilities already, projections that"):
            model.calibrate(X_held, y_held, **further)
    model.save(tmp_path / "m")
    manyclass.io.write(tmp_path / "d.npz", manyclass.io.Dataset(sp.csr_matrix(X_test), None))
    ran = run(capsys, "predict", tmp_path / "m", tmp_path / "d.npz", "--proba")
    label, score = ran.lines[0].split(":")
    assert label == str(labels[0, 0])
    assert float(score) == pytest.approx(best[0, 0], rel=1e-6)


def test_what_cannot_be_cross_validated_is_refused(fitted):
    model, X, y, *_ = fitted
    for wrong in (1, True, 2.5, "five"):
        with pytest.raises(
            ValueError, match="cv must be a number of folds, an integer of at least 2, or a splitter of"
        ):
            model.calibrate(X, y, cv=wrong)
    with pytest.raises(ValueError, match="cv=5 needs as many rows of classes with two rows or more, got 0"):
        model.calibrate(X[:2], [0, 1], cv=5)
    with pytest.raises(ValueError, match="this model has no estimator to fit"):
        model.model_.calibrate(X, y, cv=5)

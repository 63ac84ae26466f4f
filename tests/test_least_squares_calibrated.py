"""Algorithm 2: the error falls at every half-step; Theorem 2; the model replays the rounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning

from manyclass import CalibratedLeastSquaresClassifier
from manyclass.estimators import calibrated
from manyclass.solvers.least_squares.calibrated import calibrated_rounds
from manyclass.solvers.least_squares.design import Design


def problem(seed, n=200, d=7, K=4, weighted=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(1)
    weights = rng.choice([0.5, 1.0, 2.0], n) if weighted else None
    return X, np.eye(K)[y], None if weights is None else weights / weights.mean()


@pytest.mark.parametrize("basis", ["linear", "quadratic", "cubic", lambda s: np.hstack([s, np.tanh(3 * s)])])
@pytest.mark.parametrize("domain", ["simplex", "box"])
@pytest.mark.parametrize(("weighted", "alpha"), [(False, 0.0), (True, 0.0), (True, 0.1)])
def test_the_squared_error_falls_at_every_half_step(basis, domain, weighted, alpha):
    """With the identity in lin(G) and any ridge: a half-step could always leave things as they are."""
    X, Y, weights = problem(0, weighted=weighted)
    if domain == "box":
        Y = np.maximum(Y, Y[:, ::-1])  # two labels a row
    predictions = np.zeros_like(Y)
    rounds = calibrated_rounds(
        Design(X, weights=weights), Y, predictions, alpha, basis=basis, domain=domain, factored=True
    )
    c = np.ones(len(X)) if weights is None else weights
    before = float(c @ (Y**2).sum(1)) / len(X)
    falls = 0
    for found in itertools.islice(rounds, 15):
        assert found.errors[0] <= before + 1e-12
        assert found.errors[1] <= found.errors[0] + 1e-12
        falls += found.errors[1] < before - 1e-6
        before = found.errors[1]
        assert before == pytest.approx(float(c @ ((Y - predictions) ** 2).sum(1)) / len(X), rel=1e-12)
    # Where nothing is clipped, linear functions of linear predictions are nothing new.
    assert falls >= (1 if basis == "linear" else 3)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 4.0), (2.0, 0.0)])
def test_theorem_2(a, b):
    """Targets g(W x) without noise, g^-1(y) = a (y - 1/2) + b (y - 1/2)^3 in lin(G), g(0) = 1/K for K = 2."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 5))
    S = X @ rng.normal(size=5)
    S *= (0.5 * a + 0.125 * b) / np.abs(S).max()  # predictions fill [0, 1]
    grid = np.linspace(-0.5, 0.5, 200_001)
    u = np.interp(S, a * grid + b * grid**3, grid)
    Y = np.stack([0.5 + u, 0.5 - u], axis=1)
    kappa = (a + 0.75 * b) / a  # of the slopes of g^-1 on [0, 1]
    predictions = np.zeros_like(Y)
    rounds = calibrated_rounds(Design(X), Y, predictions, 0.0, basis="cubic", domain="simplex")
    for t, found in zip(range(1, 300), rounds):
        assert found.errors[1] <= 22 * kappa**2 / t
    assert found.errors[1] < 1e-3  # far less, in the end


def test_without_the_constant_or_the_squares_a_curved_link_is_not_reached():
    """The same data, where lin(G) lacks g^-1: the error stays."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 3))
    Y = 1 / (1 + np.exp(-6 * (X @ rng.normal(size=3))))
    Y = np.stack([Y, 1 - Y], axis=1)
    errors = {}
    for basis in ("linear", "cubic"):
        rounds = calibrated_rounds(Design(X), Y, np.zeros_like(Y), 0.0, basis=basis, domain="simplex")
        errors[basis] = next(itertools.islice(rounds, 20, None)).errors[1]
    assert errors["cubic"] < 0.8 * errors["linear"]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


def test_the_model_replays_the_rounds(digits):
    X, y = digits
    model = CalibratedLeastSquaresClassifier(alpha=1e-3, max_iter=6, tol=0.0).fit(X, y)
    assert model.n_iter_ == 6
    assert model.errors_.shape == (6, 2)
    scores = model.decision_function(X)
    assert np.mean(((scores - np.eye(10)[y]) ** 2).sum(1)) == pytest.approx(model.errors_[-1, 1], rel=1e-9)
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-12)
    assert scores.min() >= 0
    np.testing.assert_array_equal(model.predict(X), scores.argmax(axis=1))
    assert model.score(X, y) > 0.96


def test_kinds_of_data_agree(digits, tmp_path):
    X, y = digits
    np.save(tmp_path / "x.npy", X)
    expected = CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=4).fit(X, y).decision_function(X)
    for held in (sp.csr_matrix(X), np.asfortranarray(X), np.load(tmp_path / "x.npy", mmap_mode="r")):
        model = CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=4).fit(held, y)
        np.testing.assert_allclose(model.decision_function(held), expected, atol=1e-8)
    single = CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=4).fit(X.astype(np.float32), y)
    assert single.model_.dtype == np.float32
    np.testing.assert_allclose(single.decision_function(X.astype(np.float32)), expected, atol=5e-3)
    by_gradients = CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=4, system="cg").fit(X, y)
    np.testing.assert_allclose(by_gradients.decision_function(X), expected, atol=1e-5)


def test_weights_are_repetitions(digits):
    X, y = digits[0][:300], digits[1][:300]
    counts = np.random.default_rng(0).integers(1, 4, 300)
    one = CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=5).fit(X, y, sample_weight=counts)
    other = CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=5).fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-7)
    np.testing.assert_allclose(one.errors_, other.errors_, atol=1e-10)


@pytest.mark.parametrize("sparse", [False, True])
def test_several_labels_a_row(sparse):
    X, Y = make_multilabel_classification(300, 12, n_classes=5, random_state=0)
    model = CalibratedLeastSquaresClassifier(alpha=1e-3).fit(X / 10, sp.csr_matrix(Y) if sparse else Y)
    scores = model.decision_function(X / 10)
    assert scores.min() >= 0
    assert scores.max() <= 1
    predicted = model.predict(X / 10)
    assert sp.issparse(predicted) == sparse
    predicted = predicted.toarray() if sparse else predicted
    np.testing.assert_array_equal(predicted, scores > 0.5)
    assert np.mean(predicted == Y) > 0.8


@pytest.mark.parametrize("features", [None, "fourier:30"])
def test_a_warm_start_adds_rounds(digits, features):
    X, y = digits
    whole = CalibratedLeastSquaresClassifier(features=features, tol=0, max_iter=5, random_state=0).fit(X, y)
    parts = CalibratedLeastSquaresClassifier(features=features, tol=0, max_iter=2, random_state=0, warm_start=True)
    parts.fit(X, y).set_params(max_iter=3).fit(X, y)
    assert len(parts.model_.stages) == 5
    np.testing.assert_allclose(parts.decision_function(X), whole.decision_function(X), atol=1e-10)
    with pytest.raises(ValueError, match="warm_start=True needs the classes"):
        parts.fit(X[:, :5], y)


def test_a_continued_fit_is_judged_on_the_same_rows(digits, monkeypatch):
    """Others would be rows that its first rounds were fitted to; a RandomState goes on from fit to fit."""
    X = digits[0][:400]
    seen = []
    monkeypatch.setattr(calibrated, "error_rate", lambda scores, labels, *rest: seen.append(labels.copy()) or 0.5)
    estimator = CalibratedLeastSquaresClassifier(
        max_iter=2, early_stopping=True, warm_start=True, random_state=np.random.RandomState(0)
    )
    for _ in range(2):
        estimator.fit(X, np.arange(400) // 2)
    assert len(seen) >= 4
    assert all(np.array_equal(labels, seen[0]) for labels in seen)


def test_the_best_round_is_kept(digits):
    X, y = digits
    noisy = np.where(np.random.default_rng(0).random(len(y)) < 0.3, (y + 1) % 10, y)
    settings = {"alpha": 1e-6, "tol": 0.0, "max_iter": 30, "random_state": 0, "patience": 3}
    model = CalibratedLeastSquaresClassifier(early_stopping=True, **settings).fit(X, noisy)
    errors = [record.validation_error for record in model.stage_records_]
    assert model.outcome_ == "stopped early"
    assert len(model.model_.members[0]) == int(np.argmin(errors)) + 1
    assert model.n_iter_ == len(model.model_.members[0]) + 3


def test_an_interrupted_fit_keeps_its_rounds(digits):
    X, y = digits
    calls = []

    def basis(scores):
        calls.append(len(scores))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return np.hstack([np.ones((len(scores), 1)), scores])

    with pytest.warns(ConvergenceWarning, match="interrupted after 2 rounds"):
        model = CalibratedLeastSquaresClassifier(basis, tol=0.0).fit(X, y)
    assert model.outcome_ == "interrupted"
    assert len(model.model_.members[0]) == 2

    def at_once(scores):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # nothing to keep
        CalibratedLeastSquaresClassifier(at_once).fit(X, y)

"""standardize=True: the penalty of standardized columns, and the model of the columns as they are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyclass import (
    ActiveSetSDCA,
    CrammerSinger,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    certify,
    load,
    regularization_path,
)
from manyclass.cli.main import main
from manyclass.objective.standard import Standard
from manyclass.solvers import SOLVERS, Solver

RNG = np.random.default_rng(0)
#: Columns of all scales, one of them constant, one with a large mean, one of zeros, and many zeros.
X = RNG.normal(size=(90, 9)) * 10.0 ** RNG.uniform(-2, 2, 9) * (RNG.random((90, 9)) < 0.7)
X[:, 3], X[:, 4], X[:, 5] = 7.0, 0.0, X[:, 5] + 100.0
SPARSE = sp.csr_matrix(X)
Y = (X[:, :3] / X[:, :3].std(axis=0) + 0.5 * RNG.normal(size=(90, 3))).argmax(axis=1)
WEIGHTS = RNG.integers(0, 4, 90).astype(float)


def scaled(model, rows, y, center, weights=None):
    """The fit of the same model after scikit-learn's StandardScaler."""
    after = model.set_params(standardize=False)
    steps = make_pipeline(StandardScaler(with_mean=center), after)
    given = {} if weights is None else {"standardscaler__sample_weight": weights}
    return steps.fit(rows, y, **given, **{f"{type(after).__name__.lower()}__sample_weight": weights})


def objective(model, rows, y):
    """The objective from the fitted weights, with the penalty of those of the standardized columns."""
    scores, deviation = model.decision_function(rows), np.asarray(X.std(axis=0))
    penalty = 0.5 * model.alpha_ * ((model.coef_ * deviation) ** 2).sum()
    if model.loss == "squared_hinge":
        signs = 2.0 * (np.asarray(y)[:, None] == model.classes_) - 1.0
        return (np.maximum(0.0, 1.0 - signs * scores) ** 2).sum(axis=1).mean() + penalty
    return (np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]).mean() + penalty


@pytest.mark.parametrize("loss", ["multinomial", "softmax_hinge", "log_loss", "squared_hinge", "squared", "huber"])
@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_model_is_that_of_a_pipeline(loss, rows, intercept):
    numbers = loss in ("squared", "huber")
    kind, y = (LinearRegressor, Y + 0.1 * X[:, 0]) if numbers else (LinearClassifier, Y)
    model = kind(loss, standardize=True, fit_intercept=intercept, alpha=0.02, tol=1e-9, max_iter=2000)
    ours = model.fit(rows, y, WEIGHTS)
    # Where there is an intercept, centered columns and others have the same optimum.
    center = intercept or rows is X
    other = kind(loss, fit_intercept=intercept, solver="lbfgs", alpha=0.02, tol=1e-9, max_iter=2000)
    theirs = scaled(other, X if center else rows, y, center, WEIGHTS)
    assert ours.duality_gap_ <= 1e-9
    assert ours.objective_ == pytest.approx(theirs[-1].objective_, rel=1e-8)
    scores = "predict" if numbers else "decision_function"
    known = getattr(theirs, scores)(X if center else rows)
    np.testing.assert_allclose(getattr(ours, scores)(rows), known, atol=2e-4 * np.abs(known).max())


@pytest.mark.parametrize("loss", ["hinge", CrammerSinger(gamma=0)], ids=["hinge", "crammer_singer"])
@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_loss_with_a_kink_is_that_of_a_pipeline(loss, rows, intercept):
    """Its solvers read a copy of the rows."""
    given = {"fit_intercept": intercept, "alpha": 0.02, "tol": 1e-6, "max_iter": 5000, "random_state": 0}
    ours = LinearClassifier(loss, standardize=True, **given).fit(rows, Y, WEIGHTS)
    center = intercept or rows is X
    theirs = scaled(LinearClassifier(loss, **given), X if center else rows, Y, center, WEIGHTS)
    assert max(ours.duality_gap_, theirs[-1].duality_gap_) <= 1e-6
    assert ours.objective_ == pytest.approx(theirs[-1].objective_, rel=2e-6)
    known = theirs.decision_function(X if center else rows)
    np.testing.assert_allclose(ours.decision_function(rows), known, atol=1e-2 * np.abs(known).max())


@pytest.mark.parametrize("intercept", [True, False])
def test_sparse_weights_are_for_the_columns_as_they_are(intercept):
    rng = np.random.default_rng(1)
    rows = sp.random(400, 30, 0.2, "csr", random_state=2)
    rows = sp.csr_matrix(rows.multiply(10.0 ** rng.uniform(-2, 2, 30)))
    y = rng.integers(0, 150, 400)
    fits = [
        LinearClassifier(
            "crammer_singer",
            solver=ActiveSetSDCA(storage=storage),
            **{"standardize": True, "fit_intercept": intercept, "alpha": 0.1, "random_state": 0},
        ).fit(rows, y)
        for storage in ("sparse", "dense")
    ]
    assert sp.issparse(fits[0].model_.weights)
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fits[0].intercept_, fits[1].intercept_, rtol=1e-9)
    auto = LinearClassifier("crammer_singer", standardize=True, alpha=0.1).fit(rows, y)
    assert auto.solver_ == "sdca_active"  # L-BFGS would have scores of all rows and classes


def test_the_l1_penalty_is_that_of_scaled_weights():
    model = LinearClassifier(standardize=True, l1_ratio=0.7, alpha=0.02, tol=1e-7, max_iter=3000).fit(X, Y)
    theirs = scaled(LinearClassifier(l1_ratio=0.7, alpha=0.02, tol=1e-7, max_iter=3000, solver="fista"), X, Y, True)
    assert model.objective_ == pytest.approx(theirs[-1].objective_, rel=1e-6)
    np.testing.assert_array_equal(model.coef_ != 0, theirs[-1].coef_ != 0)
    assert not model.coef_[:, [3, 4]].any()  # columns of one value


@pytest.mark.parametrize("solver", [name for name, kind in SOLVERS.items() if issubclass(kind, Solver)])
def test_every_solver_fits_it_or_says_that_it_does_not(solver):
    loss = "squared_hinge" if solver in ("cd", "interior_point") else "multinomial"
    model = LinearClassifier(loss, standardize=True, solver=solver, alpha=0.1, max_iter=300, random_state=0)
    if SOLVERS[solver].distributed or solver in ("memoir", "sdca_active"):
        with pytest.raises(ValueError, match=r"standardize=True|needs loss=|needs a loss"):
            model.fit(X, Y)
        return
    for rows in (X, SPARSE):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of gd and sgd, slow where columns are not centered
            model.fit(rows, Y)
        known = LinearClassifier(loss, standardize=True, solver="lbfgs", alpha=0.1, tol=1e-9, max_iter=2000)
        assert model.objective_ * (1.0 - model.duality_gap_) <= known.fit(rows, Y).objective_ * (1 + 1e-9)
        assert known.objective_ <= model.objective_ * (1 + 1e-8)
        assert model.objective_ == pytest.approx(objective(model, rows, Y), rel=1e-6)


@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_a_path_is_that_of_scaled_columns(rows, ratio):
    """More features than rows, columns of all scales."""
    rows, numbers = rows[:8], X[:8, 5] / 100 + np.arange(8)
    whole = StandardScaler().fit_transform(X[:8])  # centered or not, the optimum with an intercept is the same
    options = {"l1_ratio": ratio, "tol": 1e-8, "random_state": 0, "max_iter": 3000}
    ours = regularization_path(LinearRegressor(standardize=True, **options), rows, numbers, n_alphas=5)
    theirs = regularization_path(LinearRegressor(**options), whole, numbers, n_alphas=5)
    np.testing.assert_allclose(ours.alphas, theirs.alphas, rtol=1e-9)
    np.testing.assert_allclose(ours.objectives, theirs.objectives, rtol=1e-6)
    assert ours.gaps.max() <= 1e-8
    for alpha in ours.alphas:
        known = theirs.model(alpha).scores(whole)
        np.testing.assert_allclose(ours.model(alpha).scores(rows), known, atol=2e-3 * np.abs(known).max())


@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
def test_cross_validation_standardizes_the_training_rows_of_each_fold(rows):
    options = {"l1_ratio": 0.8, "alphas": [0.2, 0.05, 0.01], "cv": 3, "tol": 1e-7, "random_state": 0}
    ours = LinearClassifierCV("log_loss", standardize=True, **options).fit(rows, Y)
    for k, alpha in enumerate(ours.alphas_):
        one = LinearClassifier("log_loss", standardize=True, l1_ratio=0.8, alpha=alpha, tol=1e-7, random_state=0)
        known = cross_val_score(one, rows, Y, cv=3, scoring="neg_log_loss")
        np.testing.assert_allclose(ours.scores_path_[k], known, rtol=1e-3)
    alone = LinearClassifier("log_loss", standardize=True, l1_ratio=0.8, alpha=ours.alpha_, tol=1e-7, random_state=0)
    np.testing.assert_array_equal(ours.coef_, alone.fit(rows, Y).coef_)


@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
def test_moments_are_those_of_the_scaler(rows):
    found = Standard.of(rows.astype(np.float32), WEIGHTS, center=True)
    known = StandardScaler(with_mean=rows is X).fit(rows, sample_weight=WEIGHTS)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=WEIGHTS), rtol=1e-5, atol=1e-6)
    assert (found.factor[[3, 4]] == 0).all()
    np.testing.assert_allclose(found.factor[found.factor > 0] * known.scale_[found.factor > 0], 1.0, rtol=1e-4)


@pytest.mark.parametrize("value", [0.1, 1.0, 1e6])
def test_constant_columns_alone_leave_the_intercept(value):
    model = LinearClassifier(standardize=True, tol=1e-8, max_iter=1000, random_state=0).fit(np.full((90, 2), value), Y)
    assert not model.coef_.any()
    np.testing.assert_allclose(model.predict_proba([[value, value]])[0], np.bincount(Y) / 90, atol=1e-4)


def test_held_out_rows_callbacks_and_the_search_see_the_model_for_x():
    told = []
    model = LinearClassifier(standardize=True, alpha="auto", early_stopping=3, tol=1e-6, random_state=0)
    model.fit(X, Y, X_val=X, y_val=Y, callback=lambda at: told.append(at.weights()))
    best = max(record.score for record in model.history_.validation)
    assert model.score(X, Y) == best > 0.7
    assert any(np.array_equal(W.T, model.coef_) and np.array_equal(b, model.intercept_) for W, b in told)
    # The objective was computed from the weights of standardized columns.
    scores = model.decision_function(X)
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(Y)), Y]
    penalty = 0.5 * model.alpha_ * ((model.coef_ * X.std(axis=0)) ** 2).sum()
    assert model.objective_ == pytest.approx(losses.mean() + penalty, rel=1e-9)
    assert max(model.validation_scores_.values()) > 0.6


def test_a_model_is_saved_and_fitted_from_the_command_line(tmp_path):
    model = LinearClassifier(standardize=True).fit(X.astype(np.float32), Y)
    model.save(tmp_path / "one.model")
    kept = load(tmp_path / "one.model")
    np.testing.assert_array_equal(kept.decision_function(X), model.model_.decision_function(X))
    assert kept.parameters["standardize"] is True
    with pytest.raises(ValueError, match="standardize=True"):
        certify(kept, X, Y)
    np.savez(tmp_path / "data.npz", X=X.astype(np.float32), y=Y)
    given = ["fit", str(tmp_path / "data.npz"), "-o", str(tmp_path / "two.model"), "--standardize", "--quiet"]
    assert main(given) == 0
    np.testing.assert_allclose(load(tmp_path / "two.model").weights, kept.weights, atol=1e-5)


def test_what_cannot_be_standardized_is_refused():
    with pytest.raises(ValueError, match="standardize is not supported by partial_fit"):
        LinearClassifier("log_loss", solver="sgd", standardize=True).partial_fit(X, Y)


def test_x_is_neither_changed_nor_copied():
    import tracemalloc

    rows = np.random.default_rng(1).normal(size=(40_000, 20)).astype(np.float32)
    y = rows[:, 0] > 0
    rows.flags.writeable = False
    model = LinearClassifier(standardize=True, tol=0.1)
    model.fit(rows[:100], y[:100])  # compiles
    tracemalloc.start()
    model.fit(rows, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * rows.nbytes + 40_000 * 40


def test_weights_for_the_columns_as_they_are_count_in_the_memory(monkeypatch):
    asked = []
    monkeypatch.setattr("manyclass.solvers.base.require", lambda needs, remedy: asked.append(needs))
    LinearClassifier(standardize=True, solver="lbfgs", dtype=np.float32, alpha=0.1).fit(X, Y)
    assert asked[0]["weights for the columns as they are"] == 9 * 3 * 4  # features, classes, bytes

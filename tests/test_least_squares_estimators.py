"""The least-squares estimators: scikit-learn's checks, several penalties, arrays of other libraries, refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import (
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    LinearClassifier,
    StagewiseClassifier,
    StagewiseRegressor,
)
from manyclass.estimators.streamed import hold_out
from manyclass.features import BLOCKS, FeatureSubset, RandomFourier
from manyclass.runtime.arrays import is_foreign, like, to_numpy

BLOCK = RandomFourier(100, scale=20.0)

#: Calibrations have no penalty.
_CLASS_WEIGHT = {"check_class_weight_classifiers": "a class of weight 1e-7 is fitted where no other class is"}


#: With weights in place of repeated rows other rows are drawn for the bandwidth and the centers.
_DRAWN = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "rows are drawn at random: see test_weights_are_repetitions with given features",
)


def _expected_failures(estimator):
    if getattr(estimator, "features", None) == "auto":
        return _DRAWN
    return _CLASS_WEIGHT if getattr(estimator, "update", "") == "calibrated" else {}


@parametrize_with_checks(
    [
        GeneralizedLeastSquaresClassifier(),
        GeneralizedLeastSquaresClassifier("softmax", max_iter=1000),
        GeneralizedLeastSquaresClassifier("sigmoid", max_iter=1000),
        GeneralizedLeastSquaresClassifier(alphas=[1e-3, 1e-1], random_state=0),
        GeneralizedLeastSquaresClassifier(expit, lipschitz=0.25, tol=1e-12, max_iter=1000),
        GeneralizedLeastSquaresClassifier("softmax", features=BLOCK, max_iter=1000),
        CalibratedLeastSquaresClassifier(),
        StagewiseClassifier(random_state=0),
        StagewiseClassifier(BLOCK, n_blocks=2),
        StagewiseClassifier(BLOCK, n_blocks=2, update="logistic"),
        StagewiseClassifier(BLOCK, n_blocks=2, update="calibrated"),
        StagewiseRegressor(random_state=0),
        StagewiseRegressor(BLOCK, n_blocks=2),
    ],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


# --- what the links are ---------------------------------------------------------------------------------------------


def test_identity_is_ridge_regression_on_indicators(digits):
    X, y = digits
    ours = GeneralizedLeastSquaresClassifier(alpha=0.01).fit(X, y)
    theirs = Ridge(alpha=0.01 * len(y)).fit(X, np.eye(10)[y])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-10)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-10)
    assert ours.n_iter_ <= 2  # the first certificate is after two
    two = y < 2
    ours, theirs = GeneralizedLeastSquaresClassifier(alpha=0.01).fit(X[two], y[two]), Ridge(alpha=0.01 * two.sum())
    np.testing.assert_allclose(ours.decision_function(X[two]), theirs.fit(X[two], 2 * y[two] - 1).predict(X[two]))


def test_softmax_and_sigmoid_are_logistic_regression(digits):
    X, y = (part[::3] for part in digits)
    for rows in (np.arange(len(y)), np.flatnonzero(y < 2)):
        ours = GeneralizedLeastSquaresClassifier("softmax", alpha=1e-3, tol=1e-9, max_iter=3000).fit(X[rows], y[rows])
        theirs = LogisticRegression(C=1 / (1e-3 * len(rows)), tol=1e-8, max_iter=5000).fit(X[rows], y[rows])
        np.testing.assert_allclose(ours.predict_proba(X[rows]), theirs.predict_proba(X[rows]), atol=1e-4)
    ours = GeneralizedLeastSquaresClassifier("sigmoid", alpha=1e-3, tol=1e-8, max_iter=3000).fit(X, y)
    other = LinearClassifier("log_loss", solver="sdca", alpha=1e-3, tol=1e-8, max_iter=3000, random_state=0).fit(X, y)
    assert ours.objective_ == pytest.approx(other.objective_, rel=1e-7)


@pytest.mark.parametrize(
    ("named", "own", "lipschitz"),
    [("identity", lambda s: s, 1.0), ("softmax", lambda s: softmax(s, axis=1), 0.5), ("sigmoid", expit, 0.25)],
)
def test_links_of_ones_own_are_those_of_the_same_name(digits, named, own, lipschitz):
    X, y = digits
    expected = GeneralizedLeastSquaresClassifier(named, alpha=1e-2, tol=1e-10, max_iter=1000).fit(X, y)
    found = GeneralizedLeastSquaresClassifier(own, lipschitz=lipschitz, alpha=1e-2, tol=1e-14, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-4)
    assert np.isnan(found.duality_gap_)
    assert found.history_.outcome == "converged"
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        GeneralizedLeastSquaresClassifier(own, lipschitz=lipschitz, tol=0.0, max_iter=1).fit(X, y)


def test_a_block_of_all_features_is_no_block(digits):
    X, y = digits
    for link in ("identity", "softmax", "sigmoid"):
        expected = GeneralizedLeastSquaresClassifier(link, alpha=1e-2, tol=1e-10, max_iter=1000).fit(X, y)
        found = GeneralizedLeastSquaresClassifier(
            link, alpha=1e-2, tol=1e-14, max_iter=1000, features=FeatureSubset(64)
        ).fit(X, y)
        np.testing.assert_allclose(found.decision_function(X), expected.decision_function(X), atol=1e-4)
        if link != "identity":
            np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-4)
    two = y < 2
    found = GeneralizedLeastSquaresClassifier("softmax", features=BLOCK, alpha=1e-4).fit(X[two], y[two])
    assert found.decision_function(X[two]).shape == (two.sum(),)
    assert found.score(X[two], y[two]) > 0.99


@pytest.mark.parametrize("kind", BLOCKS)
def test_features_by_name_are_those_of_the_block(digits, kind):
    X, y = (part[:300] for part in digits)
    for text, block in ((kind, BLOCKS[kind]()), (f"{kind}:30", BLOCKS[kind](n_components=30))):
        for estimator in (
            GeneralizedLeastSquaresClassifier(random_state=0),
            CalibratedLeastSquaresClassifier(random_state=0, max_iter=2),
        ):
            named = clone(estimator).set_params(features=text).fit(X, y)
            given = clone(estimator).set_params(features=block).fit(X, y)
            np.testing.assert_array_equal(named.decision_function(X), given.decision_function(X))
            assert named.features == text  # a parameter is stored as it is given


@pytest.mark.parametrize("link", ["identity", "sigmoid", "own"])
@pytest.mark.parametrize("sparse", [False, True])
def test_several_labels_a_row(link, sparse):
    X, Y = make_multilabel_classification(300, 12, n_classes=5, random_state=0)
    Y[:, 2] = 0  # a label that no row has
    X = X / 10
    chosen = {"link": expit, "lipschitz": 0.25} if link == "own" else {"link": link}
    model = GeneralizedLeastSquaresClassifier(alpha=1e-3, max_iter=1000, **chosen).fit(
        X, sp.csr_matrix(Y) if sparse else Y
    )
    predicted = model.predict(X)
    assert sp.issparse(predicted) == sparse
    predicted = predicted.toarray() if sparse else predicted
    assert not predicted[:, 2].any()
    assert np.mean(predicted == Y) > 0.8
    np.testing.assert_array_equal(predicted, model.decision_function(X) > 0)


# --- several penalties ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["identity", "softmax", "own"])
def test_several_penalties_are_separate_fits(digits, link):
    X, y = (part[::3] for part in digits)
    alphas = [1e-4, 1e-2, 1.0]
    chosen = {"link": lambda s: 0.5 * s, "lipschitz": 0.5} if link == "own" else {"link": link}
    settings = {"tol": 1e-8, "max_iter": 2000, **chosen}
    model = GeneralizedLeastSquaresClassifier(alphas=alphas, random_state=0, **settings).fit(X, y)
    held = np.sort(np.random.RandomState(0).permutation(len(y))[: round(0.1 * len(y))])
    rest = np.setdiff1d(np.arange(len(y)), held)
    for alpha in alphas:
        alone = GeneralizedLeastSquaresClassifier(alpha=alpha, **settings).fit(X[rest], y[rest])
        assert model.validation_errors_[alpha] == pytest.approx(1 - alone.score(X[held], y[held]), abs=1e-12)
    assert model.alpha_ == min(alphas, key=lambda alpha: (model.validation_errors_[alpha], -alpha))
    alone = GeneralizedLeastSquaresClassifier(alpha=model.alpha_, **settings).fit(X, y)
    np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-4)


def test_warm_starts_are_where_the_last_fit_ended(digits):
    X, y = digits
    model = GeneralizedLeastSquaresClassifier("softmax", alpha=1e-3, tol=1e-6, max_iter=1000, warm_start=True).fit(X, y)
    first = model.n_iter_
    assert model.set_params(alpha=9e-4).fit(X, y).n_iter_ < 0.7 * first


def test_the_least_squares_solver_serves_the_other_estimators(digits):
    X, y = digits
    ours = LinearClassifier(solver="generalized_least_squares", alpha=1e-3, tol=1e-6, max_iter=1000).fit(X, y)
    expected = GeneralizedLeastSquaresClassifier("softmax", alpha=1e-3, tol=1e-6, max_iter=1000).fit(X, y)
    assert ours.solver_ == expected.solver_ == "generalized_least_squares"
    np.testing.assert_array_equal(ours.coef_, expected.coef_)


# --- arrays of other libraries --------------------------------------------------------------------------------------


def strict(X):
    library = pytest.importorskip("array_api_strict")
    return library.asarray(X)


def torch(X):
    library = pytest.importorskip("torch")
    return library.from_numpy(np.ascontiguousarray(X))


ESTIMATORS = {
    "identity": GeneralizedLeastSquaresClassifier(alpha=1e-2),
    "softmax": GeneralizedLeastSquaresClassifier("softmax", alpha=1.0, tol=1e-12, max_iter=1000),
    "alphas": GeneralizedLeastSquaresClassifier(alphas=[1e-3, 1.0], random_state=0),
    "cg": GeneralizedLeastSquaresClassifier(alpha=1e-2, system="cg", tol=1e-12, max_iter=1000),
    "calibrated": CalibratedLeastSquaresClassifier(alpha=1e-2, max_iter=4),
    "stagewise": StagewiseClassifier(FeatureSubset(25, order="frequency"), alpha=1e-2, passes=2),
    "logistic": StagewiseClassifier(block_size=50, n_blocks=2, update="logistic", random_state=0),
    "calibrated stages": StagewiseClassifier(block_size=50, n_blocks=2, update="calibrated", random_state=0),
    "regression": StagewiseRegressor(block_size=50, n_blocks=2, random_state=0),
}


@pytest.mark.parametrize("library", [strict, torch])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_other_libraries(digits, library, name, dtype):
    X, y = digits[0].astype(dtype), digits[1]
    there = library(X)
    assert is_foreign(there)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(y))
    estimator = clone(ESTIMATORS[name])
    if dtype == np.float32 and "max_iter" in estimator.get_params():
        estimator.set_params(tol=1e-5)  # what a certificate in float32 can tell
    expected = clone(estimator).fit(X, y, sample_weight=weights)
    found = clone(estimator).fit(there, y, sample_weight=weights)
    one, other = (
        model.predict(rows) if name == "regression" else model.decision_function(rows)
        for model, rows in ((found, there), (expected, X))
    )
    np.testing.assert_allclose(one, other, atol={np.float32: 2e-2, np.float64: 1e-4}[dtype])
    # Two ways to compute the same features: of float32 they differ by its rounding, of float64 by no more than before.
    one, other = found.predict(X), to_numpy(found.predict(there))
    largest = float(np.abs(one).max())
    np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-5 * largest if dtype == np.float32 else 0)


@pytest.mark.parametrize("library", [strict, torch])
def test_arrays_of_other_libraries_are_checked(library):
    good = np.eye(4)
    with pytest.raises(ValueError, match="NaN or infinity in column 2"):
        GeneralizedLeastSquaresClassifier().fit(library(np.where(np.eye(4)[[2] * 4] > 0, np.nan, good)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="X must have dtype float32 or float64"):
        CalibratedLeastSquaresClassifier().fit(library(np.eye(4, dtype=np.int64)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="two dimensions"):
        GeneralizedLeastSquaresClassifier().fit(library(np.ones(4)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="inconsistent numbers"):
        GeneralizedLeastSquaresClassifier().fit(library(good), [0, 1, 0])
    back = to_numpy(like(good, library(good.astype(np.float32))))
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, good)


# --- refusals -------------------------------------------------------------------------------------------------------

BAD = [
    ({"link": "probit"}, "'link' parameter of GeneralizedLeastSquaresClassifier must be"),
    ({"link": np.tanh}, "lipschitz must be a number if link is a callable"),
    ({"link": np.tanh, "lipschitz": -1.0}, "'lipschitz' parameter"),
    ({"lipschitz": 1.0}, "lipschitz must be None for link 'identity', got 1.0"),
    ({"system": "qr"}, "'system' parameter"),
    ({"alpha": -1.0}, "'alpha' parameter"),
    ({"alphas": []}, "alphas must have at least one number"),
    ({"alphas": 1e-3}, "'alphas' parameter"),
    ({"alphas": [1.0, -1.0]}, "alphas must be"),
    ({"validation_fraction": 0.0}, "'validation_fraction' parameter"),
    ({"tol": -1.0}, "'tol' parameter"),
    ({"max_iter": 0}, "'max_iter' parameter"),
    ({"accelerated": "yes"}, "'accelerated' parameter"),
    ({"features": 3}, "'features' parameter"),
    ({"features": "furier"}, r"features must be one of 'fourier', .*: did you mean 'fourier'\?"),
    ({"features": "fourier:0"}, "features must have a number of features of at least 1 after the colon"),
    ({"dtype": np.int32}, "dtype must be"),
    ({"class_weight": "heavy"}, "class_weight"),
    ({"link": lambda s: s[:, :1], "lipschitz": 1.0}, "link must return finite numbers of the shape"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        GeneralizedLeastSquaresClassifier(**parameters).fit(np.eye(4), [0, 1, 0, 1])


def test_calibrated_parameters_are_refused():
    for parameters, message in (
        ({"basis": "quartic"}, "basis must be"),
        ({"alpha": -1.0}, "'alpha' parameter of CalibratedLeastSquaresClassifier must be"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"patience": 0}, "'patience' parameter"),
        ({"system": "qr"}, "'system' parameter"),
        ({"tol": 2.0}, "'tol' parameter"),
        ({"early_stopping": "yes"}, "'early_stopping' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"features": "pca:x"}, "features must have a number of features"),
        ({"features": "rff"}, r"did you mean 'fourier'\?"),
        ({"dtype": int}, "dtype must be"),
    ):
        with pytest.raises(ValueError, match=message):
            CalibratedLeastSquaresClassifier(**parameters).fit(np.eye(4), [0, 1, 0, 1])


def test_targets_that_do_not_fit_are_refused():
    X, Y = np.eye(4), np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    with pytest.raises(ValueError, match="link 'softmax' takes one class per row"):
        GeneralizedLeastSquaresClassifier("softmax").fit(X, Y)
    with pytest.raises(ValueError, match="link must be 1/2 at zero"):
        GeneralizedLeastSquaresClassifier(lambda s: s, lipschitz=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="y must have at least 2 classes, got one class only"):
        CalibratedLeastSquaresClassifier().fit(X, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="class_weight is not defined for multi-label"):
        StagewiseClassifier(class_weight="balanced").fit(X, Y)
    with pytest.raises(ValueError, match="only 0 and 1"):
        StagewiseClassifier().fit(X, sp.csr_matrix(2 * Y))


@pytest.mark.parametrize("wide", [False, True])
def test_without_a_penalty_the_fit_is_least_squares(wide):
    """The paper's own case: the minimum that least squares finds, and with more features than rows a fit of all."""
    rng = np.random.default_rng(0)
    n, d = (30, 60) if wide else (120, 6)
    X, y = rng.normal(size=(n, d)), np.arange(n) % 3
    found = GeneralizedLeastSquaresClassifier(alpha=0, tol=1e-20).fit(X, y)
    F = np.hstack([X, np.ones((n, 1))])
    best = F @ np.linalg.lstsq(F, np.eye(3)[y], rcond=None)[0]
    np.testing.assert_allclose(found.decision_function(X), best, atol=1e-8)
    assert found.alpha_ == 0
    assert np.isnan(found.duality_gap_)


def test_without_a_penalty_softmax_reaches_maximum_likelihood():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4))
    y = np.argmax(X @ rng.normal(size=(4, 3)) + rng.gumbel(size=(300, 3)), axis=1)
    found = GeneralizedLeastSquaresClassifier("softmax", alpha=0, tol=1e-14, max_iter=500).fit(X, y)
    gradient = X.T @ (found.predict_proba(X) - np.eye(3)[y]) / len(y)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.parametrize("link", ["identity", "softmax", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_objective_without_a_certificate_is_that_of_the_certificate(link, classes, weighted):
    """With features the fit computes no gap; with all columns as features it is the same problem."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(90, 5)), np.arange(90) % classes
    weights = rng.random(90) if weighted else None
    options = {"alpha": 0.05, "tol": 1e-14, "max_iter": 500}
    certified = GeneralizedLeastSquaresClassifier(link, **options).fit(X, y, weights)
    streamed = GeneralizedLeastSquaresClassifier(link, features=FeatureSubset(5), **options).fit(X, y, weights)
    assert np.isnan(streamed.duality_gap_)
    assert streamed.objective_ == pytest.approx(certified.objective_, rel=1e-10)
    assert streamed.model_.record["objective"] == streamed.objective_
    free = GeneralizedLeastSquaresClassifier(link, **{**options, "alpha": 0}).fit(X, y, weights)
    assert 0 < free.objective_ < certified.objective_


@pytest.mark.parametrize("seed", range(10))
def test_no_class_loses_its_last_row_to_the_validation_rows(seed):
    """Nor are rows of weight zero held out, whose errors count nothing."""
    rng = np.random.default_rng(seed)
    labels, weights = rng.geometric(0.3, 60) - 1, rng.choice([0.0, 0.5, 2.0], 60)
    held, kept = hold_out(60, 0.3, seed, weights, labels)
    present = np.unique(labels[weights > 0])
    assert np.array_equal(np.unique(labels[kept > 0]), present)
    assert np.array_equal(held, np.flatnonzero((weights > 0) & (kept == 0)))
    assert 1 <= len(held) <= round(0.3 * np.count_nonzero(weights))
    assert np.array_equal(hold_out(60, 0.3, seed, weights, labels)[0], held)
    with pytest.raises(ValueError, match="two rows of positive weight"):
        hold_out(3, 0.5, seed, None, np.arange(3))

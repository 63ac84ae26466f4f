"""Fits of rows where they are and as they are: arrays of other libraries, and NumPy's of half precision."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from manyclass import GeneralizedLeastSquaresClassifier, LinearClassifier, LinearClassifierCV, LinearRegressor, load
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets
from manyclass.objective import array_problem
from manyclass.objective.array_losses import ARRAY_LOSSES
from manyclass.objective.array_problem import ArrayProblem, ArrayRows
from manyclass.objective.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SmoothHinge,
    SmoothHingeLoss,
    SquaredHingeLoss,
    SquaredLoss,
)
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.runtime.arrays import in_parts, namespace, to_numpy
from manyclass.solvers import LBFGS, GeneralizedLeastSquares, PreconditionedLBFGS
from manyclass.solvers.primal import dense, on_arrays


def strict(array):
    """On a device from which NumPy itself refuses to convert."""
    library = pytest.importorskip("array_api_strict", minversion="2.3")
    return library.asarray(array, device=library.Device("device1"))


def torch(array):
    """On a GPU where there is one."""
    library = pytest.importorskip("torch")
    device = "cuda" if library.cuda.is_available() else "cpu"
    return library.from_numpy(np.ascontiguousarray(array)).to(device)


def cupy(array):
    return import_module("cupy").asarray(array)


def numpy(array):
    """Rows of NumPy's, which the kernels compute block by block."""
    return array


LIBRARIES = [strict, torch, *([cupy] if find_spec("cupy") else [])]

LOSSES = {
    "multinomial": MultinomialLoss(0.0),
    "softmax_hinge": MultinomialLoss(1.0),
    "log_loss": LogisticLoss(0.0),
    "margin": LogisticLoss(1.0),
    "smooth_hinge": SmoothHingeLoss(0.5),
    "squared_hinge": SquaredHingeLoss(),
    "squared": SquaredLoss(),
    "huber": HuberLoss(0.7),
}


def targets_of(kind, n, K, rng):
    if kind == "class":
        return ClassTargets(rng.integers(K, size=n).astype(np.int32), K)
    if kind == "real":
        return RealTargets(2.0 * rng.normal(size=(n, K)), K)
    if kind == "labels":  # sets, some empty
        has = rng.random((n, K)) < 0.3
        has[0] = False
    elif kind == "one":  # one-vs-rest
        has = np.eye(K, dtype=bool)[rng.integers(K, size=n)]
    else:  # two classes with one column
        has, K = rng.random((n, 1)) < 0.4, 1
    indptr = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int64)
    return SignTargets(indptr, np.nonzero(has)[1].astype(np.int32), K)


CASES = [
    (name, kind)
    for name, loss in LOSSES.items()
    for kind in {"class": ["class"], "sign": ["one", "labels", "binary"], "real": ["real"]}[loss.targets]
]


def test_every_loss_with_blocks_of_arrays_is_tested():
    assert {type(loss) for loss in LOSSES.values()} == set(ARRAY_LOSSES)


@pytest.mark.parametrize("library", [*LIBRARIES, numpy])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_passes_over_arrays_of_other_libraries(name, kind, intercept, weighted, library, monkeypatch):
    """Losses, gradients, objective and certificate at any weights are those of the problem on NumPy's rows."""
    rng = np.random.default_rng([CASES.index((name, kind)), intercept, weighted])
    n, d = 600, 7
    X, targets = rng.normal(size=(n, d)), targets_of(kind, n, 4, rng)
    K = targets.n_outputs
    weights = rng.choice([0.0, 0.5, 3.0], n) if weighted else None
    given = {"targets": targets, "loss": LOSSES[name], "penalty": L2(), "lam": 0.03, "n_features": d}
    given |= {"sample_weight": weights, "intercept": intercept}
    expected = Problem(rows=make_rows(X), **given)
    found = ArrayProblem(rows=ArrayRows(library(X)), **given)
    monkeypatch.setattr(ArrayProblem, "pieces", lambda self: [(0, 250), (250, 600)])
    np.testing.assert_allclose(found.norms, expected.norms, rtol=1e-14)
    np.testing.assert_allclose(found.feature_squares(), expected.feature_squares(), rtol=1e-14)
    W, bias = 3.0 * rng.normal(size=(d, K)), rng.normal(size=K) if intercept else np.zeros(K)
    there = found.of_model(W, bias)
    for array, back in zip((W, bias), found.model(*there)):
        np.testing.assert_array_equal(back, array)
    assert found.value(*there) == pytest.approx(expected.value(W, bias), rel=1e-13)

    dual, V = np.zeros((n, K)), np.zeros((d, K))
    losses = expected.respond(W, bias, dual)
    c = np.asarray(expected.sample_weight)[:, None]
    descent = found.descend(*there)
    assert descent.losses == pytest.approx(losses, rel=1e-13)
    np.testing.assert_allclose(to_numpy(descent.image), X.T @ (c * dual), atol=1e-10)
    sums = to_numpy(descent.sums) if intercept else descent.sums
    np.testing.assert_allclose(sums, (c * dual).sum(axis=0) if intercept else 0.0, atol=1e-10)
    if name in ("multinomial", "log_loss"):
        p = np.abs(dual)  # p (1 - p), by a = y - p
        spread = np.maximum((p * (1 - p)).mean(axis=1), 1e-6)
        assert descent.spread == pytest.approx(float(c[:, 0] @ spread), rel=1e-12)
    else:
        assert np.isnan(descent.spread) != isinstance(LOSSES[name], MultinomialLoss | LogisticLoss)
    certificate, right = found.certified(*there), expected.certify(W, bias, losses, dual, V)
    assert certificate.primal == pytest.approx(right.primal, rel=1e-13)
    assert certificate.dual == pytest.approx(right.dual, rel=1e-12, abs=1e-13)
    assert certificate.resolution == right.resolution


@pytest.mark.parametrize("library", [*LIBRARIES, numpy])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_some_rows_tell_how_the_loss_bends(name, kind, library, monkeypatch):
    """As those of NumPy's arrays do, of every sixteenth row."""
    rng = np.random.default_rng(CASES.index((name, kind)))
    n, d = 600, 7
    X, targets = rng.normal(size=(n, d)), targets_of(kind, n, 4, rng)
    K = targets.n_outputs
    given = {"targets": targets, "loss": LOSSES[name], "penalty": L2(), "lam": 0.03, "n_features": d}
    given |= {"sample_weight": rng.choice([0.0, 0.5, 3.0], n), "intercept": True}
    found = ArrayProblem(rows=ArrayRows(library(X)), **given)
    points = [(rng.normal(size=(d, K)), rng.normal(size=K)) for _ in range(2)]
    there = [part for point in points for part in found.of_model(*point)]
    assert found.changes_along(*there) is None  # too few rows
    found = ArrayProblem(rows=ArrayRows(library(X)), **given)
    monkeypatch.setattr(array_problem, "_TELLING", 1)
    for module in (array_problem, dense):
        monkeypatch.setattr(module, "_LEAST", 1)
    change, expected = found.changes_along(*there), dense.changes_along(Problem(rows=make_rows(X), **given), *points)
    for t in (0.0, 0.4, 2.0):
        np.testing.assert_allclose(change(t), expected(t), rtol=1e-9, atol=1e-12)


def rounded(array):
    """Numbers of 11 bits, as TF32 has them."""
    mantissa, exponent = np.frexp(to_numpy(array))
    return torch(np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent).astype(np.float32))


@pytest.fixture
def short_products(monkeypatch):
    """A device whose short products round all factors; the fixture is how often passes were short, and exact."""
    counts, now = {True: 0, False: 0}, []
    block, responses, weighted = ArrayProblem.block, ArrayProblem._responses, array_problem._OfLibrary.weighted

    @contextmanager
    def products(array, *, short):
        counts[short] += 1
        now.append(short)
        yield
        now.pop()

    def short_if(array):
        return rounded(array) if now and now[-1] else array

    for module in (array_problem, on_arrays):
        monkeypatch.setattr(module, "products", products)
    monkeypatch.setattr(ArrayProblem, "has_short_products", True)
    monkeypatch.setattr(ArrayProblem, "block", lambda self, *rows: short_if(block(self, *rows)))
    monkeypatch.setattr(
        ArrayProblem, "_responses", lambda self, parts, bias: responses(self, tuple(map(short_if, parts)), bias)
    )
    monkeypatch.setattr(array_problem._OfLibrary, "weighted", lambda self, *given: short_if(weighted(self, *given)))
    return counts


def test_weights_in_parts_are_exact():
    W = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-20, 20).repeat(25)
    W = W.astype(np.float32)
    for library in LIBRARIES:
        first, rest = (to_numpy(part) for part in in_parts(library(W)))
        np.testing.assert_array_equal(first + rest, W)
        np.testing.assert_array_equal(to_numpy(rounded(first)), first)
        np.testing.assert_array_less(np.abs(rest), np.abs(W) * 2.0**-10)


def rows_for_a_device():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 20)).astype(np.float32)
    return X, (X @ rng.normal(size=(20, 6)) + rng.gumbel(size=(3000, 6))).argmax(axis=1)


@pytest.mark.parametrize("solver", ["lbfgs", "preconditioned_lbfgs"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_certificates_after_short_products_are_exact(solver, intercept, tol, short_products):
    """Whatever the passes were; a gap that short products cannot reach takes exact passes at the end."""
    X, y = rows_for_a_device()
    given = {"alpha": 1e-4, "fit_intercept": intercept, "solver": solver, "tol": tol, "max_iter": 2000}
    model = LinearClassifier("multinomial", **given).fit(torch(X), y)
    assert model.duality_gap_ <= tol
    assert short_products[True] > 2
    if tol == 1e-3:  # certificates alone are exact
        assert short_products[False] == len(model.history_) <= 3
    exact = LinearClassifier("multinomial", **given | {"tol": 1e-7}).fit(X.astype(np.float64), y)
    true = exact._build(X.astype(np.float64), y, None)[0]
    objective = true.certify(
        model.coef_.T.astype(np.float64),
        model.intercept_.astype(np.float64),
        true.respond(
            model.coef_.T.astype(np.float64), model.intercept_.astype(np.float64), dual := np.zeros((len(y), 6))
        ),
        dual,
        np.zeros((20, 6)),
    ).primal
    assert model.objective_ == pytest.approx(objective, rel=2e-6)
    assert (objective - exact.objective_) / objective <= tol + 1e-6


def test_the_rounding_of_weights_moves_no_optimum(short_products):
    """Of rows with a large mean and a weak penalty, for which weights of 11 bits leave a gap of more than 1e-3."""
    X, y = rows_for_a_device()
    X += 3
    model = LinearClassifier("multinomial", alpha=1e-4, fit_intercept=False).fit(torch(X), y)
    assert short_products == {True: short_products[True], False: 1}
    assert model.duality_gap_ <= 1e-3


def test_passes_after_three_certificates_are_exact(short_products):
    """At a penalty so weak that the rounding of the rows moves the optimum."""
    X, y = rows_for_a_device()
    X += 3
    model = LinearClassifier("multinomial", alpha=1e-6, fit_intercept=False).fit(torch(X), y)
    assert model.duality_gap_ <= 1e-3
    assert len(model.history_) < short_products[False] - 5  # the others are passes


def test_passes_after_many_iterations_are_exact(short_products, monkeypatch):
    monkeypatch.setattr(on_arrays, "_MOST_SHORT", 3)
    X, y = rows_for_a_device()
    model = LinearClassifier("multinomial", alpha=1e-6, solver="lbfgs").fit(torch(X), y)
    assert model.n_iter_ > 5
    assert short_products[True] < 10 < short_products[False]


def test_a_fit_by_short_products_is_resumed_with_the_same_bits(short_products, tmp_path):
    X, y = rows_for_a_device()
    given = {"alpha": 1e-4, "tol": 1e-5, "random_state": 0}
    whole = LinearClassifier("multinomial", **given).fit(torch(X), y)
    for stop in range(1, whole.n_iter_ + 1):
        path = tmp_path / f"{stop}"
        with pytest.warns(ConvergenceWarning) if stop < whole.n_iter_ else nullcontext():
            LinearClassifier("multinomial", **given, max_iter=stop).fit(
                torch(X), y, checkpoint=path, checkpoint_seconds=0
            )
        found = LinearClassifier("multinomial", **given).fit(torch(X), y, checkpoint=path)
        np.testing.assert_array_equal(found.coef_, whole.coef_)


@pytest.mark.parametrize("library", LIBRARIES)
def test_losses_of_certain_rows_are_exact_in_float32(library):
    """Small probabilities of rivals, of which a difference from 1 would leave nothing."""
    X = np.array([[20.0], [20.0], [-15.0]], np.float32)
    targets = ClassTargets(np.array([0, 0, 1], np.int32), 2)
    given = {"targets": targets, "loss": MultinomialLoss(), "penalty": L2(), "lam": 1.0, "n_features": 1}
    W = np.array([[1.0, -0.2]])
    exact = Problem(rows=make_rows(X.astype(np.float64)), **given)
    found = ArrayProblem(rows=ArrayRows(library(X)), dtype=np.float32, **given)
    dual = np.zeros((3, 2))
    losses = exact.respond(W, np.zeros(2), dual)
    assert losses < 1e-7
    descent = found.descend(*found.of_model(W, np.zeros(2)))
    assert descent.losses == pytest.approx(losses, rel=1e-5)
    np.testing.assert_allclose(to_numpy(descent.image), X.T @ dual, rtol=1e-5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * np.logspace(0, -1, 6) + 0.3
    scores = 2.0 * X @ rng.normal(size=(6, 4))
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1), rng.choice([0.5, 1.0, 2.0], 300), scores


CLASSIFIERS = ["multinomial", "softmax_hinge", "log_loss", "squared_hinge", SmoothHinge(0.5)]


def tight(estimator, loss, **given):
    return estimator(loss, alpha=0.05, tol=1e-13, max_iter=3000, **given)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a gap of 1e-13 is that of rounding
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
@pytest.mark.parametrize("loss", CLASSIFIERS, ids=str)
@pytest.mark.parametrize("classes", [2, 4])
def test_fits_of_arrays_of_other_libraries(data, loss, classes, solver, library, tmp_path):
    X, y, weights, _ = data
    y = np.minimum(y, classes - 1) + 5
    expected = tight(LinearClassifier, loss, solver="lbfgs").fit(X, y, sample_weight=weights)
    there = library(X)
    model = tight(LinearClassifier, loss, solver=solver)
    model.fit(there, library(y), sample_weight=library(weights))
    assert model.solver_ == {"auto": "preconditioned_lbfgs", "lbfgs": "lbfgs"}[solver]
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-10)
    assert model.duality_gap_ < 1e-10
    assert type(model.coef_) is type(model.intercept_) is np.ndarray
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-5)
    found = model.predict(there)
    assert namespace(found) is namespace(there)
    assert found.device == there.device
    np.testing.assert_array_equal(to_numpy(found), expected.predict(X))
    np.testing.assert_allclose(to_numpy(model.decision_function(there)), expected.decision_function(X), atol=1e-5)
    # The model is a usual one: NumPy's arrays are as good, and so is a file.
    model.save(tmp_path / "model")
    kept = load(tmp_path / "model")
    np.testing.assert_array_equal(kept.weights, model.model_.weights)
    np.testing.assert_array_equal(kept.predict(X), expected.predict(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regressions_of_arrays_of_other_libraries(data, loss, library):
    X, _, weights, target = data
    for y in (target, target[:, 0]):
        expected = tight(LinearRegressor, loss, solver="lbfgs").fit(X, y, sample_weight=weights)
        model = tight(LinearRegressor, loss).fit(library(X), library(y), sample_weight=library(weights))
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
        np.testing.assert_allclose(to_numpy(model.predict(library(X))), expected.predict(X), atol=1e-5)
        assert model.score(library(X), library(y)) == pytest.approx(expected.score(X, y), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("library", LIBRARIES)
def test_label_sets_for_arrays_of_other_libraries(data, library):
    X, _, _, scores = data
    Y = (scores > np.quantile(scores, 0.7, axis=0)).astype(np.int64)
    expected = tight(LinearClassifier, "log_loss", solver="lbfgs").fit(X, Y)
    model = tight(LinearClassifier, "log_loss").fit(library(X), library(Y))
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_array_equal(to_numpy(model.predict(library(X))), expected.predict(X))
    np.testing.assert_allclose(to_numpy(model.predict_proba(library(X))), expected.predict_proba(X), atol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("link", ["identity", "softmax", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 4])
def test_generalized_least_squares_of_arrays_of_other_libraries(data, classes, link, accelerated, library):
    X, y, weights, _ = data
    y = np.minimum(y, classes - 1)
    given = {"alpha": 0.05, "tol": 1e-13, "max_iter": 3000, "accelerated": accelerated}
    expected = GeneralizedLeastSquaresClassifier(link, **given).fit(X, y, sample_weight=weights)
    model = GeneralizedLeastSquaresClassifier(link, **given).fit(library(X), library(y), sample_weight=library(weights))
    assert model.duality_gap_ < 1e-10
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-10)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-5)
    # A few steps are those of NumPy's rows, too.
    one = [
        GeneralizedLeastSquaresClassifier(link, alpha=0.05, max_iter=3, accelerated=accelerated).fit(rows, y)
        for rows in (X, library(X))
    ]
    assert one[0].objective_ == pytest.approx(one[1].objective_, rel=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_generalized_least_squares_chooses_alpha_for_arrays_of_other_libraries(data, library):
    X, y, _, _ = data
    for more in ({}, {"X_val": X, "y_val": y}):
        there = {name: library(array) for name, array in more.items()}
        expected, found = (
            GeneralizedLeastSquaresClassifier("softmax", alphas=[1e-3, 0.1, 10.0], random_state=0).fit(rows, y, **held)
            for rows, held in ((X, more), (library(X), there))
        )
        assert found.validation_errors_ == expected.validation_errors_
        assert found.alpha_ == expected.alpha_
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-5)
    plain = GeneralizedLeastSquaresClassifier(alpha=0.1, system="cg", tol=1e-9).fit(library(X), y)
    assert np.isnan(plain.duality_gap_)  # without a certificate, by conjugate gradients


def test_generalized_least_squares_of_rows_of_half_precision(data):
    X, y, _, _ = data
    rows = X.astype(np.float16)
    expected = GeneralizedLeastSquaresClassifier("softmax", alpha=0.05, tol=1e-5).fit(rows.astype(np.float32), y)
    model = GeneralizedLeastSquaresClassifier("softmax", alpha=0.05, tol=1e-5).fit(rows, y)
    assert model.duality_gap_ <= 1e-5
    assert model.coef_.dtype == np.float32
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-3)
    problem = ArrayProblem(
        ArrayRows(rows), ClassTargets(y.astype(np.int32), 4), MultinomialLoss(), L2(), 0.1, n_features=X.shape[1]
    )
    with pytest.raises(ValueError, match="system='cg'"):
        GeneralizedLeastSquares(system="cg").prepare(problem)


@pytest.mark.parametrize("library", [*LIBRARIES, lambda X: X.astype(np.float16)])
def test_fits_of_arrays_of_other_libraries_are_watched_and_resumed(data, library, tmp_path):
    """Held-out rows, early stopping, callbacks, a search for alpha, warm starts and checkpoints."""
    X, y, _, _ = data
    rows, given = library(X), {"random_state": 0, "dtype": np.float64}
    told = []
    model = LinearClassifier(alpha=1e-2, tol=1e-6, **given)
    model.fit(rows, y, X_val=rows, y_val=y, callback=lambda at: told.append(at.weights()[0]))
    assert type(told[-1]) is np.ndarray
    assert model.history_.validation[-1].score == pytest.approx(model.score(rows, y), abs=0.01)
    again = LinearClassifier(alpha=1e-2, tol=1e-6, max_iter=3, **given)
    with pytest.warns(UserWarning, match="max_iter"):
        again.fit(rows, y, checkpoint=tmp_path / "state", checkpoint_seconds=0.0)
    again.set_params(max_iter=None).fit(rows, y, checkpoint=tmp_path / "state")
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-12)
    assert again.n_iter_ == model.n_iter_
    warm = LinearClassifier(alpha=1e-2, tol=1e-6, warm_start=True, **given).fit(rows, y)
    first = warm.n_iter_
    assert warm.set_params(tol=1e-5).fit(rows, y).n_iter_ < first
    found = LinearClassifier(alpha="auto", **given).fit(rows, y)
    assert found.alpha_ in found.validation_scores_
    stopped = LinearClassifier(alpha=1e-4, early_stopping=2, tol=0, **given).fit(rows, y)
    assert stopped.history_.outcome == "patience"


@pytest.mark.parametrize("library", LIBRARIES)
def test_cross_validation_takes_arrays_of_other_libraries(data, library):
    X, y, _, _ = data
    expected = LinearClassifierCV(n_alphas=3, cv=3, random_state=0).fit(X, y)
    found = LinearClassifierCV(n_alphas=3, cv=3, random_state=0).fit(library(X), library(y))
    np.testing.assert_array_equal(found.scores_path_, expected.scores_path_)


@pytest.mark.parametrize("solver", [LBFGS(), PreconditionedLBFGS()])
def test_rows_of_half_precision_are_fitted_as_they_are(data, solver):
    X, y, _, _ = data
    halves = [X.astype(np.float16)]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    halves.append(X.astype(ml_dtypes.bfloat16))
    for rows in halves:
        plain = rows.astype(np.float32)
        expected = LinearClassifier(alpha=0.05, tol=1e-5, solver=solver).fit(plain, y)
        model = LinearClassifier(alpha=0.05, tol=1e-5, solver=solver).fit(rows, y)
        assert model.coef_.dtype == np.float32
        assert model.duality_gap_ <= 1e-5
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-3)
        assert model.objective_ == pytest.approx(expected.objective_, rel=2e-5)
        double = LinearClassifier(alpha=0.05, tol=1e-9, solver=solver, dtype=np.float64).fit(rows, y)
        assert double.coef_.dtype == np.float64
        assert double.duality_gap_ <= 1e-9


def test_torch_halves_and_integers_are_fitted_as_they_are(data):
    library = pytest.importorskip("torch")
    X, y, _, _ = data
    for kind in (library.float16, library.bfloat16, library.int32):
        rows = library.from_numpy(np.round(4 * X)).to(kind)
        plain = rows.double().numpy()
        expected = LinearClassifier(alpha=0.5, tol=1e-9, solver="lbfgs").fit(plain, y)
        model = LinearClassifier(alpha=0.5, tol=1e-5).fit(rows, y)
        assert model.coef_.dtype == (np.float64 if kind == library.int32 else np.float32)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-3)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rows_of_half_precision_are_never_copied_as_float32(kind):
    dtype = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    rng = np.random.default_rng(0)
    n, d, K = 100_000, 128, 3
    X = rng.normal(size=(n, d)).astype(dtype)
    y = rng.integers(K, size=n)
    LinearClassifier(alpha=1e-2).fit(X[:500], y[:500])  # compiles
    tracemalloc.start()
    try:
        LinearClassifier(alpha=1e-2).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.6 * 4 * n * d
    assert X.nbytes == 2 * n * d


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_refused_of_numpy_is_refused_of_arrays_of_other_libraries(data, library):
    X, y, _, _ = data
    wrong = X.copy()
    wrong[7, 3] = np.inf
    with pytest.raises(ValueError, match="NaN or infinity in column 3"):
        LinearClassifier().fit(library(wrong), y)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        LinearClassifier().fit(library(X), y[:-1])
    with pytest.raises(ValueError, match="two dimensions"):
        LinearClassifier().fit(library(X[:, 0]), y)
    with pytest.raises(ValueError, match="at least one row"):
        LinearClassifier().fit(library(X[:0]), y[:0])
    with pytest.raises(ValueError, match="real numbers"):
        LinearClassifier().fit(library(X > 0), y)
    with pytest.raises(ValueError, match="2 classes"):
        LinearClassifier().fit(library(X), np.zeros(len(y)))
    with pytest.raises(ValueError, match="overflows float32"):
        LinearClassifier().fit(library((1e25 * X).astype(np.float32)), y)
    with pytest.raises(ValueError, match="underflow float32"):
        LinearClassifier().fit(library((1e-30 * X).astype(np.float32)), y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        LinearRegressor().fit(library(X), library(np.where(np.arange(len(y)) == 3, np.nan, X[:, 0])))


def test_other_solvers_have_no_passes_over_arrays(data):
    from manyclass.solvers import SDCA

    X, y, _, _ = data
    problem = ArrayProblem(
        ArrayRows(torch(X)), ClassTargets(y.astype(np.int32), 4), MultinomialLoss(), L2(), 0.1, n_features=X.shape[1]
    )
    with pytest.raises(ValueError, match="needs rows in a NumPy array of float32 or float64"):
        SDCA().prepare(problem)

"""Coordinate descent: the optimum of independent solvers, certificates that hold, the same bits, and its data views."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet as SklearnElasticNet, Lasso, LogisticRegression

import references
from helpers import Data, make_data, make_problem, make_targets, objective
from manyclass.kernels.rows import make_rows
from manyclass.objective.losses import CrammerSingerLoss, LogisticLoss, MultinomialLoss, SmoothHingeLoss, SquaredLoss
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import SDCA, CoordinateDescent, largest_penalty
from manyclass.solvers.primal import _columns as views
from registry import LOSSES

SMOOTH = ("squared", "log_loss", "huber-0.5", "squared_hinge", "smooth_hinge-0.5", "smooth_hinge-1")
PENALTIES = {"l1": L1(), "net": ElasticNet(0.4), "l2": L2()}


@pytest.fixture(params=["gram", "epochs", "few"])
def way(request, monkeypatch):
    """The ways a model is minimized: on one Gram matrix, on residuals, on working sets of very few features."""
    if request.param != "gram":
        monkeypatch.setattr("manyclass.solvers.primal.coordinate.FULL", 0)
        monkeypatch.setattr("manyclass.solvers.primal.coordinate._LEAST", 2)
        monkeypatch.setattr(views, "MOST_SPARSE", 0 if request.param == "epochs" else 400)
    return request.param


def solve(problem, *, tol=1e-10, **options):
    return minimize(problem, CoordinateDescent(), tol=tol, max_iter=options.pop("max_iter", 300), **options)


def value(case, data: Data, reg: Any, lam: float, W: Any, b: Any) -> float:
    """P(W, b) by its definition; the pure l1 norm as what an elastic net has beyond l2."""
    if not isinstance(reg, L1):
        return objective(case.formula, data, reg, lam, W, b)
    W = np.asarray(W, np.float64)
    return objective(case.formula, data, L2(), lam, W, b) + lam * float(np.abs(W).sum() - 0.5 * (W * W).sum())


def split_quasi_newton(case, data: Data, reg: Any, lam: float, intercept: bool) -> float:
    """L-BFGS-B on the parts of W above and below zero: the l1 term is linear there."""
    if not isinstance(reg, L1):
        return references.quasi_newton(case, data, reg, lam, intercept)
    (n, d), K = data.X.shape, data.K
    c = (np.ones(n) if data.weights is None else data.weights / data.weights.mean()) / n

    def unpack(z):
        return (z[: d * K] - z[d * K : 2 * d * K]).reshape(d, K), z[2 * d * K :] if intercept else np.zeros(K)

    def cost(z):
        W, b = unpack(z)
        losses, G = case.formula(data.X @ W + b, data.T)
        slope = (data.X.T @ (c[:, None] * G)).ravel()
        parts = [slope + lam, lam - slope, c @ G]
        return c @ losses + lam * z[: 2 * d * K].sum(), np.concatenate(parts if intercept else parts[:2])

    bounds = [(0, None)] * (2 * d * K) + [(None, None)] * (K * intercept)
    options = {"maxiter": 50_000, "maxfun": 200_000, "ftol": 0, "gtol": 1e-11, "maxcor": 50}
    z = optimize.minimize(cost, np.zeros(len(bounds)), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return value(case, data, reg, lam, *unpack(z))


# --- the optimum ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("view", ["csr", "dense"])
def test_the_optimum_is_an_independent_solvers_and_every_gap_is_true(name, penalty, intercept, view):
    case, reg, lam = LOSSES[name], PENALTIES[penalty], 0.05
    data = make_data(case.loss.targets, n=120, d=7, K=3, seed=2, weighted=True)
    best = split_quasi_newton(case, data, reg, lam, intercept)
    problem = make_problem(case.loss, data, reg=reg, lam=lam, view=view, intercept=intercept)
    result = solve(problem)
    assert result.outcome is Outcome.CONVERGED
    reached = value(case, data, reg, lam, result.weights, result.intercept)
    assert reached == pytest.approx(best, rel=1e-7)
    assert result.certificate.primal == pytest.approx(reached, rel=1e-13)
    for record in result.history:
        assert record.gap >= record.primal - best - 1e-13
        assert record.gap >= max(0.0, record.primal - record.dual)
        assert record.dual <= best + 1e-13
    # The pass of the problem itself agrees with the solver's own.
    again = CoordinateDescent().certificate(problem, result.state, final=True)
    assert again.primal == pytest.approx(result.certificate.primal, rel=1e-13)
    assert again.relative_gap < 1e-7


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("share", [0.5, 0.05, 0.005])
def test_lasso_and_elastic_net_are_scikit_learns(way, view, share, intercept):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 80)) * (rng.random((50, 80)) < 0.4) + rng.normal(size=80) * (view == "dense")
    data = Data(X, X[:, :4] @ rng.normal(size=(4, 1)) + 3 + rng.normal(size=(50, 1)), 1, None)
    lam = share * largest_penalty(make_problem(SquaredLoss(), data, intercept=intercept))
    for ratio, reg in ((1.0, L1()), (0.7, ElasticNet(0.7 / 0.3))):
        options = {"fit_intercept": intercept, "tol": 1e-14, "max_iter": 10**6}
        model = SklearnElasticNet(lam, l1_ratio=ratio, **options) if ratio < 1 else Lasso(lam, **options)
        model.fit(X, data.T[:, 0])
        strength = lam if ratio == 1 else 0.3 * lam
        result = solve(
            make_problem(SquaredLoss(), data, reg=reg, lam=strength, view=view, intercept=intercept), tol=1e-12
        )
        assert result.outcome is Outcome.CONVERGED
        np.testing.assert_allclose(result.weights[:, 0], model.coef_, atol=2e-6 * np.abs(model.coef_).max())
        assert result.intercept[0] == pytest.approx(model.intercept_, abs=1e-5)


@pytest.mark.parametrize("view", ["csr", "dense"])
def test_l1_logistic_regression_is_liblinears(way, view):
    data = make_data("sign", n=90, d=60, K=1, seed=4)
    lam = 0.03 * largest_penalty(make_problem(LogisticLoss(), data))
    new = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)  # where l1_ratio says what penalty said
    model = LogisticRegression(
        C=1 / (lam * 90),
        solver="liblinear",
        fit_intercept=False,
        tol=1e-10,
        max_iter=10_000,
        random_state=0,
        **({"l1_ratio": 1} if new else {"penalty": "l1"}),
    )
    with warnings.catch_warnings():
        # By its seed LIBLINEAR may go round in rounding errors until max_iter: it is judged by its objective, below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.T[:, 0])
    expected = value(LOSSES["log_loss"], data, L1(), lam, model.coef_.T, 0.0)
    result = solve(make_problem(LogisticLoss(), data, reg=L1(), lam=lam, view=view))
    assert result.certificate.primal == pytest.approx(expected, rel=1e-7)
    assert result.certificate.primal <= expected * (1 + 1e-9)


@pytest.mark.parametrize("name", ["squared", "log_loss"])
def test_it_agrees_with_sdca(name):
    case, reg = LOSSES[name], ElasticNet(0.5)
    problem = make_problem(case.loss, make_data(case.loss.targets, weighted=True), reg=reg, intercept=True)
    expected = minimize(problem, SDCA(), tol=1e-9, max_iter=20_000)
    found = solve(problem, tol=1e-9)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=2e-9)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-3)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_end_meets_the_conditions_of_optimality(way, name):
    case, lam, threshold = LOSSES[name], 0.03, 0.5
    data = make_data(case.loss.targets, n=60, d=40, K=2, seed=6, weighted=True)
    problem = make_problem(case.loss, data, reg=ElasticNet(threshold), lam=lam, intercept=True)
    result = solve(problem, tol=1e-12)
    W, c = result.weights, data.weights / data.weights.sum()
    slopes = c[:, None] * case.formula(data.X @ W + result.intercept, data.T)[1]
    rise = data.X.T @ slopes + lam * W
    np.testing.assert_allclose(slopes.sum(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(rise[W != 0], -lam * threshold * np.sign(W[W != 0]), atol=1e-5)
    assert np.abs(rise[W == 0]).max() <= lam * threshold + 1e-5
    assert 0 < np.count_nonzero(W) < W.size


# --- properties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squared", "log_loss", "huber-0.5"])
def test_sparse_and_dense_and_every_way_end_alike(way, name):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=70, d=50, K=2, seed=7, weighted=True)
    ends = [
        solve(make_problem(case.loss, data, reg=L1(), lam=0.02, view=view, intercept=True), tol=1e-11)
        for view in ("csr", "dense")
    ]
    double = split_quasi_newton(case, data, L1(), 0.02, True)
    for end in ends:
        assert end.certificate.primal == pytest.approx(double, rel=1e-7)
    np.testing.assert_allclose(ends[0].weights, ends[1].weights, atol=1e-4)
    # What an exact solution has, no working set has left out.
    certain = np.abs(ends[0].weights) > 1e-3
    assert np.all(ends[1].weights[certain] != 0)


@pytest.mark.parametrize("name", ["squared", "log_loss"])
@pytest.mark.parametrize("view", ["csr", "dense"])
def test_a_weight_is_so_many_rows(way, name, view):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=40, d=30, K=2, seed=8)
    counts = np.random.default_rng(8).integers(0, 4, 40)
    counts[:2] = 1
    many = data._replace(X=np.repeat(data.X, counts, axis=0), T=np.repeat(data.T, counts, axis=0))
    options = {"reg": L1(), "lam": 0.03, "view": view, "intercept": True}
    one = solve(make_problem(case.loss, data._replace(weights=counts.astype(float)), **options))
    two = solve(make_problem(case.loss, many, **options))
    assert one.certificate.primal == pytest.approx(two.certificate.primal, rel=1e-9)
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_single_precision_reaches_its_own_gap(way, name):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=70, d=20, K=2, seed=9, dtype=np.float32)
    options = {"reg": L1(), "lam": 0.03, "intercept": True}
    single = solve(make_problem(case.loss, data, dtype=np.float32, **options), tol=1e-5)
    double = solve(make_problem(case.loss, data, **options))
    assert single.weights.dtype == single.intercept.dtype == np.float32
    assert single.outcome is Outcome.CONVERGED
    assert single.certificate.primal == pytest.approx(double.certificate.primal, rel=2e-5)


@pytest.mark.parametrize("name", ["squared", "log_loss"])
@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("K", [1, 5])
def test_threads_and_resumption_keep_every_bit(way, name, view, K):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=60, d=50, K=K, seed=10, weighted=True)
    options = {"reg": L1(), "lam": 0.01, "view": view, "intercept": True}
    problem, threaded = (make_problem(case.loss, data, n_threads=threads, **options) for threads in (1, 2))

    def steps(problem, state, count):
        stream = CoordinateDescent().iterate(problem, state, 0)
        return [next(stream) for _ in range(count)]

    whole, other, resumed = (CoordinateDescent().state(problem) for _ in range(3))
    records = steps(problem, whole, 4)
    assert steps(threaded, other, 4) == records
    assert steps(problem, resumed, 2) == records[:2]
    resumed = {name: array.copy() for name, array in resumed.items()}
    seen = steps(problem, resumed, 2)
    assert [step.bound for step in seen] == [step.bound for step in records[2:]]
    assert [step.iteration for step in seen] == [3, 4]
    for name in whole:
        if name != "passes":  # a resumed run looks at the data once more
            np.testing.assert_array_equal(whole[name], other[name])
            np.testing.assert_array_equal(whole[name], resumed[name])


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
def test_the_largest_penalty_is_where_weights_begin(name, intercept):
    case = LOSSES[name]
    data = make_data(case.loss.targets, K=3, seed=11, weighted=True)
    most = largest_penalty(make_problem(case.loss, data, lam=0.3, intercept=intercept))
    for reg, strength in ((L1(), 1.0), (ElasticNet(2.0), 2.0)):
        options = {"reg": reg, "intercept": intercept}
        above = solve(make_problem(case.loss, data, lam=most * (1 + 1e-9) / strength, **options))
        assert above.n_iter == 1
        assert not above.weights.any()
        below = solve(make_problem(case.loss, data, lam=most * 0.99 / strength, **options))
        assert np.count_nonzero(below.weights) == 1


def test_a_warm_start_on_a_path_ends_where_a_cold_one_does(way):
    data = make_data("real", n=50, d=40, K=2, seed=12)
    most = largest_penalty(make_problem(SquaredLoss(), data, intercept=True))
    state = None
    for share in (0.5, 0.1, 0.02):
        problem = make_problem(SquaredLoss(), data, reg=L1(), lam=share * most, intercept=True)
        cold = solve(problem)
        warm = solve(problem, state=state)
        assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=1e-9)
        state = {**warm.state, "iteration": np.zeros((), np.int64)}


# --- the views ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("view", ["csr", "dense"])
def test_products_by_columns_are_numpys(view, intercept):
    rng = np.random.default_rng(14)
    data = make_data("real", n=50, d=12, K=1, seed=14, density=0.6)
    data = data._replace(X=data.X + 3.0 * (data.X != 0))
    X = data.X
    columns = views.column_view(make_problem(SquaredLoss(), data, view=view, intercept=intercept))
    features, h, u, w = np.array([1, 4, 5, 11]), rng.random(50), rng.normal(size=50), rng.normal(size=4)
    h[7] = 0.0
    np.testing.assert_allclose(columns.dots(u), X.T @ u, atol=1e-13)
    np.testing.assert_allclose(columns.part(features, u), X[:, features].T @ u, atol=1e-13)
    np.testing.assert_allclose(columns.scores(features, w), X[:, features] @ w, atol=1e-13)
    np.testing.assert_allclose(columns.norms(h), h @ X**2, rtol=1e-13)
    for chosen in (features, np.arange(12)):
        for weights in (h, np.full(50, 0.3)):
            part = X[:, chosen] - intercept * (weights @ X[:, chosen]) / weights.sum()
            gram = columns.gram(chosen, weights)
            np.testing.assert_allclose(gram.matrix, part.T @ (weights[:, None] * part), atol=1e-11)
            if intercept:
                np.testing.assert_allclose(gram.moments, weights @ X[:, chosen], atol=1e-11)
                assert gram.spread == pytest.approx(1 / weights.sum(), rel=1e-14)


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize(("l1", "l2"), [(0.05, 0.0), (0.02, 0.3), (0.0, 0.1)])
def test_a_model_is_minimized_to_what_was_asked(way, view, intercept, l1, l2):
    rng = np.random.default_rng(15)
    data = make_data("real", n=50, d=30, K=1, seed=15)
    columns = views.column_view(make_problem(SquaredLoss(), data, view=view, intercept=intercept))
    features, w = np.arange(3, 25), rng.normal(size=22)
    u, h = rng.normal(size=50) / 50, rng.random(50) / 50
    new, shift, passes = columns.minimize(features, w, views.Model(u, h), l1, l2, 1e-9)
    X = data.X[:, features]
    slope = u + h * (X @ (new - w) + shift)
    rise = X.T @ slope + l2 * new
    violation = np.where(new == 0, np.maximum(np.abs(rise) - l1, 0), np.abs(rise + l1 * np.sign(new)))
    assert violation.max() <= 1e-8
    assert (slope.sum() == pytest.approx(0, abs=1e-14)) if intercept else shift == 0
    assert passes > 0
    assert np.any(new == 0) or l1 == 0


# --- degenerate problems --------------------------------------------------------------------------------------------


def problem_of(X, y, loss, *, reg=None, lam=0.1, view="csr", **options):
    y = np.asarray(y, np.float64).reshape(len(X), -1)
    X = np.asarray(X, np.float64)
    return Problem(
        rows=make_rows(sp.csr_matrix(X) if view == "csr" else X),
        targets=make_targets(loss.targets, y, y.shape[1]),
        loss=loss,
        penalty=L1() if reg is None else reg,
        lam=lam,
        n_features=X.shape[1],
        **options,
    )


@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
def test_degenerate_problems(way, view, intercept):
    rng = np.random.default_rng(13)
    X = rng.normal(size=(12, 6))
    options = {"view": view, "intercept": intercept}
    # Nothing to fit.
    assert not solve(problem_of(X, np.zeros(12), SquaredLoss(), **options)).weights.any()
    # Empty data, an empty column that a warm start gave a weight, a constant column, equal columns.
    assert not solve(problem_of(0 * X, X[:, 0], SquaredLoss(), **options)).weights.any()
    odd = np.c_[X[:, 0], X[:, 0], np.zeros(12), np.ones(12), X[:, 1], -X[:, 1]]
    problem = problem_of(odd, X[:, 0] - X[:, 1] + 2, SquaredLoss(), **options)
    state = CoordinateDescent().state(problem)
    state["W"][2] = 7.0
    result = solve(problem, state=state)
    assert result.outcome is Outcome.CONVERGED
    assert result.weights[2] == 0
    case = LOSSES["squared"]
    data = Data(odd, (X[:, 0] - X[:, 1] + 2)[:, None], 1, None)
    assert result.certificate.primal == pytest.approx(split_quasi_newton(case, data, L1(), 0.1, intercept), rel=1e-7)
    # One row alone; zero weights beside.
    for one in (
        problem_of(X[:1], [2.0], SquaredLoss(), **options),
        problem_of(X[:1], [1.0], LogisticLoss(), **options),
    ):
        assert solve(one).outcome is Outcome.CONVERGED
    weights = np.r_[1.0, np.zeros(11)]
    assert solve(problem_of(X, X[:, 0], SquaredLoss(), sample_weight=weights, **options)).outcome is Outcome.CONVERGED


def test_separable_labels_have_finite_weights(way):
    X = np.linspace(-1, 1, 30)[:, None] * np.ones(3)
    problem = problem_of(X, np.sign(X[:, 0]), LogisticLoss(), lam=1e-5, intercept=True)
    result = solve(problem, tol=1e-8)
    assert result.outcome is Outcome.CONVERGED
    assert np.isfinite(result.weights).all()
    assert np.all(np.sign(X @ result.weights + result.intercept) == np.sign(X[:, :1]))
    alone = solve(problem_of(X, np.ones(30), LogisticLoss(), intercept=True))
    assert not alone.weights.any()


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (SmoothHingeLoss(0.0), "smooth gradient"),
        (MultinomialLoss(), "separate outputs"),
        (CrammerSingerLoss(1.0), "separate outputs"),
    ],
)
def test_losses_it_cannot_minimize_are_refused(loss, why):
    problem = make_problem(loss, make_data(loss.targets), intercept=True)
    with pytest.raises(ValueError, match=f"'cd' needs a loss with .*{why}, and '{loss.name}' has none"):
        solve(problem)
    if loss.joint:
        with pytest.raises(ValueError, match="separable"):
            largest_penalty(problem)


def test_memory_is_told_before():
    data = make_data("real", n=50, d=40)
    told = CoordinateDescent().nbytes(make_problem(SquaredLoss(), data))
    X = sp.csr_matrix(data.X)
    assert told["a copy of X in column order"] >= 12 * X.nnz
    assert told["weights"] == 8 * 40 * 4

"""Costs of errors in the max-of-hinge: the laws of all losses, and the optimum of whole problems with every solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize as scipy_minimize
from sklearn.base import clone
from sklearn.datasets import load_iris

import helpers
import references
import test_losses as laws
from manyclass import CrammerSinger, LinearClassifier, certify, load
from manyclass.objective.losses import CrammerSingerLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import minimize
from manyclass.solvers import SDCA, ActiveSetSDCA
from registry import SOLVERS, LossCase

RNG = np.random.default_rng(0)
#: Costs of 300 classes, some of them zero; a loss of fewer classes reads the first of them.
PAIRS = RNG.choice([0.0, 0.5, 1.0, 2.5], (300, 300), p=[0.1, 0.3, 0.3, 0.3])
COSTS = {"classes": PAIRS[:1], "pairs": PAIRS}
CASES = {
    f"{name}-{gamma:g}": LossCase(
        CrammerSingerLoss(gamma, costs), helpers.crammer_singer(gamma, costs), "simplex", "rivals"
    )
    for name, costs in COSTS.items()
    for gamma in (0.0, 0.1, 1.0)
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


# --- the loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 5, 300])
def test_value_and_gradient(case, dtype, K):
    laws.test_value_and_gradient_equal_the_formulas(case, dtype, K)
    laws.test_fenchel_young_equality_at_the_gradient(case, dtype, K)


def test_the_gradient_is_one(case):
    laws.test_gradient_equals_finite_differences(case)
    laws.test_value_lies_above_every_tangent(case)
    laws.test_gradient_is_as_smooth_as_the_loss_says(case)


@pytest.mark.parametrize("K", [2, 3])
def test_conjugate_and_dual_step_by_brute_force(case, K):
    laws.test_conjugate_equals_numeric_maximization(case, K)
    laws.test_dual_step_beats_brute_force(case, K)


@pytest.mark.parametrize("K", [1, 2, 3, 10, 300])
def test_the_dual_step_is_optimal(case, dtype, K):
    laws.test_fenchel_young_inequality(case, K)
    laws.test_dual_step_is_optimal(case, dtype, K)


def test_it_is_an_upper_bound_on_the_cost_of_the_prediction():
    for name, costs in COSTS.items():
        loss = CASES[f"{name}-0"].loss
        for s in helpers.random_scores(60, 5, np.random.default_rng(1)):
            for t in range(5):
                found = int(np.argmax(s))
                cost = 0.0 if found == t else costs[min(t, len(costs) - 1), found]
                assert helpers.evaluate(loss, s, t).value >= cost


def test_costs_of_one_are_none():
    for s in helpers.random_scores(30, 4, np.random.default_rng(2)):
        for gamma in (0.0, 0.1):
            plain = helpers.evaluate(CrammerSingerLoss(gamma), s, 2)
            costly = helpers.evaluate(CrammerSingerLoss(gamma, np.ones((4, 4))), s, 2)
            assert costly.value == pytest.approx(plain.value, rel=1e-14)
            np.testing.assert_allclose(costly.gradient, plain.gradient, atol=1e-14)


# --- whole problems -------------------------------------------------------------------------------------------------


def problem(costs, gamma=0.5, K=4, *, reg=None, intercept=True, **options):
    data = helpers.make_data("class", n=60, d=6, K=K, seed=3, weighted=True)
    loss = CrammerSingerLoss(gamma, costs[: K if len(costs) > 1 else 1, :K])
    case = LossCase(loss, helpers.crammer_singer(gamma, loss.costs), "simplex", "rivals")
    return case, data, helpers.make_problem(loss, data, reg=reg, intercept=intercept, **options)


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_finds_the_optimum_or_refuses_the_loss(name, costs):
    solver = SOLVERS[name]
    case, data, given = problem(costs, intercept=solver.takes_intercept)
    try:
        solver.prepare(given)
    except ValueError:
        with pytest.raises(ValueError, match=f"solver '{name}'"):
            minimize(given, solver)
        assert name in ("cd", "bound", "ds_mlr", "log_concavity", "memoir")
        return
    best = references.quasi_newton(case, data, L2(), 0.05, solver.takes_intercept)
    slow = name in ("sgd", "gd")
    found = minimize(given, solver, tol=0.0 if slow else 1e-6, max_iter=3000, warn=False)
    assert found.certificate.dual <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found.certificate.primal <= best * (1 + (1e-3 if slow else 1.01e-6))
    reached = helpers.objective(case.formula, data, L2(), 0.05, np.asarray(found.weights), found.intercept)
    assert reached == pytest.approx(found.certificate.primal, rel=1e-9)


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("option", ["II", "III", "IV", "V"])
def test_every_option_of_sdca(costs, option):
    case, data, given = problem(costs, intercept=False)
    best = references.quasi_newton(case, data, L2(), 0.05, False)
    found = minimize(given, SDCA(option=option), tol=1e-4, max_iter=5000, warn=False)
    assert found.certificate.dual <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found.certificate.primal <= best * (1 + 1.01e-4)


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("search", ["exact", "lsh"])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_active_sets_with_few_rivals(costs, storage, search, gamma):
    """The rivals that are proposed are those whose violations are large, not their scores."""
    _, _, given = problem(costs, gamma, K=40, reg=ElasticNet(0.1))
    active = ActiveSetSDCA(first=2, more=2, epochs=2, storage=storage, search=search)
    found = minimize(given, active, tol=1e-4, max_iter=2000, warn=False)
    other = minimize(given, SDCA(), tol=1e-4, max_iter=5000, warn=False)
    assert found.certificate.relative_gap <= 1e-4
    assert found.certificate.dual <= other.certificate.primal
    assert other.certificate.dual <= found.certificate.primal


# --- the estimator --------------------------------------------------------------------------------------------------


def test_two_classes_have_the_margins_of_their_costs():
    X, y = load_iris(return_X_y=True)
    X, y = X[50:] - X[50:].mean(0), y[50:]
    costs, gamma, alpha = np.array([[0.0, 4.0], [0.5, 0.0]]), 0.3, 0.02
    model = LinearClassifier(CrammerSinger(gamma, costs), alpha=alpha, tol=1e-8, max_iter=5000).fit(X, y)
    sign, margin = 2.0 * (y == 2) - 1.0, costs[[0, 1], [1, 0]][(y == 2).astype(int)]

    def value(w):
        short = margin - sign * (X @ w[:-1] + w[-1])
        slope = np.clip(short / gamma, 0, 1)
        loss = np.mean(slope * short - 0.5 * gamma * slope**2) + 0.5 * alpha * w[:-1] @ w[:-1]
        return loss, np.append(alpha * w[:-1], 0) - np.append(X.T @ (slope * sign), (slope * sign).sum()) / len(y)

    best = scipy_minimize(value, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert model.objective_ == pytest.approx(best.fun, rel=1e-7)
    np.testing.assert_allclose(model.coef_[0], best.x[:-1], atol=1e-3)
    assert model.coef_.shape == (1, 4)
    plain = LinearClassifier(CrammerSinger(gamma), alpha=alpha).fit(X, y)
    wrong = [int(((m.predict(X) == 2) & (y == 1)).sum()) for m in (plain, model)]
    assert wrong[1] < wrong[0]


def test_costs_are_in_the_order_of_the_classes():
    """Costs of labels that sort otherwise than they occur; sparse and dense rows, both types, as lists too."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["c", "a", "b"])[y]
    costs = [[0, 1, 5], [2, 0, 1], [1, 3, 0]]  # of a, b, c
    order = [1, 2, 0]
    same = np.zeros((3, 3))
    same[np.ix_(order, order)] = costs
    one = LinearClassifier(CrammerSinger(costs=costs), alpha=0.01, tol=1e-6, max_iter=3000).fit(X, names)
    for rows, loss in ((X, same), (sp.csr_matrix(X), same), (X.astype(np.float32), same.tolist())):
        two = LinearClassifier(CrammerSinger(costs=loss), alpha=0.01, tol=1e-5, max_iter=3000).fit(rows, y)
        assert two.objective_ == pytest.approx(one.objective_, rel=3e-5)


def test_other_costs_are_another_problem(tmp_path):
    X, y = load_iris(return_X_y=True)
    X = X - X.mean(axis=0)
    options = {"alpha": 0.1, "solver": "sdca", "tol": 1e-4, "max_iter": 3000, "random_state": 0}
    model = LinearClassifier(CrammerSinger(costs=[1, 1, 1]), warm_start=True, **options).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ < first  # continued
    model.set_params(loss__costs=[1, 1, 9]).fit(X, y)
    fresh = LinearClassifier(CrammerSinger(costs=[1, 1, 9]), **options).fit(X, y)
    np.testing.assert_array_equal(model.coef_, fresh.coef_)
    path = tmp_path / "run"
    fresh.fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="belongs to another run"):
        clone(fresh).set_params(loss__costs=[1, 2, 9]).fit(X, y, checkpoint=path)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([1.0, 1.0], r"costs must have shape \(3,\) or \(3, 3\) for 3 classes, got \(2,\)"),
        (np.ones((2, 2)), r"costs must have shape \(3,\) or \(3, 3\) for 3 classes, got \(2, 2\)"),
        (np.ones((1, 3)), r"costs must have shape \(n_classes,\) or \(n_classes, n_classes\), got \(1, 3\)"),
        (1.0, "The 'costs' parameter of CrammerSinger must be an array-like or None"),
        ([1.0, -1.0, 1.0], "costs must be finite and at least 0"),
        ([1.0, np.nan, 1.0], "costs must be finite and at least 0"),
        (["a", "b", "c"], "costs must be numbers"),
    ],
)
def test_what_is_refused(costs, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        LinearClassifier(CrammerSinger(costs=costs)).fit(X, y)


def test_memoir_has_no_costs():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="solver 'memoir' needs errors that all cost 1"):
        LinearClassifier(CrammerSinger(gamma=0, costs=[1, 2, 3]), solver="memoir").fit(X, y)


def test_certify_knows_the_costs_of_a_file_or_asks_for_the_loss(tmp_path, monkeypatch):
    X, y = load_iris(return_X_y=True)
    loss = CrammerSinger(costs=np.array([[0, 1, 4], [1, 0, 2], [3, 3, 0]]))
    model = LinearClassifier(loss, alpha=1e-2, tol=1e-6, max_iter=5000).fit(X, y)
    model.save(tmp_path / "costs")
    for known in (model, load(tmp_path / "costs")):
        found = certify(known, X, y)
        assert found.primal == pytest.approx(model.objective_, rel=1e-9)
        assert found.relative_gap <= 2e-6
    monkeypatch.setattr("manyclass.estimators.base._PLAIN", 8)
    model.fit(X, y).save(tmp_path / "large")
    large = load(tmp_path / "large")
    assert large.parameters["loss__costs"] == "array of 9 numbers"
    with pytest.raises(ValueError, match="loss must be given"):
        certify(large, X, y)
    assert certify(large, X, y, loss=loss).primal == pytest.approx(model.objective_, rel=1e-9)

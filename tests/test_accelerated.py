"""Accelerated Prox-SDCA: the optimum of plain SDCA, true certificates, the published bounds, fewer passes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from helpers import Data, make_data, make_problem
from manyclass import CrammerSinger, LinearClassifier
from manyclass.objective.losses import CrammerSingerLoss, LogisticLoss, MultinomialLoss, SmoothHingeLoss, SquaredLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import SDCA, AcceleratedSDCA
from manyclass.solvers.dual.condition import condition, is_ill_conditioned
from registry import LOSSES

NET = ElasticNet(0.25)


def optimum(problem: Problem) -> float:
    return minimize(problem, SDCA(), tol=1e-11, max_iter=100_000).certificate.primal


@pytest.mark.parametrize("intercept", [False, True], ids=["no-intercept", "intercept"])
@pytest.mark.parametrize("penalty", [L2(), NET], ids=["l2", "elastic_net"])
def test_the_optimum_is_that_of_sdca_and_every_gap_is_true(case, penalty, intercept):
    smooth = case.loss.smoothness > 0
    data = make_data(case.loss.targets, n=60, d=6, K=4, seed=2, weighted=True)
    problem = make_problem(case.loss, data, reg=penalty, lam=0.01 if smooth else 0.05, intercept=intercept)
    best = optimum(problem)
    tol = 1e-7 if smooth else 1e-3
    found = minimize(problem, AcceleratedSDCA(), tol=tol, max_iter=3000, check_every=3)
    assert found.outcome is Outcome.CONVERGED
    for record in found.history:
        assert record.dual <= best * (1 + 1e-12)
        assert record.primal >= best * (1 - 1e-10)
    assert problem.value(found.weights, found.intercept) == pytest.approx(found.certificate.primal, rel=1e-12)


@pytest.mark.parametrize("name", ["multinomial", "log_loss", "huber-0.5"])
def test_float32(name):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=60, K=3, seed=3, dtype=np.float32)
    problem = make_problem(case.loss, data, reg=NET, lam=0.01, intercept=True, dtype=np.float32)
    found = minimize(problem, AcceleratedSDCA(), tol=2e-5, max_iter=2000)
    double = make_problem(case.loss, data, reg=NET, lam=0.01, intercept=True)
    assert found.outcome is Outcome.CONVERGED
    assert found.certificate.primal == pytest.approx(optimum(double), rel=5e-5)


@pytest.mark.parametrize(
    ("solver", "loss", "limited"),
    [
        (AcceleratedSDCA(), LogisticLoss(), True),
        (AcceleratedSDCA(), SmoothHingeLoss(0.0), False),  # its gamma would fall too soon
        (SDCA(), LogisticLoss(), False),
    ],
    ids=["accelerated", "hinge", "sdca"],
)
def test_gaps_are_at_most_ten_iterations_apart_where_it_adapts_to_them(solver, loss, limited):
    problem = make_problem(loss, make_data("sign", n=60, d=6, K=2, seed=1), lam=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = minimize(problem, solver, tol=1e-15, max_iter=120)
    apart = np.diff([record.iteration for record in found.history])
    assert (max(apart) <= 10) == limited


@pytest.mark.parametrize("rule", ["gap", "rate", "proximal"])
def test_the_method_as_published_keeps_its_promises(rule):
    """Every bound of the paper's rules is above the true suboptimality, and they end where they say."""
    data = make_data("sign", n=50, d=5, K=1, seed=4)
    problem = make_problem(SmoothHingeLoss(1.0), data, lam=0.01)
    assert condition(problem, 1.0) > 10
    best = optimum(problem)
    found = minimize(problem, AcceleratedSDCA(inner="accuracy", rule=rule), tol=1e-3, max_iter=3000, check_every=1)
    assert found.outcome is Outcome.CONVERGED
    for record in found.history:
        assert record.dual <= best + 1e-12
    assert found.certificate.primal - best <= 1e-3 * found.certificate.primal


def ill_conditioned(loss, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 30)) * (np.arange(1, 31) ** -1.0)
    X /= np.sqrt((X**2).sum(1).max())
    T = np.sign(X @ rng.normal(size=(30, 1)) + 0.05 * rng.normal(size=(300, 1)))
    return make_problem(loss, Data(X, T, 1, None), reg=ElasticNet(10.0), lam=1e-5, intercept=True)


@pytest.mark.parametrize("loss", [SmoothHingeLoss(1.0), LogisticLoss()], ids=["smooth_hinge", "log_loss"])
def test_it_needs_fewer_passes_where_it_is_said_to(loss):
    problem = ill_conditioned(loss)
    assert is_ill_conditioned(problem)
    fast = minimize(problem, AcceleratedSDCA(), tol=1e-3, max_iter=2000)
    assert fast.outcome is Outcome.CONVERGED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = minimize(problem, SDCA(), tol=1e-3, max_iter=2 * int(fast.history.last.passes))
    assert plain.outcome is Outcome.MAX_ITER


def test_where_acceleration_does_not_pay():
    data = make_data("class")
    assert not is_ill_conditioned(make_problem(MultinomialLoss(), data, lam=1.0))
    assert not is_ill_conditioned(make_problem(CrammerSingerLoss(0.0), data, lam=1e-6))
    assert not is_ill_conditioned(make_problem(CrammerSingerLoss(0.1), data, lam=1e-6))
    many = make_data("class", n=1000)
    largest = make_problem(CrammerSingerLoss(0.1), many).norms.max() / 1000
    assert not is_ill_conditioned(make_problem(CrammerSingerLoss(0.1), many, lam=largest / 9))
    assert is_ill_conditioned(make_problem(CrammerSingerLoss(0.1), many, lam=largest / 11))
    assert is_ill_conditioned(make_problem(MultinomialLoss(), data, lam=1e-6))
    for loss in (CrammerSingerLoss(0.0), SmoothHingeLoss(0.0)):
        data = make_data(loss.targets, n=1000)
        assert is_ill_conditioned(make_problem(loss, data, lam=1e-6))
        few = make_data(loss.targets, n=1000, d=600)  # rows per feature: they are separated by a wide margin
        assert not is_ill_conditioned(make_problem(loss, few, lam=1e-6))
        # An intercept makes plain SDCA slow all the same.
        assert is_ill_conditioned(make_problem(loss, few, lam=1e-6, intercept=True)) is not loss.joint
    data = make_data("class")
    # kappa is zero where the problem is well conditioned, and the method is then SDCA itself.
    problem = make_problem(MultinomialLoss(), data, lam=10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, two = (minimize(problem, solver, tol=1e-13, max_iter=4) for solver in (AcceleratedSDCA(), SDCA()))
    assert one.n_iter == two.n_iter
    np.testing.assert_allclose(one.weights, two.weights, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("inner", [1, 2, "accuracy"])
def test_threads_and_a_killed_run_change_nothing(inner, tmp_path):
    data = make_data("class", n=80, K=5, seed=7)
    whole = minimize(
        make_problem(MultinomialLoss(), data, reg=NET, lam=0.003, intercept=inner != "accuracy"),
        AcceleratedSDCA(inner=inner),
        tol=1e-7,
        max_iter=400,
    )
    threaded = make_problem(MultinomialLoss(), data, reg=NET, lam=0.003, intercept=inner != "accuracy", n_threads=2)
    path = tmp_path / "run.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        minimize(threaded, AcceleratedSDCA(inner=inner), tol=1e-7, max_iter=4, checkpoint=path)
    resumed = minimize(threaded, AcceleratedSDCA(inner=inner), tol=1e-7, max_iter=400, checkpoint=path)
    assert resumed.n_iter == whole.n_iter
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    np.testing.assert_array_equal(resumed.intercept, whole.intercept)


def test_what_is_refused_and_said():
    for wrong in ({"inner": 0}, {"inner": "exact"}, {"rule": "time"}, {"rule": "rate"}, {"option": "VI"}):
        with pytest.raises(
            ValueError, match=f"{next(iter(wrong))}.* (parameter of AcceleratedSDCA|needs inner='accuracy')"
        ):
            AcceleratedSDCA(**wrong).check()
    problem = make_problem(SquaredLoss(), make_data("real"), intercept=True)
    with pytest.raises(ValueError, match="intercept"):
        minimize(problem, AcceleratedSDCA(inner="accuracy", rule="rate"))


def test_shifted_l2_is_ridge_towards_a_prior():
    """lam g(W) - lam <W, Z> with l2: the least squares fit that is drawn to Z."""
    data = make_data("real", n=40, d=5, K=2, seed=8)
    prior = np.random.default_rng(0).normal(size=(5, 2))
    lam = 0.3
    found = minimize(make_problem(SquaredLoss(), data, lam=lam, shift=prior), SDCA(), tol=1e-12, max_iter=5000)
    n = len(data.X)
    expected = np.linalg.solve(data.X.T @ data.X / n + lam * np.eye(5), data.X.T @ data.T / n + lam * prior)
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    for wrong in (prior[:3], prior.astype(np.float32)):
        with pytest.raises(ValueError, match="shift must be"):
            make_problem(SquaredLoss(), data, shift=wrong)
    with pytest.raises(ValueError, match="shift"):
        minimize(make_problem(SquaredLoss(), data, shift=prior), AcceleratedSDCA())


@pytest.mark.parametrize(
    ("loss", "alpha", "most"),
    [("hinge", 1e-3, 250), ("hinge", 1e-4, 250), (CrammerSinger(gamma=0), 1e-3, 120)],
    ids=["hinge", "hinge, weak penalty", "crammer_singer"],
)
def test_smoothing_follows_the_gap_no_closer_than_needed(loss, alpha, most):
    """Before smoothing followed the gap of the smoothed problem, and the mean of the dual points was kept, these took
    152, 363 and 142 steps."""
    X, y = load_digits(return_X_y=True)
    model = LinearClassifier(loss, alpha=alpha, solver="accelerated", fit_intercept=False, random_state=0)
    model.fit(X / 16, y)
    assert model.duality_gap_ <= 1e-3
    assert model.n_iter_ <= most


@pytest.mark.parametrize(("loss", "scaled", "most"), [("crammer_singer", True, 1200), ("squared_hinge", False, 1800)])
def test_rounding_errors_do_not_steer_the_method(loss, scaled, most):
    """kappa / lam is 1e4 to 1e6 here. When no dual image was recomputed, float32 had no certificate after 2000 steps,
    for the second a gap of 0.9997."""
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X) if scaled else X
    model = LinearClassifier(loss, alpha=1e-5, solver="accelerated", fit_intercept=False, random_state=0)
    model.fit(X.astype(np.float32), y)
    assert model.duality_gap_ <= 1e-3
    assert model.n_iter_ <= most

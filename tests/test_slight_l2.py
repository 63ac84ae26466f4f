"""A pure l1 penalty through a slight l2 part: what is certified is the pure problem, and eps follows the gap."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from helpers import make_data, make_problem, objective
from manyclass.objective.losses import MultinomialLoss, SquaredLoss
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import FISTA, SDCA, AcceleratedSDCA, ActiveSetSDCA, SlightL2
from registry import LOSSES

SMOOTH = [name for name, case in LOSSES.items() if case.loss.smoothness]
KINKED = [name for name in LOSSES if name not in SMOOTH]


def pure(case, lam: float, **options) -> tuple[Problem, Problem, object]:
    """The problem, the same in float64, and its data."""
    data = make_data(case.loss.targets, n=60, d=6, K=3, seed=4, weighted=True)
    options = {"intercept": True, **options}
    double = make_problem(case.loss, data, reg=L1(), lam=lam, intercept=options["intercept"])
    return make_problem(case.loss, data, reg=L1(), lam=lam, **options), double, data


def value(case, data, lam, W, b):
    W = np.asarray(W, np.float64)
    return objective(case.formula, data, L2(), 0.0, W, b) + lam * float(np.abs(W).sum())


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("intercept", [False, True])
def test_every_gap_is_that_of_the_pure_problem(name, intercept):
    case = LOSSES[name]
    problem, _, data = pure(case, 0.05, intercept=intercept)
    best = minimize(problem, FISTA(), tol=1e-10, max_iter=50_000).certificate.primal
    found = minimize(problem, SlightL2(AcceleratedSDCA()), tol=1e-6, max_iter=10_000, check_every=2)
    assert found.outcome is Outcome.CONVERGED
    assert len(found.history) >= 2
    for record in found.history:
        assert record.dual <= best * (1 + 1e-10)
        assert record.primal >= best * (1 - 1e-10)
    assert found.certificate.primal <= best * (1 + 1.01e-6)
    assert value(case, data, 0.05, found.weights, found.intercept) == pytest.approx(found.certificate.primal, rel=1e-10)


@pytest.mark.parametrize("solver", [SDCA, AcceleratedSDCA])
@pytest.mark.parametrize("name", KINKED)
def test_losses_with_a_kink(name, solver):
    case = LOSSES[name]
    problem, _, data = pure(case, 0.05)
    with warnings.catch_warnings():
        # Slow where neither the loss is smooth nor the penalty curved: what is reached is certified all the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = minimize(problem, SlightL2(solver()), tol=1e-3, max_iter=3000)
        other = minimize(
            problem, SlightL2(SDCA() if solver is AcceleratedSDCA else AcceleratedSDCA()), tol=1e-2, max_iter=3000
        )
    assert found.certificate.relative_gap <= 0.05
    assert found.certificate.dual <= other.certificate.primal
    assert other.certificate.dual <= found.certificate.primal
    assert value(case, data, 0.05, found.weights, found.intercept) == pytest.approx(found.certificate.primal, rel=1e-10)


@pytest.mark.parametrize("solver", [SDCA(), AcceleratedSDCA()], ids=["sdca", "accelerated"])
def test_eps_shrinks_until_the_gap_is_met(solver):
    """An l2 part that is not slight at all: alone it would leave a gap far above tol."""
    problem, _, _ = pure(LOSSES["squared"], 0.2)
    best = minimize(problem, FISTA(), tol=1e-12, max_iter=50_000).certificate.primal
    driven = SlightL2(solver, eps=0.9)
    state = driven.state(problem)
    seen = [float(state["eps"])]
    for tol in (1e-1, 1e-2, 1e-3):
        found = minimize(problem, driven, tol=tol, max_iter=50_000, state=state, check_every=1)
        assert found.outcome is Outcome.CONVERGED
        assert found.certificate.primal <= best * (1 + 1.01 * tol)
        seen.append(float(state["eps"]))
    assert all(later <= earlier for earlier, later in zip(seen, seen[1:]))
    assert seen[-1] < 0.5 * seen[0]


def test_a_large_first_l2_part_is_faster_for_sdca():
    """Steps are proportional to the l2 part while it is small; reducing a large one takes few epochs."""
    case = LOSSES["multinomial"]
    problem = pure(case, 0.02)[0]
    runs = [minimize(problem, SlightL2(SDCA(), eps=eps), tol=1e-2, max_iter=20_000) for eps in (None, 0.5)]
    assert all(run.outcome is Outcome.CONVERGED for run in runs)
    assert runs[0].n_iter < 0.5 * runs[1].n_iter


def test_the_weights_are_those_of_the_last_certificate():
    """Also where the l2 part is to be reduced next."""
    case = LOSSES["squared"]
    problem, _, data = pure(case, 0.1)
    driven, state = SlightL2(SDCA()), SlightL2(SDCA()).state(problem)
    due = 0
    for _ in zip(range(40), driven.iterate(problem, state, 0)):
        found = driven.certificate(problem, state, final=False)
        W, b = driven.weights(problem, state)
        assert value(case, data, 0.1, W, b) == pytest.approx(found.primal, rel=1e-10)
        due += int(state["shrink"])
    assert 2 <= due < 40


def test_what_the_l2_part_costs_is_bounded_by_eps():
    """The optimum of the elastic net with lam = eps P(0) (sigma / P(0))^2 is within eps/2 P(0) of the pure one's."""
    problem, _, data = pure(LOSSES["multinomial"], 0.02)
    best = minimize(problem, FISTA(), tol=1e-10, max_iter=50_000).certificate.primal
    at_zero = problem.value(np.zeros((6, 3)), np.zeros(3))
    for eps in (0.9, 0.1, 1e-3):
        lam = eps * 0.02**2 / at_zero
        net = make_problem(MultinomialLoss(), data, reg=ElasticNet(0.02 / lam), lam=lam, intercept=True)
        near = minimize(net, FISTA(), tol=1e-8, max_iter=50_000)
        assert problem.value(near.weights, near.intercept) <= best + 0.5 * eps * at_zero * (1 + 1e-6)


@pytest.mark.parametrize("solver", [SDCA(), AcceleratedSDCA()], ids=["sdca", "accelerated"])
def test_threads_and_a_killed_run_change_nothing(solver, tmp_path):
    case = LOSSES["multinomial"]
    whole = minimize(pure(case, 0.05)[0], SlightL2(solver, eps=0.5), tol=1e-3, max_iter=5000)
    assert whole.n_iter > 8
    assert float(whole.state["eps"]) < 0.5  # it has shrunk on the way
    problem = pure(case, 0.05, n_threads=2)[0]
    path = tmp_path / "run.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for killed in (3, whole.n_iter - 5):
            minimize(problem, SlightL2(solver, eps=0.5), tol=1e-3, max_iter=killed, checkpoint=path)
    resumed = minimize(problem, SlightL2(solver, eps=0.5), tol=1e-3, max_iter=5000, checkpoint=path)
    assert resumed.n_iter == whole.n_iter
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    np.testing.assert_array_equal(resumed.intercept, whole.intercept)


@pytest.mark.parametrize("name", ["multinomial", "log_loss", "huber-0.5"])
def test_float32(name):
    case = LOSSES[name]
    single, double, data = pure(case, 0.05, dtype=np.float32)
    best = minimize(double, FISTA(), tol=1e-10, max_iter=50_000).certificate.primal
    found = minimize(single, SlightL2(AcceleratedSDCA()), tol=1e-4, max_iter=5000)
    assert found.outcome is Outcome.CONVERGED
    assert found.weights.dtype == np.float32
    for record in found.history:
        assert record.dual <= best * (1 + 1e-5)
    assert best * (1 - 1e-6) <= value(case, data, 0.05, found.weights, found.intercept) <= best * (1 + 1.1e-4)


def test_a_warm_start_goes_on():
    case = LOSSES["squared"]
    driven = SlightL2(AcceleratedSDCA())
    problem = pure(case, 0.1)[0]
    state = minimize(problem, driven, tol=1e-6, max_iter=5000).state
    near = pure(case, 0.098)[0]
    cold = minimize(near, driven, tol=1e-6, max_iter=5000)
    warm = minimize(near, driven, tol=1e-6, max_iter=5000, state=driven.warm(near, state))
    assert warm.n_iter < 0.7 * cold.n_iter
    assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=2e-6)


def test_active_sets_say_why_they_need_an_l2_part():
    case = LOSSES["crammer_singer-0.1"]
    with pytest.raises(ValueError, match=r"got a pure l1 penalty: choose solver='accelerated'.* or l1_ratio < 1"):
        minimize(pure(case, 0.05)[0], ActiveSetSDCA())


def test_what_is_refused():
    data = make_data("real")
    problem = make_problem(SquaredLoss(), data, reg=L1())
    for wrong in (0.0, np.inf, -1.0, np.nan):
        with pytest.raises(ValueError, match="eps must be None or a finite number greater than 0"):
            minimize(problem, SlightL2(SDCA(), eps=wrong))
    with pytest.raises(ValueError, match="'sdca \\+ slight l2' needs a pure l1 penalty, got 'l2'"):
        minimize(make_problem(SquaredLoss(), data, reg=L2()), SlightL2(SDCA()))

"""Prox-SDCA: the optimum of independent solvers, certified; the same bits; shrinking."""

from __future__ import annotations

import numpy as np
import pytest

import references
from helpers import make_data, make_problem, objective, same_bits
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss, SmoothHingeLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import SDCA, ActiveSetSDCA, AsyncSDCA
from manyclass.solvers.dual.sdca import bias_step
from registry import LOSSES

NET = ElasticNet(0.25)


#: (loss, K, rows, precision, penalty, weighted, intercept, by whom).
PROBLEMS = [
    ("multinomial", 3, "csr", "f8", L2(), False, False, references.logistic_regression),
    ("multinomial", 50, "dense", "f8", L2(), True, False, references.logistic_regression),
    ("multinomial", 5, "csr", "f8", L2(), True, True, references.logistic_regression),
    ("multinomial", 2, "dense", "f8", L2(), False, True, references.quasi_newton),
    ("multinomial", 4, "csr", "f8", NET, True, False, references.quasi_newton),
    ("multinomial", 10, "csr", "f4", NET, False, True, references.quasi_newton),
    ("crammer_singer-0", 5, "csr", "f8", L2(), False, False, references.linear_svc),
    ("crammer_singer-0", 20, "dense", "f8", L2(), True, False, references.linear_svc),
    ("crammer_singer-0", 3, "csr", "f8", L2(), True, True, references.quadratic_program),
    ("crammer_singer-0.1", 10, "csr", "f8", L2(), False, False, references.quasi_newton),
    ("crammer_singer-1", 30, "dense", "f8", L2(), True, True, references.quasi_newton),
    ("crammer_singer-1", 2, "csr", "f8", L2(), False, True, references.quasi_newton),
    ("crammer_singer-1", 6, "csr", "f4", NET, True, False, references.quasi_newton),
    ("hinge", 4, "csr", "f8", L2(), True, False, references.linear_svc),
    ("hinge", 3, "dense", "f8", L2(), False, True, references.quadratic_program),
    ("smooth_hinge-0.5", 6, "csr", "f8", L2(), True, True, references.quasi_newton),
    ("smooth_hinge-0.5", 5, "csr", "f4", NET, False, True, references.quasi_newton),
    ("smooth_hinge-1", 40, "dense", "f8", L2(), True, False, references.quasi_newton),
    ("squared_hinge", 5, "csr", "f8", L2(), True, False, references.linear_svc),
    ("squared_hinge", 3, "dense", "f8", L2(), True, True, references.quasi_newton),
    ("squared_hinge", 4, "csr", "f4", NET, False, False, references.quasi_newton),
    ("log_loss", 4, "csr", "f8", L2(), True, True, references.logistic_regression),
    ("log_loss", 25, "dense", "f8", L2(), False, False, references.logistic_regression),
    ("log_loss", 7, "csr", "f4", NET, True, True, references.quasi_newton),
    ("squared", 7, "csr", "f8", L2(), True, True, references.ridge),
    ("squared", 50, "dense", "f8", L2(), False, False, references.ridge),
    ("squared", 3, "csr", "f8", NET, False, True, references.lasso_and_ridge),
    ("squared", 3, "csr", "f4", NET, True, False, references.quasi_newton),
    ("softmax_hinge", 5, "csr", "f8", L2(), True, False, references.quasi_newton),
    ("softmax_hinge", 4, "dense", "f8", NET, False, True, references.quasi_newton),
    ("huber-0.5", 3, "csr", "f8", L2(), True, True, references.quasi_newton),
    ("huber-0.5", 2, "dense", "f8", NET, False, False, references.quasi_newton),
]


def named(problem):
    name, K, view, dtype, reg, weighted, intercept, by = problem
    words = [name, f"{K}", view, dtype, type(reg).__name__, "weighted" * weighted, "intercept" * intercept, by.__name__]
    return "-".join(filter(None, words))


@pytest.mark.parametrize("problem", PROBLEMS, ids=named)
def test_the_optimum_is_an_independent_solvers_and_the_gap_is_true(problem):
    name, K, view, dtype, reg, weighted, intercept, by = problem
    case, lam = LOSSES[name], 0.05
    n = 24 if by is references.quadratic_program else 120
    data = make_data(case.loss.targets, n=n, d=6, K=K, seed=K, weighted=weighted, dtype=dtype)
    double = data._replace(X=data.X.astype(np.float64))
    best = by(case, double, reg, lam, intercept)
    exact = make_problem(case.loss, data, reg=reg, lam=lam, view=view, dtype=np.dtype(dtype).type, intercept=intercept)
    tol = {"f8": 1e-8, "f4": 1e-5}[dtype]
    result = minimize(exact, SDCA(), tol=tol, max_iter=20_000, check_every=1)
    assert result.outcome is Outcome.CONVERGED
    assert result.certificate.relative_gap <= tol
    # The optimum is the same,
    reached = objective(case.formula, double, reg, lam, result.weights, result.intercept)
    assert reached == pytest.approx(best, rel={"f8": 1e-6, "f4": 3e-5}[dtype])
    assert result.certificate.primal == pytest.approx(reached, rel=20 * float(np.finfo(dtype).eps))
    # and at no time was the gap less than the distance to it (best is at least the true optimum).
    rounding = 20 * float(np.finfo(dtype).eps) * max(1.0, best)
    for record in result.history:
        assert record.gap >= record.primal - best - rounding
        assert record.gap >= max(0.0, record.primal - record.dual)
    assert reached - best <= result.certificate.gap + rounding


@pytest.mark.parametrize("solver", [AsyncSDCA(), ActiveSetSDCA()], ids=lambda solver: solver.name)
@pytest.mark.parametrize("intercept", [False, True])
def test_other_solvers_reach_the_same_certified_optimum(solver, intercept):
    data = make_data("class", n=80, K=12, weighted=True, seed=3)
    problem = make_problem(CrammerSingerLoss(1.0), data, intercept=intercept, n_threads=2)
    expected = minimize(problem, SDCA(), tol=1e-10, max_iter=20_000)
    found = minimize(problem, solver, tol=1e-8, max_iter=20_000)
    assert found.outcome is Outcome.CONVERGED
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1.1e-8)
    assert all(record.dual <= expected.certificate.primal * (1 + 1e-14) for record in found.history)


@pytest.mark.parametrize("name", ["multinomial", "smooth_hinge-0.5"])
def test_async_converges_for_joint_and_separable_losses(name):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=200, K=6, seed=4)
    problem = make_problem(case.loss, data, intercept=True, n_threads=2)
    expected = minimize(problem, SDCA(), tol=1e-10, max_iter=20_000)
    found = minimize(problem, AsyncSDCA(), tol=1e-7, max_iter=20_000)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1.1e-7)


def test_the_certificate_is_of_the_weights_returned():
    case, data = LOSSES["multinomial"], make_data("class", seed=5)
    result = minimize(make_problem(case.loss, data, intercept=True), SDCA(), tol=1e-4, max_iter=1000)
    recomputed = objective(case.formula, data, L2(), 0.05, result.weights, result.intercept)
    assert result.certificate.primal == pytest.approx(recomputed, rel=1e-13)
    assert result.history.last.iteration == result.n_iter == int(result.state["iteration"])


def test_one_class_and_empty_rows_alone_are_no_trouble():
    data = make_data("class", K=1)
    for loss in (MultinomialLoss(), CrammerSingerLoss(0.0), CrammerSingerLoss(1.0)):
        assert minimize(make_problem(loss, data, intercept=True), SDCA()).outcome is Outcome.CONVERGED
    nothing = make_data("sign")._replace(X=np.zeros((60, 8)))
    for loss in (SmoothHingeLoss(0.0), SmoothHingeLoss(0.5)):
        result = minimize(make_problem(loss, nothing), SDCA())
        assert result.outcome is Outcome.CONVERGED
        np.testing.assert_array_equal(result.weights, 0)


def test_the_live_intercept_is_the_image_of_the_duals(case):
    """Within an epoch the intercept moves as the weight of one more, constant feature: bias_step * sum_i c_i a_i."""
    problem = make_problem(case.loss, make_data(case.loss.targets, weighted=True, seed=13), intercept=True)
    solver, state = SDCA(), SDCA().state(problem)
    steps = solver.iterate(problem, state, seed=0)
    for _ in range(3):
        before, pull = state["bias"].copy(), state["pull"].copy()
        duals = problem.sample_weight @ state["dual"]
        next(steps)
        moved = bias_step(problem) * (problem.sample_weight @ state["dual"] - duals)
        np.testing.assert_allclose(state["pull"], pull + moved, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(state["bias"] - before, state["pull"])


# --- the same bits ----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    problem = make_problem(MultinomialLoss(), make_data("class", seed=6), intercept=True)
    runs = [minimize(problem, SDCA(), tol=1e-6, max_iter=1000, seed=seed) for seed in (1, 1, 2)]
    same_bits(runs[0], runs[1])
    assert not np.array_equal(runs[0].weights, runs[2].weights)


@pytest.mark.parametrize("name", ["smooth_hinge-0.5", "log_loss", "squared", "multinomial"])
def test_threads_do_not_change_a_bit(name):
    """Separable losses split their columns over threads (above 64 of them); joint ones the certificates alone."""
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=210, d=6, K=203, seed=7)
    runs = [
        minimize(make_problem(case.loss, data, intercept=True, n_threads=n), SDCA(), tol=1e-4, max_iter=1000)
        for n in (1, 2, 3)
    ]
    same_bits(runs[0], runs[1])
    same_bits(runs[0], runs[2])


# --- examples at rest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [SDCA, ActiveSetSDCA])
def test_examples_at_rest_are_left_out_and_looked_at_again(solver):
    """Easy examples fall out of most epochs, and the optimum is the one without that."""
    data = make_data("class", n=300, d=4, K=6, seed=13)
    problem = make_problem(CrammerSingerLoss(0.1), data, lam=0.02)
    found = minimize(problem, solver(), tol=1e-8, max_iter=5000)
    assert found.outcome is Outcome.CONVERGED
    assert found.history.last.passes < 0.8 * found.n_iter

    class Restless(solver):
        def _order(self, problem, seed, epoch):
            problem_state["idle"][:] = 0
            return super()._order(problem, seed, epoch)

    problem_state = Restless().state(problem)
    all_of_them = minimize(problem, Restless(), tol=1e-8, max_iter=5000, state=problem_state)
    assert all_of_them.history.last.passes == all_of_them.n_iter
    assert found.certificate.primal == pytest.approx(all_of_them.certificate.primal, rel=1.1e-8)
    # An example that rests but must move again is found: the labels change, the state goes on.
    other = make_problem(CrammerSingerLoss(0.1), data._replace(T=data.T[::-1].copy()), lam=0.02)
    moved = minimize(other, SDCA(), tol=1e-8, max_iter=5000)
    again = SDCA().state(other)
    again["idle"][:] = 100
    assert minimize(other, SDCA(), tol=1e-8, max_iter=5000, state=again).certificate.primal == pytest.approx(
        moved.certificate.primal, rel=1.1e-8
    )


def test_threads_without_locks_when_everybody_is_at_rest():
    data = make_data("class", n=30, d=4, K=4, seed=14)
    problem = make_problem(CrammerSingerLoss(0.5), data, n_threads=2)
    solver = AsyncSDCA()
    state = solver.state(problem)
    steps = solver.iterate(problem, state, 0)
    next(steps)  # the first epoch, and every fifth after it, visits all
    state["idle"][:] = 100
    before = state["dual"].copy()
    assert next(steps).passes == 1.0
    np.testing.assert_array_equal(state["dual"], before)

"""The fitting loop, every declared solver in it, and Prox-SDCA: certified optima, ends of every kind, the same bits."""

from __future__ import annotations

import csv
import inspect
import json
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import references
from helpers import make_data, make_problem, objective
from manyclass import LinearClassifier
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss, SmoothHingeLoss, SquaredLoss
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.objective.problem import Certificate
from manyclass.optimize.checkpoint import remove
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import (
    DSMLR,
    LBFGS,
    SDCA,
    SOLVERS as ALL,
    AcceleratedSDCA,
    ActiveSetSDCA,
    AsyncActiveSetSDCA,
    AsyncSDCA,
    BoundMajorization,
    Memoir,
    Progress,
    SlightL2,
    Solver,
)
from manyclass.solvers.dual.sdca import bias_step
from registry import LOSSES, SOLVERS, problem_for

NET = ElasticNet(0.25)

# --- the optimum is that of an independent solver -------------------------------------------------------------------

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


@pytest.mark.parametrize("solver", [AsyncSDCA(), ActiveSetSDCA(), AsyncActiveSetSDCA()], ids=lambda solver: solver.name)
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


# --- the same bits --------------------------------------------------------------------------------------------------


def same_bits(one, two):
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.intercept, two.intercept)
    assert one.certificate == two.certificate
    assert one.n_iter == two.n_iter
    assert one.state.keys() == two.state.keys()
    for name, array in one.state.items():
        np.testing.assert_array_equal(array, two.state[name])
    shown = [(r.iteration, r.passes, r.primal, r.dual, r.gap, r.relative_gap) for r in one.history]
    assert shown == [(r.iteration, r.passes, r.primal, r.dual, r.gap, r.relative_gap) for r in two.history]


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


# --- checkpoints ----------------------------------------------------------------------------------------------------


class Killed(Exception):
    """A run that ends without a farewell."""


class Mortal(SDCA):
    """SDCA that is killed within epoch ``last``, its state in ruins; for a checkpoint it is SDCA."""

    def __init__(self, last, error=Killed):
        super().__init__()
        self.last = last
        self.error = error

    def prepare(self, problem):
        return self

    def get_params(self, deep=True):
        return SDCA().get_params(deep)

    def _epoch(self, problem, state, order, *rest):
        if state["iteration"] >= self.last:
            half = len(order) // 2
            super()._epoch(problem, state, order[:half], *rest)
            raise self.error
        super()._epoch(problem, state, order, *rest)


STOPS = {"no-intercept": False, "intercept": True}


@pytest.mark.parametrize("intercept", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("check_every", [None, 1, 3])
@pytest.mark.parametrize("stop", [1, 4, 9, 12])
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, intercept, check_every, stop):
    problem = make_problem(SmoothHingeLoss(0.5), make_data("sign", seed=8), intercept=intercept)
    options = {"tol": 1e-6, "seed": 5, "check_every": check_every}
    whole = minimize(problem, SDCA(), max_iter=2000, **options)
    assert whole.n_iter > 12
    path = tmp_path / "run.ckpt"
    with pytest.raises(Killed):
        minimize(problem, Mortal(stop), max_iter=2000, checkpoint=path, checkpoint_seconds=0, **options)
    assert path.exists()
    same_bits(minimize(problem, SDCA(), max_iter=2000, checkpoint=path, **options), whole)
    # From the end, which is kept too, no epoch is run.
    same_bits(minimize(problem, Mortal(0), max_iter=2000, checkpoint=path, **options), whole)


@pytest.mark.parametrize("solver", [SDCA(), ActiveSetSDCA()], ids=lambda solver: solver.name)
@pytest.mark.parametrize("intercept", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("check_every", [None, 4])
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, solver, intercept, check_every, stop):
    problem = make_problem(CrammerSingerLoss(1.0), make_data("class", n=80, K=12, seed=9), intercept=intercept)
    options = {"tol": 0.0, "seed": 6, "check_every": check_every}
    path = tmp_path / "run.ckpt"
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        whole = minimize(problem, solver, max_iter=11, **options)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        part = minimize(problem, solver, max_iter=stop, checkpoint=path, **options)
    assert part.n_iter == part.history.last.iteration == stop
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        rest = minimize(problem, solver, max_iter=11, checkpoint=path, **options)
    same_bits(rest, whole)
    assert rest.history.last.seconds >= part.history[0].seconds


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    data = make_data("class", weighted=True, seed=10)
    problem = make_problem(CrammerSingerLoss(1.0), data)

    def run(problem, solver=None, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return minimize(problem, solver or SDCA(), max_iter=2, tol=0.0, checkpoint=path, **options)

    run(problem)
    kept = path.read_bytes()
    swapped = data.T.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    others = {
        "lam": make_problem(CrammerSingerLoss(1.0), data, lam=0.1),
        "gamma": make_problem(CrammerSingerLoss(0.5), data),
        "loss": make_problem(MultinomialLoss(), data),
        "penalty": make_problem(CrammerSingerLoss(1.0), data, reg=ElasticNet(0.1)),
        "intercept": make_problem(CrammerSingerLoss(1.0), data, intercept=True),
        "rows": make_problem(CrammerSingerLoss(1.0), data._replace(X=data.X * 1.001)),
        "targets": make_problem(CrammerSingerLoss(1.0), data._replace(T=swapped)),
        "weights": make_problem(CrammerSingerLoss(1.0), data._replace(weights=None)),
        "shape": make_problem(CrammerSingerLoss(1.0), make_data("class", n=61, weighted=True, seed=10)),
    }
    for other in others.values():
        with pytest.raises(ValueError, match="belongs to another run"):
            run(other)
    with pytest.raises(ValueError, match="belongs to another run"):
        run(problem, seed=1)
    for solver in (ActiveSetSDCA(), SDCA(option="II"), SDCA(sampling="uniform")):
        with pytest.raises(ValueError, match="belongs to another run"):
            run(problem, solver)
    assert path.read_bytes() == kept
    run(problem)


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_a_checkpoint_cut_short_is_refused(tmp_path, cut):
    path = tmp_path / "run.ckpt"
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning):
        minimize(problem, SDCA(), max_iter=1, tol=0.0, checkpoint=path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"checkpoint .*run\.ckpt cannot be read"):
        minimize(problem, SDCA(), checkpoint=path)


def test_a_checkpoint_leaves_nothing_else_in_its_folder(tmp_path):
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning):
        minimize(problem, SDCA(), max_iter=3, tol=0.0, checkpoint=tmp_path / "run.ckpt", checkpoint_seconds=0)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_finished_run_is_returned_at_once_or_gone_on_with(tmp_path):
    path = tmp_path / "run.ckpt"
    problem = make_problem(MultinomialLoss(), make_data("class", seed=8), intercept=True)
    first = minimize(problem, SDCA(), tol=1e-3, max_iter=1000, checkpoint=path)
    kept = path.read_bytes()
    again = minimize(problem, Mortal(0), tol=1e-3, max_iter=1000, checkpoint=path)
    same_bits(first, again)
    assert again.outcome is Outcome.CONVERGED
    assert again.history.outcome == "converged"
    assert path.read_bytes() == kept
    same_bits(first, minimize(problem, Mortal(0), tol=1e-2, max_iter=1, checkpoint=path))
    # What is asked for beyond it is done.
    further = minimize(problem, SDCA(), tol=1e-6, max_iter=1000, checkpoint=path)
    assert further.certificate.relative_gap <= 1e-6
    assert further.n_iter > first.n_iter
    remove(path)
    assert not path.exists()


def test_the_end_of_what_the_arithmetic_can_tell_is_kept_as_an_end(tmp_path):
    path = tmp_path / "run.ckpt"
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning, match="arithmetic can tell"):
        first = minimize(problem, LBFGS(), tol=0.0, max_iter=1000, checkpoint=path)
    with pytest.warns(ConvergenceWarning, match="arithmetic can tell"):
        again = minimize(problem, LBFGS(), tol=0.0, max_iter=1000, checkpoint=path)
    assert first.n_iter == again.n_iter < 1000
    assert first.history.last.seconds == again.history.last.seconds


def test_iterations_before_a_resumption_count_and_those_before_a_warm_start_do_not(tmp_path):
    path = tmp_path / "run.ckpt"
    problem = make_problem(MultinomialLoss(), make_data("class", seed=8))
    options = {"tol": 0.0, "warn": False}
    assert minimize(problem, SDCA(), max_iter=3, checkpoint=path, **options).n_iter == 3
    part = minimize(problem, SDCA(), max_iter=5, checkpoint=path, **options)
    assert part.n_iter == 5
    same_bits(minimize(problem, SDCA(), max_iter=5, checkpoint=path, **options), part)
    assert minimize(problem, SDCA(), max_iter=2, checkpoint=path, **options).n_iter == 5
    assert minimize(problem, SDCA(), max_iter=5, state=part.state, **options).n_iter == 10


# --- how a run ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("stop", [0, 5])
def test_an_interrupt_returns_what_was_reached_certified(tmp_path, intercept, stop):
    case, data = LOSSES["smooth_hinge-0.5"], make_data("sign", seed=11)
    problem = make_problem(case.loss, data, intercept=intercept)
    path = tmp_path / "run.ckpt"
    with pytest.warns(ConvergenceWarning, match=rf"interrupted.*after {stop} iterations.*tol is 1e-10"):
        result = minimize(problem, Mortal(stop, KeyboardInterrupt), tol=1e-10, checkpoint=path)
    assert result.outcome is Outcome.INTERRUPTED
    assert result.history.outcome == "interrupted"
    assert result.n_iter == stop
    recomputed = objective(case.formula, data, L2(), 0.05, result.weights, result.intercept)
    assert result.certificate.primal == pytest.approx(recomputed, rel=1e-13)
    best = minimize(problem, SDCA(), tol=1e-10, max_iter=5000).certificate
    assert result.certificate.gap >= recomputed - best.primal
    assert result.certificate.dual <= best.primal
    # From the checkpoint the run goes on to the same optimum.
    again = minimize(problem, SDCA(), tol=1e-10, max_iter=5000, checkpoint=path)
    assert again.certificate.primal == pytest.approx(best.primal, rel=1e-9)
    assert again.history[0].iteration <= stop < again.n_iter


def test_too_few_iterations_warn_with_their_number_and_the_gap():
    problem = make_problem(MultinomialLoss(), make_data("class"))
    with pytest.warns(ConvergenceWarning) as caught:
        result = minimize(problem, SDCA(), tol=1e-12, max_iter=3)
    assert result.outcome is Outcome.MAX_ITER
    assert result.n_iter == 3
    text = str(caught[0].message)
    for part in ("max_iter", "after 3 iterations", f"{result.certificate.relative_gap:.2e}", "tol is 1e-12"):
        assert part in text


def test_float32_that_cannot_certify_the_tolerance_says_so():
    problem = make_problem(SquaredLoss(), make_data("real", dtype=np.float32), reg=NET, dtype=np.float32)
    with pytest.warns(ConvergenceWarning, match="float32 arithmetic certifies gaps down to .*float64"):
        minimize(problem, SDCA(), tol=1e-12, max_iter=3)


class Scripted(SDCA):
    """A solver whose certificates are given beforehand, one for each iteration."""

    def __init__(self, *gaps):
        self.gaps = gaps
        self.asked = []

    def prepare(self, problem):
        return self

    def get_params(self, deep=True):
        return {"gaps": self.gaps}

    def iterate(self, problem, state, seed):
        while True:
            state["iteration"] = state["iteration"] + 1
            yield Progress(int(state["iteration"]), float(state["iteration"]))

    def certificate(self, problem, state, *, final):
        self.asked.append((int(state["iteration"]), final))
        return Certificate(1.0, 1.0 - self.gaps[min(int(state["iteration"]), len(self.gaps)) - 1])


def test_an_objective_that_is_not_finite_ends_the_run(tmp_path):
    problem = make_problem(SquaredLoss(), make_data("real"))
    solver = Scripted(0.5)
    solver.certificate = lambda *_, **__: Certificate(float("nan"), 0.0)
    with pytest.warns(ConvergenceWarning, match="the objective is not finite"):
        result = minimize(problem, solver, checkpoint=tmp_path / "run.ckpt")
    assert result.outcome is Outcome.DIVERGED
    assert result.n_iter == 2
    assert not (tmp_path / "run.ckpt").exists(), "nothing worth keeping"


def test_convergence_is_declared_on_a_final_certificate_only():
    problem = make_problem(SquaredLoss(), make_data("real"))
    solver = Scripted(0.5, 1e-9)
    result = minimize(problem, solver, tol=1e-3)
    assert result.outcome is Outcome.CONVERGED
    assert solver.asked == [(2, False), (2, True)]


def test_where_the_goal_is_in_sight_one_certificate_is_enough():
    solver = Scripted(0.1, 0.009, 0.9e-3)
    result = minimize(make_problem(SquaredLoss(), make_data("real")), solver, tol=1e-3)
    assert result.outcome is Outcome.CONVERGED
    assert solver.asked == [(2, False), (3, True)]
    # Misjudged: the run goes on.
    solver = Scripted(0.1, 0.009, 2e-3, 1e-4)
    assert minimize(make_problem(SquaredLoss(), make_data("real")), solver, tol=1e-3).n_iter == 4
    assert solver.asked == [(2, False), (3, True), (4, True)]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_check_every_certifies_at_its_multiples_and_at_the_end(every):
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning):
        history = minimize(problem, SDCA(), tol=0.0, max_iter=12, check_every=every).history
    expected = sorted({*range(every, 13, every), 12})
    assert [record.iteration for record in history] == expected


def test_certificates_are_few_and_none_is_far_behind_the_goal():
    """The gap halves every iteration: the trend is seen, and tol overshot by little."""
    problem = make_problem(SquaredLoss(), make_data("real"))
    gaps = [0.97**k for k in range(1, 1000)]
    solver = Scripted(*gaps)
    result = minimize(problem, solver, tol=1e-3, max_iter=1000)
    needed = next(k for k, gap in enumerate(gaps, 1) if gap <= 1e-3)
    assert needed <= result.n_iter <= needed + 3
    assert len(result.history) <= 20


def test_a_run_can_start_where_another_ended():
    problem = make_problem(MultinomialLoss(), make_data("class", seed=12), intercept=True)
    first = minimize(problem, SDCA(), tol=1e-3)
    second = minimize(problem, SDCA(), tol=1e-6, max_iter=1000, state=first.state)
    afresh = minimize(problem, SDCA(), tol=1e-6, max_iter=1000)
    assert second.n_iter > first.n_iter
    assert second.n_iter - first.n_iter < afresh.n_iter
    assert second.certificate.primal == pytest.approx(afresh.certificate.primal, rel=2e-6)


# --- advice ---------------------------------------------------------------------------------------------------------


def told(X, y, **options):
    """The warning of a fit that ends too early."""
    with pytest.warns(ConvergenceWarning) as caught:
        LinearClassifier(max_iter=3, tol=1e-9, random_state=0, **options).fit(X, y)
    (warning,) = caught
    return str(warning.message)


@pytest.mark.parametrize("solver", ["auto", "sdca", "lbfgs"])
def test_rows_of_an_odd_size_are_told(solver):
    X, y = load_digits(return_X_y=True)
    size = (X**2).sum(1).mean()
    assert "the squared norms of the rows are about" not in told(X / 16, y, solver=solver)
    assert "scale the features" not in told(X, y, solver=solver)
    for factor in (1e4, 1e-6):
        said = told(X * factor, y, solver=solver)
        assert f"the squared norms of the rows are about {size * factor**2:.1e}: scale the features" in said
        assert "StandardScaler" in said
        assert "raise max_iter" in said


def test_a_feature_of_an_odd_size_is_told():
    """Where the rows are as large as they should be."""
    data = make_data("class", n=200, d=20, seed=21, density=1.0)
    X = data.X / 1e5
    X[:, 7] *= 1e6
    for form in (np.asarray, sp.csr_matrix):
        said = told(form(X), data.T)
        assert "feature 7 is " in said
        times = float(said.split("feature 7 is ")[1].split()[0])
        assert 3e5 < times < 3e6
        assert "times as large as most: scale the features" in said
    X[:, 7] /= 1e5
    assert "feature" not in told(X * 1e4, data.T)


def test_advice_on_the_scale_gives_way_to_that_on_the_precision():
    X, y = load_digits(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="float32 arithmetic certifies gaps down to") as caught:
        LinearClassifier(max_iter=3, tol=1e-12, dtype=np.float32).fit(X * 1e4, y)
    assert "scale the features" not in str(caught[0].message)


# --- a solver without a certificate ---------------------------------------------------------------------------------


class Uncertified(Solver):
    """One weight that counts the iterations; reports ``losses``, one for each, and ends after ``last``."""

    name = "uncertified"
    needs_loss = needs_penalty = frozenset()
    certified = False
    default_max_iter = 4

    def __init__(self, *, losses=(3.0, 2.0, 1.0), last=None, fails=None):
        self.losses = losses
        self.last = last
        self.fails = fails

    def state(self, problem):
        return {"iteration": np.zeros((), np.int64), "W": np.zeros((problem.n_features, problem.n_outputs))}

    def nbytes(self, problem):
        return {"weights": 8 * problem.n_features * problem.n_outputs}

    def iterate(self, problem, state, seed) -> Iterator[Progress]:
        while True:
            if int(state["iteration"]) == self.fails:
                raise KeyboardInterrupt
            state["iteration"] = state["iteration"] + 1
            state["W"][:] = state["iteration"]
            yield Progress(int(state["iteration"]), float(state["iteration"]))

    def report(self, problem, state, seed):
        iteration = int(state["iteration"])
        loss = self.losses[min(iteration, len(self.losses)) - 1]
        return {"loss": loss, "nonzeros": 12.0 * iteration}, "patience" if iteration == self.last else None

    def weights(self, problem, state):
        return state["W"], np.zeros(problem.n_outputs)


@pytest.fixture
def small():
    return make_problem(MultinomialLoss(), make_data("class"))


def test_without_a_certificate_every_iteration_is_run_and_reported(small):
    """``tol`` and ``check_every`` mean nothing, and an end at max_iter is no news."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = minimize(small, Uncertified(), tol=1e9, check_every=3)
    assert result.outcome is Outcome.MAX_ITER
    assert result.history.outcome == "max_iter"
    assert result.n_iter == 4
    assert result.history.column("iteration") == [1, 2, 3, 4]
    assert [record.info["loss"] for record in result.history] == [3.0, 2.0, 1.0, 1.0]
    np.testing.assert_array_equal(result.weights, 4.0)
    for number in (result.certificate.primal, result.certificate.dual, result.certificate.relative_gap):
        assert math.isnan(number)
    assert minimize(small, Uncertified(), max_iter=2).n_iter == 2


def test_a_solver_without_a_certificate_says_that_it_is_done(small):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = minimize(small, Uncertified(last=3), max_iter=50)
    assert result.outcome is Outcome.PATIENCE
    assert result.history.outcome == "patience"
    assert result.n_iter == len(result.history) == 3


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_report_that_is_not_finite_ends_the_run(small, number):
    with pytest.warns(ConvergenceWarning, match=r"the fit diverged.* \(after 2 epochs\)"):
        result = minimize(small, Uncertified(losses=(3.0, number)), max_iter=50)
    assert result.outcome is Outcome.DIVERGED
    assert result.history.outcome == "diverged"
    assert result.n_iter == 2


def test_an_interrupt_without_a_certificate_returns_what_was_reached(small, tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.warns(ConvergenceWarning, match=r"interrupted.* \(after 2 epochs\)"):
        result = minimize(small, Uncertified(fails=2), checkpoint=path)
    assert result.outcome is Outcome.INTERRUPTED
    assert result.history.outcome == "interrupted"
    assert result.n_iter == 2
    np.testing.assert_array_equal(result.weights, 2.0)
    assert path.exists()


def test_reports_are_kept_by_checkpoints(small, tmp_path):
    path = tmp_path / "run.ckpt"
    whole = minimize(small, Uncertified())
    minimize(small, Uncertified(), max_iter=1, checkpoint=path)
    rest = minimize(small, Uncertified(), checkpoint=path)
    assert [record.info for record in rest.history] == [record.info for record in whole.history]
    np.testing.assert_array_equal(rest.weights, whole.weights)


def test_reports_are_written_and_shown(small, tmp_path, capsys):
    result = minimize(small, Uncertified(), verbose=1)
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 4
    assert all("loss" in line and "nonzeros" in line for line in shown)
    result.history.to_csv(tmp_path / "history.csv")
    with (tmp_path / "history.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [float(row["loss"]) for row in rows] == [3.0, 2.0, 1.0, 1.0]
    assert [row["iteration"] for row in rows] == ["1", "2", "3", "4"]
    assert {row["relative_gap"] for row in rows} == {""}
    found = json.loads(json.dumps(result.history.to_dict()))
    assert found["outcome"] == "max_iter"
    assert found["records"][1]["loss"] == 2.0
    assert found["records"][1]["primal"] is None
    assert "nonzeros 24" in result.history.table()


def test_the_history_of_a_certified_run_as_a_table(tmp_path):
    history = minimize(make_problem(MultinomialLoss(), make_data("class")), SDCA(), check_every=1).history
    history.to_csv(tmp_path / "history.csv")
    with (tmp_path / "history.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    names = ["iteration", "passes", "primal", "dual", "gap", "relative_gap", "seconds", "elapsed"]
    assert list(rows[0]) == names
    for row, record in zip(rows, history, strict=True):
        assert [float(row[name]) for name in names] == list(record.numbers())


# --- every solver that is declared ----------------------------------------------------------------------------------


@pytest.fixture(params=SOLVERS)
def declared(request):
    """A solver that users can name."""
    return SOLVERS[request.param]


def quietly(problem, solver, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return minimize(problem, solver, **options)


@pytest.mark.parametrize("declared", [solver() for solver in ALL.values()], ids=ALL)
def test_what_a_solver_says_of_itself(declared):
    assert declared.summary
    assert "\n" not in declared.summary
    others = {name for name, other in ALL.items() if name != declared.name for name in (name, *other.synonyms)}
    assert others.isdisjoint({declared.name, *declared.synonyms})
    assert inspect.signature(type(declared)).parameters.keys() == declared.get_params(deep=False).keys()
    declared.check()


def test_every_parameter_of_a_solver_is_checked_where_a_fit_begins(declared):
    _, _, problem = problem_for(declared)
    for name in declared.get_params(deep=False):
        wrong: Any = clone(declared).set_params(**{name: object()})
        message = f"The '{name}' parameter of {type(declared).__name__} must be"
        for refused in (wrong.check, lambda wrong=wrong: minimize(problem, wrong)):
            with pytest.raises(ValueError, match=message):
                refused()


def test_a_fit_runs_a_copy_and_leaves_the_object_as_it_was(declared):
    _, _, problem = problem_for(declared)
    before = declared.get_params(deep=False)
    results = [quietly(problem, declared, tol=0.0, max_iter=2, seed=3) for _ in range(2)]
    assert declared.get_params(deep=False) == before
    for result in results:
        assert result.solver is not declared
        assert type(result.solver) is type(declared)
    if declared.reproducible:
        np.testing.assert_array_equal(*[dense(result.weights) for result in results])


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def test_every_gap_of_every_solver_is_true(declared):
    case, data, problem = problem_for(declared)
    result = quietly(problem, declared, tol=1e-4, max_iter=50, check_every=1)
    assert dense(result.weights).shape == (problem.n_features, problem.n_outputs)
    assert result.intercept.shape == (problem.n_outputs,)
    reached = objective(case.formula, data, L2(), problem.lam, dense(result.weights), result.intercept)
    if not declared.certified:
        assert math.isnan(result.certificate.gap)
        assert reached < objective(case.formula, data, L2(), problem.lam, np.zeros((6, 4)))
        return
    best = minimize(problem, SDCA(), tol=1e-9, max_iter=50_000).certificate
    assert result.certificate.primal == pytest.approx(reached, rel=1e-12)
    assert reached >= best.dual * (1 - 1e-12)
    assert result.certificate.relative_gap < 0.1
    for record in result.history:
        assert record.dual <= best.primal * (1 + 1e-12)
        assert record.gap >= record.primal - best.primal - 1e-12


def test_every_solver_goes_on_from_its_checkpoint_to_the_same_bits(declared, tmp_path):
    _, _, problem = problem_for(declared)
    path = tmp_path / "run"
    whole = quietly(problem, declared, tol=0.0, max_iter=5, seed=7)
    part = quietly(problem, declared, tol=0.0, max_iter=2, seed=7, checkpoint=path)
    assert part.n_iter == 2
    assert path.exists()
    rest = quietly(problem, declared, tol=0.0, max_iter=5, seed=7, checkpoint=path)
    assert rest.n_iter == whole.n_iter == 5
    assert rest.history.last.iteration == 5
    if declared.reproducible:
        np.testing.assert_array_equal(dense(rest.weights), dense(whole.weights))
        np.testing.assert_array_equal(rest.intercept, whole.intercept)
    with pytest.raises(ValueError, match="belongs to another"):
        quietly(problem, declared, tol=0.0, max_iter=1, seed=8, checkpoint=path)


@pytest.mark.parametrize("declared", [name for name, solver in SOLVERS.items() if solver.reproducible], indirect=True)
def test_threads_do_not_change_a_bit_of_any_solver(declared):
    runs = [
        quietly(problem_for(declared, n_threads=threads)[2], declared, tol=0.0, max_iter=3, seed=1)
        for threads in (1, 2)
    ]
    # The classes of a distributed solver are those of threads and processes: their log-sum-exps are sums of as many.
    exact = {"rtol": 1e-9, "atol": 1e-12} if declared.distributed else {"rtol": 0, "atol": 0}
    np.testing.assert_allclose(*[dense(run.weights) for run in runs], **exact)


def test_what_every_solver_needs_is_told_before_it_is_taken(declared):
    _, _, problem = problem_for(declared)
    needs = declared.prepare(problem).nbytes(problem)
    assert all(isinstance(what, str) and size >= 0 for what, size in needs.items())


@pytest.mark.parametrize(
    "declared", [name for name, solver in SOLVERS.items() if not solver.takes_intercept], indirect=True
)
def test_a_solver_that_fits_no_intercept_says_so(declared):
    _, data, problem = problem_for(declared)
    with pytest.raises(
        ValueError, match=f"solver '{declared.name}' fits no intercept, got .*: give fit_intercept=False"
    ):
        minimize(make_problem(problem.loss, data, intercept=True), declared)


@pytest.mark.parametrize("penalty", [L1(), NET], ids=["l1", "elastic net"])
def test_every_solver_takes_a_penalty_or_says_that_it_cannot(declared, penalty):
    """What it says it needs is what it is refused for."""
    case, data, _ = problem_for(declared)
    problem = make_problem(case.loss, data, reg=penalty, intercept=declared.takes_intercept)
    if isinstance(penalty, L1) and isinstance(declared, SDCA) and not isinstance(declared, ActiveSetSDCA):
        assert isinstance(declared.prepare(problem), SlightL2)  # which gives it what it needs
    elif declared.needs_penalty <= penalty.provides:
        declared.prepare(problem)
    else:
        with pytest.raises(ValueError, match=f"solver '{declared.name}' needs an? .*penalty"):
            declared.prepare(problem)


#: With parameters for which a problem has to be of one kind.
VARIANTS: dict[str, Solver] = {
    "sdca-IV": SDCA(option="IV"),
    "accelerated-rate": AcceleratedSDCA(inner="accuracy", rule="rate"),
    "sdca_active-sparse": ActiveSetSDCA(storage="sparse"),
    "bound-low rank": BoundMajorization(rank=2),
    "ds_mlr-few shards": DSMLR(n_shards=1, block_classes=2),
    "memoir-average": Memoir(average=True, validation_fraction=0.5),
    "memoir-long steps": Memoir(eta0=100.0),
}


@pytest.mark.parametrize(
    ("penalty", "more"),
    [(L2(), more) for more in ("", "intercept", "shift", "one output", "one row", "dense")]
    + [(penalty, more) for penalty in (NET, L1()) for more in ("", "intercept")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@pytest.mark.parametrize("solver", [*SOLVERS, *VARIANTS])
def test_what_a_solver_does_not_refuse_when_it_is_prepared_it_can_do(solver, case, penalty, more):
    asked = {**SOLVERS, **VARIANTS}[solver]
    K, n = (1 if more == "one output" else 4), (1 if more == "one row" else 30)
    data = make_data(case.loss.targets, n=n, d=6, K=K)
    shift = np.full((6, K), 0.1) if more == "shift" else None
    view = "dense" if more == "dense" else "csr"
    problem = make_problem(case.loss, data, reg=penalty, view=view, intercept=more == "intercept", shift=shift)
    try:
        ready = asked.prepare(problem)
    except ValueError as refusal:
        said = str(refusal)
        assert any(name in said for name in (f"solver {asked.name!r}", *asked.get_params(deep=False))), said
        assert any(word in said for word in ("choose", "give", "leave", "lower", "take option")), said
        return
    state = ready.state(problem)
    progress = next(ready.iterate(problem, state, 0))
    assert progress.iteration == int(state["iteration"]) == 1
    W, intercept = ready.weights(problem, state)
    assert np.isfinite(dense(W)).all()
    assert np.isfinite(intercept).all()
    if ready.certified:
        found = ready.certificate(problem, state, final=True)
        assert found.dual <= found.primal + found.gap


def test_every_loss_has_solvers_and_the_others_say_who_refuses_it(case):
    data = make_data(case.loss.targets, K=1 if case.loss.targets == "sign" else 4)
    problem = make_problem(case.loss, data)
    takers, refusals = set(), {}
    for name, solver in SOLVERS.items():
        try:
            solver.prepare(problem)
        except ValueError as refusal:
            refusals[name] = str(refusal)
        else:
            takers.add(name)
    assert {"sdca", "accelerated", "sgd"} <= takers
    assert all(f"solver {name!r}" in text for name, text in refusals.items())


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_solver_that_does_not_fit_is_refused_by_name():
    problem = make_problem(MultinomialLoss(), make_data("class"))
    message = "solver 'sdca_active' needs a loss with a sparse dual, and 'multinomial' has none: .*or another loss"
    with pytest.raises(ValueError, match=message):
        minimize(problem, ActiveSetSDCA())

    class Demanding(SDCA):
        name = "demanding"
        needs_penalty = frozenset({"sorted_prox"})

    message = "solver 'demanding' needs a penalty with a sorted prox, and 'l2' has none: .*or another penalty"
    with pytest.raises(ValueError, match=message):
        Demanding().prepare(problem)
    SDCA().prepare(problem)


@pytest.mark.parametrize("option", ["max_iter", "check_every"])
def test_numbers_of_iterations_below_one_are_refused(option):
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.raises(ValueError, match=f"{option} must be an integer of at least 1, got 0"):
        minimize(problem, SDCA(), **{option: 0})


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

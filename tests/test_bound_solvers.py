"""Bound majorization on problems: it descends, it reaches the certified optimum, and the same bits again."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import references
from helpers import Data, make_data, make_problem, objective
from manyclass.objective.losses import LogisticLoss, MultinomialLoss, SmoothHingeLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import BoundMajorization
from manyclass.solvers.dual.warm import warm_state
from registry import LOSSES

SETS = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
SCHEDULES = {
    "full": BoundMajorization(),
    "one by one": BoundMajorization(batch_size=1),
    "rank 1": BoundMajorization(rank=1),
    "rank 5": BoundMajorization(rank=5),
    "rank 5, batches": BoundMajorization(rank=5, batch_size=3),
    "rank 5, restart": BoundMajorization(rank=5, schedule="restart"),
    "rank 5, literal": BoundMajorization(rank=5, schedule="literal", batch_size=1),
    "rank 5, batch": BoundMajorization(rank=5, stochastic=False),
    "restart": BoundMajorization(schedule="restart"),
    "literal": BoundMajorization(schedule="literal"),
    "batch": BoundMajorization(stochastic=False),
}
#: Those that search: P never rises.
MONOTONE = ("full", "one by one", "rank 1", "rank 5", "rank 5, batches", "rank 5, batch", "batch")


def quietly(problem, solver, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return minimize(problem, solver, check_every=1, **options)


def real(name, lam, **options):
    X, y = SETS[name](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    if y.max() == 1:
        data, loss = Data(X, np.where(y, 1.0, -1.0)[:, None], 1, None), LogisticLoss()
    else:
        data, loss = Data(X, y, int(y.max()) + 1, None), MultinomialLoss()
    return data, make_problem(loss, data, lam=lam / len(y), view="dense", intercept=True, **options)


def case_of(problem):
    return LOSSES["multinomial" if problem.loss.joint else "log_loss"]


# --- the promise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("name", SETS)
def test_twelve_epochs_reach_the_optimum_monotonically(name, lam):
    """Untuned, from zero, for penalties lam ||W||^2 / 2 against the SUM of the losses."""
    _, problem = real(name, lam)
    result = quietly(problem, BoundMajorization(), tol=1e-13, max_iter=12, seed=1)
    values = np.array(result.history.column("primal"))
    assert (np.diff(values) <= 1e-12 * values[:-1]).all()
    assert values[0] < np.log(problem.n_outputs + (problem.n_outputs == 1))
    # The certificate bounds the distance to the optimum: within a relative 1e-6 of it whoever finds it.
    dual = max(result.history.column("dual"))
    assert result.certificate.primal - dual <= 1e-6 * dual


@pytest.mark.parametrize("name", ["iris", "breast cancer"])
def test_the_optimum_is_that_of_an_independent_solver(name):
    data, problem = real(name, 1.0)
    best = references.quasi_newton(case_of(problem), data, L2(), problem.lam, True)
    result = minimize(problem, BoundMajorization(), tol=1e-10)
    reached = objective(case_of(problem).formula, data, L2(), problem.lam, result.weights, result.intercept)
    assert reached == pytest.approx(best, rel=1e-8)
    assert result.outcome is Outcome.CONVERGED


@pytest.mark.parametrize("name", ["wine", "breast cancer"])
def test_low_rank_needs_few_more(name):
    _, problem = real(name, 1.0)
    results = [minimize(problem, BoundMajorization(rank=rank), tol=1e-6, max_iter=n) for rank, n in ((1, 60), (8, 30))]
    assert results[1].n_iter < results[0].n_iter
    assert all(result.outcome is Outcome.CONVERGED for result in results)


@pytest.mark.parametrize("schedule", ["literal", "restart"])
def test_with_as_many_ranks_as_parameters_the_printed_algorithm_is_the_full_one(schedule):
    data = make_data("class", n=40, d=4, K=3, seed=2)
    problem = make_problem(MultinomialLoss(), data, lam=0.1)  # no intercept: it would bear the first curvature
    found = [
        quietly(problem, BoundMajorization(rank=rank, schedule=schedule, batch_size=4), tol=0, max_iter=4, seed=3)
        for rank in ("full", 15)
    ]
    np.testing.assert_allclose(found[0].weights, found[1].weights, atol=1e-8)


def test_the_size_of_batches_and_the_rank_both_matter():
    data = make_data("class", n=60, d=6, K=3, seed=9)
    problem = make_problem(MultinomialLoss(), data)
    found = [
        quietly(problem, BoundMajorization(rank=rank, batch_size=size), tol=0, max_iter=1).weights
        for rank, size in ((1, 2), (1, 7), (4, 2), ("full", 2))
    ]
    assert all(np.abs(a - b).max() > 1e-6 for i, a in enumerate(found) for b in found[:i])


# --- properties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.05, 0.5, 1.0, 1.5, 1.95])
@pytest.mark.parametrize("order", ["ascending", "descending", "given"])
@pytest.mark.parametrize("loss", [MultinomialLoss(), LogisticLoss()])
@pytest.mark.parametrize("rank", ["full", 2])
def test_every_batch_step_descends(eta, order, loss, rank):
    data = make_data(loss.targets, n=60, d=5, K=4 if loss.joint else 1, seed=3, weighted=True)
    problem = make_problem(loss, data, lam=1e-3, intercept=True)
    values = quietly(
        problem, BoundMajorization(stochastic=False, rank=rank, eta=eta, order=order), tol=0, max_iter=40
    ).history.column("primal")
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("start", [0.0, 1.0, 1e4])
def test_searches_descend_from_anywhere(name, start):
    """From points with scores of 1e4 too: nothing overflows."""
    data = make_data("class", n=60, d=5, K=4, seed=4, weighted=True)
    problem = make_problem(MultinomialLoss(), data, lam=1e-3, intercept=True)
    solver = SCHEDULES[name]
    state = solver.state(problem)
    state["point"] = np.random.default_rng(0).normal(size=state["point"].shape) * start
    result = quietly(problem, solver, tol=0, max_iter=15, state=state)
    values = np.array(result.history.column("primal"))
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 1e-12 * values[:-1]).all()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(
    ("loss", "K", "view", "dtype", "intercept"),
    [
        (MultinomialLoss(), 4, "csr", np.float64, True),
        (MultinomialLoss(1.0), 3, "dense", np.float64, False),
        (MultinomialLoss(), 2, "dense", np.float32, True),
        (LogisticLoss(), 1, "csr", np.float64, True),
        (LogisticLoss(1.0), 1, "dense", np.float32, False),
    ],
)
def test_gaps_are_true(name, loss, K, view, dtype, intercept):
    data = make_data(loss.targets, n=80, d=6, K=K, seed=K, weighted=True, dtype=dtype)
    double = data._replace(X=data.X.astype(np.float64))
    problem = make_problem(loss, data, lam=0.05, view=view, dtype=dtype, intercept=intercept)
    names = {(0.0, True): "multinomial", (1.0, True): "softmax_hinge", (0.0, False): "log_loss"}
    case = LOSSES[names.get((float(loss.margin), loss.joint), "softplus_hinge")]
    best = references.quasi_newton(case, double, L2(), 0.05, intercept)
    result = quietly(problem, SCHEDULES[name], tol=1e-6 if dtype == np.float64 else 1e-5, max_iter=60)
    rounding = 20 * float(np.finfo(dtype).eps) * max(1.0, best)
    for record in result.history:
        assert record.gap >= record.primal - best - rounding
        assert record.primal >= best * (1 - 1e-9) - rounding
    reached = objective(case.formula, double, L2(), 0.05, result.weights, result.intercept)
    assert result.certificate.primal == pytest.approx(reached, rel=20 * float(np.finfo(dtype).eps))
    assert result.weights.dtype == dtype
    if name in ("full", "one by one", "rank 5", "rank 5, batches"):
        assert result.outcome is Outcome.CONVERGED
        assert reached == pytest.approx(best, rel=1e-5)


def run_of(name, problem, n=6, **options):
    return quietly(problem, SCHEDULES[name], tol=0, max_iter=n, **options)


@pytest.mark.parametrize("name", SCHEDULES)
def test_sparse_rows_threads_and_precisions_agree(name):
    data = make_data("class", n=70, d=30, K=4, seed=6, density=0.1)
    one = run_of(name, make_problem(MultinomialLoss(), data, view="csr", intercept=True))
    dense = run_of(name, make_problem(MultinomialLoss(), data, view="dense", intercept=True))
    np.testing.assert_allclose(one.weights, dense.weights, atol=1e-8)
    threads = run_of(name, make_problem(MultinomialLoss(), data, view="csr", intercept=True, n_threads=3))
    np.testing.assert_array_equal(one.weights, threads.weights)
    np.testing.assert_array_equal(one.intercept, threads.intercept)
    found = []
    for dtype in (np.float64, np.float32):  # without the fitting loop, which stops at what float32 can certify
        problem = make_problem(MultinomialLoss(), data, view="csr", dtype=dtype, intercept=True)
        state = SCHEDULES[name].state(problem)
        for _ in zip(range(6), SCHEDULES[name].iterate(problem, state, 0)):
            pass
        found.append(SCHEDULES[name].weights(problem, state)[0])
    np.testing.assert_allclose(*found, atol=1e-5)


@pytest.mark.parametrize("name", ["full", "rank 5", "batch"])
def test_weights_are_repetitions(name):
    data = make_data("class", n=40, d=5, K=3, seed=7)
    counts = np.random.default_rng(0).integers(0, 4, 40)
    counts[:3] = 1
    repeated = Data(np.repeat(data.X, counts, axis=0), np.repeat(data.T, counts), 3, None)
    results = [
        minimize(make_problem(MultinomialLoss(), part, intercept=True), SCHEDULES[name], tol=1e-10, max_iter=500)
        for part in (data._replace(weights=counts.astype(float)), repeated)
    ]
    np.testing.assert_allclose(results[0].weights, results[1].weights, atol=1e-4)
    assert results[0].certificate.primal == pytest.approx(results[1].certificate.primal, rel=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_resumed_is_uninterrupted(name, tmp_path):
    data = make_data("class", n=60, d=6, K=3, seed=8)
    problem = make_problem(MultinomialLoss(), data, intercept=True)
    whole = run_of(name, problem, 7, seed=5)
    run_of(name, problem, 3, seed=5, checkpoint=tmp_path / "run")
    rest = run_of(name, problem, 7, seed=5, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(whole.weights, rest.weights)
    np.testing.assert_array_equal(whole.intercept, rest.intercept)
    assert whole.history.last.passes == rest.history.last.passes


def test_the_seed_decides_the_batches_alone():
    data = make_data("class", n=60, d=6, K=3, seed=9)
    problem = make_problem(MultinomialLoss(), data)
    first, again, other = (run_of("one by one", problem, 1, seed=seed).weights for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


@pytest.mark.parametrize("name", ["full", "rank 5"])
def test_a_warm_start_goes_on(name):
    data = make_data("class", n=80, d=6, K=4, seed=10)
    solver = SCHEDULES[name]
    first = minimize(make_problem(MultinomialLoss(), data, lam=0.01, intercept=True), solver, tol=1e-9, max_iter=100)
    near = make_problem(MultinomialLoss(), data, lam=0.011, intercept=True)
    warm = minimize(near, solver, tol=1e-9, max_iter=100, state=warm_state(near, solver, first.state))
    cold = minimize(near, solver, tol=1e-9, max_iter=100)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.weights, cold.weights, atol=1e-4)


def test_the_freedom_of_softmax_is_taken_out():
    """Weights of all classes moved together change nothing but the penalty."""
    data = make_data("class", n=60, d=6, K=4, seed=11)
    problem = make_problem(MultinomialLoss(), data, intercept=True)
    solver = BoundMajorization()
    state = solver.state(problem)
    state["point"] += np.random.default_rng(0).normal(size=(7, 1)) * 5
    result = minimize(problem, solver, tol=1e-9, state=state)
    np.testing.assert_allclose(result.weights.sum(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(result.intercept.sum(), 0, atol=1e-9)


# --- memory and refusals --------------------------------------------------------------------------------------------


def test_memory_is_told_before():
    data = make_data("class", n=20, d=8, K=4)
    problem = make_problem(MultinomialLoss(), data, intercept=True)
    full = BoundMajorization().nbytes(problem)
    assert any("rank=8" in what and size == 2 * 8 * 27**2 for what, size in full.items())
    low = sum(BoundMajorization(rank=8).nbytes(problem).values())
    assert low < 8 * 9 * 4 * (6 * 8 + 11) + 20 * 4 * 8 * 12


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (BoundMajorization(schedule="fast"), "The 'schedule' parameter of BoundMajorization must be a str among"),
        (BoundMajorization(batch_size=0), "The 'batch_size' parameter of BoundMajorization must be an int"),
        (BoundMajorization(eta=2.0), "The 'eta' parameter of BoundMajorization must be a float"),
        (BoundMajorization(rank=0), "The 'rank' parameter of BoundMajorization must be an int"),
        (BoundMajorization(rank="low"), "The 'rank' parameter of BoundMajorization must be an int"),
        (BoundMajorization(stochastic=False, batch_size=5), "batch_size must be None with stochastic=False, .*, got 5"),
        (BoundMajorization(stochastic=False, eta=0.0), "The 'eta' parameter of BoundMajorization must be a float"),
        (BoundMajorization(stochastic=False, order="up"), "The 'order' parameter of BoundMajorization must be a str"),
    ],
)
def test_parameters_out_of_range(solver, message):
    with pytest.raises(ValueError, match=message):
        solver.check()
    with pytest.raises(ValueError, match=message):
        minimize(make_problem(MultinomialLoss(), make_data("class")), solver)


def test_the_rank_is_full_for_few_parameters_and_low_for_many():
    problem = make_problem(MultinomialLoss(), make_data("class"))
    assert BoundMajorization().prepare(problem).rank == "full"
    wide = make_problem(MultinomialLoss(), make_data("class", n=20, d=2000))
    assert BoundMajorization().prepare(wide).rank == 8
    assert BoundMajorization(rank=3).prepare(wide).rank == 3
    assert BoundMajorization(rank="full").prepare(wide).rank == "full"
    for options in ({"stochastic": False}, {"schedule": "restart"}, {"schedule": "literal"}):
        assert BoundMajorization(**options).prepare(wide).rank == "full"
    solver = BoundMajorization()
    assert solver.with_rank(4000).rank == "full"
    assert solver.with_rank(4001).rank == 8
    assert solver.rank is None


@pytest.mark.parametrize("solver", [SCHEDULES["batch"], BoundMajorization(), BoundMajorization(rank=1)])
def test_what_is_not_log_linear_is_refused(solver):
    sign, classes = make_data("sign", K=3), make_data("class")
    for problem, message in (
        (make_problem(LogisticLoss(), sign), "got 'log_loss' with 3 outputs"),
        (make_problem(SmoothHingeLoss(1.0), sign), "needs loss 'multinomial', or 'log_loss'"),
        (make_problem(MultinomialLoss(), classes, shift=np.ones((8, 4))), "without shift or prior"),
    ):
        with pytest.raises(ValueError, match=message):
            minimize(problem, solver)
    with pytest.raises(ValueError, match="needs a penalty with a gradient, and 'elastic net' has none"):
        minimize(make_problem(MultinomialLoss(), classes, reg=ElasticNet(0.1)), solver)

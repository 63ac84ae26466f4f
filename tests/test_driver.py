"""The driver and Prox-SDCA: certified optima, ends of every kind, checkpoints to the same bits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import references
from helpers import make_data, make_problem, objective
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss, SmoothHingeLoss, SquaredLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.objective.problem import Certificate
from manyclass.optimize.loop import Outcome, minimize, require_fit
from manyclass.solvers import SDCA, ActiveSetSDCA, AsyncActiveSetSDCA, AsyncSDCA, Progress
from manyclass.solvers.dual.sdca import bias_step
from registry import LOSSES

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
        duals = problem.weights @ state["alpha"]
        next(steps)
        moved = bias_step(problem) * (problem.weights @ state["alpha"] - duals)
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
    """SDCA that is killed within epoch ``last``, its state in ruins."""

    def __init__(self, last, error=Killed):
        self.last = last
        self.error = error

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
    assert not path.exists(), "a finished run needs no checkpoint"


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
        rest = minimize(problem, solver, max_iter=11 - stop, checkpoint=path, **options)
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
    with pytest.raises(ValueError, match="belongs to another run"):
        run(problem, ActiveSetSDCA())
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
    with pytest.warns(ConvergenceWarning, match="no longer a finite number"):
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


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_solver_that_does_not_fit_is_refused_by_name():
    problem = make_problem(MultinomialLoss(), make_data("class"))
    with pytest.raises(ValueError, match=r"solver 'sdca_active' needs a loss with a sparse_dual; Multinomial has none"):
        minimize(problem, ActiveSetSDCA())

    class Demanding(SDCA):
        name = "demanding"
        needs_penalty = frozenset({"sorted_prox"})

    with pytest.raises(ValueError, match=r"solver 'demanding' needs a penalty with a sorted_prox; L2 has none"):
        require_fit(problem, Demanding())
    require_fit(problem, SDCA())


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
    before = state["alpha"].copy()
    assert next(steps).passes == 1.0
    np.testing.assert_array_equal(state["alpha"], before)

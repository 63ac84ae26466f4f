"""The solvers on the weights: certified optima, the same bits again, refusals by name."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

import references
from helpers import Data, make_data, make_problem, objective
from manyclass import LinearClassifier
from manyclass.objective.losses import (
    CrammerSingerLoss,
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SmoothHingeLoss,
    SquaredLoss,
)
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import FISTA, LBFGS, SDCA, PreconditionedLBFGS
from manyclass.solvers.least_squares.design import Design
from registry import BATCH, LOSSES, ON_WEIGHTS, STOCHASTIC

NET = ElasticNet(0.25)


@pytest.fixture(params=ON_WEIGHTS)
def solver(request):
    return ON_WEIGHTS[request.param]


def test_the_solvers_under_test_are_there():
    assert {"fista", "lbfgs", "preconditioned_lbfgs", "newton", "cg", "gd"} <= BATCH.keys()


# --- the optimum is that of an independent solver -------------------------------------------------------------------


def l1_optimum(case, data: Data, lam: float, intercept: bool) -> tuple[float, np.ndarray]:
    """The least of the mean loss + lam ||W||_1, and W: a linear cost of its positive and negative parts."""
    d, K = data.X.shape[1], data.K
    c = (np.ones(len(data.X)) if data.weights is None else data.weights / data.weights.mean()) / len(data.X)

    def cost(z):
        W, b = z[: d * K] - z[d * K : 2 * d * K], z[2 * d * K :]
        losses, G = case.formula(data.X @ W.reshape(d, K) + b, data.T)
        G = c[:, None] * G
        slope = (data.X.T @ G).ravel()
        return c @ losses + lam * z[: 2 * d * K].sum(), np.concatenate([slope + lam, lam - slope, G.sum(0)])

    bounds = [(0, None)] * (2 * d * K) + [(None, None) if intercept else (0, 0)] * K
    options = {"maxiter": 50_000, "maxfun": 200_000, "ftol": 0, "gtol": 1e-11, "maxcor": 50}
    found = optimize.minimize(cost, np.zeros(len(bounds)), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun), (found.x[: d * K] - found.x[d * K : 2 * d * K]).reshape(d, K)


def plain_objective(case, data: Data, reg, lam: float, W, b) -> float:
    if isinstance(reg, L1):
        return objective(case.formula, data, L2(), 0.0, W, b) + lam * float(np.abs(W).sum(dtype=np.float64))
    return objective(case.formula, data, reg, lam, W, b)


def least(case, data: Data, reg, lam: float, intercept: bool) -> float:
    if isinstance(reg, L1):
        return l1_optimum(case, data, lam, intercept)[0]
    return references.quasi_newton(case, data, reg, lam, intercept)


#: (loss, K, rows, precision, penalty, weighted, intercept)
SMOOTH = [
    ("multinomial", 5, "csr", "f8", L2(), True, True),
    ("multinomial", 4, "dense", "f4", NET, False, True),
    ("softmax_hinge", 3, "dense", "f8", L1(), True, False),
    ("crammer_singer-0.1", 6, "csr", "f8", L2(), False, True),
    ("crammer_singer-1", 4, "csr", "f8", NET, True, True),
    ("crammer_singer-1", 12, "dense", "f4", L2(), True, False),
    ("smooth_hinge-0.5", 3, "csr", "f8", L1(), True, True),
    ("smooth_hinge-1", 5, "dense", "f8", L2(), True, False),
    ("squared_hinge", 3, "csr", "f8", L2(), False, True),
    ("squared_hinge", 2, "csr", "f4", L1(), False, False),
    ("log_loss", 4, "dense", "f8", L2(), True, True),
    ("log_loss", 3, "csr", "f8", L1(), False, True),
    ("log_loss", 7, "csr", "f4", NET, True, True),
    ("squared", 4, "csr", "f8", L2(), True, True),
    ("squared", 3, "dense", "f8", L1(), True, True),
    ("squared", 3, "csr", "f8", NET, False, False),
    ("huber-0.5", 2, "csr", "f8", L2(), True, True),
    ("huber-0.5", 3, "dense", "f4", L1(), True, False),
]
#: Losses with a kink, which SGD alone takes.
KINKED = [("hinge", 3, "csr", "f8", L2(), True, True), ("crammer_singer-0", 4, "dense", "f8", L2(), False, False)]


def fits(name, problem):
    reg = problem[4]
    return ON_WEIGHTS[name].needs_penalty <= type(reg).provides


def named(value):
    if isinstance(value, str):
        return value
    name, K, view, dtype, reg, weighted, intercept = value
    words = [name, f"{K}", view, dtype, type(reg).__name__, "weighted" * weighted, "intercept" * intercept]
    return "-".join(filter(None, words))


def set_up(problem, lam=0.05):
    """The case, its data in float64, the least objective by an independent solver, and the `Problem`."""
    name, K, view, dtype, reg, weighted, intercept = problem
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=120, d=6, K=K, seed=K, weighted=weighted, dtype=dtype)
    double = data._replace(X=data.X.astype(np.float64))
    exact = make_problem(case.loss, data, reg=reg, lam=lam, view=view, dtype=np.dtype(dtype).type, intercept=intercept)
    return case, double, exact


def check_history(result, best, dtype):
    """At no time was the gap less than the distance to the optimum (best is at least that)."""
    rounding = 20 * float(np.finfo(dtype).eps) * max(1.0, best)
    for record in result.history:
        assert record.gap >= record.primal - best - rounding
        assert record.gap >= max(0.0, record.primal - record.dual)
        assert record.dual <= best + rounding
        assert record.primal >= best - 1e-9 * best - rounding


@pytest.mark.parametrize(
    ("name", "problem"), [pair for pair in itertools.product(BATCH, SMOOTH) if fits(*pair)], ids=named
)
def test_batch_solvers_reach_the_certified_optimum(name, problem):
    dtype, reg, intercept = problem[3], problem[4], problem[6]
    case, data, exact = set_up(problem)
    best = least(case, data, reg, exact.lam, intercept)
    tol = {"f8": 1e-8, "f4": 1e-5}[dtype]
    result = minimize(exact, ON_WEIGHTS[name], tol=tol, max_iter=5000, check_every=1)
    assert result.outcome is Outcome.CONVERGED
    reached = plain_objective(case, data, reg, exact.lam, result.weights, result.intercept)
    assert reached == pytest.approx(best, rel={"f8": 1e-6, "f4": 3e-5}[dtype])
    assert result.certificate.primal == pytest.approx(reached, rel=20 * float(np.finfo(dtype).eps))
    check_history(result, best, dtype)
    if not intercept:
        np.testing.assert_array_equal(result.intercept, 0)


@pytest.mark.parametrize(
    ("name", "problem"),
    [pair for pair in itertools.product(STOCHASTIC, SMOOTH + KINKED) if fits(*pair)],
    ids=named,
)
def test_stochastic_solvers_come_near_the_optimum(name, problem):
    """The noise of the steps falls like 1/t, or t^-3/4 and then by the mean: 1e-3 in a thousand passes, 1e-2 where the
    loss has a kink, at which the noise does not vanish."""
    dtype, intercept = problem[3], problem[6]
    case, data, exact = set_up(problem)
    kinked = not case.loss.smoothness
    if kinked:  # no quasi-Newton reference at a kink: ours, which has its own
        best = minimize(exact, SDCA(), tol=1e-7, max_iter=20_000).certificate.dual
    else:
        best = least(case, data, L2(), exact.lam, intercept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = minimize(exact, ON_WEIGHTS[name], tol=1e-5, max_iter=1000)
    reached = objective(case.formula, data, L2(), exact.lam, result.weights, result.intercept)
    assert reached == pytest.approx(best, rel=1e-2 if kinked else 1e-3)
    assert result.certificate.primal == pytest.approx(reached, rel=20 * float(np.finfo(dtype).eps))
    check_history(result, best, dtype)
    assert [r.passes for r in result.history] == [r.iteration for r in result.history]
    if not kinked:
        assert result.certificate.relative_gap <= 2e-2


def test_l1_weights_are_zero_where_they_are_at_the_optimum():
    case = LOSSES["log_loss"]
    data = make_data("sign", n=150, d=30, K=2, seed=1)
    expected = l1_optimum(case, data, 0.03, True)[1]
    result = minimize(
        make_problem(LogisticLoss(), data, reg=L1(), lam=0.03, intercept=True), FISTA(), tol=1e-9, max_iter=2000
    )
    assert 0 < np.count_nonzero(result.weights) < result.weights.size
    np.testing.assert_array_equal(result.weights != 0, np.abs(expected) > 1e-6)


@pytest.mark.parametrize("seed", range(1, 6))
def test_steps_settle_in_float32(seed):
    """An l1 gap tells errors of the slope, far above those of the objective: with an L that only rounding
    lets pass, it would stay at 1e-3."""
    data = make_data("real", n=120, d=6, K=3, seed=seed, weighted=True, dtype=np.float32)
    problem = make_problem(HuberLoss(0.5), data, reg=L1(), view="dense", dtype=np.float32)
    assert minimize(problem, FISTA(), tol=1e-5, max_iter=300).outcome is Outcome.CONVERGED


def test_backtracking_ends_where_rounding_says_no():
    """A length of step that is safe for any loss needs no test."""

    class Noisy(FISTA):
        def _evaluate(self, problem, point, scores):
            return super()._evaluate(problem, point, scores) + 1.0

    data = make_data("class", seed=17)
    problem = make_problem(CrammerSingerLoss(0.5), data, intercept=True)
    state = Noisy().state(problem)
    steps = Noisy().iterate(problem, state, 0)
    norm = float((data.X**2).sum(1).mean())
    for _ in range(50):
        next(steps)
        assert float(state["L"]) <= data.K * 2 * norm / 0.5 * (1 + 1e-12)
    exact = minimize(problem, FISTA(), tol=1e-6, max_iter=2000)
    assert FISTA().certificate(problem, state, final=True).primal < 1.5 * exact.certificate.primal


@pytest.mark.parametrize("name", [name for name, case in LOSSES.items() if case.loss.smoothness])
def test_the_slope_is_that_of_finite_differences(name):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=50, d=7, K=3, seed=16, weighted=True)
    problem = make_problem(case.loss, data, intercept=True)
    solver, rng = LBFGS(), np.random.default_rng(0)
    state = solver.state(problem)
    point, gradient = rng.normal(size=(8, 3)), np.empty((8, 3))

    def value(point):
        return objective(case.formula, data, L2(), problem.lam, *solver.weights(problem, {"point": point}))

    assert solver._descend(problem, point, state, gradient) == pytest.approx(value(point), rel=1e-12)
    for _ in range(5):
        along = rng.normal(size=(8, 3))
        steps = [value(point + step * along) for step in (1e-5, -1e-5)]
        assert (gradient * along).sum() == pytest.approx((steps[0] - steps[1]) / 2e-5, rel=1e-5, abs=1e-7)


def test_scales_of_features_and_intercepts_do_not_matter():
    """Rows a thousand times as large, lam to match: the same problem, and as many iterations."""
    data = make_data("class", n=150, d=6, K=3, seed=2)
    for solver in BATCH.values():
        runs = [
            minimize(
                make_problem(MultinomialLoss(), data._replace(X=data.X * size), lam=0.01 * size**2, intercept=True),
                solver,
                tol=1e-8,
                max_iter=2000,
            )
            for size in (1.0, 1024.0)
        ]
        assert runs[0].n_iter == runs[1].n_iter
        np.testing.assert_allclose(runs[0].intercept, runs[1].intercept, rtol=1e-9)


@pytest.mark.parametrize("solver", BATCH.values(), ids=BATCH)
def test_shifted_problems(solver):
    data = make_data("class", seed=3)
    shift = np.random.default_rng(0).normal(size=(8, 4))
    problem = make_problem(MultinomialLoss(), data, intercept=True, shift=shift)
    result = minimize(problem, solver, tol=1e-9, max_iter=2000)
    assert result.outcome is Outcome.CONVERGED
    plain = minimize(make_problem(MultinomialLoss(), data, intercept=True), solver, tol=1e-9, max_iter=2000)
    assert np.linalg.norm(result.weights - shift) < np.linalg.norm(plain.weights - shift)


def test_weights_are_repetitions_of_rows(solver):
    data = make_data("class", n=40, K=3, seed=4)
    counts = np.random.default_rng(0).integers(0, 4, 40)
    repeated = data._replace(X=np.repeat(data.X, counts, axis=0), T=np.repeat(data.T, counts))
    tol = 1e-10 if solver.name in BATCH else 1e-3
    runs = [
        minimize(make_problem(MultinomialLoss(), found, intercept=True, lam=0.1), solver, tol=tol, max_iter=20_000)
        for found in (data._replace(weights=counts.astype(float)), repeated)
    ]
    assert runs[0].certificate.primal == pytest.approx(runs[1].certificate.primal, rel=1.1 * tol)
    assert all(run.outcome is Outcome.CONVERGED for run in runs)


def test_rows_and_features_that_are_all_zero(solver):
    data = make_data("sign", K=2, seed=5)._replace(X=np.zeros((60, 8)))
    for intercept in (False, True):
        problem = make_problem(SmoothHingeLoss(1.0), data, intercept=intercept)
        result = minimize(problem, solver, tol=1e-2, max_iter=2000)
        assert result.outcome is Outcome.CONVERGED
        np.testing.assert_array_equal(result.weights, 0)


def test_one_class_is_no_trouble(solver):
    problem = make_problem(MultinomialLoss(), make_data("class", K=1), intercept=True)
    assert minimize(problem, solver).outcome is Outcome.CONVERGED


def test_a_quasi_newton_run_at_the_end_of_its_precision_stands_still():
    problem = make_problem(
        LogisticLoss(), make_data("sign", seed=6, dtype=np.float32), dtype=np.float32, intercept=True
    )
    state = LBFGS().state(problem)
    steps = LBFGS().iterate(problem, state, 0)
    for _ in range(200):
        next(steps)
    assert LBFGS().certificate(problem, state, final=True).relative_gap <= 2 * problem.resolution


# --- the same bits --------------------------------------------------------------------------------------------------


def same_bits(one, two):
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.intercept, two.intercept)
    assert one.certificate == two.certificate
    assert one.state.keys() == two.state.keys()
    for key, array in one.state.items():
        np.testing.assert_array_equal(array, two.state[key], err_msg=key)
    shown = [(r.iteration, r.passes, r.primal, r.dual) for r in one.history]
    assert shown == [(r.iteration, r.passes, r.primal, r.dual) for r in two.history]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("check_every", [None, 4])
@pytest.mark.parametrize("stop", [1, 4, 13])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, solver, intercept, check_every, stop):
    data = make_data("class", n=80, K=5, seed=9, weighted=True, dtype=np.float32)
    problem = make_problem(CrammerSingerLoss(0.1), data, intercept=intercept, dtype=np.float32)
    options = {"tol": 0.0, "seed": 6, "check_every": check_every}
    path = tmp_path / "run.ckpt"
    ends = "max_iter|limit of the floating-point precision"  # Newton gets that far
    with pytest.warns(ConvergenceWarning, match=ends):
        whole = minimize(problem, solver, max_iter=18, **options)
    with pytest.warns(ConvergenceWarning, match=ends):
        minimize(problem, solver, max_iter=stop, checkpoint=path, **options)
    with pytest.warns(ConvergenceWarning, match=ends):
        rest = minimize(problem, solver, max_iter=18, checkpoint=path, **options)
    same_bits(rest, whole)


#: Several pieces of rows and of columns; several pieces of features.
WIDE = {"rows-columns": (LogisticLoss(), 4200, 12, 130), "features": (MultinomialLoss(), 60, 4300, 3)}


@pytest.mark.parametrize("sizes", WIDE.values(), ids=WIDE)
def test_threads_do_not_change_a_bit(solver, sizes):
    loss, n, d, K = sizes
    data = make_data(loss.targets, n=n, d=d, K=K, seed=10, density=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        runs = [
            minimize(make_problem(loss, data, intercept=True, n_threads=threads), solver, tol=1e-4, max_iter=6)
            for threads in (1, 2, 3)
        ]
    same_bits(runs[0], runs[1])
    same_bits(runs[0], runs[2])


def test_another_seed_is_another_run_of_stochastic_solvers_alone(solver):
    problem = make_problem(MultinomialLoss(), make_data("class", seed=11), intercept=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, again, other = (minimize(problem, solver, tol=0.0, max_iter=3, seed=seed) for seed in (1, 1, 2))
    same_bits(one, again)
    assert np.array_equal(one.weights, other.weights) == (solver.name in BATCH)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_warm_start_on_another_problem_is_certified_for_that(solver, fresh):
    """What a state remembers of the old objective must not pass for knowledge of the new one."""
    data = make_data("class", seed=12)
    other = data._replace(X=3 * data.X[::-1], T=(data.T + 1) % data.K)
    first = minimize(make_problem(MultinomialLoss(), data, intercept=True, lam=0.1), solver, tol=1e-3, max_iter=5000)
    state = first.state
    if fresh:  # as an estimator does
        state["iteration"] = np.zeros((), np.int64)
    problem = make_problem(MultinomialLoss(), other, intercept=True, lam=0.3)
    best = references.quasi_newton(LOSSES["multinomial"], other, L2(), 0.3, True)
    tol = 1e-8 if solver.name in BATCH else 1e-3
    second = minimize(problem, solver, tol=tol, max_iter=20_000, state=state)
    assert second.outcome is Outcome.CONVERGED
    assert second.certificate.primal == pytest.approx(best, rel=2 * tol)
    check_history(second, best, "f8")


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ON_WEIGHTS if "prox" not in ON_WEIGHTS[name].needs_penalty])
@pytest.mark.parametrize("reg", [L1(), NET], ids=["l1", "elastic net"])
def test_what_needs_a_smooth_penalty_says_so(name, reg):
    problem = make_problem(LogisticLoss(), make_data("sign"), reg=reg)
    found = rf"'{ON_WEIGHTS[name].name}' needs a penalty with a gradient, and '{reg.name}' has none"
    with pytest.raises(ValueError, match=found):
        minimize(problem, ON_WEIGHTS[name])


@pytest.mark.parametrize("name", BATCH)
@pytest.mark.parametrize("loss", [SmoothHingeLoss(0.0), CrammerSingerLoss(0.0)], ids=lambda loss: loss.name)
def test_what_needs_a_smooth_loss_says_so(name, loss):
    problem = make_problem(loss, make_data(loss.targets))
    with pytest.raises(ValueError, match=rf"'{name}' needs a loss with a smooth gradient, and '{loss.name}' has none"):
        minimize(problem, ON_WEIGHTS[name])
    smooth = ON_WEIGHTS[name].state(make_problem(type(loss)(1.0), make_data(loss.targets)))
    with pytest.raises(ValueError, match="needs a loss with a smooth gradient"):
        minimize(problem, ON_WEIGHTS[name], state=smooth)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_stochastic_solvers_take_no_shift(name):
    problem = make_problem(SquaredLoss(), make_data("real"), shift=np.ones((8, 4)))
    with pytest.raises(ValueError, match=r"'sgd' needs a penalty without shift"):
        minimize(problem, ON_WEIGHTS[name])


def test_second_moments_are_computed_once_for_all_alphas(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 20)) @ rng.normal(size=(20, 20)), rng.integers(3, size=600)
    counted = []
    moments = Design.moments
    monkeypatch.setattr(Design, "moments", lambda self, *args: counted.append(1) or moments(self, *args))
    model = LinearClassifier(solver="preconditioned_lbfgs", warm_start=True)
    for alpha in (1e-3, 1e-4, 1e-5):
        model.set_params(alpha=alpha).fit(X, y)
    assert len(counted) == 1
    for other in (X * 2, X[:, ::-1], X[:500]):  # other rows need others
        model.fit(other, y[: len(other)])
        assert model.duality_gap_ <= 1e-3
    assert len(counted) == 4


def test_kept_second_moments_do_not_change_a_bit():
    data, solver = make_data("class", n=300, d=8), PreconditionedLBFGS()
    strong, weak = (make_problem(LOSSES["multinomial"].loss, data, view="dense", lam=lam) for lam in (1e-4, 1e-5))
    kept = minimize(strong, solver, tol=1e-2).state
    kept.update(iteration=np.zeros_like(kept["iteration"]), passes=np.zeros_like(kept["passes"]))
    bare = {name: np.copy(array) for name, array in kept.items() if name not in ("moments", "moments_of")}
    with_them, without = (minimize(weak, solver, state=state, tol=1e-6) for state in (kept, bare))
    np.testing.assert_array_equal(with_them.weights, without.weights)
    assert with_them.n_iter == without.n_iter


def test_outputs_of_a_separable_loss_do_not_slow_each_other_down():
    """They take about as many iterations together as the slowest of them alone: each has its own pairs."""
    rng = np.random.default_rng(0)
    shares = np.arange(1, 9) ** -1.5
    y = rng.choice(8, 3000, p=shares / shares.sum())
    centers = rng.standard_normal((8, 20)) * np.geomspace(0.3, 3, 8)[:, None]
    X = centers[y] + 2 * rng.standard_normal((3000, 20))
    settings = {"solver": LBFGS(), "alpha": 1e-3, "fit_intercept": True, "dtype": np.float64, "tol": 1e-5}
    together, *alone = (
        LinearClassifier("log_loss", **settings).fit(X, labels).n_iter_ for labels in (y, *(y == k for k in range(8)))
    )
    assert together < 1.5 * max(alone)

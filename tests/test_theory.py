"""The papers' theorems on small problems, with their constants."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

import references
from helpers import make_data, make_problem, objective
from manyclass import AcceleratedSDCA, LinearClassifier
from manyclass.kernels import ds_mlr as ds_mlr_kernels
from manyclass.kernels.rows import make_rows
from manyclass.objective.losses import SmoothHingeLoss
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.optimize.loop import minimize
from manyclass.solvers import SDCA
from manyclass.solvers.base import PLAIN
from manyclass.solvers.least_squares.calibrated import calibrated_rounds
from manyclass.solvers.least_squares.design import Design
from registry import LOSSES

CASE = LOSSES["smooth_hinge-1"]


def run_of(problem, solver, epochs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return minimize(problem, solver, tol=0, max_iter=epochs, check_every=1, **options)


# --- Prox-SDCA ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["I", "III", "V"])
@pytest.mark.parametrize("output", ["last", "average", "random"])
def test_sdca_converges_at_the_rate_of_the_theorem(option, output):
    """E[D* - D_t] <= exp(-t / (n + R^2/(lam gamma))) (D* - D_0), the gap at most n + R^2/(lam gamma) times that.

    For steps t on samples drawn uniformly. Of the average and of a random one of the points after epochs T0 to T the
    gap is at most that of T0 (Theorems 1 and 2; the gap is convex in the dual point).
    """
    n, lam, epochs = 40, 0.02, 16
    data = make_data("sign", n=n, d=6, K=1, seed=1)
    problem = make_problem(SmoothHingeLoss(1.0), data, lam=lam)
    best = references.quasi_newton(CASE, data, L2(), lam, False)
    size = n + float((data.X**2).sum(1).max()) / lam
    runs = [
        run_of(problem, SDCA(option=option, sampling="uniform", output=output), epochs, seed=seed) for seed in range(12)
    ]
    t = n * (np.arange(epochs) + 1)
    start = t if output == "last" else n * (1 << np.log2(np.arange(epochs) + 1).astype(int))
    bound = np.exp(-start / size) * best  # D_0 = 0
    below = np.mean([best - np.array(run.history.column("dual")) for run in runs], axis=0)
    gap = np.mean([run.history.column("gap") for run in runs], axis=0)
    assert (below <= bound + 1e-12).all()
    assert (gap <= size * bound).all()
    assert below[-1] < 0.5 * below[0]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("reg", [L2(), ElasticNet(0.25)])
@pytest.mark.parametrize("output", ["average", "random"])
def test_the_certificate_is_that_of_the_point_of_the_output(output, reg, intercept, tmp_path):
    data = make_data("sign", n=50, d=6, K=1, seed=2, weighted=True)
    problem = make_problem(SmoothHingeLoss(1.0), data, reg=reg, lam=0.05, intercept=intercept)
    solver = SDCA(output=output)
    # By hand, from the dual points of the same steps, between 4 and 7.
    state = solver.state(problem)
    points = []
    for _ in itertools.islice(solver.iterate(problem, state, 3), 7):
        points.append((state["dual"].copy(), state["bias"].copy()))
    kept = state["kept_dual"], state["kept_bias"]
    if output == "average":
        for i in range(2):
            np.testing.assert_allclose(kept[i], np.mean([point[i] for point in points[3:]], axis=0), atol=1e-12)
    else:
        assert any(np.array_equal(kept[0], dual) for dual, _ in points[3:])
    whole = run_of(problem, solver, 7, seed=3)
    reached = objective(CASE.formula, data, reg, 0.05, whole.weights, whole.intercept)
    assert whole.certificate.primal == pytest.approx(reached, rel=1e-12)
    best = references.quasi_newton(CASE, data, reg, 0.05, intercept)
    assert whole.certificate.dual <= best + 1e-10 <= reached + 2e-10
    run_of(problem, solver, 3, seed=3, checkpoint=tmp_path / "run")
    resumed = run_of(problem, solver, 7, seed=3, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(whole.weights, resumed.weights)
    np.testing.assert_array_equal(whole.intercept, resumed.intercept)
    long = run_of(problem, solver, 400, seed=3)
    assert long.certificate.gap < 0.02 * whole.certificate.gap


def test_an_average_needs_an_l2_part():
    problem = make_problem(SmoothHingeLoss(1.0), make_data("sign", K=1), reg=L1(), lam=0.05)
    with pytest.raises(ValueError, match="output='average' needs a penalty with an l2 part"):
        minimize(problem, SDCA(output="average"))


def test_the_published_accelerated_method_is_reached_from_an_estimator():
    """Outer steps of the rate xi_1 exp(-eta (t - 1) / 2), after which the suboptimality is below it."""
    data = make_data("sign", n=50, d=6, K=1, seed=4)
    labels = data.T[:, 0]
    options = {"alpha": 1e-2, "fit_intercept": False, "tol": 1e-3, "max_iter": 2000, "random_state": 0}
    best = LinearClassifier("log_loss", **{**options, "tol": 1e-10}).fit(data.X, labels).objective_
    for rule in ("rate", "proximal", "gap"):
        found = LinearClassifier("log_loss", solver=AcceleratedSDCA(inner="accuracy", rule=rule), **options)
        found.fit(data.X, labels)
        assert best <= found.objective_ + 1e-9 <= best * (1 + 1.1e-3)
        assert all(record.dual <= best + 1e-9 for record in found.history_)


# --- calibrated least squares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [3, 6])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 8.0)])
def test_calibrated_theorem_2_with_more_than_two_classes(K, a, b):
    """Targets y = g(W x) on the simplex, where the inverse of g is a (y - 1/K) + b (y - 1/K)^3 elementwise."""
    rng = np.random.default_rng(K)
    u = rng.dirichlet(np.full(K, 0.5), 400) - 1.0 / K
    X = (a * u + b * u**3) @ rng.normal(size=(K, K))  # W is the inverse of that matrix
    Y = u + 1.0 / K
    kappa = (a + 3.0 * b * float((u**2).max())) / a
    predictions = np.zeros_like(Y)
    errors = []
    rounds = calibrated_rounds(Design(X), Y, predictions, 0.0, basis="cubic", domain="simplex")
    for t, found in zip(range(1, 100), rounds):
        assert found.errors[1] <= 22 * kappa**2 / t
        errors.append(found.errors[1])
    assert errors[-1] < min(1e-3, errors[0])


# --- DS-MLR ---------------------------------------------------------------------------------------------------------


def test_the_mean_of_the_stochastic_gradients_of_ds_mlr_is_the_gradient():
    """One step from the same weights for each row, with multipliers -log Z_i; each block of classes alone."""
    rng = np.random.default_rng(0)
    n, d, K, lam, eta = 30, 5, 7, 0.1, 1e-7
    X, y, W = rng.normal(size=(n, d)), rng.integers(0, K, n), rng.normal(size=(d + 1, K))
    W[-1] = 0
    S = X @ W[:-1]
    multiplier = -(S[:, 0] - log_softmax(S, axis=1)[:, 0])
    mean = np.zeros((d, K))
    for lo, hi in ((0, 3), (3, 7)):
        for i in range(n):
            block = np.ascontiguousarray(W[:, lo:hi])
            ds_mlr_kernels.multiplier_steps(
                make_rows(X), 0, np.array([i]), y, np.ones(n), (X**2).sum(1), multiplier, lo, block, 0.0, eta,
                1.0 - eta * lam, 1e3, PLAIN,
            )  # fmt: skip
            mean[:, lo:hi] += (W[:-1, lo:hi] - block[:-1]) / (eta * n)
    exact = X.T @ (softmax(S, axis=1) - np.eye(K)[y]) / n + lam * W[:-1]
    np.testing.assert_allclose(mean, exact, atol=1e-6)

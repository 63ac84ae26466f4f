"""The papers' theorems on small problems, with their constants."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

import references
from helpers import make_data, make_problem, objective
from manyclass import AcceleratedSDCA, CrammerSinger, LinearClassifier
from manyclass.datasets import make_many_classes
from manyclass.kernels import ds_mlr as ds_mlr_kernels
from manyclass.kernels.rows import make_rows
from manyclass.mips import SimpleLSH
from manyclass.objective.losses import SmoothHingeLoss
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.optimize.loop import minimize
from manyclass.solvers import SDCA
from manyclass.solvers.base import PLAIN
from manyclass.solvers.least_squares.calibrated import calibrated_rounds
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.memoir.learner import MemoirLearner
from manyclass.solvers.memoir.weights import rows_of
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


@pytest.mark.parametrize("lam", [0.02, 0.002])
def test_accelerated_sdca_needs_the_outer_steps_and_the_epochs_of_theorem_3(lam):
    """P(W_t) - P* <= xi_t = (1 - eta/2)^(t-1) xi_1, and the epochs of an outer step, in the mean, at most C.

    An outer step on n + R^2/((lam + kappa) gamma) = 2 n begins, by the lemmas of the proof, within eps_(t-1) + 36
    (kappa/lam) xi_(t-3) of its dual optimum, and ends at a gap of eps_t = eta/(2 (1 + eta^-2)) xi_(t-1). By Corollary 1
    that takes 2 log(2 n (start / end)) epochs, and up to one more because only whole ones are taken.
    """
    n, seeds = 40, 6
    data = make_data("sign", n=n, d=6, K=1, seed=5)
    problem = make_problem(SmoothHingeLoss(1.0), data, lam=lam)
    best = references.quasi_newton(CASE, data, L2(), lam, False)
    kappa = float((data.X**2).sum(1).max()) / n - lam
    assert kappa > 0
    eta = np.sqrt(0.5 * lam / (0.5 * lam + kappa))
    at_zero = objective(CASE.formula, data, L2(), lam, np.zeros((6, 1)), 0.0)  # D(0) = 0
    xi_1 = (1 + eta**-2) * at_zero
    solver = AcceleratedSDCA(inner="accuracy", sampling="uniform")
    steps = int(np.ceil(2 / eta * np.log(xi_1 / (1e-3 * best))))
    epochs = np.zeros((seeds, steps + 1))
    for seed in range(seeds):
        state = solver.state(problem)
        assert float(state["kappa"]) == pytest.approx(kappa)
        for k, _ in zip(range(1, steps + 1), solver.iterate(problem, state, seed)):
            reached = objective(CASE.formula, data, L2(), lam, state["W"][:, :1], 0.0)
            assert reached - best <= (1 - eta / 2) ** k * xi_1 * (1 + 1e-12)  # the paper numbers the steps from 2
            epochs[seed, k] = state["epochs"]
    assert reached - best <= 1e-3 * best  # the number of outer steps of stopping rule 1
    shrunk = 1 - eta / 2
    most = 2 * np.log(2 * n * (1 / shrunk + 36 * kappa / lam / shrunk**2 * 2 * (1 + eta**-2) / eta)) + 1
    each = np.diff(epochs, axis=1).mean(axis=0)[2:]
    assert (each <= most).all()
    assert each.max() > 1.0  # not a single epoch throughout: the accuracy is what ends a step
    assert epochs[:, -1].mean() <= most * steps


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


# --- MEMOIR ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("search", ["exact", "inexact"])
@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_the_regret_of_the_l1_truncation(batch, search, eta):
    """sum_t f_t(W_t) + r(W_(t+1)) - f_t(U) - r(U) <= ||U||^2/(2 eta) + eta/2 sum_t ||G_t||^2 + sum_t e_t for every U.

    f_t is the sum of the hinge losses of a batch, G_t that of its gradients, r = b alpha ||W||_1 (Duchi and Singer
    2009, for the soft thresholds of "lazy"); e_t is what the scores of the rivals found lack to those of the best ones.
    """
    X, y = make_many_classes(150, 40, 12, nnz_per_row=6, random_state=1)
    X, y, alpha = X.astype(np.float64), y.astype(np.int32), 2e-3
    index = SimpleLSH(bits=64, candidates=1) if search == "inexact" else None
    learner = MemoirLearner(40, 12, X.dtype, alpha=alpha, l1_ratio=1.0, eta0=eta, eta_step=0.0, search=index)
    losses, penalties, squares, errors = 0.0, 0.0, 0.0, 0.0
    for begin in range(0, 150, batch):
        rows, labels = X[begin : begin + batch], y[begin : begin + batch]
        own, best = rivals_of(rows @ dense(learner.weights()), labels)
        found = np.empty_like(best)
        listen(learner, found)
        learner.step(rows_of(X, np.arange(begin, begin + rows.shape[0]), X.dtype), labels)
        losses += np.maximum(0, 1 + best - own).sum()
        errors += (best - found).sum()
        squares += (np.sqrt(2 * rows.multiply(rows).sum(axis=1)).A1[1 + found - own > 0].sum()) ** 2
        penalties += len(labels) * alpha * np.abs(dense(learner.weights())).sum()
    assert (errors > 1.0) == (search == "inexact")
    rng = np.random.default_rng(0)
    optimum = LinearClassifier(CrammerSinger(gamma=0.01), alpha=alpha, l1_ratio=1.0, solver="accelerated", tol=0.05)
    best = optimum.set_params(fit_intercept=False, max_iter=500).fit(X, y).coef_.T
    ratios = []
    for U in (0 * best, best, 0.5 * best, 2 * best, rng.normal(size=best.shape)):
        own, rival = rivals_of(X @ U, y)
        regret = losses + penalties - np.maximum(0, 1 + rival - own).sum() - 150 * alpha * np.abs(U).sum()
        bound = (U**2).sum() / (2 * eta) + 0.5 * eta * squares + errors
        ratios.append(regret / bound)
        assert regret <= bound
    assert max(ratios) > 0.1


@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_the_regret_of_the_truncation_of_touched_classes(eta):
    """sum_t f_t(W_t) - f_t(U) <= ||U||^2/(2 eta) + eta/2 sum_t ||G_t||^2 + ||U||/eta sum_t ||D_t|| for every U.

    D_t is what the truncation of step t takes away, whose norm the theorem of MEMOIR-l1 assumes to be small.
    """
    X, y = make_many_classes(150, 40, 12, nnz_per_row=6, random_state=1)
    X, y, alpha = X.astype(np.float64), y.astype(np.int32), 2e-3
    options = {"alpha": alpha, "l1_ratio": 1.0, "eta0": eta, "eta_step": 0.0, "truncation": "touched"}
    learner = MemoirLearner(40, 12, X.dtype, **options)
    losses, squares, removed = 0.0, 0.0, 0.0
    for i in range(150):
        W, x = dense(learner.weights()), X[[i]].toarray()[0]
        scores = x @ W
        own, best = rivals_of(scores[None], y[[i]])
        found = np.empty(1)
        listen(learner, found)
        learner.step(rows_of(X, np.array([i]), X.dtype), y[[i]])
        half = W.copy()
        if 1 + best[0] - own[0] > 0:
            rival = learner.rival[0]
            half[:, y[i]] += eta * x
            half[:, rival] -= eta * x
            squares += 2 * x @ x
        losses += max(0.0, 1 + best[0] - own[0])
        removed += np.linalg.norm(half - dense(learner.weights()))
    assert removed > 0.1
    optimum = LinearClassifier(CrammerSinger(gamma=0.01), alpha=alpha, l1_ratio=1.0, solver="accelerated", tol=0.05)
    best = optimum.set_params(fit_intercept=False, max_iter=500).fit(X, y).coef_.T
    for U in (0 * best, best, 0.5 * best, 2 * best):
        own, rival = rivals_of(X @ U, y)
        regret = losses - np.maximum(0, 1 + rival - own).sum()
        size = np.linalg.norm(U)
        assert regret <= size**2 / (2 * eta) + 0.5 * eta * squares + size / eta * removed


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def rivals_of(scores, y):
    """The scores of the classes y, and of the best other ones."""
    scores = np.array(scores)
    rows = np.arange(len(y))
    own = scores[rows, y].copy()
    scores[rows, y] = -np.inf
    return own, scores.max(axis=1)


def listen(learner, found):
    """Write the scores of the rivals of the next step to ``found``, and the rivals to ``learner.rival``."""
    ask = type(learner)._rivals

    def heard(batch, y):
        rivals, best, own = ask(learner, batch, y)
        found[:], learner.rival = learner.scale * best, rivals
        return rivals, best, own

    learner._rivals = heard

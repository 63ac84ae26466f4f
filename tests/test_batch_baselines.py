"""Newton, conjugate gradients, gradient descent, the gains of SGD: what `test_primal_solvers` does not ask of all."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace

import numba
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from helpers import cast, evaluate, make_data, make_problem, random_scores, random_targets
from manyclass.kernels.operations import loss_hessian
from manyclass.objective.intercept import first_intercept
from manyclass.objective.losses import LogisticLoss, MultinomialLoss, SmoothHingeLoss, SquaredHingeLoss
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import LBFGS, SDCA, SGD, ConjugateGradient, GradientDescent, Newton
from manyclass.solvers.primal.descent import line_search
from registry import LOSSES

SOLVERS = (Newton(), ConjugateGradient(), GradientDescent())
SMOOTH = {name: case for name, case in LOSSES.items() if case.loss.smoothness}


# --- second derivatives ---------------------------------------------------------------------------------------------


@numba.njit
def _bend(loss, s, t, u):
    out = np.empty_like(s)
    loss_hessian(loss, s, t, u, out)
    return out


def bend(loss, s, t, u):
    """``H u`` at the scores s."""
    return _bend(cast(loss, s.dtype), s, int(t) if np.ndim(t) == 0 else np.asarray(t, s.dtype), u)


@pytest.mark.parametrize("name", SMOOTH)
def test_hessian_equals_finite_differences(name):
    case, K, h, seen = SMOOTH[name], 4, 1e-6, 0
    rng = np.random.default_rng(0)
    T = random_targets(case.loss.targets, 120, K, rng)
    for s, t in zip(random_scores(120, K, rng), T):
        u = rng.normal(size=K)
        if np.abs(s).max() > 30 or (s == np.round(s)).all():
            continue
        ends = [evaluate(case.loss, s + step * u, t).gradient for step in (h, 0.0, -h)]
        sides = [(ends[0] - ends[1]) / h, (ends[1] - ends[2]) / h]
        if np.abs(sides[0] - sides[1]).max() > 1e-3:  # a kink of the gradient between
            continue
        seen += 1
        np.testing.assert_allclose(bend(case.loss, s, t, u), (sides[0] + sides[1]) / 2, rtol=1e-6, atol=1e-7)
    assert seen > 20


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("K", [1, 2, 7])
def test_hessian_is_positive_and_as_bounded_as_the_loss_says(name, K, dtype):
    """Of symmetric matrices between 0 and I / gamma (K times that for Crammer and Singer's: its target counts all)."""
    case = SMOOTH[name]
    rng = np.random.default_rng(1)
    T = random_targets(case.loss.targets, 60, K, rng)
    eps = float(np.finfo(dtype).eps)
    for s, t in zip(random_scores(60, K, rng).astype(dtype), T):
        H = np.stack([bend(case.loss, s, t, e) for e in np.eye(K, dtype=dtype)]).astype(np.float64)
        most = (K if case.curved == "rivals" else 1) / case.loss.smoothness
        assert np.isfinite(H).all()
        np.testing.assert_allclose(H, H.T, atol=20 * eps * most)
        values = np.linalg.eigvalsh((H + H.T) / 2)
        assert values.min() >= -20 * eps * most
        assert values.max() <= most * (1 + 20 * eps)


def test_small_probabilities_keep_their_curvature():
    """In float32 too: where one class has almost all of the mass, p (1 - p) must not be lost to 1 - p = 0."""
    s = np.array([30.0, 0.0, -2.0], np.float32)
    for t in (0, 1):
        H = np.stack([bend(MultinomialLoss(), s, t, e) for e in np.eye(3, dtype=np.float32)])
        p = np.exp(s.astype(np.float64) - 30)
        if t == 0:
            np.testing.assert_allclose(np.diag(H)[1:], p[1:], rtol=1e-5)
            assert H[0, 0] == pytest.approx(p[1:].sum(), rel=1e-5)


# --- the line search ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within", [None, 0.9, 0.1, 1e-6])
@pytest.mark.parametrize("first", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("shape", ["square", "cosh", "kinked"])
def test_a_step_that_is_found_meets_its_conditions(within, first, shape):
    if shape == "square":
        value, slope = lambda t: 3 * (t - 2) ** 2, lambda t: 6 * (t - 2)
    elif shape == "cosh":
        value, slope = lambda t: math.cosh(min(t - 3, 700)), lambda t: math.sinh(min(t - 3, 700))
    else:
        value, slope = lambda t: max(1 - t, 0) ** 2 + 0.01 * t**2, lambda t: -2 * max(1 - t, 0) + 0.02 * t
    tried = []

    def evaluate_at(step):
        tried.append(step)
        return value(step), slope(step)

    found = line_search(evaluate_at, value(0), slope(0), 0.0, first=first, within=within)
    assert (found.step, found.value, found.tried) == (tried[-1], value(tried[-1]), len(tried))
    assert found.value <= value(0)
    assert slope(found.step) >= (0.9 if within is None else within) * slope(0)
    if within is not None:
        assert slope(found.step) <= -within * slope(0)


def test_no_step_is_found_where_nothing_falls():
    found = line_search(lambda step: (math.inf, math.nan), 1.0, -1.0, 0.0, within=0.1)
    assert found.step == 0
    assert found.value == 1.0


# --- the batch solvers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
@pytest.mark.parametrize("loss", [MultinomialLoss(), SquaredHingeLoss()], ids=["multinomial", "squared_hinge"])
def test_every_iteration_lowers_the_objective(solver, loss):
    data = make_data(loss.targets, n=150, d=12, K=4, seed=2, weighted=True)
    problem = make_problem(loss, data, lam=1e-3, intercept=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = minimize(problem, solver, tol=1e-9, max_iter=60, check_every=1)
    values = result.history.column("primal")
    for before, after in itertools.pairwise(values):
        assert after <= before * (1 + 1e-15)
    assert result.certificate.gap < 0.1 * result.history[0].gap


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_dense_and_sparse_rows_are_one_problem(solver):
    data = make_data("class", n=100, d=9, K=3, seed=3, weighted=True)
    runs = [
        minimize(make_problem(MultinomialLoss(), data, view=view, intercept=True), solver, tol=1e-10, max_iter=3000)
        for view in ("csr", "dense")
    ]
    assert all(run.outcome is Outcome.CONVERGED for run in runs)
    np.testing.assert_allclose(runs[0].weights, runs[1].weights, atol=1e-6)
    assert runs[0].n_iter == runs[1].n_iter


@pytest.mark.parametrize("lam", [1e-2, 1e-5])
def test_newton_needs_few_steps_and_agrees_with_the_dual(lam):
    """Even where lam is so small that first-order methods crawl; and faster than linearly at the end."""
    problem = make_problem(MultinomialLoss(), make_data("class", n=300, d=15, K=4, seed=4), lam=lam, intercept=True)
    result = minimize(problem, Newton(), tol=1e-10, max_iter=25, check_every=1)
    assert result.outcome is Outcome.CONVERGED
    dual = minimize(problem, SDCA(), tol=1e-7, max_iter=50_000)
    assert result.certificate.primal == pytest.approx(dual.certificate.primal, rel=2e-7)
    errors = [record.primal - result.certificate.primal for record in result.history][:-1]
    falls = [after / before for before, after in itertools.pairwise(errors) if after > 1e-12]
    assert falls[-1] < 0.1


def test_newton_with_nothing_that_bends():
    """All margins beyond the band of a smooth hinge: no curvature along the intercept."""
    data = make_data("sign", n=300, d=10, K=3, seed=5)
    problem = make_problem(SmoothHingeLoss(0.5), data, lam=1e-3, intercept=True)
    assert minimize(problem, Newton(), tol=1e-6, max_iter=100).outcome is Outcome.CONVERGED


def test_newton_takes_wide_sparse_rows():
    """No matrix is formed: 200 000 features and 3 classes; and as many passes as the count says."""
    data = make_data("class", n=60, d=50, K=3, seed=6)
    wide = data._replace(X=np.hstack([data.X, np.zeros((60, 1))]))
    problem = make_problem(MultinomialLoss(), wide, intercept=True)
    rows = problem.rows._replace(indices=problem.rows.indices * 4000)
    large = replace(problem, rows=rows, n_features=200_001)
    results = [minimize(found, Newton(), tol=1e-8) for found in (problem, large)]
    assert results[0].n_iter == results[1].n_iter
    np.testing.assert_allclose(results[1].weights[::4000], results[0].weights, atol=1e-9)


def test_conjugate_gradients_beat_gradient_descent():
    problem = make_problem(LogisticLoss(), make_data("sign", n=300, d=20, K=2, seed=7), lam=1e-3, intercept=True)
    passes = {
        solver.name: minimize(problem, solver, tol=1e-6, max_iter=5000).history.last.passes
        for solver in (*SOLVERS, LBFGS())
    }
    assert passes["cg"] < 0.5 * passes["gd"]
    assert passes["newton"] < passes["gd"]


# --- gains and mini-batches of SGD ----------------------------------------------------------------------------------

GAINS = {
    "constant": lambda t: 0.03,
    "tau": lambda t: 0.03 * 7 / (7 + t),
    "inverse": lambda t: 0.03 / (t + 1),
}


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 11, 50])
@pytest.mark.parametrize("gain", GAINS)
def test_gains_and_mini_batches_are_the_plain_recursion(gain, batch_size, averaged):
    n, epochs = 11, 3
    case = LOSSES["multinomial"]
    data = make_data("class", n=n, d=5, K=3, seed=8, weighted=True)
    problem = make_problem(case.loss, data, lam=0.5, intercept=True)
    c = np.asarray(problem.sample_weight)
    push = float(np.average((data.X**2).sum(1), weights=c))
    W, b, t = np.zeros((5, 3)), np.array(first_intercept(problem)), 0
    mean, mean_b, taken = W, b, 0
    for epoch in range(epochs):
        order = np.random.default_rng([9, epoch]).permutation(n)
        for begin in range(0, n, batch_size):
            i = order[begin : begin + batch_size]
            G = c[i, None] * case.formula(data.X[i] @ W + b, data.T[i])[1]
            eta = GAINS[gain](t)
            W = (1 - eta * len(i) * problem.lam) * W - eta * data.X[i].T @ G
            b, t = b - eta * push * G.sum(0), t + 1
            if epoch > 0:
                taken += 1
                mean, mean_b = mean + (W - mean) / (taken + 1), mean_b + (b - mean_b) / (taken + 1)
        if epoch == 0:
            mean, mean_b = W, b
    solver = SGD(average=averaged, gain=gain, eta0=0.03, tau=7, batch_size=batch_size)
    state = solver.state(problem)
    for progress in itertools.islice(solver.iterate(problem, state, 9), epochs):
        assert progress.passes == progress.iteration
    found = solver.weights(problem, state)
    np.testing.assert_allclose(found[0], mean if averaged else W, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1], mean_b if averaged else b, rtol=1e-9, atol=1e-12)


def test_by_default_the_gain_is_the_one_that_needs_no_tuning():
    problem = make_problem(MultinomialLoss(), make_data("class", seed=10), intercept=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, other = (minimize(problem, s, tol=0, max_iter=3) for s in (SGD(), SGD(gain="optimal", batch_size=1)))
    np.testing.assert_array_equal(one.weights, other.weights)


def test_a_gain_that_is_too_large_is_told():
    problem = make_problem(LogisticLoss(), make_data("sign", seed=11), lam=1.0)
    with pytest.warns(ConvergenceWarning, match="the objective is not finite"):
        minimize(problem, SGD(gain="constant", eta0=1e300), max_iter=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gain": "best"}, "The 'gain' parameter of SGD must be a str among .*'optimal'.* Got 'best' instead"),
        ({"eta0": 0.0}, r"The 'eta0' parameter of SGD must be a float in the range \(0.0, inf\).* Got 0.0 instead"),
        ({"tau": math.nan}, r"The 'tau' parameter of SGD must be a float in the range \(0.0, inf\).* Got nan instead"),
        ({"batch_size": 0}, r"The 'batch_size' parameter of SGD must be an int in the range \[1, inf\). Got 0 instead"),
        ({"average": "yes"}, "The 'average' parameter of SGD must be .*bool"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    problem = make_problem(MultinomialLoss(), make_data("class"))
    with pytest.raises(ValueError, match=message):
        SGD(**options).check()
    with pytest.raises(ValueError, match=message):
        minimize(problem, SGD(**options))

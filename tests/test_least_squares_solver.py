"""Generalized least squares: systems, rates, conditioning, the optimum of an independent solver."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

import references
from helpers import make_data, make_problem, objective
from manyclass.objective.losses import (
    CrammerSingerLoss,
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SmoothHingeLoss,
    SquaredHingeLoss,
    SquaredLoss,
)
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import GeneralizedLeastSquares
from manyclass.solvers.least_squares import systems
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.generalized import apply_link, fit_generalized, generalized_steps, named_link
from manyclass.solvers.least_squares.systems import ConjugateGradients, Factor
from registry import LOSSES

# --- systems --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["whole", "in panels"])
def panels(request, monkeypatch):
    """How LAPACK sees a matrix."""
    if request.param == "in panels":
        monkeypatch.setattr(systems, "_WHOLE", 0)
        monkeypatch.setattr(systems, "_PANEL", 5)


@pytest.mark.usefixtures("panels")
@pytest.mark.parametrize("rank", [12, 7, 1])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_factor_solves_what_can_be_solved(rank, scaled):
    rng = np.random.default_rng(rank)
    X = rng.normal(size=(40, rank)) @ rng.normal(size=(rank, 12))
    if scaled:  # units cost no digits
        X = X * 10.0 ** rng.integers(-6, 7, 12)
    A = X.T @ X
    B = X.T @ rng.normal(size=(40, 3))
    lower = np.tril(A) + np.triu(np.full((12, 12), np.nan), 1)  # the other triangle is not read
    factor = Factor(lower)
    assert factor.rank == rank
    residual = (A @ factor.solve(B) - B) / np.sqrt(np.maximum(A.diagonal(), 1e-300))[:, None]
    np.testing.assert_allclose(residual, 0, atol=1e-8)


@pytest.mark.parametrize("rank", [11, 7, 1])
def test_the_solution_of_minimum_norm_is_that_of_the_pseudoinverse(rank):
    rng = np.random.default_rng(rank)
    X = rng.normal(size=(40, rank)) @ rng.normal(size=(rank, 12))
    X[:, 1] = X[:, 0]  # a tie, which rounding would decide
    X /= np.sqrt((X**2).sum(0))  # the norm is that of scaled unknowns
    A, B = X.T @ X, X.T @ rng.normal(size=(40, 3))
    found = Factor(A.copy(), minimum_norm=True).solve(B)
    np.testing.assert_allclose(found, np.linalg.pinv(A, rcond=1e-12) @ B, atol=1e-8)


@pytest.mark.usefixtures("panels")
@pytest.mark.parametrize("minimum_norm", [False, True])
def test_features_that_are_zero_everywhere_get_no_weight(minimum_norm):
    none = Factor(np.zeros((3, 3)), minimum_norm=minimum_norm)
    np.testing.assert_array_equal(none.solve(np.zeros((3, 2))), 0)
    A = np.diag([4.0, 0.0, 1.0])
    found = Factor(A, minimum_norm=minimum_norm).solve(np.array([[4.0], [0.0], [3.0]]))
    np.testing.assert_allclose(found, [[1.0], [0.0], [3.0]])


@pytest.mark.parametrize("whole", [8192, 1000])
def test_factors_of_more_than_one_band(whole, monkeypatch):
    monkeypatch.setattr(systems, "_WHOLE", whole)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1400, 1100))
    A = X.T @ X + np.eye(1100)
    B = rng.normal(size=(1100, 2))
    np.testing.assert_allclose(Factor(np.tril(A)).solve(B), np.linalg.solve(A, B), atol=1e-10)


def test_conjugate_gradients_solve_each_column():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 20)) * 10.0 ** rng.uniform(-1, 1, 20)
    A = X.T @ X / 50 + 0.01 * np.eye(20)
    B = rng.normal(size=(20, 4)) * [1, 1e-6, 1e6, 0]
    solver = ConjugateGradients(lambda V: A @ V, A.diagonal(), tol=1e-10)
    np.testing.assert_allclose(
        solver.solve(B) / [1, 1e-6, 1e6, 1], np.linalg.solve(A, B) / [1, 1e-6, 1e6, 1], atol=1e-7
    )

    def quadratic(V):
        return 0.5 * np.einsum("jk,jk->k", V, A @ V) - np.einsum("jk,jk->k", B, V)

    # However early it stops, the quadratic is lower than at zero, and falls.
    values = [
        quadratic(ConjugateGradients(lambda V: A @ V, A.diagonal(), tol=0, max_iter=k).solve(B)) for k in range(8)
    ]
    for before, after in itertools.pairwise(values):
        assert np.all(after <= before + 1e-9 * np.abs(before))


@pytest.mark.parametrize("kind", ["dense", "fortran", "csr", "mapped", "float32", "csr-float32"])
@pytest.mark.parametrize("intercept", [False, True])
def test_moments_of_chunks(kind, intercept, tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(103, 9)) * (rng.random((103, 9)) < 0.4)
    R, c = rng.normal(size=(103, 2)), rng.choice([0.0, 1.0, 2.5], 103)
    c /= c.mean()
    dtype = np.float32 if "float32" in kind else np.float64
    held = X.astype(dtype)
    if kind == "fortran":
        held = np.asfortranarray(held)
    if kind == "mapped":
        np.save(tmp_path / "x.npy", held)
        held = np.load(tmp_path / "x.npy", mmap_mode="r")
    if kind.startswith("csr"):
        held = sp.csr_matrix(held)
    F = np.hstack([X, np.ones((103, 1))]) if intercept else X
    tol = {np.float32: 2e-6, np.float64: 1e-12}[dtype]
    for rows, weights, threads in itertools.product((7, 1000), (None, c), (1, 2)):
        design = Design(held, weights=weights, intercept=intercept, dtype=dtype, rows=rows, n_threads=threads)
        w = np.ones(103) if weights is None else weights
        for ridge in (0.0, 1.0):  # float32 products in float64, and in float32
            found = design.moments(ridge, R.astype(dtype))
            np.testing.assert_allclose(np.tril(found.matrix), np.tril((F.T * w) @ F / 103), atol=tol)
            np.testing.assert_allclose(found.cross, (F.T * w) @ R / 103, atol=tol)
            exact = np.abs(found.matrix[0, 0] - ((F.T * w) @ F / 103)[0, 0]) < 1e-9
            assert exact or dtype == np.float32
        W = rng.normal(size=(F.shape[1], 2))
        scores = np.zeros((103, 2), dtype)
        design.add_scores(W, scores)
        np.testing.assert_allclose(scores, F @ W, atol=20 * tol)


def test_products_are_made_in_float64_where_a_small_ridge_asks_for_it():
    """Nearly equal columns: float32 products would give a negative eigenvalue, or one twice as large."""
    rng = np.random.default_rng(3)
    X = np.repeat(rng.normal(size=(4000, 1)).astype(np.float32), 6, axis=1)
    X += 1e-4 * rng.normal(size=X.shape).astype(np.float32)
    design = Design(X, dtype=np.float32, intercept=False)
    exact = np.linalg.eigvalsh(X.T.astype(np.float64) @ X / 4000)
    found = design.moments(0.0).matrix
    found = np.linalg.eigvalsh(np.tril(found) + np.tril(found, -1).T)
    np.testing.assert_allclose(found, exact, rtol=1e-4)
    coarse = design._moments(np.dtype(np.float32), None).matrix
    coarse = np.linalg.eigvalsh(np.tril(coarse) + np.tril(coarse, -1).T)
    assert not np.allclose(coarse, exact, rtol=0.1)


# --- Theorem 1 ------------------------------------------------------------------------------------------------------


class Free:
    """Unregularized multinomial regression on data that do not separate, by the definitions."""

    L = 0.5

    def __init__(self, condition=1.0, seed=0, n=300, d=8, K=4, noise=1.0):
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.normal(size=(n, d)))[0] * np.sqrt(n)
        V = np.linalg.qr(rng.normal(size=(d, d)))[0]
        y = (Q @ rng.normal(size=(d, K)) + noise * rng.gumbel(size=(n, K))).argmax(1)
        self.X = (Q * np.geomspace(1, 1 / condition, d)) @ V
        self.Y = np.eye(K)[y]
        self.sigma = self.X.T @ self.X / n
        self.design = Design(self.X, intercept=False)

    def value(self, W):
        S = self.X @ W
        return float((logsumexp(S, axis=1) - (S * self.Y).sum(1)).mean())

    def steps(self, accelerated=False):
        link, L = named_link("softmax")
        system = self.design.system(0.0, L, factored=True)
        return generalized_steps(self.design, self.Y, link, 0.0, system, accelerated=accelerated)

    def best(self):
        return next(itertools.islice(self.steps(accelerated=True), 400, None)).weights


def test_the_first_rate_of_theorem_1():
    free = Free(condition=100.0)
    best = free.best()
    size = np.vdot(best, free.sigma @ best)
    for t, step in zip(range(1, 200), free.steps()):
        assert free.value(step.weights) - free.value(best) <= 2 * free.L * size / (t + 4) + 1e-12


def test_the_second_rate_of_theorem_1():
    """A link with mu = 1/4, L = 1: g = mu s + (L - mu) tanh s."""
    mu, L = 0.25, 1.0
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 6)) * 10.0 ** np.arange(0, -6, -1.0)
    Y = rng.normal(size=(200, 3)) + 4 * np.sign(X @ (rng.normal(size=(6, 3)) * 10.0 ** np.arange(6)[:, None]))
    design = Design(X, intercept=False)

    def link(S):
        return mu * S + (L - mu) * np.tanh(S)

    def value(W):
        S = X @ W
        return float((mu * S**2 / 2 + (L - mu) * (np.logaddexp(S, -S) - np.log(2)) - S * Y).sum(1).mean())

    def steps(accelerated=False):
        system = design.system(0.0, L, factored=True)
        return generalized_steps(design, Y, link, 0.0, system, accelerated=accelerated)

    best = next(itertools.islice(steps(True), 400, None)).weights
    size = np.vdot(best, X.T @ X @ best) / 200
    kappa = L / mu
    falls = []
    for t, step in zip(range(1, 40), steps()):
        falls.append(value(step.weights) - value(best))
        assert falls[-1] <= 0.5 * L * ((kappa - 1) / (kappa + 1)) ** t * size + 1e-9
    assert falls[0] > 1e-3  # there was something to fall


def test_conditioning_does_not_matter():
    counts = {}
    for condition in (1.0, 1e2, 1e4, 1e6):
        free = Free(condition)
        least = free.value(free.best())
        for accelerated in (False, True):
            values = (free.value(step.weights) for step in free.steps(accelerated))
            counts[condition, accelerated] = next(t for t, v in enumerate(values, 1) if v - least <= 1e-6)
    assert len({counts[condition, False] for condition in (1.0, 1e2, 1e4, 1e6)}) == 1
    assert len({counts[condition, True] for condition in (1.0, 1e2, 1e4, 1e6)}) == 1
    assert counts[1.0, False] > 100
    assert counts[1.0, False] >= 3 * counts[1.0, True]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [3.0, 1.0, 0.7])
def test_acceleration_is_never_worse(seed, noise):
    free = Free(seed=seed, noise=noise)
    least = free.value(free.best())
    for distance in (1e-3, 1e-6, 1e-9):
        plain, fast = (
            next(t for t, step in enumerate(free.steps(how), 1) if free.value(step.weights) - least <= distance)
            for how in (False, True)
        )
        assert fast <= plain


def test_plain_steps_never_rise():
    problem = make_problem(MultinomialLoss(), make_data("class", weighted=True, seed=3), lam=1e-3, intercept=True)
    for system in ("cholesky", "cg"):
        solver = GeneralizedLeastSquares(accelerated=False, system=system)
        state = solver.state(problem)
        steps, values = solver.iterate(problem, state, 0), []
        for _ in range(30):
            next(steps)
            values.append(problem.value(*solver.weights(problem, state)))
        assert np.all(np.diff(values) <= 1e-14)


# --- the fitting loop, its certificate, the optimum -----------------------------------------------------------------

CASES = [
    ("multinomial", 5, "csr", "f8", True, True),
    ("multinomial", 4, "dense", "f4", False, True),
    ("multinomial", 4, "dense", "f8", True, False),
    ("softmax_hinge", 3, "dense", "f8", True, True),
    ("log_loss", 4, "dense", "f8", True, True),
    ("log_loss", 3, "csr", "f4", False, True),
    ("squared", 4, "csr", "f8", True, True),
    ("squared", 3, "dense", "f4", False, False),
    ("squared_hinge", 3, "csr", "f8", False, True),
    ("huber-0.5", 3, "dense", "f8", True, True),
    ("crammer_singer-1", 4, "csr", "f8", False, True),
]


@pytest.mark.parametrize("system", ["cholesky", "cg"])
@pytest.mark.parametrize("problem", CASES, ids=lambda case: "-".join(map(str, case)))
def test_the_certified_optimum_is_that_of_another_solver(problem, system):
    name, K, view, dtype, weighted, intercept = problem
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=120, d=6, K=K, seed=K, weighted=weighted, dtype=dtype)
    exact = make_problem(case.loss, data, lam=0.05, view=view, dtype=np.dtype(dtype).type, intercept=intercept)
    best = references.quasi_newton(case, data._replace(X=data.X.astype(float)), L2(), 0.05, intercept)
    result = minimize(
        exact, GeneralizedLeastSquares(system=system), tol={"f8": 1e-8, "f4": 1e-5}[dtype], max_iter=2000, check_every=1
    )
    assert result.outcome is Outcome.CONVERGED
    reached = objective(case.formula, data, L2(), 0.05, result.weights, result.intercept)
    assert reached == pytest.approx(best, rel={"f8": 1e-6, "f4": 3e-5}[dtype])
    for record in result.history:
        assert record.gap >= record.primal - best - 20 * float(np.finfo(dtype).eps) * max(1.0, best)
    if name == "squared" and system == "cholesky":
        assert result.n_iter == 1


def test_dependent_features_and_tiny_penalties():
    data = make_data("class", n=80, d=5, seed=8)
    X = np.hstack([data.X, data.X @ np.ones((5, 2)), np.zeros((80, 1)), np.ones((80, 1))])
    for loss in (MultinomialLoss(), LogisticLoss()):
        found = data if isinstance(loss, MultinomialLoss) else data._replace(T=np.eye(4)[data.T] * 2 - 1)
        problem = make_problem(loss, found._replace(X=X), lam=1e-10, view="dense", intercept=True)
        result = minimize(problem, GeneralizedLeastSquares(), tol=1e-3, max_iter=3000)
        assert result.outcome is Outcome.CONVERGED


def test_moments_are_kept_between_penalties(monkeypatch):
    data = make_data("class", seed=9, weighted=True)
    passes = []
    original = Design.moments
    monkeypatch.setattr(Design, "moments", lambda self, *a, **k: passes.append(1) or original(self, *a, **k))
    solver, rows = GeneralizedLeastSquares(keep=True), None
    for lam in (1.0, 0.1, 0.01):
        problem = make_problem(MultinomialLoss(), data, lam=lam, intercept=True)
        rows = problem.rows if rows is None else rows
        kept = minimize(replace(problem, rows=rows), solver, tol=1e-9, max_iter=2000)
        fresh = minimize(problem, GeneralizedLeastSquares(), tol=1e-9, max_iter=2000)
        np.testing.assert_allclose(kept.weights, fresh.weights, atol=1e-12)
    assert len(passes) == 1 + 3
    other = make_problem(MultinomialLoss(), data._replace(weights=None), lam=0.1, intercept=True)
    minimize(replace(other, rows=rows), solver, tol=1e-3)  # other weights: made anew
    assert len(passes) == 5


def test_the_solver_refuses():
    data = make_data("class")
    message = "The 'system' parameter of GeneralizedLeastSquares must be a str among .* Got 'qr' instead"
    with pytest.raises(ValueError, match=message):
        minimize(make_problem(MultinomialLoss(), data), GeneralizedLeastSquares(system="qr"))
    with pytest.raises(ValueError, match="needs a loss with a smooth gradient"):
        minimize(make_problem(CrammerSingerLoss(0.0), data), GeneralizedLeastSquares())
    with pytest.raises(ValueError, match="needs a penalty with a gradient, and 'elastic net' has none"):
        minimize(make_problem(MultinomialLoss(), data, reg=ElasticNet(0.1)), GeneralizedLeastSquares())


def test_what_does_not_fit_is_refused_or_solved_without_a_matrix(monkeypatch):
    rng = np.random.default_rng(0)
    X = sp.random(40, 20_000, density=2e-3, random_state=0, format="csr")
    data = make_data("class", n=40)._replace(X=X.toarray(), T=rng.integers(0, 4, 40))
    problem = make_problem(MultinomialLoss(), data, lam=0.01)
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 2**30)
    with pytest.raises(MemoryError, match=r"second moments and their factor 3\.0 GiB"):
        minimize(problem, GeneralizedLeastSquares(system="cholesky"))
    result = minimize(problem, GeneralizedLeastSquares(), tol=1e-4)
    assert result.outcome is Outcome.CONVERGED
    with pytest.raises(MemoryError, match="smaller block"):
        Design(X).moments(0.0)


def test_links_of_ones_own():
    """A callable softmax is the softmax; what is no link is refused."""
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(80, 4)), np.eye(3)[rng.integers(0, 3, 80)]
    own = fit_generalized(Design(X), Y, lambda S: softmax(S, axis=1), 0.5, 0.1, tol=1e-14)
    named = fit_generalized(Design(X), Y, *named_link("softmax"), 0.1, tol=1e-14)
    np.testing.assert_allclose(own.weights, named.weights, atol=1e-12)
    assert own.outcome == "converged"
    with pytest.raises(ValueError, match="link must return finite numbers of the shape"):
        apply_link(lambda S: S[:, :1], np.zeros((3, 2)))
    with pytest.raises(ValueError, match="NaN or infinity"):
        apply_link(lambda S: S * np.nan, np.zeros((3, 2)))


def test_losses_that_need_no_certificate_of_their_own():
    """Every smooth loss of the registry is bounded by its Lipschitz constant: no step rises."""
    for loss in (SmoothHingeLoss(0.5), SquaredHingeLoss(), HuberLoss(0.5), CrammerSingerLoss(0.3), SquaredLoss()):
        problem = make_problem(loss, make_data(loss.targets, n=50, seed=11), lam=0.01, intercept=True)
        solver = GeneralizedLeastSquares(accelerated=False)
        state = solver.state(problem)
        steps = solver.iterate(problem, state, 0)
        values = []
        for _ in range(10):
            next(steps)
            values.append(problem.value(*solver.weights(problem, state)))
        assert np.all(np.diff(values) <= 1e-12), type(loss).__name__

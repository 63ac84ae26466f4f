"""`PreconditionedLBFGS` with a matrix for each class: few iterations, the same optimum, the same bits when resumed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from helpers import Data, make_problem
from manyclass import LinearClassifier
from manyclass.objective.losses import LogisticLoss, MultinomialLoss, SoftMultinomialLoss, SquaredHingeLoss
from manyclass.optimize.loop import minimize
from manyclass.solvers import Newton, PreconditionedLBFGS
from manyclass.solvers.primal.preconditioned import _rows_of_class

LOSSES = [
    (MultinomialLoss(), "class"),
    (SoftMultinomialLoss(), "distribution"),
    (LogisticLoss(), "sign"),
    (SquaredHingeLoss(), "sign"),
]


def hard(loss, kind, *, n=3000, d=30, K=3, lam=1e-5, **options):
    """Correlated features of many scales that tell the classes, but for a few rows: most curvatures are near zero."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = rng.normal(size=(n, d)) * np.geomspace(1.0, 0.03, d) @ turn
    S = X @ rng.normal(size=(d, K)) @ np.diag(np.geomspace(1.0, 0.2, K)) + 0.03 * rng.normal(size=(n, K))
    T = S.argmax(axis=1) if kind == "class" else np.where(S > 1.0, 1.0, -1.0)
    if kind == "distribution":
        T = np.where(np.arange(K) == S.argmax(axis=1)[:, None], 1.0, 0.0)
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    return make_problem(loss, Data(X, T, K, weights), view="dense", lam=lam, **options)


@pytest.mark.parametrize(
    ("loss", "kind", "intercept"), [(*case, True) for case in LOSSES] + [(MultinomialLoss(), "class", False)]
)
def test_fewer_iterations_to_the_same_optimum(loss, kind, intercept, monkeypatch):
    problem = hard(loss, kind, intercept=intercept)
    found = minimize(problem, PreconditionedLBFGS(), tol=1e-6)
    assert found.state["anchored"] >= 10
    monkeypatch.setattr(PreconditionedLBFGS, "_has_classes", lambda *_: False)
    plain = minimize(problem, PreconditionedLBFGS(), tol=1e-6)
    assert "anchored" not in plain.state
    assert found.certificate.relative_gap <= 1e-6
    assert found.certificate.primal == pytest.approx(plain.certificate.primal, rel=2e-6)
    assert found.n_iter < 0.75 * plain.n_iter


def test_a_start_whose_classes_do_not_sum_to_zero_is_no_obstacle():
    """Softmax does not see equal changes of all classes; the penalty does, with the curvature lam alone."""
    problem = hard(MultinomialLoss(), "class", intercept=True, lam=1e-4)
    begun = PreconditionedLBFGS().state(problem)
    begun["point"][:-1] += 5.0
    found, other = (
        minimize(problem, PreconditionedLBFGS(), state=begun, tol=1e-9),
        minimize(problem, Newton(), tol=1e-9),
    )
    assert found.state["anchored"] >= 10
    np.testing.assert_allclose(found.weights, other.weights, atol=1e-2 * np.abs(other.weights).max())
    np.testing.assert_allclose(found.weights.mean(axis=1), 0, atol=1e-3 * np.abs(other.weights).max())


def test_all_rows_or_some(monkeypatch):
    """With as many rows as there are, none is drawn; the optimum is the same."""
    problem = hard(MultinomialLoss(), "class")
    some = minimize(problem, PreconditionedLBFGS(), tol=1e-6)
    monkeypatch.setattr("manyclass.solvers.primal.preconditioned._ROWS_OF_CLASS", 1000)
    every = minimize(problem, PreconditionedLBFGS(), tol=1e-6)
    assert some.certificate.primal == pytest.approx(every.certificate.primal, rel=2e-6)
    assert some.n_iter < 2 * every.n_iter


@pytest.mark.parametrize("first", [9, 10, 11, 25])
def test_a_resumed_fit_has_the_same_bits(first, tmp_path):
    problem = hard(MultinomialLoss(), "class", intercept=True)
    whole = minimize(problem, PreconditionedLBFGS(), tol=0, max_iter=40, warn=False)
    path = tmp_path / "checkpoint.npz"
    minimize(problem, PreconditionedLBFGS(), tol=0, max_iter=first, warn=False, checkpoint=path)
    again = minimize(problem, PreconditionedLBFGS(), tol=0, max_iter=40, warn=False, checkpoint=path)
    np.testing.assert_array_equal(again.weights, whole.weights)


@pytest.mark.parametrize(("loss", "kind"), LOSSES)
def test_the_plan_counts_the_matrices(loss, kind):
    problem = hard(loss, kind, n=6000, d=200, K=8, dtype=np.float32)
    solver = PreconditionedLBFGS()
    minimize(problem, solver, tol=0, max_iter=12, warn=False)  # compiled
    tracemalloc.start()
    try:
        found = minimize(problem, solver, tol=0, max_iter=12, warn=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.state["anchored"] >= 10
    assert 0.5 * sum(solver.nbytes(problem).values()) <= peak <= sum(solver.nbytes(problem).values()) + (1 << 20)


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
@pytest.mark.parametrize("loss", ["multinomial", "log_loss"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_of_any_library_and_of_half_precision_have_them(library, loss, fit_intercept):
    xp = pytest.importorskip(library)
    problem = hard(MultinomialLoss(), "class", n=1500, d=20)
    X, y = problem.rows.x.astype(np.float16).astype(np.float32), problem.targets.y
    given = X.astype(np.float16) if library == "numpy" else xp.asarray(X)
    settings = {"alpha": 1e-6, "fit_intercept": fit_intercept, "tol": 1e-3, "dtype": np.float32}
    plain = LinearClassifier(loss, solver="preconditioned_lbfgs", **settings).fit(X, y)
    found = LinearClassifier(loss, solver="preconditioned_lbfgs", **settings).fit(given, y)
    assert found.duality_gap_ <= 1e-3
    assert plain.n_iter_ > 10
    assert found.n_iter_ <= 1.5 * plain.n_iter_
    assert found.objective_ == pytest.approx(plain.objective_, rel=2e-3)


def test_rows_of_weight_zero_are_not_drawn():
    """A quarter of the rows, so that there are fewer others than rows to draw."""
    problem = hard(MultinomialLoss(), "class", n=1500, d=60)
    assert 1125 <= _rows_of_class(problem) < 1500
    found = minimize(problem, PreconditionedLBFGS(), tol=1e-6)
    assert found.state["anchored"] >= 10
    assert found.n_iter < 60

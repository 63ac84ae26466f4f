"""Passes over dense rows: by definition, the same bits on any threads; softmax in blocks; the limit of the BLAS."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from threadpoolctl import threadpool_limits

from helpers import make_data, make_problem
from manyclass import LinearClassifier
from manyclass.datasets import make_many_classes
from manyclass.kernels.primal import respond_at
from manyclass.kernels.rows import make_rows
from manyclass.kernels.softmax import softmax_at
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import minimize
from manyclass.runtime.threads import blas_threads, single_blas
from manyclass.solvers import SOLVERS
from manyclass.solvers.primal import dense
from registry import LOSSES

SMOOTH = [name for name, case in LOSSES.items() if getattr(case.loss, "smoothness", 0)]


def problem_and_weights(name, *, intercept=True, dtype=np.float64, n=57, **options):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=n, d=6, K=5, seed=3, weighted=True)
    problem = make_problem(case.loss, data, view="dense", dtype=dtype, intercept=intercept, **options)
    rng = np.random.default_rng(4)
    W, b = rng.normal(size=(data.X.shape[1], data.K)).astype(dtype), rng.normal(size=data.K).astype(dtype)
    return case, data, problem, W, b * intercept


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("small", [True, False])
def test_a_pass_finds_losses_and_gradients_by_definition(name, intercept, small, monkeypatch):
    if small:  # several blocks and shards
        monkeypatch.setattr(dense, "_BLOCK", 1)
        monkeypatch.setattr(dense, "_WORK", 100)
    case, data, problem, W, b = problem_and_weights(name, intercept=intercept)
    dual = problem.blank((len(data.X), data.K))
    found = dense.sweep(problem, dual, (W, b), lambda a, c, t: float(len(a)))
    c = data.weights / data.weights.mean()
    losses, slopes = case.formula(data.X @ W + b, data.T)
    np.testing.assert_allclose(found.losses, c @ losses, rtol=1e-9)
    np.testing.assert_allclose(dual, -slopes, atol=1e-8)
    np.testing.assert_allclose(found.image, -data.X.T @ (c[:, None] * slopes), atol=1e-7)
    if intercept:
        np.testing.assert_allclose(found.sums, -(c[:, None] * slopes).sum(axis=0), atol=1e-7)
    assert found.measured == pytest.approx(len(data.X))
    again = dense.sweep(problem, dual)
    np.testing.assert_array_equal(again.image, found.image)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_the_short_cut_at_zero_is_a_pass(intercept, margin):
    _, data, problem, W, b = problem_and_weights("multinomial", intercept=intercept)
    problem = make_problem(MultinomialLoss(margin), data, view="dense", intercept=intercept)
    dual = problem.blank((len(data.X), data.K))

    def measure(a, c, y):
        return float(c @ (a**2).sum(axis=1) + c @ a[np.arange(len(a)), y])

    expected = dense.sweep(problem, dual, (0 * W, b), measure)
    found = dense.at_zero(problem, b, measure)
    for name in ("losses", "image", "measured", "sums") if intercept else ("losses", "image", "measured"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12, rtol=1e-12)


def test_the_short_cut_is_for_classes_with_enough_rows():
    _, _, problem, _, b = problem_and_weights("log_loss")
    assert dense.at_zero(problem, b) is None
    _, _, problem, _, b = problem_and_weights("multinomial", n=19)
    assert dense.at_zero(problem, b) is None


def test_a_pass_has_the_same_bits_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(dense, "_BLOCK", 1)
    monkeypatch.setattr(dense, "_WORK", 100)
    results = []
    for n_threads, limit in ((1, 1), (1, 3), (2, 1), (5, 2)):
        _, data, problem, W, b = problem_and_weights("multinomial", dtype=np.float32, n=400, n_threads=n_threads)
        dual = problem.blank((len(data.X), data.K))
        with threadpool_limits(limit, user_api="blas"):
            results.append((dense.sweep(problem, dual, (W, b)), dual))
    for found, dual in results[1:]:
        np.testing.assert_array_equal(found.image, results[0][0].image)
        np.testing.assert_array_equal(dual, results[0][1])
        assert found.losses == results[0][0].losses


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("intercept", [True, False])
def test_some_rows_tell_how_the_loss_bends(name, intercept, monkeypatch):
    monkeypatch.setattr(dense, "_EVERY", 3)
    monkeypatch.setattr(dense, "_LEAST", 1)
    case, data, problem, W, b = problem_and_weights(name, intercept=intercept)
    rng = np.random.default_rng(8)
    D, e = rng.normal(size=W.shape), rng.normal(size=b.shape) * intercept
    change = dense.changes_along(problem, (W, b), (D, e))
    few = slice(None, None, 3)
    c = (data.weights / data.weights.mean())[few]

    def mean_loss(t):
        losses, slopes = case.formula(data.X[few] @ (W + t * D) + b + t * e, data.T[few])
        return c @ losses / c.sum(), float(c @ (slopes * (data.X[few] @ D + e)).sum(axis=1)) / c.sum()

    loss, slope = mean_loss(0.0)
    for t in (0.0, 0.3, 2.0):
        later, steeper = mean_loss(t)
        np.testing.assert_allclose(change(t), (later - loss - t * slope, steeper - slope), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("solver", ["lbfgs", "preconditioned_lbfgs"])
def test_fits_with_steps_of_some_rows_are_certified_at_the_same_optimum(name, solver, monkeypatch):
    _, _, problem, _, _ = problem_and_weights(name, n=200)
    plain = minimize(problem, SOLVERS[solver](), tol=1e-7, max_iter=2000)
    monkeypatch.setattr(dense, "_EVERY", 5)
    monkeypatch.setattr(dense, "_LEAST", 1)
    found = minimize(problem, SOLVERS[solver](), tol=1e-7, max_iter=2000)
    assert found.history.last.relative_gap <= 1e-7
    assert found.history.last.primal == pytest.approx(plain.history.last.primal, rel=1e-6)


def test_few_rows_and_rows_without_weight_tell_nothing(monkeypatch):
    _, _, problem, W, b = problem_and_weights("multinomial")
    assert dense.changes_along(problem, (W, b), (W, b)) is None


def test_steps_of_some_rows_save_passes():
    """Softmax of weak penalty: the first steps along the directions are far from 1."""
    X, y = make_many_classes(10_000, 40, 20, random_state=0, dtype=np.float32)
    X = np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X)
    model = LinearClassifier(solver="preconditioned_lbfgs", alpha=1e-5, fit_intercept=False).fit(X, y)
    assert model.duality_gap_ <= 1e-3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "_LEAST", 1 << 40)
        plain = LinearClassifier(solver="preconditioned_lbfgs", alpha=1e-5, fit_intercept=False).fit(X, y)
    assert model.history_.last.passes < plain.history_.last.passes


@settings(deadline=None, max_examples=60)
@given(
    outputs=st.sampled_from([2, 3, 15, 16, 63, 64, 65, 130, 5000]),
    n=st.integers(1, 40),
    margin=st.sampled_from([0.0, 1.0]),
    size=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 9),
)
def test_softmax_in_blocks_is_softmax_row_by_row(outputs, n, margin, size, dtype, seed):
    rng = np.random.default_rng(seed)
    S = (size * rng.normal(size=(n, outputs))).astype(dtype)
    targets = ClassTargets(rng.integers(0, outputs, n), outputs)
    weights, loss = rng.uniform(0, 2, n).astype(dtype), MultinomialLoss(margin)
    begin, end = int(rng.integers(0, n)), n
    one, two = S.copy(), S.copy()
    expected = respond_at(targets, weights, loss, one, begin, end)
    losses = softmax_at(targets, weights, loss, two, begin, end)
    eps = float(np.finfo(dtype).eps)
    assert losses == pytest.approx(expected, rel=100 * eps, abs=1e-12)
    np.testing.assert_allclose(two, one, rtol=0, atol=20 * eps)
    np.testing.assert_array_equal(two[:begin], S[:begin])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1, 70])
def test_softmax_in_blocks_hides_no_bad_number(bad, place):
    S = np.zeros((3, 80), np.float32)
    S[1, place] = bad
    weights = np.ones(3, np.float32)
    assert not np.isfinite(softmax_at(ClassTargets(np.array([1, 1, 1]), 80), weights, MultinomialLoss(), S, 0, 3))


def test_probabilities_near_one_keep_the_small_ones():
    """The loss of a row that is almost certain is that of its rivals, in float32, too."""
    S = np.array([[0.0, -20.0, -21.0]], np.float32)
    losses = softmax_at(ClassTargets(np.array([0]), 3), np.ones(1, np.float32), MultinomialLoss(), S, 0, 1)
    small = np.exp(-20.0) + np.exp(-21.0)
    assert losses == pytest.approx(small, rel=1e-5)
    np.testing.assert_allclose(S[0], [small, -np.exp(-20.0), -np.exp(-21.0)], rtol=1e-5)


# --- threads of the BLAS --------------------------------------------------------------------------------------------


def test_the_blas_is_limited_within_and_free_again():
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == 2
        with single_blas(), single_blas():
            assert blas_threads() == 2  # what it will use again
            assert all(library["num_threads"] == 1 for library in threads_of_blas())
        assert all(library["num_threads"] == 2 for library in threads_of_blas())
        with pytest.raises(ArithmeticError), single_blas():
            raise ArithmeticError
        assert all(library["num_threads"] == 2 for library in threads_of_blas())


def test_two_threads_that_limit_the_blas_leave_it_free():
    """The first to come limits and frees, whoever else is within."""
    with threadpool_limits(2, user_api="blas"):
        inside, leave = threading.Event(), threading.Event()

        def other():
            with single_blas():
                inside.set()
                leave.wait(20)

        with single_blas():
            thread = threading.Thread(target=other)
            thread.start()
            assert inside.wait(20)
            assert all(library["num_threads"] == 1 for library in threads_of_blas())
        assert all(library["num_threads"] == 2 for library in threads_of_blas())
        leave.set()
        thread.join()
        assert all(library["num_threads"] == 2 for library in threads_of_blas())


def threads_of_blas():
    from threadpoolctl import threadpool_info

    return [library for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("solver", ["preconditioned_lbfgs", "lbfgs"])
def test_a_fit_has_the_same_bits_whatever_the_blas_may_use(solver):
    X, y = make_many_classes(600, 20, 7, random_state=0)
    models = []
    for limit, n_jobs in ((1, 1), (2, 1), (2, 3)):
        with threadpool_limits(limit, user_api="blas"):
            models.append(LinearClassifier(solver=solver, n_jobs=n_jobs, random_state=0).fit(X, y))
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_plan_counts_the_rows_of_the_second_moments(dtype):
    """Well-conditioned, 16 rows per feature: those that estimate the second moments take more than the factor."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6400, 400)).astype(dtype), rng.integers(0, 3, 6400)
    problem = Problem(
        rows=make_rows(X), targets=ClassTargets(y, 3), loss=MultinomialLoss(), penalty=L2(), lam=10.0,
        n_features=400, dtype=dtype,
    )  # fmt: skip
    solver = SOLVERS["preconditioned_lbfgs"]()
    minimize(problem, solver, max_iter=2)  # compiled, and norms of the rows kept
    tracemalloc.start()
    try:
        result = minimize(problem, solver, max_iter=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.history.last.relative_gap <= 1e-3
    assert peak <= sum(solver.nbytes(problem).values()) + (1 << 20)

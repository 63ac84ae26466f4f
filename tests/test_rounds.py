"""Dual ascent in rounds: the optimum, the same bits on any number of threads, the bound that its steps rest on."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from helpers import make_data, make_problem, same_bits
from manyclass import SDCA, AcceleratedSDCA, ActiveSetSDCA, LinearClassifier
from manyclass.kernels import rounds as kernels
from manyclass.kernels.rows import make_rows
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import Outcome, minimize
from manyclass.runtime.threads import together
from manyclass.solvers.dual import _rounds, active
from manyclass.solvers.dual._rounds import rounds_of
from manyclass.solvers.dual.sdca import Epoch
from registry import LOSSES

JOINT = [name for name, case in LOSSES.items() if case.loss.joint]


def sparse_problem(name, K, *, n=160, d=40, density=0.1, **options):
    loss = LOSSES[name].loss
    return make_problem(loss, make_data(loss.targets, n=n, d=d, K=K, density=density, weighted=True), **options)


@pytest.mark.parametrize("reg", [L2(), ElasticNet(0.2)], ids=["l2", "net"])
@pytest.mark.parametrize("K", [3, 130])
@pytest.mark.parametrize("name", JOINT)
def test_rounds_reach_the_optimum(name, K, reg):
    problem = sparse_problem(name, K, reg=reg, lam=0.02, intercept=K == 3)
    tol = 1e-6 if problem.loss.smoothness else 1e-2
    best = minimize(problem, SDCA(sampling="permutation"), tol=tol, max_iter=20_000).certificate
    solvers = [SDCA(sampling="rounds"), AcceleratedSDCA(sampling="rounds")]
    if name.startswith("crammer_singer"):
        solvers += [ActiveSetSDCA(sampling="rounds", storage=storage) for storage in ("dense", "sparse")]
    for solver in solvers:
        found = minimize(problem, solver, tol=tol, max_iter=20_000)
        assert found.outcome is Outcome.CONVERGED
        assert best.dual - 1e-12 <= found.certificate.primal <= best.primal * (1 + 1.01 * tol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("loss", "K", "solver"),
    [
        *itertools.product(["multinomial"], [3, 150], [SDCA, AcceleratedSDCA]),
        *itertools.product(["crammer_singer"], [20], [SDCA, AcceleratedSDCA, ActiveSetSDCA]),
        ("crammer_singer", 150, partial(ActiveSetSDCA, storage="sparse")),
    ],
)
def test_rounds_give_the_same_bits_on_any_number_of_threads(loss, K, dtype, solver, monkeypatch):
    monkeypatch.setattr(_rounds, "cores", lambda: 16)  # more threads than cores wait longer, and end too
    rng = np.random.default_rng(0)
    X = sp.random(501, 300, 0.02, "csr", random_state=0, dtype=dtype)
    y = (X @ rng.normal(size=(300, K))).argmax(axis=1)
    settings = {"alpha": 1e-3, "max_iter": 4, "tol": 1e-9, "random_state": 0, "fit_intercept": True}
    with pytest.warns(match="max_iter"):
        fits = [
            LinearClassifier(loss, solver=solver(sampling="rounds"), n_jobs=n_jobs, **settings).fit(X, y)
            for n_jobs in (1, 2, 3, 8, 11)
        ]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.coef_, fits[0].coef_)
        np.testing.assert_array_equal(fit.intercept_, fits[0].intercept_)
        assert fit.duality_gap_ == fits[0].duality_gap_


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_the_norms_of_rounds_bound_the_mean_over_all_rounds(seed, density):
    """E ||sum_i x_i d_i^T||^2 <= (B / n) sum_i v_i ||d_i||^2 over all rounds of B = 8 of n rows; equal for 8 copies."""
    n, B = 10, kernels.ROUND
    X = sp.random(n, 6, density, "csr", random_state=seed)
    steps = np.random.default_rng(seed).normal(size=(n, 3))
    v = np.empty(n)
    kernels.shared_norms(make_rows(X), np.arange(n, dtype=np.int32), B, np.zeros(6, np.int32), v)
    x = X.toarray()
    mean = np.mean([np.sum((x[[*some]].T @ steps[[*some]]) ** 2) for some in itertools.combinations(range(n), B)])
    assert mean <= B / n * v @ np.sum(steps**2, axis=1) * (1 + 1e-12)
    copies = make_rows(sp.csr_matrix(np.ones((B, 1)) * x[:1]))
    kernels.shared_norms(copies, np.arange(B, dtype=np.int32), B, np.zeros(6, np.int32), v[:B])
    np.testing.assert_allclose(v[:B], B * (x[0] @ x[0]))


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("intercept", [False, True])
def test_what_the_steps_of_a_round_have_in_common_is_measured(storage, intercept):
    """One round of all rows: ||sum_i x_i d_i^T||^2 - sum_i ||x_i||^2 ||d_i||^2, by the weights that it makes."""
    n, K = _rounds.LONG, 30
    data = make_data("class", n=n, d=25, K=K, density=0.3, weighted=True, seed=1)
    problem = make_problem(CrammerSingerLoss(0.1), data, lam=0.01, intercept=intercept, n_threads=2)
    solver = ActiveSetSDCA(storage=storage, sampling="rounds").prepare(problem)
    state = solver.state(problem)
    y = problem.targets.y
    epoch = Epoch(problem, problem.loss, solver._bias_step(problem), solver._rounds(problem))
    order = np.arange(n, dtype=np.int32)
    live = np.zeros(K)
    measured = active._step(epoch, state, order, live)
    steps = np.zeros((n, K))
    for i, (begin, end) in enumerate(itertools.pairwise(state["indptr"])):
        np.add.at(steps[i], state["rivals"][begin:end], -state["b"][begin:end] * problem.sample_weight[i])
        steps[i, y[i]] -= steps[i].sum()
    constant = epoch.bias_step / problem.inv_lam_n
    x = np.hstack([data.X, np.full((n, 1), np.sqrt(constant))])
    lengths = np.sum(steps**2, axis=1)
    assert np.count_nonzero(lengths) > 4
    together = np.sum((x.T @ steps) ** 2) - np.sum(x**2, axis=1) @ lengths
    bound = (epoch.rounds.norms + n * constant - np.sum(x**2, axis=1)) @ lengths
    np.testing.assert_allclose(measured, [together, bound], rtol=1e-9)
    np.testing.assert_allclose(live, epoch.bias_step * steps.sum(axis=0), atol=1e-12)
    assert measured[0] < measured[1]
    solver._epoch(epoch, state, order, live)
    np.testing.assert_array_less(state["common"], measured)  # the first step was the longer one
    assert state["common"][1] > 0


def test_the_norms_of_samples_that_an_epoch_leaves_out_are_their_own():
    """Numbers that nothing has written could be any, and warn where they are subtracted."""
    problem = sparse_problem("multinomial", 20)
    rounds, some = rounds_of(problem, wanted=True), np.arange(0, problem.n_samples, 3, dtype=np.int32)
    norms, others = rounds.norms_of(problem, some), np.delete(np.arange(problem.n_samples), some)
    np.testing.assert_array_equal(norms[others], problem.norms[others])
    assert (norms[some] >= problem.norms[some] * (1 - 1e-12)).all()
    assert norms[some].sum() > problem.norms[some].sum()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("K", [5, 130])
def test_what_steps_of_all_outputs_have_in_common_is_estimated_from_neighbors(K, intercept):
    """One round of all rows: n times the sum over a row and the one before it, and the bound, by the steps taken."""
    n = _rounds.LONG if K == 5 else kernels.ROUND
    data = make_data("class", n=n, d=25, K=K, density=0.3, weighted=True, seed=1)
    problem = make_problem(MultinomialLoss(), data, lam=0.01, intercept=intercept, n_threads=2)
    solver = SDCA(sampling="rounds").prepare(problem)
    state = solver.state(problem)
    epoch = Epoch(problem, problem.loss, solver._bias_step(problem), solver._rounds(problem))
    order, live = np.random.default_rng(0).permutation(n).astype(np.int32), np.zeros(K)
    measured = epoch.rounds.steps(problem, problem.loss, epoch.bias_step, state, order, live)
    steps = (np.asarray(problem.sample_weight)[:, None] * state["dual"])[order]
    constant = epoch.bias_step / problem.inv_lam_n
    x = np.hstack([data.X, np.full((n, 1), np.sqrt(constant))])[order]
    neighbors = n * np.sum(np.sum(steps[1:] * steps[:-1], axis=1) * np.sum(x[1:] * x[:-1], axis=1))
    bound = (epoch.rounds.norms[order] + n * constant - np.sum(x**2, axis=1)) @ np.sum(steps**2, axis=1)
    np.testing.assert_allclose(measured, [neighbors, bound], rtol=1e-9)
    np.testing.assert_allclose(live, epoch.bias_step * steps.sum(axis=0), atol=1e-12)
    solver._epoch(epoch, state, order, live)
    assert state["common"][1] > 0


@pytest.mark.parametrize("K", [5, 150])
def test_an_intercept_that_all_rows_share_takes_no_more_epochs_in_rounds(K):
    """With the bound for it, which grows with the rows of a round, five classes would take 14 epochs for 6."""
    X = sp.random(2000, 4000, 0.002, "csr", random_state=0)
    y = np.arange(2000) % K
    X = X + sp.csr_matrix((np.ones(2000), (np.arange(2000), y)), shape=X.shape)
    settings = {"alpha": 1e-3, "tol": 1e-5, "random_state": 0, "fit_intercept": True}
    alone, rounds = (
        LinearClassifier("multinomial", solver=SDCA(sampling=sampling), **settings).fit(X, y).n_iter_
        for sampling in ("permutation", "rounds")
    )
    assert rounds <= alone + 1


def test_auto_takes_rounds_where_they_cost_nothing(monkeypatch):
    few, many = sparse_problem("multinomial", 20), sparse_problem("multinomial", 150, d=4000, density=0.002)
    assert rounds_of(few, wanted=False) is None
    assert rounds_of(many, wanted=False) is not None
    assert rounds_of(sparse_problem("multinomial", 150, density=0.6), wanted=False) is None
    rare = sparse_problem("multinomial", 20, d=4000, density=0.002)
    assert rounds_of(rare, wanted=False) is None
    assert rounds_of(rare, wanted=False, few_change=True) is None
    monkeypatch.setattr(_rounds, "_ENOUGH", 160)
    assert rounds_of(rare, wanted=False, few_change=True) is not None  # threads have features of their own
    assert rounds_of(sparse_problem("log_loss", 150, d=4000, density=0.002), wanted=False) is None
    runs = [minimize(many, SDCA(sampling=sampling), tol=1e-4) for sampling in ("auto", "rounds")]
    same_bits(*runs)


def test_rounds_are_refused_where_they_cannot_be():
    dense = sparse_problem("multinomial", 3, view="dense")
    rows = sparse_problem("multinomial", 3).rows
    unsorted = replace(sparse_problem("multinomial", 3), rows=rows._replace(indices=rows.indices[::-1].copy()))
    for problem, why in (
        (dense, "sparse rows, and these are dense"),
        (sparse_problem("log_loss", 3), "joint loss"),
        (unsorted, "sort_indices"),
    ):
        for solver in (SDCA(sampling="rounds"), AcceleratedSDCA(sampling="rounds")):
            with pytest.raises(ValueError, match=why):
                minimize(problem, solver)
    data = make_data("class", n=160, d=40, K=20, density=0.1)
    sparse, dense = (make_problem(CrammerSingerLoss(0.1), data, view=view) for view in ("csr", "dense"))
    unsorted = replace(sparse, rows=sparse.rows._replace(indices=sparse.rows.indices[::-1].copy()))
    for problem, why in ((dense, "sparse rows, and these are dense"), (unsorted, "sort_indices")):
        with pytest.raises(ValueError, match=why):
            minimize(problem, ActiveSetSDCA(sampling="rounds"))
    with pytest.raises(ValueError, match="needs option='I'"):
        minimize(unsorted, SDCA(sampling="rounds", option="II"))


def test_tasks_that_wait_for_each_other_run_together():
    meeting = threading.Barrier(4, timeout=20)
    seen = []
    together(lambda me: seen.append((meeting.wait() >= 0, me)[1]), 4, give_up=lambda: pytest.fail("none failed"))
    assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("solver", "module", "duals"),
    [(SDCA(sampling="rounds"), _rounds, "dual"), (ActiveSetSDCA(sampling="rounds"), active, "b")],
)
def test_a_thread_whose_partner_does_not_come_changes_nothing(solver, module, duals, monkeypatch):
    """Ctrl-C can come between the start of the threads and the first round."""
    data = make_data("class", n=160, d=40, K=20, density=0.1)
    problem = make_problem(CrammerSingerLoss(0.1), data, n_threads=2)
    ended = []

    def interrupted(task, n_threads, give_up):
        partner = threading.Thread(target=task, args=(n_threads - 1,), daemon=True)
        partner.start()
        partner.join(0.1)
        ended.append(not partner.is_alive())
        give_up()
        partner.join(20)
        ended.append(not partner.is_alive())
        raise KeyboardInterrupt

    monkeypatch.setattr(_rounds, "cores", lambda: 2)
    monkeypatch.setattr(module, "together", interrupted)
    ready = solver.prepare(problem)
    state = ready.state(problem)
    before = {name: state[name].copy() for name in (duals, "V")}
    with pytest.raises(KeyboardInterrupt):
        next(ready.iterate(problem, state, 0))
    assert ended == [False, True]
    for name, array in before.items():
        np.testing.assert_array_equal(state[name], array)


@pytest.mark.parametrize("failing", [0, 2])
@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_a_task_that_fails_frees_the_others(failing, error):
    left = threading.Event()
    begun, ended = [], []

    def task(me):
        if me == failing:
            raise error("one")
        begun.append(me)
        assert left.wait(timeout=20)
        ended.append(me)

    with pytest.raises(error, match="one"):
        together(task, 3, give_up=left.set)
    assert sorted(ended) == sorted(begun)


def test_no_task_runs_where_a_thread_cannot_be_started(monkeypatch):
    start = threading.Thread.start

    def second_fails(thread):
        if thread._args == (2,):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="start new thread"):
        together(lambda me: pytest.fail("ran"), 3, give_up=lambda: None)

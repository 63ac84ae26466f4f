"""What DS-MLR is compared with: LC, and L-BFGS with the data partitioned; on the same communicators."""

from __future__ import annotations

import numpy as np
import pytest

from manyclass.distributed import run_threads
from manyclass.optimize.loop import minimize
from manyclass.solvers import DSMLR, AcceleratedSDCA
from manyclass.solvers.ds_mlr import DataParallelLBFGS, LogConcavity, make_grid
from test_ds_mlr import part, problem_of, quietly


@pytest.mark.parametrize("precondition", ["none", "diagonal"])
@pytest.mark.parametrize("intercept", [False, True])
def test_data_parallel_lbfgs_reaches_the_optimum_of_all_rows(intercept, precondition):
    problem, _ = problem_of(intercept=intercept)
    whole = minimize(problem, AcceleratedSDCA(), tol=1e-9, max_iter=5000)

    def fit(comm):
        grid = make_grid(problem.n_samples, problem.n_outputs, comm.size)
        mine, scale = part(problem, comm, grid)
        solver = DataParallelLBFGS(comm=comm, precondition=precondition)
        solver.scale = scale
        return minimize(mine, solver, tol=1e-8, max_iter=500)

    for size in (1, 3):
        for found in run_threads(size, fit, timeout=60):
            assert found.certificate.relative_gap <= 1e-8
            assert found.certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-7)
            np.testing.assert_allclose(found.weights, whole.weights, atol=1e-3)


def test_the_preconditioner_is_the_diagonal_of_the_hessian():
    """Of the rows of both processes, by differences of the gradient."""
    problem, _ = problem_of(intercept=True)

    def fit(comm):
        mine, scale = part(problem, comm, make_grid(problem.n_samples, problem.n_outputs, comm.size))
        solver = DataParallelLBFGS(comm=comm, precondition="diagonal")
        solver.scale = scale
        solver = solver.prepare(mine)
        solver.scale = scale
        state = solver.state(mine)
        next(solver.iterate(mine, state, 0))  # at zero, where the first step has its preconditioner
        gradient, moved = np.empty_like(state["point"]), np.empty_like(state["point"])
        zero, step = np.zeros_like(state["point"]), 1e-5
        solver._descend(mine, zero, state, gradient)
        held = state["curvature"].copy()
        for place in ((0, 0), (2, 1), (-1, 2)):
            near = zero.copy()
            near[place] = step
            solver._descend(mine, near, state, moved)
            bend = (moved[place] - gradient[place]) / step
            assert held[place] - (mine.lam if place[0] == -1 else 0) == pytest.approx(bend, rel=1e-3)
        return True

    assert all(run_threads(2, fit, timeout=60))


def test_lc_falls_each_iteration_the_same_on_any_number_of_processes():
    problem, _ = problem_of(weighted=False)

    def fit(comm):
        return quietly(problem, LogConcavity(comm=comm), tol=0, max_iter=12, check_every=1)

    alone = run_threads(1, fit)[0]
    values = alone.history.column("primal")
    assert all(after <= before * (1 + 1e-9) for before, after in zip(values, values[1:]))
    optimum = minimize(problem, AcceleratedSDCA(), tol=1e-9, max_iter=5000).certificate.primal
    assert 0 <= values[-1] / optimum - 1 < 0.2
    for found in run_threads(3, fit, timeout=60):
        np.testing.assert_allclose(found.weights, alone.weights, rtol=1e-7, atol=1e-9)


def test_the_two_phases_are_ahead_of_lc_at_equal_passes():
    problem, _ = problem_of(weighted=False)
    slow = quietly(problem, LogConcavity(), tol=0, max_iter=12)
    fast = quietly(problem, DSMLR(), tol=0, max_iter=20)
    assert fast.history.last.passes < slow.history.last.passes
    assert fast.certificate.gap < 0.1 * slow.certificate.gap

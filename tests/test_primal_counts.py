"""The solvers on the weights: passes, gaps and memory are what they say."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from helpers import make_data, make_problem
from manyclass.kernels import primal as primal_kernels
from manyclass.objective.losses import LogisticLoss, MultinomialLoss
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import minimize
from manyclass.solvers import LBFGS, PreconditionedLBFGS
from manyclass.solvers.primal.descent import DescentSolver
from registry import BATCH, ON_WEIGHTS

#: Of this one the BLAS reads dense rows; see `test_the_matrix_is_a_pass_too`.
_BY_KERNELS = tuple(solver for solver in BATCH.values() if not isinstance(solver, PreconditionedLBFGS))


@pytest.mark.parametrize("solver", _BY_KERNELS, ids=lambda solver: solver.name)
def test_passes_are_the_readings_of_all_rows(monkeypatch, solver):
    """A reading for the scores, with the gradient that they may lead to, is one pass; 60 rows are one piece."""
    read = {"scores": 0, "gradients": 0}

    def counted(owner, name, what):
        original = getattr(owner, name)

        def count(*arguments):
            read[what] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, count)

    counted(primal_kernels, "scores", "scores")
    counted(Problem, "respond", "scores")
    counted(Problem, "pull", "gradients")
    problem = make_problem(LogisticLoss(), make_data("sign", seed=13), lam=1e-3, intercept=True)
    for progress in itertools.islice(solver.iterate(problem, solver.state(problem), 0), 40):
        assert progress.passes == read["scores"] >= read["gradients"]
    assert read["gradients"] >= 40
    if solver.name in ("fista", "lbfgs"):  # little above one an iteration
        assert read["scores"] <= 60


def test_the_matrix_is_a_pass_too(monkeypatch):
    read = 1
    descend = PreconditionedLBFGS._descend

    def counted(*arguments):
        nonlocal read
        read += 1
        return descend(*arguments)

    monkeypatch.setattr(PreconditionedLBFGS, "_descend", counted)
    problem = make_problem(LogisticLoss(), make_data("sign", seed=13), lam=1e-3, intercept=True)
    solver = PreconditionedLBFGS()
    for progress in itertools.islice(solver.iterate(problem, solver.state(problem), 0), 40):
        assert progress.passes == read


@pytest.mark.parametrize("solver", [s for s in BATCH.values() if isinstance(s, DescentSolver)], ids=lambda s: s.name)
def test_the_gap_that_a_gradient_tells_is_the_certified_one(solver, capsys):
    """Without an intercept; the fitting loop then computes one certificate, where tol is reached."""
    problem = make_problem(MultinomialLoss(), make_data("class", n=80, seed=5, weighted=True), view="dense", lam=1e-2)
    state = solver.state(problem)
    for progress in itertools.islice(solver.iterate(problem, state, 0), 4):
        told = solver.certificate(problem, state, final=True)
        assert progress.estimate.gap == pytest.approx(told.gap, rel=1e-6)
        assert progress.estimate.primal == pytest.approx(told.primal)
    seen = []
    result = minimize(problem, solver, tol=1e-3, max_iter=1000, verbose=1, callback=seen.append)
    assert len(result.history) == 1
    assert all(now.relative_gap > 1e-3 for now in seen[:-1])
    lines = capsys.readouterr().err.splitlines()
    at = [now.iteration for now in seen[:-1] if not now.iteration & (now.iteration - 1)]
    assert [int(line.split()[0]) for line in lines[1:-1]] == at
    assert all(" about " in line for line in lines[1:-1])
    assert 1e-9 < result.certificate.relative_gap <= 1e-3


def test_too_many_features_for_a_matrix_are_refused():
    data = make_data("class", n=5, d=10_000, K=2)
    with pytest.raises(ValueError, match="needs fewer than 10000 features, got 10000: choose solver 'lbfgs'"):
        minimize(make_problem(MultinomialLoss(), data, view="csr"), PreconditionedLBFGS())


@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize(("loss", "kind"), [(MultinomialLoss(), "class"), (LogisticLoss(), "sign")])
def test_a_matrix_to_begin_with_saves_iterations(loss, kind, view):
    data = make_data(kind, n=300, d=20, K=4, seed=18)
    data = data._replace(X=data.X * np.geomspace(1.0, 0.03, 20))
    problem = make_problem(loss, data, view=view, lam=1e-5, intercept=True)
    plain, begun = (minimize(problem, s, tol=1e-5, max_iter=5000) for s in (LBFGS(), PreconditionedLBFGS()))
    assert begun.certificate.primal == pytest.approx(plain.certificate.primal, rel=1e-4)
    assert begun.n_iter < 0.4 * plain.n_iter


@pytest.mark.parametrize("solver", ON_WEIGHTS.values(), ids=ON_WEIGHTS)
def test_memory_is_what_is_announced(solver):
    """Of megabytes: the tracing counts what the interpreter keeps in its lists of free tuples, up to 90 KB here."""
    problem = make_problem(MultinomialLoss(), make_data("class", n=1500, d=3000, K=60, seed=14, density=0.01))
    state = solver.state(problem)
    for _ in itertools.islice(solver.iterate(problem, state, 0), 2):
        solver.certificate(problem, state, final=True)  # compiled
    del state
    tracemalloc.start()
    try:
        state = solver.state(problem)
        for _ in itertools.islice(solver.iterate(problem, state, 0), 15):
            solver.certificate(problem, state, final=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak == pytest.approx(sum(solver.nbytes(problem).values()), rel=0.05)

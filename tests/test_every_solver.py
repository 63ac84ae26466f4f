"""Every declared solver in the fitting loop: certificates, checkpoints, copies, refusals."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from helpers import make_data, make_problem, objective
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.optimize.loop import minimize
from manyclass.solvers import (
    DSMLR,
    SDCA,
    SOLVERS as ALL,
    AcceleratedSDCA,
    ActiveSetSDCA,
    BoundMajorization,
    Memoir,
    SlightL2,
    Solver,
)
from registry import SOLVERS, problem_for

NET = ElasticNet(0.25)


@pytest.fixture(params=SOLVERS)
def declared(request):
    """A solver that users can name."""
    return SOLVERS[request.param]


def quietly(problem, solver, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return minimize(problem, solver, **options)


@pytest.mark.parametrize("declared", [solver() for solver in ALL.values()], ids=ALL)
def test_what_a_solver_says_of_itself(declared):
    assert declared.summary
    assert "\n" not in declared.summary
    others = {name for name, other in ALL.items() if name != declared.name for name in (name, *other.synonyms)}
    assert others.isdisjoint({declared.name, *declared.synonyms})
    assert inspect.signature(type(declared)).parameters.keys() == declared.get_params(deep=False).keys()
    declared.check()


def test_every_parameter_of_a_solver_is_checked_where_a_fit_begins(declared):
    _, _, problem = problem_for(declared)
    for name in declared.get_params(deep=False):
        wrong: Any = clone(declared).set_params(**{name: object()})
        message = f"The '{name}' parameter of {type(declared).__name__} must be"
        for refused in (wrong.check, lambda wrong=wrong: minimize(problem, wrong)):
            with pytest.raises(ValueError, match=message):
                refused()


def test_a_fit_runs_a_copy_and_leaves_the_object_as_it_was(declared):
    _, _, problem = problem_for(declared)
    before = declared.get_params(deep=False)
    results = [quietly(problem, declared, tol=0.0, max_iter=2, seed=3) for _ in range(2)]
    assert declared.get_params(deep=False) == before
    for result in results:
        assert result.solver is not declared
        assert type(result.solver) is type(declared)
    if declared.reproducible:
        np.testing.assert_array_equal(*[dense(result.weights) for result in results])


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def test_every_gap_of_every_solver_is_true(declared):
    case, data, problem = problem_for(declared)
    result = quietly(problem, declared, tol=1e-4, max_iter=50, check_every=1)
    assert dense(result.weights).shape == (problem.n_features, problem.n_outputs)
    assert result.intercept.shape == (problem.n_outputs,)
    reached = objective(case.formula, data, L2(), problem.lam, dense(result.weights), result.intercept)
    if not declared.certified:
        assert math.isnan(result.certificate.gap)
        assert reached < objective(case.formula, data, L2(), problem.lam, np.zeros((6, 4)))
        return
    best = minimize(problem, SDCA(), tol=1e-9, max_iter=50_000).certificate
    assert result.certificate.primal == pytest.approx(reached, rel=1e-12)
    assert reached >= best.dual * (1 - 1e-12)
    assert result.certificate.relative_gap < 0.1
    for record in result.history:
        assert record.dual <= best.primal * (1 + 1e-12)
        assert record.gap >= record.primal - best.primal - 1e-12


def test_every_solver_goes_on_from_its_checkpoint_to_the_same_bits(declared, tmp_path):
    _, _, problem = problem_for(declared)
    path = tmp_path / "run"
    whole = quietly(problem, declared, tol=0.0, max_iter=5, seed=7)
    part = quietly(problem, declared, tol=0.0, max_iter=2, seed=7, checkpoint=path)
    assert part.n_iter == 2
    assert path.exists()
    rest = quietly(problem, declared, tol=0.0, max_iter=5, seed=7, checkpoint=path)
    assert rest.n_iter == whole.n_iter == 5
    assert rest.history.last.iteration == 5
    if declared.reproducible:
        np.testing.assert_array_equal(dense(rest.weights), dense(whole.weights))
        np.testing.assert_array_equal(rest.intercept, whole.intercept)
    with pytest.raises(ValueError, match="belongs to another"):
        quietly(problem, declared, tol=0.0, max_iter=1, seed=8, checkpoint=path)


@pytest.mark.parametrize("declared", [name for name, solver in SOLVERS.items() if solver.reproducible], indirect=True)
def test_threads_do_not_change_a_bit_of_any_solver(declared):
    runs = [
        quietly(problem_for(declared, n_threads=threads)[2], declared, tol=0.0, max_iter=3, seed=1)
        for threads in (1, 2)
    ]
    # The classes of a distributed solver are those of threads and processes: their log-sum-exps are sums of as many.
    exact = {"rtol": 1e-9, "atol": 1e-12} if declared.distributed else {"rtol": 0, "atol": 0}
    np.testing.assert_allclose(*[dense(run.weights) for run in runs], **exact)


def test_what_every_solver_needs_is_told_before_it_is_taken(declared):
    _, _, problem = problem_for(declared)
    needs = declared.prepare(problem).nbytes(problem)
    assert all(isinstance(what, str) and size >= 0 for what, size in needs.items())


@pytest.mark.parametrize(
    "declared", [name for name, solver in SOLVERS.items() if not solver.takes_intercept], indirect=True
)
def test_a_solver_that_fits_no_intercept_says_so(declared):
    _, data, problem = problem_for(declared)
    with pytest.raises(
        ValueError, match=f"solver '{declared.name}' fits no intercept, got .*: give fit_intercept=False"
    ):
        minimize(make_problem(problem.loss, data, intercept=True), declared)


@pytest.mark.parametrize("penalty", [L1(), NET], ids=["l1", "elastic net"])
def test_every_solver_takes_a_penalty_or_says_that_it_cannot(declared, penalty):
    """What it says it needs is what it is refused for."""
    case, data, _ = problem_for(declared)
    problem = make_problem(case.loss, data, reg=penalty, intercept=declared.takes_intercept)
    if isinstance(penalty, L1) and isinstance(declared, SDCA) and not isinstance(declared, ActiveSetSDCA):
        assert isinstance(declared.prepare(problem), SlightL2)  # which gives it what it needs
    elif declared.needs_penalty <= penalty.provides:
        declared.prepare(problem)
    else:
        with pytest.raises(ValueError, match=f"solver '{declared.name}' needs an? .*penalty"):
            declared.prepare(problem)


def test_every_loss_has_solvers_and_the_others_say_who_refuses_it(case):
    data = make_data(case.loss.targets, K=1 if case.loss.targets == "sign" else 4)
    problem = make_problem(case.loss, data)
    takers, refusals = set(), {}
    for name, solver in SOLVERS.items():
        try:
            solver.prepare(problem)
        except ValueError as refusal:
            refusals[name] = str(refusal)
        else:
            takers.add(name)
    assert {"sdca", "accelerated", "sgd"} <= takers
    assert all(f"solver {name!r}" in text for name, text in refusals.items())


#: With parameters for which a problem has to be of one kind.
VARIANTS: dict[str, Solver] = {
    "sdca-IV": SDCA(option="IV"),
    "accelerated-rate": AcceleratedSDCA(inner="accuracy", rule="rate"),
    "sdca_active-sparse": ActiveSetSDCA(storage="sparse"),
    "bound-low rank": BoundMajorization(rank=2),
    "ds_mlr-few shards": DSMLR(n_shards=1, block_classes=2),
    "memoir-average": Memoir(average=True),
    "memoir-long steps": Memoir(eta0=100.0),
}


@pytest.mark.parametrize(
    ("penalty", "more"),
    [(L2(), more) for more in ("", "intercept", "shift", "one output", "one row", "dense")]
    + [(penalty, more) for penalty in (NET, L1()) for more in ("", "intercept")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@pytest.mark.parametrize("solver", [*SOLVERS, *VARIANTS])
def test_what_a_solver_does_not_refuse_when_it_is_prepared_it_can_do(solver, case, penalty, more):
    asked = {**SOLVERS, **VARIANTS}[solver]
    K, n = (1 if more == "one output" else 4), (1 if more == "one row" else 30)
    data = make_data(case.loss.targets, n=n, d=6, K=K)
    shift = np.full((6, K), 0.1) if more == "shift" else None
    view = "dense" if more == "dense" else "csr"
    problem = make_problem(case.loss, data, reg=penalty, view=view, intercept=more == "intercept", shift=shift)
    try:
        ready = asked.prepare(problem)
    except ValueError as refusal:
        said = str(refusal)
        assert any(name in said for name in (f"solver {asked.name!r}", *asked.get_params(deep=False))), said
        assert any(word in said for word in ("choose", "give", "leave", "lower", "take option")), said
        return
    state = ready.state(problem)
    progress = next(ready.iterate(problem, state, 0))
    assert progress.iteration == int(state["iteration"]) == 1
    W, intercept = ready.weights(problem, state)
    assert np.isfinite(dense(W)).all()
    assert np.isfinite(intercept).all()
    if ready.certified:
        found = ready.certificate(problem, state, final=True)
        assert found.dual <= found.primal + found.gap

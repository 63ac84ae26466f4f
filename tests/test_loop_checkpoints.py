"""Runs that are killed, stopped or interrupted: what their checkpoints hold."""

from __future__ import annotations

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

from helpers import make_data, make_problem, objective, same_bits
from manyclass import LinearClassifier
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss, SmoothHingeLoss, SquaredLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.checkpoint import remove
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import LBFGS, SDCA, AcceleratedSDCA, ActiveSetSDCA
from registry import LOSSES


class Killed(Exception):
    """A run that ends without a farewell."""


class Mortal(SDCA):
    """SDCA that is killed within epoch ``last``, its state in ruins; for a checkpoint it is SDCA."""

    def __init__(self, last, error=Killed):
        super().__init__()
        self.last = last
        self.error = error

    def prepare(self, problem):
        return self

    def get_params(self, deep=True):
        return SDCA().get_params(deep)

    def _epoch(self, problem, state, order, *rest):
        if state["iteration"] >= self.last:
            half = len(order) // 2
            super()._epoch(problem, state, order[:half], *rest)
            raise self.error
        super()._epoch(problem, state, order, *rest)


STOPS = {"no-intercept": False, "intercept": True}


@pytest.mark.parametrize("intercept", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("check_every", [None, 1, 3])
@pytest.mark.parametrize("stop", [1, 4, 9, 12])
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, intercept, check_every, stop):
    problem = make_problem(SmoothHingeLoss(0.5), make_data("sign", seed=8), intercept=intercept)
    options = {"tol": 1e-6, "seed": 5, "check_every": check_every}
    whole = minimize(problem, SDCA(), max_iter=2000, **options)
    assert whole.n_iter > 12
    path = tmp_path / "run.ckpt"
    with pytest.raises(Killed):
        minimize(problem, Mortal(stop), max_iter=2000, checkpoint=path, checkpoint_seconds=0, **options)
    assert path.exists()
    same_bits(minimize(problem, SDCA(), max_iter=2000, checkpoint=path, **options), whole)
    # From the end, which is kept too, no epoch is run.
    same_bits(minimize(problem, Mortal(0), max_iter=2000, checkpoint=path, **options), whole)


@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("solver", [SDCA(), AcceleratedSDCA(), ActiveSetSDCA()], ids=lambda solver: solver.name)
@pytest.mark.parametrize("intercept", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("check_every", [None, 4])
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, solver, view, intercept, check_every, stop):
    data = make_data("class", n=80, K=12, seed=9)
    problem = make_problem(CrammerSingerLoss(1.0), data, view=view, intercept=intercept)
    options = {"tol": 0.0, "seed": 6, "check_every": check_every}
    path = tmp_path / "run.ckpt"
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        whole = minimize(problem, solver, max_iter=11, **options)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        part = minimize(problem, solver, max_iter=stop, checkpoint=path, **options)
    assert part.n_iter == part.history.last.iteration == stop
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        rest = minimize(problem, solver, max_iter=11, checkpoint=path, **options)
    same_bits(rest, whole)
    assert rest.history.last.seconds >= part.history[0].seconds


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    data = make_data("class", weighted=True, seed=10)
    problem = make_problem(CrammerSingerLoss(1.0), data)

    def run(problem, solver=None, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return minimize(problem, solver or SDCA(), max_iter=2, tol=0.0, checkpoint=path, **options)

    run(problem)
    kept = path.read_bytes()
    swapped = data.T.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    others = {
        "lam": make_problem(CrammerSingerLoss(1.0), data, lam=0.1),
        "gamma": make_problem(CrammerSingerLoss(0.5), data),
        "loss": make_problem(MultinomialLoss(), data),
        "penalty": make_problem(CrammerSingerLoss(1.0), data, reg=ElasticNet(0.1)),
        "intercept": make_problem(CrammerSingerLoss(1.0), data, intercept=True),
        "rows": make_problem(CrammerSingerLoss(1.0), data._replace(X=data.X * 1.001)),
        "targets": make_problem(CrammerSingerLoss(1.0), data._replace(T=swapped)),
        "weights": make_problem(CrammerSingerLoss(1.0), data._replace(weights=None)),
        "shape": make_problem(CrammerSingerLoss(1.0), make_data("class", n=61, weighted=True, seed=10)),
    }
    for other in others.values():
        with pytest.raises(ValueError, match="belongs to another run"):
            run(other)
    with pytest.raises(ValueError, match="belongs to another run"):
        run(problem, seed=1)
    for solver in (ActiveSetSDCA(), SDCA(option="II"), SDCA(sampling="uniform")):
        with pytest.raises(ValueError, match="belongs to another run"):
            run(problem, solver)
    assert path.read_bytes() == kept
    run(problem)


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_a_checkpoint_cut_short_is_refused(tmp_path, cut):
    path = tmp_path / "run.ckpt"
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning):
        minimize(problem, SDCA(), max_iter=1, tol=0.0, checkpoint=path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"checkpoint .*run\.ckpt cannot be read"):
        minimize(problem, SDCA(), checkpoint=path)


def test_a_checkpoint_leaves_nothing_else_in_its_folder(tmp_path):
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning):
        minimize(problem, SDCA(), max_iter=3, tol=0.0, checkpoint=tmp_path / "run.ckpt", checkpoint_seconds=0)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("stop", [0, 5])
def test_an_interrupt_returns_what_was_reached_certified(tmp_path, intercept, stop):
    case, data = LOSSES["smooth_hinge-0.5"], make_data("sign", seed=11)
    problem = make_problem(case.loss, data, intercept=intercept)
    path = tmp_path / "run.ckpt"
    with pytest.warns(ConvergenceWarning, match=rf"interrupted.*after {stop} iterations.*tol is 1e-10"):
        result = minimize(problem, Mortal(stop, KeyboardInterrupt), tol=1e-10, checkpoint=path)
    assert result.outcome is Outcome.INTERRUPTED
    assert result.history.outcome == "interrupted"
    assert result.n_iter == stop
    recomputed = objective(case.formula, data, L2(), 0.05, result.weights, result.intercept)
    assert result.certificate.primal == pytest.approx(recomputed, rel=1e-13)
    best = minimize(problem, SDCA(), tol=1e-10, max_iter=5000).certificate
    assert result.certificate.gap >= recomputed - best.primal
    assert result.certificate.dual <= best.primal
    # From the checkpoint the run goes on to the same optimum.
    again = minimize(problem, SDCA(), tol=1e-10, max_iter=5000, checkpoint=path)
    assert again.certificate.primal == pytest.approx(best.primal, rel=1e-9)
    assert again.history[0].iteration <= stop < again.n_iter


def test_a_finished_run_is_returned_at_once_or_gone_on_with(tmp_path):
    path = tmp_path / "run.ckpt"
    problem = make_problem(MultinomialLoss(), make_data("class", seed=8), intercept=True)
    first = minimize(problem, SDCA(), tol=1e-3, max_iter=1000, checkpoint=path)
    kept = path.read_bytes()
    again = minimize(problem, Mortal(0), tol=1e-3, max_iter=1000, checkpoint=path)
    same_bits(first, again)
    assert again.outcome is Outcome.CONVERGED
    assert again.history.outcome == "converged"
    assert path.read_bytes() == kept
    same_bits(first, minimize(problem, Mortal(0), tol=1e-2, max_iter=1, checkpoint=path))
    # What is asked for beyond it is done.
    further = minimize(problem, SDCA(), tol=1e-6, max_iter=1000, checkpoint=path)
    assert further.certificate.relative_gap <= 1e-6
    assert further.n_iter > first.n_iter
    remove(path)
    assert not path.exists()


def test_the_end_of_what_the_arithmetic_can_tell_is_kept_as_an_end(tmp_path):
    path = tmp_path / "run.ckpt"
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning, match="limit of the floating-point precision"):
        first = minimize(problem, LBFGS(), tol=0.0, max_iter=1000, checkpoint=path)
    with pytest.warns(ConvergenceWarning, match="limit of the floating-point precision"):
        again = minimize(problem, LBFGS(), tol=0.0, max_iter=1000, checkpoint=path)
    assert first.n_iter == again.n_iter < 1000
    assert first.history.last.seconds == again.history.last.seconds


def test_iterations_before_a_resumption_count_and_those_before_a_warm_start_do_not(tmp_path):
    path = tmp_path / "run.ckpt"
    problem = make_problem(MultinomialLoss(), make_data("class", seed=8))
    options = {"tol": 0.0, "warn": False}
    assert minimize(problem, SDCA(), max_iter=3, checkpoint=path, **options).n_iter == 3
    part = minimize(problem, SDCA(), max_iter=5, checkpoint=path, **options)
    assert part.n_iter == 5
    same_bits(minimize(problem, SDCA(), max_iter=5, checkpoint=path, **options), part)
    assert minimize(problem, SDCA(), max_iter=2, checkpoint=path, **options).n_iter == 5
    assert minimize(problem, SDCA(), max_iter=5, state=part.state, **options).n_iter == 10


@pytest.mark.parametrize("solver", ["sdca", "ds_mlr"])
def test_two_fits_at_a_time_with_one_checkpoint_are_refused(tmp_path, solver):
    pytest.importorskip("fcntl")
    data = make_data("class", n=60, d=5, K=3, seed=0)
    path, refusals = tmp_path / "state", []
    (tmp_path / ".state.lock").touch()  # left by a process that was killed

    def fit(callback=None):
        model = LinearClassifier(solver=solver, alpha=0.1, random_state=0, tol=1e-8, max_iter=200)
        return model.fit(data.X, data.T, checkpoint=path, checkpoint_seconds=0.0, callback=callback)

    def begin_another(_):
        with pytest.raises(ValueError, match=r"state is in use by another fit: wait until that has ended, or give"):
            fit()
        refusals.append(1)
        return len(refusals) == 3

    fit(begin_another)
    assert len(refusals) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert fit().n_iter_ > 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]

"""Held-out rows, early stopping and callbacks of fits on several processes: all go on, or all stop."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_digits

from manyclass import DSMLR, LinearClassifier
from manyclass.distributed import AbortedError, run_threads
from manyclass.estimators.ranks import mean_beside_all
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.optimize import validation
from manyclass.solvers import LogConcavity
from manyclass.solvers.ds_mlr.data_parallel import DataParallelLBFGS
from test_cli_support import make
from test_communicators import launch

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ALPHA = 1e-6
SOLVERS = {
    "ds_mlr": lambda comm: DSMLR(comm=comm, block_classes=3),
    "ds_mlr, workers": lambda comm: DSMLR(comm=comm, n_workers=2, schedule="ring"),
    "log_concavity": lambda comm: LogConcavity(comm=comm, inner=3),
}


@pytest.fixture(scope="module")
def noisy():
    """Classes of which the optimum at a weak penalty is much worse than an early iterate."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    y = np.where(rng.random(len(y)) < 0.4, rng.integers(10, size=len(y)), y)
    return X[:400] / 16, y[:400], X[400:700] / 16, y[400:700]


def part(comm, n):
    return slice(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)


def fit(noisy, comm, name, *, max_iter=12, early_stopping=False, **watched):
    """Fit the rows of this process (all, for a solver that does not divide them)."""
    solver, (X, y, *_) = SOLVERS[name](comm), noisy
    rows = part(comm, len(y)) if solver.partitions_rows else slice(None)
    model = LinearClassifier(
        solver=solver, alpha=ALPHA, tol=0.0, max_iter=max_iter, early_stopping=early_stopping, random_state=0
    )
    return model.fit(X[rows], y[rows], **watched)


def whole(model):
    found = model.model_
    found = found.assemble() if hasattr(found, "assemble") else found
    return found.weights, found.intercept


def objective(X, y, W, b, weights=None):
    S = X @ W + b
    losses = logsumexp(S, axis=1) - S[np.arange(len(y)), y]
    return np.average(losses, weights=weights) + ALPHA / 2 * np.sum(W**2)


@pytest.mark.parametrize("name", SOLVERS)
def test_watching_does_not_change_a_bit_and_scores_are_those_of_all_processes(noisy, name):
    X_val, y_val = noisy[2:]
    told = []

    def watched(comm):
        def each(now):  # of the second process alone
            told.append((now.iteration, now.max_iter, now.validation, now.finished, now.weights()[0].shape))

        # Each has its own held-out rows; those of the first are sparse, the third process has none.
        rows = slice(comm.rank, None, 2)
        mine = sp.csr_matrix(X_val[rows]) if comm.rank == 0 else X_val[rows]
        held = {"X_val": mine, "y_val": y_val[rows]} if comm.rank < 2 else {}
        model = fit(noisy, comm, name, callback=each if comm.rank == 1 else None, **held)
        return *whole(model), model.history_

    plain = run_threads(3, lambda comm: whole(fit(noisy, comm, name)), timeout=60)
    found = run_threads(3, watched, timeout=60)
    for (W, b, history), (expected, intercept) in zip(found, plain):
        np.testing.assert_array_equal(W, expected)
        np.testing.assert_array_equal(b, intercept)
        assert [score.iteration for score in history.validation] == [*range(1, 13)]
        assert [score[::2] for score in history.validation] == [score[::2] for score in found[0][2].validation]
        assert history.validation[-1].score == pytest.approx(np.mean(np.argmax(X_val @ W + b, axis=1) == y_val))
    scores = [score.score for score in found[0][2].validation]
    shape = (64, 10)
    assert told[:-1] == [(k, 12, scores[k - 1], False, shape) for k in range(1, 12)]
    assert told[-1][:2] == (12, 12)
    assert told[-1][3]


@pytest.mark.parametrize("name", SOLVERS)
def test_patience_ends_all_processes_with_the_best_weights_and_their_objective(noisy, name):
    X, y, X_val, y_val = noisy

    def early(comm):
        held = {"X_val": X_val, "y_val": y_val} if comm.rank == 0 else {}
        model = fit(noisy, comm, name, max_iter=200, early_stopping=2, **held)
        return model, whole(model)

    for model, (W, b) in run_threads(2, early, timeout=60):
        assert model.history_.outcome == "patience"
        best = model.history_.best
        assert model.n_iter_ == best.iteration + 2
        assert np.mean(np.argmax(X_val @ W + b, axis=1) == y_val) == pytest.approx(best.score)
        assert model.objective_ == pytest.approx(objective(X, y, W, b), rel=1e-6)
    short = run_threads(2, lambda comm: whole(fit(noisy, comm, name, max_iter=best.iteration)), timeout=60)
    np.testing.assert_array_equal(W, short[0][0])


@pytest.mark.parametrize("name", ["ds_mlr", "log_concavity"])
def test_a_held_out_tenth_is_left_out_of_the_fit(noisy, name, monkeypatch):
    """By the weights of the rows, which are larger in one process than in another."""
    X, y, *_ = noisy
    drawn, c = {}, np.random.default_rng(0).random(len(y)) + 0.1
    c[200:] *= 5

    def early(comm):
        rows = part(comm, len(y)) if name == "ds_mlr" else slice(None)
        model = fit(noisy, comm, name, max_iter=200, early_stopping=2, sample_weight=c[rows])
        return model, whole(model)

    def spied(targets, weights, rng, fraction, wanted_by, comm=None):
        drawn[comm.rank] = genuine(targets, weights, rng, fraction, wanted_by, comm)
        return drawn[comm.rank]

    genuine = validation.held_out_rows
    monkeypatch.setattr("manyclass.estimators.watched.held_out_rows", spied)
    found = run_threads(2, early, timeout=60)
    out = np.zeros(len(y), bool)
    for rank, rows in drawn.items():
        out[200 * rank + rows if name == "ds_mlr" else rows] = True
    assert out.sum() == 40
    for model, (W, b) in found:
        assert model.history_.outcome == "patience"
        right = np.argmax(X[out] @ W + b, axis=1) == y[out]
        assert model.history_.best.score == pytest.approx(np.average(right, weights=c[out]))
        assert model.objective_ == pytest.approx(objective(X, y, W, b, np.where(out, 0.0, c)), rel=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_callback_of_one_process_ends_all(noisy, name, rank):
    def stopped(comm):
        model = fit(noisy, comm, name, callback=(lambda now: now.iteration == 3) if comm.rank == rank else None)
        return model.n_iter_, model.history_.outcome, model.duality_gap_, whole(model)

    def short(comm):
        model = fit(noisy, comm, name, max_iter=3)
        return model.n_iter_, "stopped", model.duality_gap_, whole(model)

    for found, expected in zip(run_threads(2, stopped, timeout=60), run_threads(2, short, timeout=60)):
        assert found[:3] == expected[:3]
        np.testing.assert_array_equal(found[3][0], expected[3][0])


@pytest.mark.parametrize("name", SOLVERS)
def test_an_error_in_the_callback_of_one_process_ends_all(noisy, name):
    ended = []

    def each(now):
        if now.iteration == 2:
            raise ArithmeticError("a bug in the callback")

    def failing(comm):
        try:
            fit(noisy, comm, name, callback=each if comm.rank == 0 else None)
        except AbortedError as error:
            ended.append(str(error))
            raise

    with pytest.raises(ArithmeticError, match="a bug in the callback"):
        run_threads(3, failing, timeout=60)
    assert len(ended) == 2
    assert all("gave up: ArithmeticError: a bug in the callback" in said for said in ended)


@pytest.mark.parametrize("name", SOLVERS)
def test_an_interrupt_in_a_callback_keeps_what_is_reached_in_all(noisy, name):
    def each(now):
        if now.iteration == 4:
            signal.raise_signal(signal.SIGINT)

    found = run_threads(2, lambda comm: fit(noisy, comm, name, callback=each if comm.rank == 0 else None), timeout=60)
    assert [(model.n_iter_, model.history_.outcome) for model in found] == [(4, "interrupted")] * 2


@pytest.mark.parametrize("name", SOLVERS)
def test_a_process_that_is_asked_to_stop_stops_all_after_the_iteration(noisy, name):
    """As the command line asks it after Ctrl-C."""

    def asked(comm):
        def each(now):
            comm.interrupted = now.iteration == 3

        model = fit(noisy, comm, name, callback=each if comm.rank == 1 else None)
        return model.n_iter_, model.history_.outcome

    assert run_threads(2, asked, timeout=60) == [(3, "interrupted")] * 2


def test_the_objective_of_weights_that_every_process_has(noisy):
    """Those of data-parallel L-BFGS, of which each process has some rows, with weights."""
    X, y, *_ = noisy
    W, b = np.random.default_rng(0).normal(size=(64, 10)), np.arange(10.0)
    c = np.random.default_rng(1).random(len(y))

    def value(comm):
        rows = slice(0, 100) if comm.rank == 0 else slice(100, None)
        solver = DataParallelLBFGS(comm=comm)
        solver.scale = mean_beside_all(comm, c[rows], len(y[rows]))
        targets = ClassTargets(y[rows].astype(np.int32), 10)
        options = {"lam": ALPHA, "n_features": 64, "sample_weight": c[rows], "intercept": True}
        problem = Problem(make_rows(X[rows]), targets, MultinomialLoss(), L2(), **options)
        return solver.prepare(problem).value(problem, W, b)

    one, other = run_threads(2, value, timeout=60)
    assert one == other == pytest.approx(objective(X, y, W, b, c), rel=1e-12)


def test_what_differs_between_processes_is_refused_in_all(noisy):
    def differing(comm):
        with pytest.raises(ValueError, match="early_stopping must be the same in every process, got "):
            fit(noisy, comm, "ds_mlr", early_stopping=3 + comm.rank)
        return True

    assert run_threads(2, differing, timeout=60) == [True, True]


def test_callbacks_of_scikit_learn_are_refused_in_all(noisy):
    X, y, *_ = noisy

    def asked(comm):
        model = LinearClassifier(solver=DSMLR(comm=comm))
        if comm.rank == 1:
            model._skl_callbacks = [print]
        with pytest.raises(ValueError, match="solver 'ds_mlr' on 2 processes does not support set_callbacks"):
            model.fit(X, y)
        return True

    assert run_threads(2, asked, timeout=60) == [True, True]


def test_processes_whose_rows_are_all_the_only_ones_of_their_class(noisy):
    """The others hold out rows; if none can, that is an error."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.r_[np.arange(10), np.arange(30) % 10]
    parts = slice(0, 10), slice(10, 40)

    def early(comm, parts):
        model = LinearClassifier(solver=DSMLR(comm=comm), alpha=1e-2, early_stopping=True, random_state=0)
        return model.fit(X[parts[comm.rank]], y[parts[comm.rank]]).history_.validation

    one, other = run_threads(2, lambda comm: early(comm, parts), timeout=60)
    assert one
    assert [found.score for found in one] == [found.score for found in other]
    assert {round(3 * found.score, 9) % 1 for found in one} == {0}, "3 of the 30 rows of the second process"
    with pytest.raises(ValueError, match="early_stopping=True needs rows to hold out, got 0 rows"):
        run_threads(2, lambda comm: early(comm, (slice(0, 10), slice(10, 20))), timeout=60)


# --- MPI --------------------------------------------------------------------------------------------------------------

_PROGRAM = """
import sys
import numpy as np
from sklearn.datasets import load_digits
from manyclass import DSMLR, LinearClassifier
from manyclass.distributed.mpi import MPICommunicator

X, y = load_digits(return_X_y=True)
how = sys.argv[1]
with MPICommunicator() as comm:
    def each(now):
        if now.iteration == 3 and how == "raises":
            raise ArithmeticError("a bug in the callback")
        return now.iteration == 3

    rows, held = slice(comm.rank, 600, comm.size), {}
    if comm.rank == 0:
        held = {"X_val": X[600:800] / 16, "y_val": y[600:800], "callback": each}
    model = LinearClassifier(solver=DSMLR(comm=comm), alpha=1e-4, tol=0.0)
    model.fit(X[rows] / 16, y[rows], **held)
    scores = [round(found.score, 4) for found in model.history_.validation]
    # In one piece: the processes share the output.
    sys.stdout.write(f"{model.history_.outcome} {model.n_iter_} {scores}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("how", ["stops", "raises"])
def test_mpi_ends_all_processes_with_the_callback_of_the_first(how, tmp_path):
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = launch(2, str(tmp_path / "program.py"), how)
    if how == "stops":
        assert done.returncode == 0, done.stderr
        one, other = done.stdout.splitlines()
        assert one == other
        assert one.startswith("stopped 3 [0.")
    else:
        assert done.returncode != 0
        said = [line for line in done.stderr.splitlines() if line.startswith("manyclass: error: rank 0 of 2")]
        assert len(said) == 1, done.stderr
        assert said[0].endswith("gave up: ArithmeticError: a bug in the callback")


@pytest.mark.parametrize("valid", [True, False])
def test_a_command_on_several_processes_stops_early(tmp_path, valid):
    path = make("svm", tmp_path)
    words = ["fit", str(path), "-o", str(tmp_path / "m"), "--solver", "ds_mlr", "--alpha", "1e-6", "--tol", "1e-9"]
    words += ["--valid", str(path)] if valid else []
    done = launch(2, "-m", "manyclass", *words, "--early-stopping", "2")
    assert done.returncode == 0, done.stderr
    assert "best held-out score" in done.stdout


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (1, 2), (3, 1), (1, 1)])
def test_a_resumed_fit_ends_by_the_scores_from_before(noisy, tmp_path, before, after):
    """On the same number of processes with the same bits."""
    held = {"X_val": noisy[2], "y_val": noisy[3]}

    def run(comm, stop=None, path=None, **options):
        given = held if comm.rank == 0 else {}
        callback = None if stop is None else lambda now: now.iteration == stop
        options = {"max_iter": 200, "early_stopping": 6, "checkpoint": path, "callback": callback, **options}
        model = fit(noisy, comm, "ds_mlr", **options, **given)
        return model.history_, model.n_iter_, model.duality_gap_, whole(model)

    history, n_iter, gap, (W, b) = run_threads(before, run, timeout=60)[0]
    assert history.outcome == "patience"
    stop, path = n_iter - 2, tmp_path / "state"  # after the best iteration
    assert stop > history.best.iteration
    run_threads(before, lambda comm: run(comm, stop, path), timeout=60)
    for _ in range(2):  # the second time the fit is finished
        for again, n, reached, (weights, intercept) in run_threads(
            after, lambda comm: run(comm, None, path), timeout=60
        ):
            assert (again.outcome, n, again.best.iteration) == ("patience", n_iter, history.best.iteration)
            assert [row[::2] for row in again.validation][:stop] == [row[::2] for row in history.validation][:stop]
            np.testing.assert_array_equal(weights, W)  # of the iteration before the fit was resumed
            np.testing.assert_array_equal(intercept, b)
            assert reached == (gap if before == after else pytest.approx(gap, rel=1e-3))


def test_rows_that_were_held_out_on_another_number_of_processes_are_no_others(noisy, tmp_path):
    path, kept = tmp_path / "state", {"early_stopping": 50, "max_iter": 2, "checkpoint": tmp_path / "state"}
    run_threads(2, lambda comm: fit(noisy, comm, "ds_mlr", **kept), timeout=60)
    assert path.is_dir()
    with pytest.raises(ValueError, match=r"belongs to another run .*left out"):
        run_threads(3, lambda comm: fit(noisy, comm, "ds_mlr", **kept), timeout=60)

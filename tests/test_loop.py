"""The fitting loop: how a run ends, what it says, solvers without a certificate, what is refused."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from helpers import make_data, make_problem
from manyclass import LinearClassifier
from manyclass.objective.losses import MultinomialLoss, SquaredLoss
from manyclass.objective.penalties import ElasticNet
from manyclass.objective.problem import Certificate
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import LBFGS, SDCA, ActiveSetSDCA, Progress, Solver

NET = ElasticNet(0.25)


def test_too_few_iterations_warn_with_their_number_and_the_gap():
    problem = make_problem(MultinomialLoss(), make_data("class"))
    with pytest.warns(ConvergenceWarning) as caught:
        result = minimize(problem, SDCA(), tol=1e-12, max_iter=3)
    assert result.outcome is Outcome.MAX_ITER
    assert result.n_iter == 3
    text = str(caught[0].message)
    for part in ("max_iter", "after 3 iterations", f"{result.certificate.relative_gap:.2e}", "tol is 1e-12"):
        assert part in text


def test_float32_that_cannot_certify_the_tolerance_says_so():
    problem = make_problem(SquaredLoss(), make_data("real", dtype=np.float32), reg=NET, dtype=np.float32)
    with pytest.warns(ConvergenceWarning, match="float32 arithmetic certifies gaps down to .*float64"):
        minimize(problem, SDCA(), tol=1e-12, max_iter=3)


class Scripted(SDCA):
    """A solver whose certificates are given beforehand, one for each iteration."""

    def __init__(self, *gaps):
        self.gaps = gaps
        self.asked = []

    def prepare(self, problem):
        return self

    def get_params(self, deep=True):
        return {"gaps": self.gaps}

    def iterate(self, problem, state, seed):
        while True:
            state["iteration"] = state["iteration"] + 1
            yield Progress(int(state["iteration"]), float(state["iteration"]))

    def certificate(self, problem, state, *, final):
        self.asked.append((int(state["iteration"]), final))
        return Certificate(1.0, 1.0 - self.gaps[min(int(state["iteration"]), len(self.gaps)) - 1])


def test_an_objective_that_is_not_finite_ends_the_run(tmp_path):
    problem = make_problem(SquaredLoss(), make_data("real"))
    solver = Scripted(0.5)
    solver.certificate = lambda *_, **__: Certificate(float("nan"), 0.0)
    with pytest.warns(ConvergenceWarning, match="the objective is not finite"):
        result = minimize(problem, solver, checkpoint=tmp_path / "run.ckpt")
    assert result.outcome is Outcome.DIVERGED
    assert result.n_iter == 2
    assert not (tmp_path / "run.ckpt").exists(), "nothing worth keeping"


def test_convergence_is_declared_on_a_final_certificate_only():
    problem = make_problem(SquaredLoss(), make_data("real"))
    solver = Scripted(0.5, 1e-9)
    result = minimize(problem, solver, tol=1e-3)
    assert result.outcome is Outcome.CONVERGED
    assert solver.asked == [(2, False), (2, True)]


def test_where_the_goal_is_in_sight_one_certificate_is_enough():
    solver = Scripted(0.1, 0.009, 0.9e-3)
    result = minimize(make_problem(SquaredLoss(), make_data("real")), solver, tol=1e-3)
    assert result.outcome is Outcome.CONVERGED
    assert solver.asked == [(2, False), (3, True)]
    # Misjudged: the run goes on.
    solver = Scripted(0.1, 0.009, 2e-3, 1e-4)
    assert minimize(make_problem(SquaredLoss(), make_data("real")), solver, tol=1e-3).n_iter == 4
    assert solver.asked == [(2, False), (3, True), (4, True)]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_check_every_certifies_at_its_multiples_and_at_the_end(every):
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.warns(ConvergenceWarning):
        history = minimize(problem, SDCA(), tol=0.0, max_iter=12, check_every=every).history
    expected = sorted({*range(every, 13, every), 12})
    assert [record.iteration for record in history] == expected


def test_certificates_are_few_and_none_is_far_behind_the_goal():
    """The gap halves every iteration: the trend is seen, and tol overshot by little."""
    problem = make_problem(SquaredLoss(), make_data("real"))
    gaps = [0.97**k for k in range(1, 1000)]
    solver = Scripted(*gaps)
    result = minimize(problem, solver, tol=1e-3, max_iter=1000)
    needed = next(k for k, gap in enumerate(gaps, 1) if gap <= 1e-3)
    assert needed <= result.n_iter <= needed + 3
    assert len(result.history) <= 20


def test_a_run_can_start_where_another_ended():
    problem = make_problem(MultinomialLoss(), make_data("class", seed=12), intercept=True)
    first = minimize(problem, SDCA(), tol=1e-3)
    second = minimize(problem, SDCA(), tol=1e-6, max_iter=1000, state=first.state)
    afresh = minimize(problem, SDCA(), tol=1e-6, max_iter=1000)
    assert second.n_iter > first.n_iter
    assert second.n_iter - first.n_iter < afresh.n_iter
    assert second.certificate.primal == pytest.approx(afresh.certificate.primal, rel=2e-6)


# --- advice -----------------------------------------------------------------------------------------------------------


def told(X, y, **options):
    """The warning of a fit that ends too early."""
    with pytest.warns(ConvergenceWarning) as caught:
        LinearClassifier(max_iter=3, tol=1e-9, random_state=0, **options).fit(X, y)
    (warning,) = caught
    return str(warning.message)


@pytest.mark.parametrize("solver", ["auto", "sdca", "lbfgs"])
def test_rows_of_an_odd_size_are_told(solver):
    X, y = load_digits(return_X_y=True)
    size = (X**2).sum(1).mean()
    assert "the squared norms of the rows are about" not in told(X / 16, y, solver=solver)
    assert "scale the features" not in told(X, y, solver=solver)
    # With the default alpha a fit of tiny rows is at its optimum at once: the intercept alone.
    for factor, alpha in ((1e4, None), (1e-6, 1e-15)):
        said = told(X * factor, y, solver=solver, alpha=alpha)
        assert f"the squared norms of the rows are about {size * factor**2:.1e}: scale the features" in said
        assert "StandardScaler" in said
        assert "raise max_iter" in said


def test_the_size_of_the_rows_is_told_before_the_first_iteration(capsys):
    X, y = load_digits(return_X_y=True)
    for factor in (1, 1e4):
        told(X * factor, y, verbose=1)
        first, *_ = capsys.readouterr().err.splitlines()
        assert first.startswith("the squared norms of the rows are about") == (factor == 1e4)


def test_a_feature_of_an_odd_size_is_told():
    """Where the rows are as large as they should be."""
    data = make_data("class", n=200, d=20, seed=21, density=1.0)
    X = data.X / 1e5
    X[:, 7] *= 1e6
    for form in (np.asarray, sp.csr_matrix):
        said = told(form(X), data.T)
        assert "feature 7 is " in said
        times = float(said.split("feature 7 is ")[1].split()[0])
        assert 3e5 < times < 3e6
        assert "times as large as most: scale the features" in said
    X[:, 7] /= 1e5
    assert "feature" not in told(X * 1e4, data.T)


def test_advice_on_the_scale_gives_way_to_that_on_the_precision():
    X, y = load_digits(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="float32 arithmetic certifies gaps down to") as caught:
        LinearClassifier(max_iter=3, tol=1e-12, dtype=np.float32).fit(X * 1e4, y)
    assert "scale the features" not in str(caught[0].message)


# --- a solver without a certificate -----------------------------------------------------------------------------------


class Uncertified(Solver):
    """One weight that counts the iterations; reports ``losses``, one for each."""

    name = "uncertified"
    needs_loss = needs_penalty = frozenset()
    certified = False
    default_max_iter = 4

    def __init__(self, *, losses=(3.0, 2.0, 1.0), fails=None):
        self.losses = losses
        self.fails = fails

    def state(self, problem):
        return {"iteration": np.zeros((), np.int64), "W": np.zeros((problem.n_features, problem.n_outputs))}

    def nbytes(self, problem):
        return {"weights": 8 * problem.n_features * problem.n_outputs}

    def iterate(self, problem, state, seed) -> Iterator[Progress]:
        while True:
            if int(state["iteration"]) == self.fails:
                raise KeyboardInterrupt
            state["iteration"] = state["iteration"] + 1
            state["W"][:] = state["iteration"]
            yield Progress(int(state["iteration"]), float(state["iteration"]))

    def report(self, problem, state):
        iteration = int(state["iteration"])
        loss = self.losses[min(iteration, len(self.losses)) - 1]
        return {"loss": loss, "nonzeros": 12.0 * iteration}

    def weights(self, problem, state):
        return state["W"], np.zeros(problem.n_outputs)


@pytest.fixture
def small():
    return make_problem(MultinomialLoss(), make_data("class"))


def test_without_a_certificate_every_iteration_is_run_and_reported(small):
    """``tol`` and ``check_every`` mean nothing, and an end at max_iter is no news."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = minimize(small, Uncertified(), tol=1e9, check_every=3)
    assert result.outcome is Outcome.MAX_ITER
    assert result.history.outcome == "max_iter"
    assert result.n_iter == 4
    assert result.history.column("iteration") == [1, 2, 3, 4]
    assert [record.info["loss"] for record in result.history] == [3.0, 2.0, 1.0, 1.0]
    np.testing.assert_array_equal(result.weights, 4.0)
    for number in (result.certificate.primal, result.certificate.dual, result.certificate.relative_gap):
        assert math.isnan(number)
    assert minimize(small, Uncertified(), max_iter=2).n_iter == 2


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_report_that_is_not_finite_ends_the_run(small, number):
    with pytest.warns(ConvergenceWarning, match=r"the fit diverged.* \(after 2 epochs\)"):
        result = minimize(small, Uncertified(losses=(3.0, number)), max_iter=50)
    assert result.outcome is Outcome.DIVERGED
    assert result.history.outcome == "diverged"
    assert result.n_iter == 2


def test_an_interrupt_without_a_certificate_returns_what_was_reached(small, tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.warns(ConvergenceWarning, match=r"interrupted.* \(after 2 epochs\)"):
        result = minimize(small, Uncertified(fails=2), checkpoint=path)
    assert result.outcome is Outcome.INTERRUPTED
    assert result.history.outcome == "interrupted"
    assert result.n_iter == 2
    np.testing.assert_array_equal(result.weights, 2.0)
    assert path.exists()


def test_reports_are_kept_by_checkpoints(small, tmp_path):
    path = tmp_path / "run.ckpt"
    whole = minimize(small, Uncertified())
    minimize(small, Uncertified(), max_iter=1, checkpoint=path)
    rest = minimize(small, Uncertified(), checkpoint=path)
    assert [record.info for record in rest.history] == [record.info for record in whole.history]
    np.testing.assert_array_equal(rest.weights, whole.weights)


def test_reports_are_written_and_shown(small, tmp_path, capsys):
    result = minimize(small, Uncertified(), verbose=1)
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 4
    assert all("loss" in line and "nonzeros" in line for line in shown)
    result.history.to_csv(tmp_path / "history.csv")
    with (tmp_path / "history.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [float(row["loss"]) for row in rows] == [3.0, 2.0, 1.0, 1.0]
    assert [row["iteration"] for row in rows] == ["1", "2", "3", "4"]
    assert {row["relative_gap"] for row in rows} == {""}
    found = json.loads(json.dumps(result.history.to_dict()))
    assert found["outcome"] == "max_iter"
    assert found["records"][1]["loss"] == 2.0
    assert found["records"][1]["primal"] is None
    assert "nonzeros 24" in result.history.table()


def test_the_history_of_a_certified_run_as_a_table(tmp_path):
    history = minimize(make_problem(MultinomialLoss(), make_data("class")), SDCA(), check_every=1).history
    history.to_csv(tmp_path / "history.csv")
    with (tmp_path / "history.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    names = ["iteration", "passes", "primal", "dual", "gap", "relative_gap", "seconds", "elapsed"]
    assert list(rows[0]) == names
    for row, record in zip(rows, history, strict=True):
        assert [float(row[name]) for name in names] == list(record.numbers())


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_solver_that_does_not_fit_is_refused_by_name():
    problem = make_problem(MultinomialLoss(), make_data("class"))
    message = "solver 'sdca_active' needs a loss with a sparse dual, and 'multinomial' has none: .*or another loss"
    with pytest.raises(ValueError, match=message):
        minimize(problem, ActiveSetSDCA())

    class Demanding(SDCA):
        name = "demanding"
        needs_penalty = frozenset({"sorted_prox"})

    message = "solver 'demanding' needs a penalty with a sorted prox, and 'l2' has none: .*or another penalty"
    with pytest.raises(ValueError, match=message):
        Demanding().prepare(problem)
    SDCA().prepare(problem)


@pytest.mark.parametrize("option", ["max_iter", "check_every"])
def test_numbers_of_iterations_below_one_are_refused(option):
    problem = make_problem(SquaredLoss(), make_data("real"))
    with pytest.raises(ValueError, match=f"{option} must be an integer of at least 1, got 0"):
        minimize(problem, SDCA(), **{option: 0})


def test_a_history_of_nothing_is_refused():
    with pytest.raises(
        ValueError, match=r"The 'history_size' parameter of LBFGS must be an int in the range \[1, inf\)"
    ):
        minimize(make_problem(MultinomialLoss(), make_data("class")), LBFGS(history_size=0))

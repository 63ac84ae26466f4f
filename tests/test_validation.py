"""Held-out rows, early stopping and callbacks: in the fitting loop, of the estimators, and scikit-learn's protocol."""

from __future__ import annotations

import io
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, f1_score

from manyclass import LinearClassifier, LinearRegressor
from manyclass.datasets import make_many_classes
from manyclass.objective.history import Record, Reporter
from manyclass.optimize.loop import Outcome, minimize
from manyclass.optimize.validation import Judge, Validation
from manyclass.solvers import SDCA
from registry import SOLVERS, problem_for

HELD = np.arange(0, 60, 3)


def quietly(problem, solver, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return minimize(problem, solver, **options)


def dense(W):
    return W.toarray() if sp.issparse(W) else W


@pytest.fixture(scope="module")
def noisy():
    """Classes of which the optimum at a weak penalty is much worse than an early iterate."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    y = np.where(rng.random(len(y)) < 0.4, rng.integers(10, size=len(y)), y)
    return X[:500] / 16, y[:500], X[500:900] / 16, y[500:900]


# --- every solver -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_watching_a_solver_does_not_change_a_bit(name):
    solver = SOLVERS[name]
    _, _, problem = problem_for(solver)
    seen = []
    # Without a certificate the best weights are kept whatever ends a fit with patience.
    patience = 100 if solver.certified else None
    plain, watched = (
        quietly(problem, solver, tol=1e-4, max_iter=5, seed=1, **more)
        for more in (
            {},
            {"validation": Validation(Judge.of(problem, HELD), patience), "callback": lambda now: seen.append(now)},
        )
    )
    if solver.reproducible:
        np.testing.assert_array_equal(dense(watched.weights), dense(plain.weights))
        np.testing.assert_array_equal(watched.intercept, plain.intercept)
        assert [r.iteration for r in watched.history] == [r.iteration for r in plain.history]
    iterations = list(range(1, watched.n_iter + 1))
    assert [now.iteration for now in seen] == [score.iteration for score in watched.history.validation] == iterations
    # The last certificate, which the callback does not wait for, may change the intercept.
    assert [now.validation for now in seen[:-1]] == [score.score for score in watched.history.validation[:-1]]
    assert [now.finished for now in seen] == [False] * (len(seen) - 1) + [True]
    last = Judge.of(problem, HELD)(watched.weights, watched.intercept).score
    assert last == watched.history.validation[-1].score


@pytest.mark.parametrize("name", SOLVERS)
def test_patience_ends_every_solver_with_its_best_weights_and_a_true_gap(name):
    solver = SOLVERS[name]
    _, _, problem = problem_for(solver)
    judge = Judge.of(problem, HELD)
    kept = {}
    result = quietly(
        problem,
        solver,
        tol=0.0,
        max_iter=60,
        seed=1,
        validation=Validation(judge, 1),
        callback=lambda now: kept.setdefault(now.iteration, dense(now.weights()[0]).copy()) is None,
    )
    assert result.outcome is Outcome.PATIENCE
    best = result.history.best
    assert result.n_iter == best.iteration + 1
    assert best.score == max(found.score for found in result.history.validation)
    np.testing.assert_array_equal(dense(result.weights), kept[best.iteration])
    assert judge(result.weights, result.intercept).score == best.score
    if solver.certified:
        value = problem.value(dense(result.weights), result.intercept)
        assert result.certificate.primal == pytest.approx(value, rel=1e-12)
        optimum = minimize(problem, SDCA(), tol=1e-9, max_iter=50_000).certificate
        assert result.certificate.dual <= optimum.primal * (1 + 1e-12)
        assert result.certificate.gap >= value - optimum.primal - 1e-12


@pytest.mark.parametrize("name", SOLVERS)
def test_a_callback_ends_every_solver(name):
    solver = SOLVERS[name]
    _, _, problem = problem_for(solver)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # who ends a fit knows that it has ended
        found = minimize(problem, solver, tol=0.0, max_iter=9, seed=1, callback=lambda now: now.iteration == 2)
    assert (found.n_iter, found.outcome, found.history.outcome) == (2, Outcome.STOPPED, "stopped")
    short = quietly(problem, solver, tol=0.0, max_iter=2, seed=1)
    if solver.reproducible:
        np.testing.assert_array_equal(dense(found.weights), dense(short.weights))
    assert found.certificate.gap == short.certificate.gap or not solver.certified or not solver.reproducible


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_resumed_fit_ends_by_the_scores_from_before(tmp_path, noisy):
    X, y, X_val, y_val = noisy
    path = tmp_path / "run"
    model = LinearClassifier(alpha=1e-7, tol=1e-9, random_state=0, solver="lbfgs", early_stopping=4)
    whole = clone(model).fit(X, y, X_val=X_val, y_val=y_val)
    assert whole.history_.outcome == "patience"
    n = whole.n_iter_ - 2  # after the best iteration
    clone(model).fit(X, y, X_val=X_val, y_val=y_val, checkpoint=path, callback=lambda now: now.iteration == n)
    for again in (clone(model), clone(model)):  # the second finds a finished fit
        again.fit(X, y, X_val=X_val, y_val=y_val, checkpoint=path)
        np.testing.assert_array_equal(again.coef_, whole.coef_)
        assert again.n_iter_ == whole.n_iter_
        assert [s[::2] for s in again.history_.validation] == [s[::2] for s in whole.history_.validation]
        assert again.duality_gap_ == whole.duality_gap_


# --- estimators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_along_the_run_are_those_of_score(noisy, sparse):
    X, y, X_val, y_val = (sp.csr_matrix(part) if sparse and part.ndim == 2 else part for part in noisy)
    seen = {}

    def each(now):
        W, b = now.weights()
        seen[now.iteration] = np.mean(np.argmax(X_val @ W + b, axis=1) == y_val)

    model = LinearClassifier(random_state=0).fit(X, y, X_val=X_val, y_val=y_val, callback=each)
    assert {found.iteration: pytest.approx(found.score) for found in model.history_.validation} == seen
    assert model.history_.validation[-1].score == model.score(X_val, y_val)
    plain = LinearClassifier(random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert model.history_.outcome == "converged"


def test_early_stopping_keeps_the_best_model(noisy):
    X, y, X_val, y_val = noisy
    settings = {"alpha": 1e-7, "random_state": 0, "solver": "lbfgs", "max_iter": 300, "tol": 1e-6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        optimum = LinearClassifier(**settings).fit(X, y)
    with pytest.raises(ValueError, match="no held-out rows were scored: pass X_val and y_val to fit"):
        _ = optimum.history_.best
    early = LinearClassifier(early_stopping=10, **settings).fit(X, y, X_val=X_val, y_val=y_val)
    assert early.history_.outcome == "patience"
    assert early.score(X_val, y_val) == early.history_.best.score > optimum.score(X_val, y_val) + 0.05
    assert early.n_iter_ == early.history_.best.iteration + 10
    assert early.duality_gap_ > 1e-3, "the gap of the model that is returned"
    own = LinearClassifier(early_stopping=True, **settings).fit(X, y)
    assert own.history_.outcome == "patience"
    assert own.n_iter_ == own.history_.best.iteration + 5
    assert own.score(X_val, y_val) > optimum.score(X_val, y_val)


def test_a_held_out_tenth_is_left_out_of_the_fit_and_chosen_by_the_seed(noisy):
    X, y, *_ = noisy
    one, same, other = (
        LinearClassifier(alpha=1e-3, early_stopping=50, random_state=seed).fit(X, y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.coef_, same.coef_)
    assert one.history_.outcome == "converged"
    assert one.history_.validation != other.history_.validation
    # The objective is that of nine tenths: the fit without some rows, not the one on all rows.
    all_rows = LinearClassifier(alpha=1e-3, random_state=0).fit(X, y)
    assert abs(one.objective_ - all_rows.objective_) > 1e-3
    sizes = {round(found.score * 50, 6) % 1 for found in one.history_.validation}
    assert sizes == {0}, "50 of 500 rows"


def test_multilabel_binary_and_real_targets(noisy):
    X, y, X_val, y_val = noisy
    Y, Y_val = (np.eye(10, dtype=int)[part] | np.eye(10, dtype=int)[(part + 1) % 10] for part in (y, y_val))
    model = LinearClassifier("log_loss", random_state=0).fit(X, Y, X_val=X_val, y_val=Y_val)
    assert model.history_.validation[-1].score == pytest.approx(
        f1_score(Y_val, model.predict(X_val), average="micro", zero_division=0)
    )
    for solver in ("sdca", "sgd"):  # one column, and one for each class
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            two = LinearClassifier(random_state=0, solver=solver).fit(X, y > 4, X_val=X_val, y_val=y_val > 4)
        assert two.history_.validation[-1].score == accuracy_score(y_val > 4, two.predict(X_val))
    X, y = load_diabetes(return_X_y=True)
    for T in (y, np.c_[y, -y]):
        real = LinearRegressor(random_state=0).fit(X[:300], T[:300], X_val=X[300:], y_val=T[300:])
        errors = (real.predict(X[300:]) - T[300:]) ** 2
        assert real.history_.validation[-1].score == pytest.approx(-errors.mean())


def test_many_outputs_in_ranges(noisy):
    X, y = make_many_classes(900, 60, 150, random_state=0)
    settings = {"alpha": 1e-3, "random_state": 0, "fit_intercept": False, "tol": 0.1}
    plain = LinearClassifier("squared_hinge", **settings).fit(X[:500], y[:500])
    seen = []
    watched = LinearClassifier("squared_hinge", **settings).fit(
        X[:500], y[:500], X_val=X[500:], y_val=y[500:], callback=lambda now: seen.append((now.iteration, now.finished))
    )
    np.testing.assert_array_equal(watched.coef_, plain.coef_)
    assert seen == [(1, False), (2, False), (3, True)]
    assert [found.score for found in watched.history_.validation] == [watched.score(X[500:], y[500:])]
    first = LinearClassifier("squared_hinge", **settings).fit(X[:500], y[:500], callback=lambda now: True)
    assert first.history_.outcome == "stopped"
    assert np.any(first.coef_[:50])
    assert not np.any(first.coef_[-30:])
    early = LinearClassifier("squared_hinge", early_stopping=1, **settings)
    early.fit(X[:500], y[:500], X_val=X[500:], y_val=y[500:])
    assert len(early.history_.validation) > 1, "not in ranges: all classes are scored along the run"


def test_what_cannot_be_watched_is_refused_by_name(noisy):
    X, y, X_val, y_val = noisy
    fit = LinearClassifier().fit
    for wrong, message in (
        ({"X_val": X_val}, "X_val was given without y_val: pass both"),
        ({"y_val": y_val}, "y_val was given without X_val"),
        ({"X_val": X_val[:, :3], "y_val": y_val}, "X has 3 features, but LinearClassifier is expecting 64"),
        ({"X_val": X_val * np.nan, "y_val": y_val}, "Input X_val contains NaN"),
        ({"X_val": X_val, "y_val": y_val[:5]}, "inconsistent numbers of samples"),
        ({"X_val": X_val, "y_val": y_val.astype(str)}, "y_val has none of the classes of y, such as 0"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(X, y, **wrong)
    multi = LinearClassifier("log_loss")
    with pytest.raises(ValueError, match="y_val must be a multi-label indicator, as y, got labels"):
        multi.fit(X, np.eye(10)[y], X_val=X_val, y_val=y_val)
    with pytest.raises(ValueError, match="y_val must have 10 columns, as y, got 3"):
        multi.fit(X, np.eye(10)[y], X_val=X_val, y_val=np.eye(3)[y_val % 3])
    with pytest.raises(ValueError, match="y_val must have 1 targets for each row, as y, got 2"):
        LinearRegressor().fit(X, y, X_val=X_val, y_val=np.c_[y_val, y_val])
    for wrong in (0, -1, 2.5, "yes", None):
        with pytest.raises(ValueError, match="'early_stopping' parameter of LinearClassifier must be"):
            LinearClassifier(early_stopping=wrong).fit(X, y)
    assert not LinearClassifier(early_stopping=np.False_).fit(X, y).history_.validation
    with pytest.raises(ValueError, match="early_stopping=True needs rows to hold out, got 0 rows"):
        LinearClassifier(early_stopping=True).fit(X[:2], [0, 1])
    with pytest.raises(ValueError, match="early_stopping is not supported by partial_fit"):
        LinearClassifier(solver="sgd", early_stopping=True).partial_fit(X, y)


def test_a_label_that_the_fit_does_not_have_is_a_wrong_prediction(noisy):
    X, y, X_val, y_val = noisy
    model = LinearClassifier(random_state=0).fit(X, y, X_val=X_val, y_val=np.where(y_val == 3, 99, y_val))
    right = model.predict(X_val) == np.where(y_val == 3, 99, y_val)
    assert model.history_.validation[-1].score == right.mean()


# --- scikit-learn's callbacks -----------------------------------------------------------------------------------------

needs_callbacks = pytest.mark.skipif(find_spec("sklearn.callback") is None, reason="scikit-learn 1.9 has callbacks")


class Follower:
    """A callback by scikit-learn's protocol that notes what it is told."""

    def __init__(self, end=None):
        self.end, self.told, self.models = end, [], []

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.told.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.told.append(("end", context.task_name, context.task_id))
        self.models.append((fitted_estimator, fitted_estimator.score(X, y), metadata))
        return context.task_name == "iteration" and context.task_id == self.end


@needs_callbacks
def test_callbacks_by_the_protocol_of_scikit_learn(noisy):
    X, y, *_ = noisy
    plain = LinearClassifier(random_state=0).fit(X, y)
    follower = Follower()
    model = LinearClassifier(random_state=0).set_callbacks(follower).fit(X, y, sample_weight=np.ones(len(y)))
    n = model.n_iter_
    steps = [(word, "iteration", k) for k in range(n) for word in ("begin", "end")]
    assert follower.told == ["setup", ("begin", "fit", 0), *steps, ("end", "fit", 0), "teardown"]
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    for fitted, score, metadata in follower.models:
        assert fitted.score(X, y) == score, "a copy that later iterations do not change"
        assert (metadata["sample_weight"] == 1).all()
    assert follower.models[-1][1] == model.score(X, y)
    assert len({score for _, score, _ in follower.models}) > 1
    ended = Follower(end=1)
    stopped = LinearClassifier(random_state=0).set_callbacks(ended).fit(X, y)
    assert (stopped.n_iter_, stopped.history_.outcome) == (2, "stopped")
    assert ended.told[-3:] == [("end", "iteration", 1), ("end", "fit", 0), "teardown"]
    assert not hasattr(plain, "_skl_callbacks")


@needs_callbacks
def test_scikit_learns_own_callbacks_run(noisy):
    from sklearn.callback import ProgressBar, ScoringMonitor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y, *_ = noisy
    monitor = ScoringMonitor(scoring="accuracy")
    model = LinearClassifier(random_state=0).set_callbacks(monitor)
    piped = make_pipeline(StandardScaler(), model).set_callbacks(ProgressBar(max_propagation_depth=None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        piped.fit(X, y)
    scores = [row["accuracy"] for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(scores) == model.n_iter_
    assert scores[-1] == pytest.approx(piped.score(X, y))
    assert LinearRegressor().set_callbacks().fit(X, y).n_iter_ > 0
    columns = LinearClassifier("squared_hinge", alpha=1e-3, tol=0.1, fit_intercept=False).set_callbacks(ProgressBar())
    columns.fit(*make_many_classes(300, 60, 150, random_state=0))


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_history_shows_and_writes_the_scores(tmp_path, noisy, capsys):
    X, y, X_val, y_val = noisy
    model = LinearClassifier(random_state=0, verbose=1).fit(X, y, X_val=X_val, y_val=y_val)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].split()[-1] == "validation"
    assert lines == model.history_.table().splitlines()
    assert lines[-1].split()[-1] == f"{model.history_.validation[-1].score:.4f}"
    path = tmp_path / "history.csv"
    model.history_.to_csv(path)
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    at = header.index("validation")
    assert [float(row[at]) for row in rows] == [found.score for found in model.history_.validation]
    assert model.history_.to_dict()["validation"][-1]["iteration"] == model.n_iter_
    plain = LinearClassifier(random_state=0).fit(X, y).history_
    assert "validation" not in plain.to_dict()
    assert "validation" not in plain.table()


def records(n):
    return [Record(k, k, 1.0, 0.0, 0.1**k, 0.1**k, k, 2.0 * k) for k in range(1, n + 1)]


class Notebook(io.StringIO):
    """A stream as that of a notebook's kernel."""

    __module__ = "ipykernel.iostream"


def test_a_notebook_has_one_line_that_is_replaced():
    stream = Notebook()
    with Reporter(1, 1e-6, 100, stream) as reporter:
        for record in records(4):
            reporter.evaluated(record, 0.5)
    shown = [text.rstrip() for text in stream.getvalue().split("\r") if text.strip()]
    assert len(shown) == 4
    assert shown[0] == "epoch 1  objective 1  gap 1.0e-01 (to 1e-06)  validation 0.5000"
    # A factor of ten takes 2 s: two more.
    assert shown[-1] == "epoch 4  objective 1  gap 1.0e-04 (to 1e-06)  validation 0.5000  about 4 s left"
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_a_log_has_one_line_for_each_evaluation_and_no_control_characters():
    stream = io.StringIO()
    with Reporter(1, 1e-6, 100, stream) as reporter:
        for record in records(4):
            reporter.evaluated(record)
    assert len(stream.getvalue().splitlines()) == 5
    assert "\r" not in stream.getvalue()
    assert "left" not in stream.getvalue()


def test_the_time_left_ends_with_max_iter():
    stream = Notebook()
    with Reporter(1, 0.0, 100, stream) as reporter:
        for record in records(10):
            reporter.evaluated(record)
    assert "about 3 min 0 s left" in stream.getvalue()

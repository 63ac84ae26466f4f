"""LinearClassifier with `DSMLR`: the optimum of the others, two classes, weights, processes, refusals."""

from __future__ import annotations

import re
import threading
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import DSMLR, LinearClassifier, LogConcavity, load
from manyclass.distributed import SerialCommunicator, run_threads
from manyclass.estimators.ranks import all_classes

ALPHA = 1e-2
#: Parameters of the estimator; the others are the solver's.
_OWN = ("alpha", "class_weight", "fit_intercept", "max_iter", "random_state", "tol", "verbose", "warm_start")


def ds_mlr(**options):
    own = {name: options.pop(name) for name in _OWN if name in options}
    return LinearClassifier(solver=DSMLR(**options), **{"alpha": ALPHA, **own})


@parametrize_with_checks([ds_mlr(n_workers=2)])
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.mark.parametrize("options", [{}, {"schedule": "queue"}, {"keep_scores": False}])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_optimum_is_that_of_the_dual_method(options, sparse, tmp_path):
    X, y = iris()
    rows = sp.csr_matrix(X) if sparse else X
    model = ds_mlr(tol=1e-7, n_workers=2, random_state=0, **options).fit(rows, y)
    other = LinearClassifier(alpha=ALPHA, solver="sdca", tol=1e-7, max_iter=5000).fit(X, y)
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-6)
    assert model.duality_gap_ <= 1e-7
    np.testing.assert_allclose(model.predict_proba(rows), other.predict_proba(X), atol=2e-3)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(rows), model.predict(rows))


def test_two_classes_have_one_column():
    X, y = iris()
    X, y = X[:100], y[:100]
    model = ds_mlr(tol=1e-7, random_state=0).fit(X, y)
    other = LinearClassifier(alpha=ALPHA, solver="sdca", tol=1e-7, max_iter=5000).fit(X, y)
    assert model.coef_.shape == (1, 4)
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-3)


@pytest.mark.parametrize("intercept", [True, False])
def test_integer_weights_are_repeated_rows(intercept):
    X, y = iris()
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    options = {"alpha": ALPHA, "tol": 1e-8, "fit_intercept": intercept, "random_state": 0}
    one = ds_mlr(**options).fit(X, y, sample_weight=weights)
    two = ds_mlr(**options).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-7)
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-3)


@pytest.mark.parametrize("weighted", [None, "balanced", {"setosa": 3.0, "virginica": 0.5}])
def test_processes_with_rows_of_their_own_fit_one_model(weighted):
    """Labels that not all of them have; sample weights whose means differ."""
    X, y = iris()
    order = np.argsort(y, kind="stable")  # the first process has no virginica
    X, y = X[order], y[order]
    weights = np.linspace(0.5, 2.0, len(y))
    options = {"alpha": ALPHA, "class_weight": weighted, "block_classes": 1, "random_state": 0, "tol": 1e-5}
    whole = ds_mlr(**options).fit(X, y, weights)

    def fit(comm):
        mine = slice(50 * comm.rank, 50 * (comm.rank + 1))
        model = ds_mlr(comm=comm, **options).fit(X[mine], y[mine], weights[mine])
        return model, model.model_.assemble()

    for model, assembled in run_threads(3, fit, timeout=60):
        np.testing.assert_array_equal(model.classes_, whole.classes_)
        np.testing.assert_allclose(assembled.weights.T, whole.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=1e-6, atol=1e-9)
        assert model.n_iter_ == whole.n_iter_
        assert model.duality_gap_ == pytest.approx(whole.duality_gap_, rel=1e-6)


def test_a_solver_with_all_rows_in_every_process_counts_them_once():
    X, y = iris()

    def fit(comm):
        return LinearClassifier(solver=LogConcavity(comm=comm), tol=0.9, random_state=0).fit(X, y)

    alone, *together = [*run_threads(1, fit), *run_threads(2, fit, timeout=60)]
    for model in together:
        assert model.alpha_ == alone.alpha_ == 1 / len(y)
        np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("part", ["rows", "labels", "weights"])
def test_a_solver_with_all_rows_in_every_process_refuses_parts_of_them(part):
    X, y = iris()
    c = np.ones(len(y))
    moved = np.roll(np.arange(len(y)), 60)
    other = {"rows": (X[moved], y, c), "labels": (X, y[moved], c), "weights": (X, y, c + (np.arange(len(y)) < 9))}[part]

    def fit(comm):
        mine, labels, weights = other if comm.rank == 1 else (X, y, c)
        model = LinearClassifier(solver=LogConcavity(comm=comm), tol=0.9, random_state=0)
        with pytest.raises(ValueError, match="'log_concavity' needs all rows in every process, got other rows"):
            model.fit(mine, labels, sample_weight=weights)

    run_threads(2, fit, timeout=60)


def test_a_solver_without_a_checkpoint_of_several_processes_refuses_one(tmp_path):
    X, y = iris()

    def fit(comm):
        model = LinearClassifier(solver=LogConcavity(comm=comm), tol=0.9, random_state=0)
        with pytest.raises(
            ValueError, match=r"not supported by solver 'log_concavity' on several processes, got .* on 2"
        ):
            model.fit(X, y, checkpoint=tmp_path / "state")

    run_threads(2, fit, timeout=60)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("kind", ["U", "i", "O"])
def test_labels_are_numbered_over_all_processes(size, kind):
    labels = {"U": np.array(["b", "aaa", "c", "a"]), "i": np.array([7, -2, 40, 3])}
    labels["O"] = labels["U"].astype(object)

    def number(comm):
        own = labels[kind][comm.rank % 4 :] if comm.rank < 4 else labels[kind][:1]
        return all_classes(comm, own)

    for found in run_threads(size, number, timeout=30):
        np.testing.assert_array_equal(found, np.unique(labels[kind].astype(str) if kind == "O" else labels[kind]))


def test_processes_with_rows_that_do_not_fit_are_refused_on_all():
    X, y = iris()

    def fit(comm):
        try:
            ds_mlr(comm=comm).fit(X[:, : 3 + comm.rank], y)
        except ValueError as error:
            return str(error)
        return ""

    assert all("same number of features" in said for said in run_threads(2, fit, timeout=30))


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"alpha": (0.1, 0.1, 0.2)}, "alpha must be the same in every process, got 0.1 in rank 0 and 0.2 in rank 2"),
        ({"class_weight": (None, "balanced", None)}, "class_weight must be .* got None in rank 0 and 'balanced' in"),
        ({"solver__block_classes": (3, 3, 2)}, "solver__block_classes must be"),
        ({"random_state": (0, 1, 2), "n_jobs": (1, 2, 1), "verbose": (1, 0, 0)}, None),
    ],
)
def test_processes_with_other_parameters_are_refused_on_all(own, named):
    X, y = iris()

    def fit(comm):
        try:
            ds_mlr(comm=comm).set_params(**{name: values[comm.rank] for name, values in own.items()}).fit(X, y)
        except ValueError as error:
            return str(error)
        return ""

    found = run_threads(3, fit, timeout=30)
    assert len(set(found)) == 1  # the same on all, so that none waits for another
    assert re.match(named, found[0]) if named else found[0] == ""


def test_a_process_with_another_version_is_refused_on_all(monkeypatch):
    from manyclass.distributed import agreement

    class Version:
        def __format__(self, _):
            return "1" if threading.current_thread() is first[0] else "2"

    first = []
    monkeypatch.setattr(agreement, "__version__", Version())

    def meet(comm):
        if comm.rank == 0:
            first.append(threading.current_thread())
        comm.barrier()
        with pytest.raises(ValueError, match=r"the version of manyclass must be .*, got 1 in rank 0 and 2 in rank 1"):
            agreement.require_same(comm, {"alpha": 0.1})

    run_threads(2, meet, timeout=30)


def test_warm_start_needs_fewer_iterations():
    X, y = load_digits(return_X_y=True)
    model = ds_mlr(alpha=1e-3, tol=1e-5, warm_start=True, random_state=0).fit(X / 16, y)
    cold = model.n_iter_
    model.set_params(alpha=1.1e-3).fit(X / 16, y)
    assert model.n_iter_ < 0.8 * cold
    again = clone(model).fit(X / 16, y)
    assert model.objective_ == pytest.approx(again.objective_, rel=1e-4)


def test_progress_and_memory_are_told(capsys, monkeypatch):
    X, y = iris()
    ds_mlr(verbose=1).fit(X, y)
    assert "relative gap" in capsys.readouterr().err
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 1000)
    with pytest.raises(MemoryError, match="blocks of 3 classes"):
        ds_mlr().fit(X, y)


def test_an_interrupt_keeps_what_is_reached(monkeypatch):
    from manyclass.solvers.ds_mlr import solver

    X, y = iris()
    done, descend = [], solver.descend

    def interrupted(*arguments):
        done.append(None)
        if len(done) == 12:
            raise KeyboardInterrupt
        return descend(*arguments)

    monkeypatch.setattr(solver, "descend", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = ds_mlr(tol=0, n_workers=2).fit(X, y)
    assert model.history_.outcome == "interrupted"
    assert 2 < model.n_iter_ < 12
    assert model.duality_gap_ < 0.5
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_workers": 0}, "'n_workers' parameter of DSMLR must be an int in the range"),
        ({"schedule": "star"}, "'schedule' parameter of DSMLR must be a str among"),
        ({"algorithm": "none"}, "'algorithm' parameter"),
        (
            {"comm": 3},
            "'comm' parameter of DSMLR must be an instance of .*Communicator.*, a str among {.*'mpi'.*} or None",
        ),
        ({"keep_scores": "yes"}, "'keep_scores' parameter"),
        ({"precondition": True}, "'precondition' parameter"),
        ({"eta0": 0}, "'eta0' parameter"),
    ],
)
def test_refusals(options, message):
    X, y = iris()
    with pytest.raises(ValueError, match=message):
        ds_mlr(**options).fit(X, y)


def test_the_solver_of_the_user_stays_as_it_is():
    X, y = iris()
    solver = DSMLR(comm=SerialCommunicator(), n_workers=2)
    comm = solver.comm
    one = LinearClassifier(alpha=ALPHA, solver=solver, random_state=0).fit(X, y)
    assert solver.comm is comm
    assert solver.get_params() == DSMLR(comm=comm, n_workers=2).get_params()
    assert solver.scale == 1.0
    two = LinearClassifier(alpha=ALPHA, solver=solver, random_state=0).fit(X, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    X, y = iris()
    whole = ds_mlr(tol=1e-9, random_state=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        ds_mlr(tol=1e-9, max_iter=3, random_state=0).fit(X, y, checkpoint=tmp_path / "run", checkpoint_seconds=0.0)
    assert (tmp_path / "run").is_dir()
    found = ds_mlr(tol=1e-9, random_state=0).fit(X, y, checkpoint=tmp_path / "run")
    assert found.n_iter_ == whole.n_iter_
    np.testing.assert_array_equal(found.coef_, whole.coef_)
    found.save(tmp_path / "model")
    assert not (tmp_path / "run").exists()


def test_a_communicator_is_a_parameter_that_can_be_copied():
    model = ds_mlr(comm=SerialCommunicator())
    assert clone(model).solver.comm.size == 1

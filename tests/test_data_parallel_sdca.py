"""`DataParallelSDCA`: the optimum of one process on several, each with rows of its own; bits; refusals; MPI."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from manyclass import ActiveSetSDCA, CrammerSinger, DataParallelSDCA, LinearClassifier, load
from manyclass.distributed import run_threads
from test_cli_support import make
from test_communicators import launch


def rows(n=300, kind="sparse", dtype=np.float64):
    """Digits in an order of classes: no process has rows of all of them."""
    X, y = load_digits(return_X_y=True)
    order = np.argsort(y[:n], kind="stable")
    X = (X[:n] / 16)[order].astype(dtype)
    return (sp.csr_matrix(X) if kind == "sparse" else X), y[:n][order]


def part(comm, n):
    return slice(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)


def fit(size, X, y, weights=None, loss="crammer_singer", **options):
    options = {"alpha": 3e-2, "tol": 1e-3, "random_state": 0, "fit_intercept": False, "max_iter": 5000, **options}

    def one(comm):
        mine = part(comm, len(y))
        model = LinearClassifier(loss, solver=DataParallelSDCA(comm=comm), **options)
        return model.fit(X[mine], y[mine], None if weights is None else weights[mine])

    return run_threads(size, one, timeout=60)


CASES = {
    "sparse": {},
    "dense": {"kind": "dense"},
    "float32": {"dtype": np.float32},
    "elastic net": {"l1_ratio": 0.3},
    "plain": {"loss": CrammerSinger(gamma=0)},
    "costs": {"loss": CrammerSinger(costs=np.abs(np.subtract.outer(np.arange(10), np.arange(10))) / 3)},
    "weights": {"weighted": True},
    "1/n": {"alpha": None, "tol": 1e-2},
}


@pytest.mark.parametrize("case", CASES)
def test_processes_reach_the_optimum_of_one(case):
    options = dict(CASES[case])
    X, y = rows(kind=options.pop("kind", "sparse"), dtype=options.pop("dtype", np.float64))
    weights = np.linspace(0.2, 3.0, len(y)) if options.pop("weighted", False) else None
    loss = options.pop("loss", "crammer_singer")
    given = {"alpha": 3e-2, "tol": 1e-3, "random_state": 0, "fit_intercept": False, "max_iter": 5000, **options}
    whole = LinearClassifier(loss, solver="sdca", **given).fit(X, y, weights)
    for size in (1, 2, 3):
        for model in fit(size, X, y, weights, loss, **options):
            assert model.duality_gap_ <= model.tol
            assert model.alpha_ == pytest.approx(whole.alpha_, rel=1e-12)
            assert model.objective_ == pytest.approx(whole.objective_, rel=2 * whole.tol)
            assert model.history_.last.dual <= whole.objective_ * (1 + 1e-6)  # no bound is above an objective
            np.testing.assert_array_equal(model.classes_, np.arange(10))


def test_objective_and_weights_are_those_of_all_rows():
    X, y = rows()
    weights = np.linspace(0.2, 3.0, len(y))
    models = fit(3, X, y, weights, CrammerSinger(gamma=0))
    S = X @ models[0].coef_.T
    own = S[np.arange(len(y)), y].copy()
    S[np.arange(len(y)), y] = -np.inf
    losses = np.maximum(0, 1 + S.max(axis=1) - own)
    expected = np.average(losses, weights=weights) + 3e-2 / 2 * np.sum(models[0].coef_ ** 2)
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        assert model.objective_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_same_seed_gives_the_same_bits(size):
    X, y = rows()
    first, again = (fit(size, X, y)[-1] for _ in range(2))
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert first.n_iter_ == again.n_iter_


def test_one_process_does_what_active_sets_do():
    X, y = rows()
    options = {"alpha": 1e-3, "random_state": 0, "fit_intercept": False}
    plain = LinearClassifier("crammer_singer", solver=ActiveSetSDCA(storage="dense"), **options).fit(X, y)
    model = LinearClassifier("crammer_singer", solver="sdca_dp", **options).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)


def test_two_classes_have_one_column():
    X, y = rows()
    keep = y < 2
    X, y = X[keep], y[keep]
    for model in fit(2, X[::-1], y[::-1], alpha=1e-2):
        whole = LinearClassifier("crammer_singer", solver="sdca", alpha=1e-2, tol=1e-5, fit_intercept=False).fit(X, y)
        assert model.coef_.shape == (1, 64)
        assert model.objective_ == pytest.approx(whole.objective_, rel=2e-3)


@pytest.mark.parametrize("exchanges", [1, 5])
def test_a_table_and_an_array_of_weights_hold_the_same(exchanges):
    """Rows with few features in common, and more classes than rows of some processes have."""
    rng = np.random.default_rng(0)
    n, K = 600, 200
    y = np.sort(rng.integers(K, size=n))
    columns = 7 * y[:, None] + rng.integers(9, size=(n, 3))
    X = sp.csr_matrix((np.ones(3 * n), (np.repeat(np.arange(n), 3), columns.ravel())))

    def once(storage):
        def one(comm):
            mine = part(comm, n)
            solver = DataParallelSDCA(comm=comm, storage=storage, exchanges=exchanges)
            model = LinearClassifier("crammer_singer", solver=solver, alpha=1e-2, tol=1e-4, random_state=0)
            model.fit(X[mine], y[mine])
            return model, comm.traffic.collective_bytes

        return run_threads(2, one, timeout=60)

    (table, sent), (array, _) = once("sparse")[0], once("dense")[0]
    np.testing.assert_allclose(np.asarray(table.sparse_coef_.toarray()), array.coef_, atol=1e-6)
    assert table.duality_gap_ <= 1e-4
    assert sent / table.n_iter_ < 0.5 * 8 * X.shape[1] * K * exchanges  # half of the arrays: entries are sent


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        ({"loss": "multinomial"}, r"solver 'sdca_dp' needs a loss with"),
        ({"fit_intercept": True}, "solver 'sdca_dp' fits no intercept"),
        ({"l1_ratio": 1.0}, "solver 'sdca_dp' needs a penalty with an l2 part"),
        ({"standardize": True}, "standardize"),
        ({"alpha": "auto"}, "alpha='auto' is not supported"),
    ],
)
def test_what_it_does_not_fit_is_refused(options, needle):
    X, y = rows(100, kind="dense")
    with pytest.raises(ValueError, match=needle):
        LinearClassifier(**{"loss": "crammer_singer", "solver": "sdca_dp", **options}).fit(X, y)


def test_the_command_on_two_processes_writes_one_model(tmp_path):
    path = make("svm", tmp_path)
    words = ("fit", str(path), "-o", str(tmp_path / "m"), "--loss", "crammer_singer", "--solver", "sdca_dp")
    done = launch(2, "-m", "manyclass", *words, "--alpha", "0.1", "--dtype", "float64")
    assert done.returncode == 0, done.stderr
    assert "on 2 processes" in done.stderr
    assert load(tmp_path / "m").record["relative_gap"] <= 1e-3

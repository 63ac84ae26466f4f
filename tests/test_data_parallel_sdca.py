"""`DataParallelSDCA`: the optimum of one process on several, each with rows of its own; bits; refusals; MPI."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from manyclass import ActiveSetSDCA, CrammerSinger, DataParallelSDCA, LinearClassifier, load
from manyclass.distributed import checkpoint, run_threads
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
    "intercept": {"fit_intercept": True},
    "intercept, dense": {"fit_intercept": True, "kind": "dense", "dtype": np.float32},
    "intercept, weights, elastic net": {"fit_intercept": True, "weighted": True, "l1_ratio": 0.3},
    "intercept, plain": {"fit_intercept": True, "loss": CrammerSinger(gamma=0)},
    "threads": {"n_jobs": 2, "fit_intercept": True},
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


def test_changes_that_agree_raise_no_weight_too_far():
    """Rows of all processes alike: their changes point in one direction, and their sum would be several times too long.

    The dual objective, which a sum that is too long makes fall, rises from one pass to the next.
    """
    X, y = rows(200)
    X, y = sp.vstack([X, X, X]).tocsr(), np.tile(y, 3)
    with pytest.warns(ConvergenceWarning):
        models = fit(3, X, y, alpha=1e-3, max_iter=40, tol=1e-9)
    for model in models:
        duals = [record.dual for record in model.history_]
        assert len(duals) > 3
        assert all(later >= earlier - 1e-3 * abs(earlier) for earlier, later in zip(duals, duals[1:]))


@pytest.mark.parametrize("options", [{}, {"fit_intercept": True}, {"kind": "dense", "fit_intercept": True}])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1), (1, 2)])
def test_another_number_of_processes_goes_on_from_a_checkpoint(before, after, options, tmp_path):
    options = dict(options)
    X, y = rows(kind=options.pop("kind", "sparse"))
    given = {"alpha": 1e-2, "tol": 1e-4, "random_state": 0, "fit_intercept": False, "max_iter": 3000, **options}
    whole = LinearClassifier("crammer_singer", solver="sdca", **given).fit(X, y)

    def run(size, most):
        def one(comm):
            mine = part(comm, len(y))
            model = LinearClassifier("crammer_singer", solver=DataParallelSDCA(comm=comm), **given)
            return model.set_params(max_iter=most).fit(X[mine], y[mine], checkpoint=tmp_path / "state")

        return run_threads(size, one, timeout=60)

    with pytest.warns(ConvergenceWarning):
        first = run(before, 9)
    assert {model.n_iter_ for model in first} == {9}
    for model in run(after, 3000):
        assert model.n_iter_ > 9
        assert model.duality_gap_ <= 1e-4
        assert model.objective_ == pytest.approx(whole.objective_, rel=2e-4)
        assert [record.iteration for record in model.history_][:3] == [1, 4, 7]  # those of the first run
    done = run(2, 3000)
    assert done[0].n_iter_ == model.n_iter_


def test_a_checkpoint_of_other_rows_or_parameters_is_refused(tmp_path):
    X, y = rows(200)

    def run(X, y, **options):
        def one(comm):
            mine = part(comm, len(y))
            solver = DataParallelSDCA(comm=comm)
            model = LinearClassifier("crammer_singer", solver=solver, tol=0.1, random_state=0, **options)
            return model.fit(X[mine], y[mine], checkpoint=tmp_path / "state")

        return run_threads(2, one, timeout=60)

    run(X, y, alpha=0.1)
    for data, options in (((2 * X, y), {"alpha": 0.1}), ((X, y), {"alpha": 0.2})):
        with pytest.raises(ValueError, match="belongs to another run"):
            run(*data, **options)


@pytest.mark.parametrize("name", ["count", "rivals"])
def test_numbers_of_a_checkpoint_that_compiled_code_would_follow_are_checked(name, tmp_path, monkeypatch):
    """Even if the checksums are right: an index that leads elsewhere reads or writes other memory."""
    X, y = rows(200)
    saved = checkpoint.save

    def spoiled(comm, folder, epoch, classes, rows, *rest, lists):
        arrays = rows[0].arrays if name == "count" else lists["rival"][0].arrays
        arrays[name][:2] = [-1, arrays[name][:2].sum() + 1] if name == "count" else [len(y), 0]
        saved(comm, folder, epoch, classes, rows, *rest, lists=lists)

    solver = DataParallelSDCA()
    model = LinearClassifier("crammer_singer", solver=solver, alpha=0.1, tol=0.1, random_state=0, fit_intercept=False)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", spoiled)
        model.fit(X, y, checkpoint=tmp_path / "state")
    with pytest.raises(ValueError, match=r"is damaged .*the lists of rivals are not those of this problem"):
        model.fit(X, y, checkpoint=tmp_path / "state")


@pytest.mark.parametrize("storage", ["sparse", "dense"])
def test_the_best_weights_on_held_out_rows_are_kept_in_a_checkpoint(storage, tmp_path):
    X, y = rows(600)
    mixed = np.random.default_rng(0).permutation(len(y))
    X, y = X[mixed], y[mixed]

    def run(most, path):
        def one(comm):
            mine = part(comm, 400)
            solver = DataParallelSDCA(comm=comm, storage=storage)
            model = LinearClassifier("crammer_singer", solver=solver, alpha=1e-5, tol=0.0, random_state=0)
            model.set_params(max_iter=most, early_stopping=30, fit_intercept=False)
            return model.fit(X[mine], y[mine], X_val=X[400:], y_val=y[400:], checkpoint=path)

        return run_threads(2, one, timeout=60)

    with pytest.warns(ConvergenceWarning):
        first = run(6, tmp_path / "state")[0]
    with pytest.warns(ConvergenceWarning):
        rest = run(12, tmp_path / "state")[0]
    assert len(rest.history_.validation) == 12
    assert rest.history_.validation[:6] == first.history_.validation
    assert rest.score(X[400:], y[400:]) >= first.score(X[400:], y[400:])


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

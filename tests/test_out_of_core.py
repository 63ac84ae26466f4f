"""Out-of-core softmax regression: near the optimum, with a bound that holds; the same after an interrupt; on ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from manyclass import DSMLR, LinearClassifier, LinearRegressor, Multinomial, OutOfCore, load
from manyclass.datasets.synthetic import make_many_classes
from manyclass.distributed import SerialCommunicator, run_threads
from manyclass.io.store import RowStore, write_store
from manyclass.solvers.out_of_core import fit as module
from manyclass.solvers.out_of_core.certificate import Rows, certify

ALPHA = 1e-2
#: Parameters of the estimator; all others are of the solver.
ESTIMATOR = ("alpha", "max_iter", "tol", "fit_intercept", "dtype", "loss", "l1_ratio", "warm_start")


def made(path, **options):
    """The estimator, of its parameters and of those of the solver."""
    own = {name: options.pop(name) for name in ESTIMATOR if name in options}
    return LinearClassifier(**{"tol": 1.0, "random_state": 0, **own}, solver=OutOfCore(path, **options))


@pytest.fixture(scope="module")
def problem():
    X, y = make_many_classes(600, 120, 12, nnz_per_row=15, dtype=np.float32)
    return X, y


@pytest.fixture(scope="module")
def stores(problem, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    X, y = problem
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    write_store(folder / "sparse", X, y, shard_rows=150)
    write_store(folder / "dense", X.toarray(), y, shard_rows=150)
    write_store(folder / "weighted", X, y, sample_weight=weights, shard_rows=150)
    return {path.name: RowStore(path) for path in folder.iterdir()}, weights


@pytest.fixture(scope="module")
def optimum(problem, stores):
    X, y = problem

    def solve(intercept, weights):
        fit = LinearClassifier(
            "multinomial", alpha=ALPHA, tol=1e-7, max_iter=500, fit_intercept=intercept, dtype="float64", solver="lbfgs"
        )
        return fit.fit(X, y, sample_weight=weights).model_.record["objective"]

    return {(w, i): solve(i, stores[1] if w else None) for w in (False, True) for i in (False, True)}


def objective(model, X, y, weights=None):
    """P, from its definition."""
    whole = model.assemble()
    S = np.asarray(X @ whole.weights.astype(float) + whole.intercept)
    c = np.ones(len(y)) if weights is None else weights / weights.mean()
    losses = logsumexp(S, axis=1) - S[np.arange(len(y)), np.searchsorted(model.classes, y)]
    return np.mean(c * losses) + ALPHA / 2 * np.sum(whole.weights.astype(float) ** 2)


@pytest.mark.parametrize(
    ("kind", "intercept", "block_classes"),
    [(kind, intercept, width) for kind in ("sparse", "weighted") for intercept in (False, True) for width in (12, 5)]
    + [("dense", False, 5), ("dense", True, 12)],
)
def test_the_optimum_is_approached_and_the_bound_holds(
    tmp_path, problem, stores, optimum, kind, intercept, block_classes
):
    X, y = problem
    best = optimum[kind == "weighted", intercept]
    found = made(
        tmp_path / "m", alpha=ALPHA, max_iter=12, fit_intercept=intercept,
        block_classes=block_classes, window_bytes=40_000 if kind == "dense" else 8000,
    ).fit(stores[0][kind])  # fmt: skip
    model, record = found.model_, found.model_.record
    weights = stores[1] if kind == "weighted" else None
    np.testing.assert_allclose(record["objective"], objective(model, X, y, weights), rtol=1e-5)
    assert best * (1 - 1e-6) <= found.objective_ <= best * (1 + 5e-3)
    assert found.history_.last.dual <= best * (1 + 1e-6)
    assert found.duality_gap_ == record["relative_gap"] < 5e-2
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]  # the folder of the fit is gone
    if not intercept:
        assert not model.assemble().intercept.any()


def test_tol_ends_the_fit(tmp_path, stores):
    model = made(tmp_path / "m", alpha=ALPHA, max_iter=50, tol=5e-2, block_classes=6, certificate="epoch")
    model.fit(stores[0]["sparse"], checkpoint=tmp_path / "work")
    assert model.history_.outcome == model.model_.record["outcome"] == "converged"
    assert model.duality_gap_ <= 5e-2
    assert model.history_.column("iteration") == [*range(1, model.n_iter_ + 1)]
    assert model.n_iter_ < 50
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("average", [False, True])
def test_what_was_interrupted_goes_on_to_the_same_bits(tmp_path, monkeypatch, stores, average):
    options = {"alpha": ALPHA, "max_iter": 3, "block_classes": 5, "window_bytes": 4000, "average": average}
    straight = made(tmp_path / "straight", **options).fit(stores[0]["sparse"])
    calls = 0
    genuine = module.visit

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls % 29 == 0:
            raise KeyboardInterrupt
        return genuine(*arguments)

    monkeypatch.setattr(module, "visit", interrupted)
    model = made(tmp_path / "m", **options)
    for attempts in range(20):  # noqa: B007
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", ConvergenceWarning)
                model.fit(stores[0]["sparse"], checkpoint=tmp_path / "work")
        except KeyboardInterrupt:  # before the first step was done: there is nothing to keep
            continue
        if model.history_.outcome != "interrupted":
            break
        assert "interrupted; the model reached so far is kept" in str(told[0].message)
        assert load(tmp_path / "m").record["outcome"] == "interrupted"
        assert np.isnan(model.duality_gap_)
    assert attempts > 1
    np.testing.assert_array_equal(model.model_.assemble().weights, straight.model_.assemble().weights)
    assert model.objective_ == straight.objective_
    assert not (tmp_path / "work").exists()


def test_a_checkpoint_of_a_fit_that_did_not_meet_tol_is_gone_on_with(tmp_path, stores):
    options = {"alpha": ALPHA, "block_classes": 5, "tol": 0.0}
    with pytest.warns(ConvergenceWarning, match="max_iter was reached before tol .*tol is 0; raise max_iter"):
        straight = made(tmp_path / "straight", **options, max_iter=3).fit(stores[0]["sparse"])
    with pytest.warns(ConvergenceWarning, match="after 1 epochs"):
        made(tmp_path / "m", **options, max_iter=1).fit(stores[0]["sparse"], checkpoint=tmp_path / "work")
    with pytest.warns(ConvergenceWarning, match="after 3 epochs"):
        model = made(tmp_path / "m", **options, max_iter=3).fit(stores[0]["sparse"], checkpoint=tmp_path / "work")
    np.testing.assert_array_equal(model.model_.assemble().weights, straight.model_.assemble().weights)
    assert model.history_.column("iteration") == [1, 3]
    assert (tmp_path / "work").is_dir()
    # A model that is not the one it has left is not replaced.
    load(tmp_path / "m").update(record={})
    with pytest.raises(ValueError, match="exists already"):
        made(tmp_path / "m", **options, max_iter=4).fit(stores[0]["sparse"], checkpoint=tmp_path / "work")


def test_after_an_error_the_folder_is_kept_and_of_another_fit_refused(tmp_path, monkeypatch, stores):
    def stop(*_):
        raise OSError("the disk is full")

    store, kept = stores[0]["sparse"], {"checkpoint": tmp_path / "w"}
    model = made(tmp_path / "m", alpha=ALPHA, max_iter=1)
    with monkeypatch.context() as patch:
        patch.setattr(module.BlockFit, "_keep", stop)
        with pytest.raises(OSError, match="disk is full"):
            model.fit(store, **kept)
        with pytest.raises(OSError, match="disk is full"):
            model.fit(store)
    assert [entry.name for entry in tmp_path.iterdir()] == ["w"]
    with pytest.raises(ValueError, match="belongs to another fit"):
        clone(model).set_params(alpha=2 * ALPHA).fit(store, **kept)
    monkeypatch.setattr(module.BlockFit, "_visit", stop)  # all visits are done
    assert model.fit(store, **kept).n_iter_ == 1
    assert model.duality_gap_ < 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_what_the_disk_has_no_room_for_is_refused(tmp_path, monkeypatch, stores):
    usage = module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(MemoryError, match="use another disk"):
        made(tmp_path / "m").fit(stores[0]["sparse"])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        made(tmp_path / "no" / "m").fit(stores[0]["sparse"])
    assert not any(tmp_path.iterdir())


def test_a_store_of_one_shard_feeds_every_solver_as_it_is(tmp_path, problem):
    X, y = problem
    write_store(tmp_path / "s", X, y)
    data = RowStore(tmp_path / "s").dataset()
    assert not data.X.data.flags.writeable
    assert not data.X.data.flags.owndata
    found = LinearClassifier("multinomial", alpha=ALPHA, random_state=0).fit(data.X, data.y)
    expected = LinearClassifier("multinomial", alpha=ALPHA, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.model_.weights, expected.model_.weights)


@pytest.mark.parametrize(("size", "block_classes"), [(2, 5), (3, 12), (2, 3)])
def test_ranks_reach_the_same_optimum(tmp_path, stores, optimum, size, block_classes):
    def rank(comm):
        solver = OutOfCore(tmp_path / "m", block_classes=block_classes, comm=comm)
        # Each draws a seed of its own.
        model = LinearClassifier(solver=solver, alpha=ALPHA, tol=1.0, max_iter=12).fit(stores[0]["sparse"])
        return model.model_.record, model.history_.last.dual

    found = run_threads(size, rank)
    assert all(other == found[0] for other in found)
    record, dual = found[0]
    best = optimum[False, True]
    assert best * (1 - 1e-6) <= record["objective"] <= best * (1 + 5e-3)
    assert dual <= best * (1 + 1e-6)
    assert load(tmp_path / "m").record["ranks"] == size


@pytest.mark.parametrize(("before", "after", "stopped"), [(2, 3, 23), (3, 1, 30), (1, 2, 50)])
def test_a_fit_goes_on_with_another_number_of_ranks(before, after, stopped, tmp_path, monkeypatch, stores, optimum):
    """Stopped within an epoch, which begins anew, or between two; the sums of the rows are those of the others."""
    genuine, visits = module.visit, []

    def visit(*arguments):
        visits.append(arguments)
        if len(visits) == stopped:
            raise ArithmeticError("a bug")
        return genuine(*arguments)

    def rank(comm):
        solver = OutOfCore(tmp_path / "m", block_classes=5, window_bytes=4000, comm=comm)
        estimator = LinearClassifier(solver=solver, alpha=ALPHA, tol=1.0, max_iter=12, random_state=0)
        model = estimator.fit(stores[0]["sparse"], checkpoint=tmp_path / "state")
        return model.model_.record, model.history_.last.dual, model.n_iter_

    with monkeypatch.context() as patch:
        patch.setattr(module, "visit", visit)
        with pytest.raises(ArithmeticError):
            run_threads(before, rank)
    kept = json.loads((tmp_path / "state" / "manifest.json").read_text())
    assert kept["ranks"] == before
    found = run_threads(after, rank)
    assert all(other == found[0] for other in found)
    record, dual, epochs = found[0]
    best = optimum[False, True]
    assert epochs == 12
    assert best * (1 - 1e-6) <= record["objective"] <= best * (1 + 5e-3)
    assert dual <= best * (1 + 1e-6)


def test_ranks_that_are_asked_to_stop_keep_what_they_have_reached(tmp_path, monkeypatch, stores):
    comms, genuine, visits = {}, module.visit, []

    def visit(*arguments):
        visits.append(arguments)
        if len(visits) == 20:
            comms[1].interrupted = True
        return genuine(*arguments)

    def rank(comm):
        comms[comm.rank] = comm
        solver = OutOfCore(tmp_path / "m", block_classes=5, window_bytes=4000, comm=comm)
        return LinearClassifier(solver=solver, alpha=ALPHA).fit(stores[0]["sparse"]).history_.outcome

    monkeypatch.setattr(module, "visit", visit)
    with pytest.warns(ConvergenceWarning, match="interrupted; the model reached so far is kept"):
        assert run_threads(2, rank) == ["interrupted", "interrupted"]
    assert len(visits) < 100
    assert load(tmp_path / "m").record["outcome"] == "interrupted"


def test_no_model_records_where_it_was_fitted(tmp_path, stores, problem):
    comm = SerialCommunicator()
    stored = made(tmp_path / "m", max_iter=1, comm=comm, block_classes=5).fit(stores[0]["sparse"])
    other = LinearClassifier(solver=DSMLR(comm=comm, n_workers=2), alpha=0.1, random_state=0).fit(*problem)
    for model, solver in ((stored, "OutOfCore(block_classes=5)"), (other, "DSMLR(n_workers=2)")):
        parameters = model.model_.parameters
        assert parameters["solver"] == solver
        assert not {"solver__comm", "solver__path"} & parameters.keys()
        assert not any("Communicator" in str(value) or "object at" in str(value) for value in parameters.values())
        assert model.solver.comm is comm
    assert load(tmp_path / "m").parameters["estimator"] == "LinearClassifier"


def test_a_fitted_estimator_predicts_from_the_blocks(tmp_path, problem, stores):
    X, y = problem
    model = made(tmp_path / "m", loss=Multinomial(), block_classes=5, max_iter=3).fit(stores[0]["sparse"])
    assert model.alpha_ == pytest.approx(1 / len(y))
    assert (model.solver_, model.n_iter_, model.n_features_in_) == ("out_of_core", 3, X.shape[1])
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    whole = load(tmp_path / "m").assemble()
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    np.testing.assert_array_equal(model.decision_function(X), whole.scores(X))
    np.testing.assert_array_equal(model.predict_topk(X, 3)[0], whole.topk(X, 3)[0])
    np.testing.assert_array_equal(model.predict_proba(X), whole.probabilities(X))
    assert model.score(X, y) == np.mean(whole.predict(X) == y)
    np.testing.assert_array_equal(model.intercept_, whole.intercept)
    with pytest.raises(AttributeError, match=r"block\(number\).weights maps those .* assemble\(\).weights reads all"):
        model.coef_  # noqa: B018
    with pytest.raises(ValueError, match="sparsify is not for a model in blocks of classes"):
        model.sparsify()
    model.save(tmp_path / "copy")
    np.testing.assert_array_equal(load(tmp_path / "copy").predict(X), model.predict(X))
    with pytest.raises(ValueError, match=r"X is a row store.*expected rows in memory"):
        model.predict(stores[0]["sparse"])


def test_two_classes_have_the_objective_of_their_margin(tmp_path, problem):
    X, y = problem[0], np.array(["no", "yes"])[(problem[1] < 6).astype(int)]
    write_store(tmp_path / "two", X, y)
    best = LinearClassifier(alpha=ALPHA, tol=1e-5, max_iter=1000, random_state=0).fit(X, y)
    model = made(tmp_path / "m", alpha=ALPHA, max_iter=20).fit(RowStore(tmp_path / "two"))
    assert best.objective_ * (1 - 1e-5) <= model.objective_ <= best.objective_ * (1 + 5e-3)
    assert np.mean(model.predict(X) == best.predict(X)) > 0.98
    np.testing.assert_allclose(model.predict_proba(X), best.predict_proba(X), atol=0.05)
    assert model.decision_function(X).shape == (len(y),)


def test_many_classes_of_sparse_rows_have_no_intercept_by_default(tmp_path):
    X, y = make_many_classes(3000, 200, 1000, nnz_per_row=10, dtype=np.float32, random_state=0)
    y[:1000] = np.arange(1000)
    write_store(tmp_path / "s", X, y)
    for asked, expected in (("auto", False), (True, True)):
        model = made(tmp_path / str(asked), fit_intercept=asked, max_iter=1, certificate=None)
        assert model.fit(RowStore(tmp_path / "s")).intercept_.any() == expected
        assert np.isnan([model.duality_gap_, model.objective_]).all()
        assert not len(model.history_)


def test_the_certificate_is_the_definition(tmp_path, problem, stores):
    """At any weights, in any blocks: P and D, with the mass of the dual point balanced for an intercept."""
    X, y = problem
    rng = np.random.default_rng(0)
    n, K = X.shape[0], 12
    W, b = rng.normal(size=(X.shape[1], K)), rng.normal(size=K)
    S = X @ W + b
    P = softmax(S, axis=1)
    Y = np.eye(K)[y]
    store = stores[0]["sparse"]
    rows = Rows(store.rows(), 3000, 1.0, n)
    for bounds in ([0, 12], [0, 5, 7, 12]):
        found = certify(rows, bounds, lambda q, e=bounds: (W[:, e[q] : e[q + 1]].copy(), b[e[q] : e[q + 1]]), ALPHA,
                        False, SerialCommunicator())  # fmt: skip
        primal = np.mean(logsumexp(S, axis=1) - S[np.arange(n), y]) + ALPHA / 2 * np.sum(W**2)
        V = X.T @ (Y - P) / (ALPHA * n)
        dual = -np.mean(np.sum(P * np.log(P), axis=1)) - ALPHA / 2 * np.sum(V**2)
        np.testing.assert_allclose([found.primal, found.dual], [primal, dual], rtol=1e-9)
        balanced = certify(rows, bounds, lambda q, e=bounds: (W[:, e[q] : e[q + 1]].copy(), b[e[q] : e[q + 1]]), ALPHA,
                           True, SerialCommunicator())  # fmt: skip
        wanted, present = Y.sum(axis=0), P.sum(axis=0)
        remove = np.maximum(1 - wanted / present, 0)
        share = np.maximum(wanted - present, 0)
        Q = P * (1 - remove) + (P @ remove)[:, None] * share / share.sum()
        np.testing.assert_allclose(Q.sum(axis=0), wanted)
        V = X.T @ (Y - Q) / (ALPHA * n)
        dual = -np.mean(np.sum(Q * np.log(Q), axis=1)) - ALPHA / 2 * np.sum(V**2)
        np.testing.assert_allclose([balanced.primal, balanced.dual], [primal, dual], rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": 0}, "'alpha' parameter of LinearClassifier"),
        ({"alpha": "auto"}, "alpha='auto' is not supported by distributed solvers, got solver 'out_of_core'"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"tol": -1.0}, "'tol' parameter"),
        ({"dtype": "int32"}, "dtype must be"),
        ({"path": 3}, "'path' parameter of OutOfCore"),
        ({"average": 3}, "'average' parameter of OutOfCore"),
        ({"certificate": True}, "'certificate' parameter of OutOfCore"),
        ({"block_classes": 0}, "'block_classes' parameter of OutOfCore"),
        ({"block_bytes": 0}, "'block_bytes' parameter of OutOfCore"),
        ({"window_bytes": 0}, "'window_bytes' parameter of OutOfCore"),
        ({"comm": "all"}, "'comm' parameter of OutOfCore"),
        (
            {"path": None},
            r"needs path, the folder of the model, got None: give it.*OutOfCore\('codes.blocks'\)",
        ),
        ({"loss": "hinge"}, "is for multinomial, got loss 'hinge': choose another solver"),
        ({"l1_ratio": 0.5}, "needs a penalty that is l2 alone, got elastic net .*: give l1_ratio=0"),
        ({"warm_start": True}, "has no warm start, got warm_start=True: fit.store, checkpoint=FOLDER. goes on"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path, stores, options, said):
    with pytest.raises(ValueError, match=said):
        made(**{"path": tmp_path / "m", **options}).fit(stores[0]["sparse"])
    assert not any(tmp_path.iterdir())


def test_wrong_data_are_refused(tmp_path, problem, stores):
    X, y = problem
    model = made(tmp_path / "m")
    for name, targets, said in (
        ("none", None, "targets of kind 'none'"),
        ("numbers", y / 2, "targets of kind 'numbers'"),
        ("one", np.zeros(len(y), int), "one class"),
    ):
        write_store(tmp_path / name, X, targets)
        with pytest.raises(ValueError, match=said):
            model.fit(RowStore(tmp_path / name))
    with pytest.raises(ValueError, match="fits multinomial to a row store, got X of type csr_matrix: write the rows"):
        model.fit(X, y)
    for name in ("y", "sample_weight"):
        with pytest.raises(ValueError, match=f"from the store, got {name}: leave it out"):
            model.fit(stores[0]["sparse"], **{name: y})
    for other in (LinearClassifier(), LinearRegressor()):
        with pytest.raises(ValueError, match=r"X is a row store.*expected rows in memory: give data = store.dataset"):
            other.fit(stores[0]["sparse"], y)
    with pytest.raises(ValueError, match="solver 'out_of_core' is for classification losses"):
        LinearRegressor(solver=OutOfCore(tmp_path / "m")).fit(X, y)
    bad = X.copy()
    bad.data[100] = np.nan
    write_store(tmp_path / "bad", bad, y)
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.fit(RowStore(tmp_path / "bad"))
    with pytest.raises(ValueError, match="exists already"):
        made(tmp_path / "one").fit(RowStore(tmp_path / "bad"))


_REGIME = """
import os, resource, sys
import numpy as np
from manyclass import LinearClassifier, OutOfCore
from manyclass.io.store import RowStore
data, model, warm, space, block, window = sys.argv[1:]

def fitted(path, store):
    solver = OutOfCore(path, block_bytes=int(block), window_bytes=int(window), certificate=None)
    return LinearClassifier(solver=solver, alpha=1e-3, max_iter=2, random_state=0).fit(store)

fitted(model + ".warm", RowStore(warm)).predict_topk(RowStore(warm).rows()[:], 1)
own = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (own + int(space),) * 2)
store = RowStore(data)
for what, size in (("rows", store.nbytes), ("weights", 4 * store.shape[1] * store.n_outputs)):
    try:
        np.empty(size, np.int8)
    except MemoryError:
        print("no room for the", what)
made = fitted(model, store)
right = 0
for part in store.rows().windows(int(window)):
    right += int(np.sum(made.predict_topk(part.X, 1)[0][:, 0] == store.classes[part.y]))
print(right / len(store))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
@pytest.mark.parametrize(("n", "K"), [(200, 4), (20_000, 4), (200, 40), (20_000, 40)])
def test_four_regimes(tmp_path, n, K):
    """Rows and weights that fit in 20 MiB of address space, or take 32 MB each."""
    d, stored = 200_000, 200
    rng = np.random.default_rng(0)
    y = np.arange(n) % K
    each = d // stored
    columns = rng.integers(0, each, (n, stored), dtype=np.int32)
    columns[:, : stored // 2] = (y[:, None] * 7 + np.arange(stored // 2)) % each
    columns += np.arange(stored, dtype=np.int32) * each
    values = np.full(columns.size, stored**-0.5, np.float32)
    X = sp.csr_matrix((values, columns.reshape(-1), np.arange(n + 1) * stored), shape=(n, d))
    write_store(tmp_path / "data", X, y, shard_bytes=1 << 22)
    write_store(tmp_path / "warm", X[:40], y[:40] % 4)
    arguments = [tmp_path / "data", tmp_path / "model", tmp_path / "warm", 20 << 20, 1 << 22, 1 << 20]
    command = [sys.executable, "-c", _REGIME, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ("no room for the rows" in done.stdout) == (n > 1000)
    assert ("no room for the weights" in done.stdout) == (K > 10)
    assert float(done.stdout.split()[-1]) > 0.9

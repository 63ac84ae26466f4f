"""Out-of-core softmax regression: near the optimum, with a bound that holds; the same after an interrupt; on ranks."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from manyclass import LinearClassifier, load
from manyclass.datasets.synthetic import make_many_classes
from manyclass.distributed import SerialCommunicator, run_threads
from manyclass.io.store import RowStore, write_store
from manyclass.solvers.out_of_core import fit as module, fit_blocks
from manyclass.solvers.out_of_core.certificate import Rows, certify
from manyclass.solvers.out_of_core.state import BlockState, LogSums
from manyclass.solvers.out_of_core.steps import Schedule, visit

ALPHA = 1e-2


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
    model = fit_blocks(
        stores[0][kind], tmp_path / "m", alpha=ALPHA, max_iter=12, fit_intercept=intercept,
        block_classes=block_classes, window_bytes=40_000 if kind == "dense" else 8000,
    )  # fmt: skip
    record = model.record
    weights = stores[1] if kind == "weighted" else None
    np.testing.assert_allclose(record["objective"], objective(model, X, y, weights), rtol=1e-5)
    assert best * (1 - 1e-6) <= record["objective"] <= best * (1 + 5e-3)
    assert record["objective"] - record["gap"] <= best * (1 + 1e-6)
    assert record["relative_gap"] < 5e-2
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]  # the folder of the fit is gone
    if not intercept:
        assert not model.assemble().intercept.any()


def test_tol_ends_the_fit(tmp_path, stores):
    model = fit_blocks(stores[0]["sparse"], tmp_path / "m", alpha=ALPHA, max_iter=50, tol=5e-2, block_classes=6)
    assert model.record["outcome"] == "converged"
    assert model.record["relative_gap"] <= 5e-2
    assert model.record["n_iter"] < 50


@pytest.mark.parametrize("average", [False, True])
def test_what_was_interrupted_goes_on_to_the_same_bits(tmp_path, monkeypatch, stores, average):
    options = {"alpha": ALPHA, "max_iter": 3, "block_classes": 5, "window_bytes": 4000, "average": average}
    straight = fit_blocks(stores[0]["sparse"], tmp_path / "straight", **options)
    calls = 0
    genuine = module.visit

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls % 29 == 0:
            raise KeyboardInterrupt
        return genuine(*arguments)

    monkeypatch.setattr(module, "visit", interrupted)
    for attempt in range(20):
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "interrupted after")
                model = fit_blocks(
                    stores[0]["sparse"], tmp_path / f"attempt{attempt}", work=tmp_path / "work", **options
                )
        except KeyboardInterrupt:  # before the first step was done: there is nothing to keep
            continue
        if model.record["outcome"] == "max_iter":
            break
    assert attempt > 1
    np.testing.assert_array_equal(model.assemble().weights, straight.assemble().weights)
    assert not (tmp_path / "work").exists()


def test_after_an_error_the_folder_is_kept_and_of_another_fit_refused(tmp_path, monkeypatch, stores):
    def stop(*_):
        raise OSError("the disk is full")

    options = {"max_iter": 1, "work": tmp_path / "w"}
    with monkeypatch.context() as patch:
        patch.setattr(module._Fit, "_keep", stop)
        with pytest.raises(OSError, match="disk is full"):
            fit_blocks(stores[0]["sparse"], tmp_path / "m", alpha=ALPHA, **options)
        with pytest.raises(OSError, match="disk is full"):
            fit_blocks(stores[0]["sparse"], tmp_path / "m", alpha=ALPHA, max_iter=1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["w"]
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit_blocks(stores[0]["sparse"], tmp_path / "m", alpha=2 * ALPHA, **options)
    monkeypatch.setattr(module._Fit, "_visit", stop)  # all visits are done
    assert fit_blocks(stores[0]["sparse"], tmp_path / "m", alpha=ALPHA, **options).record["n_iter"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_what_the_disk_has_no_room_for_is_refused(tmp_path, monkeypatch, stores):
    usage = module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(MemoryError, match="take another disk"):
        fit_blocks(stores[0]["sparse"], tmp_path / "m")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        fit_blocks(stores[0]["sparse"], tmp_path / "no" / "m")
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
        return fit_blocks(
            stores[0]["sparse"], tmp_path / "m", alpha=ALPHA, max_iter=12, block_classes=block_classes, comm=comm
        ).record

    records = run_threads(size, rank)
    assert all(record == records[0] for record in records)
    best = optimum[False, True]
    assert best * (1 - 1e-6) <= records[0]["objective"] <= best * (1 + 5e-3)
    assert records[0]["objective"] - records[0]["gap"] <= best * (1 + 1e-6)
    assert load(tmp_path / "m").record["ranks"] == size


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


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_step_is_the_formula(kind):
    """One step at given other blocks: W = (1 - eta lam) W - eta c x (p - e_y)^T on the classes of the block."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 4)).astype(np.float32)
    W, b = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    others = rng.normal(size=5)
    c = np.array([1.0, 2.0, 0.0, 1.0, 1.0])
    y = np.array([7, 3, 4, 5, 4], np.int32)  # the block is 4, 5, 6
    order = np.array([4, 0, 3, 1, 2], np.int32)
    state = BlockState(W.copy(), b.copy(), np.empty((0, 0), np.float32), np.empty(0, np.float32))
    schedule = Schedule(rate=0.3, decay=0.1, power=1.0, lam=0.05, gain=0.7, batch=1)
    rows = X if kind == "dense" else sp.csr_matrix(X)
    own = visit(rows, y, 4, c, others, order, state, schedule, 2, 0.0)
    U, u = W.astype(float), b.astype(float)
    for t, i in enumerate(order):
        s = X[i] @ U + u
        np.testing.assert_allclose(own[i], logsumexp(s), rtol=1e-5)
        g = np.exp(s - np.logaddexp(logsumexp(s), others[i]))
        g[[k for k in range(3) if k + 4 == y[i]]] -= 1
        eta = 0.3 / (1 + 0.1 * (2 + t))
        U = (1 - eta * 0.05) * U - eta * c[i] * np.outer(X[i], g)
        u = u - eta * 0.7 * c[i] * g
    np.testing.assert_allclose(state.W, U, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.bias, u, rtol=1e-4, atol=1e-6)


def test_the_mean_is_that_of_the_weights_after_each_step():
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(rng.normal(size=(40, 4)).astype(np.float32))
    y = rng.integers(0, 3, 40).astype(np.int32)
    schedule = Schedule(rate=0.3, decay=0.1, power=0.75, lam=0.05, gain=0.7, batch=1)
    none, ones = np.full(40, -np.inf), np.ones(40)
    W = rng.normal(size=(4, 3)).astype(np.float32)
    state = BlockState(W.copy(), np.zeros(3, np.float32), W.copy(), np.zeros(3, np.float32))
    visit(X, y, 0, ones, none, np.arange(40, dtype=np.int32), state, schedule, 0, 1.0)
    step = BlockState(W.copy(), np.zeros(3, np.float32), np.empty((0, 0), np.float32), np.empty(0, np.float32))
    points, biases = [W.astype(float)], [np.zeros(3)]
    for i in range(40):
        one = X[i], y[i : i + 1], 0, ones[:1], none[:1], np.zeros(1, np.int32)
        visit(*one, step, schedule, i, 0.0)
        points.append(step.W.astype(float))
        biases.append(step.bias.astype(float))
    np.testing.assert_allclose(state.W, step.W, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.mean, np.mean(points, axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.mean_bias, np.mean(biases, axis=0), rtol=1e-4, atol=1e-6)


def test_sums_of_the_other_blocks(tmp_path):
    sums = LogSums(tmp_path / "f", 10, [2, 3, 5], fresh=True)
    np.testing.assert_allclose(sums.others(1, 2, 6), np.log(7), rtol=1e-6)
    sums.put(0, 3, np.array([0.5, -900.0]))
    expected = np.logaddexp([np.log(2), 0.5, -900.0, np.log(2)], np.log(5))
    np.testing.assert_allclose(sums.others(1, 2, 6), expected, rtol=1e-6)
    assert LogSums(tmp_path / "g", 10, [4], fresh=True).others(0, 0, 3).tolist() == [-np.inf] * 3
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": 0}, "alpha must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": -1.0}, "tol must be"),
        ({"window_bytes": 0}, "window_bytes must be"),
        ({"block_classes": 0}, "block_classes must be"),
        ({"dtype": "int32"}, "dtype must be"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path, stores, options, said):
    with pytest.raises(ValueError, match=said):
        fit_blocks(stores[0]["sparse"], tmp_path / "m", **options)
    assert not any(tmp_path.iterdir())


def test_wrong_data_are_refused(tmp_path, problem):
    X, y = problem
    for name, targets, said in (
        ("none", None, "targets of kind 'none'"),
        ("numbers", y / 2, "targets of kind 'numbers'"),
        ("one", np.zeros(len(y), int), "one class"),
    ):
        write_store(tmp_path / name, X, targets)
        with pytest.raises(ValueError, match=said):
            fit_blocks(RowStore(tmp_path / name), tmp_path / "m")
    bad = X.copy()
    bad.data[100] = np.nan
    write_store(tmp_path / "bad", bad, y)
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit_blocks(RowStore(tmp_path / "bad"), tmp_path / "m")
    with pytest.raises(ValueError, match="exists already"):
        fit_blocks(RowStore(tmp_path / "bad"), tmp_path / "one")


_REGIME = """
import os, resource, sys
import numpy as np
from manyclass.solvers.out_of_core import fit_blocks
from manyclass.io.store import RowStore
data, model, warm, space, block, window = sys.argv[1:]
options = dict(alpha=1e-3, max_iter=2, block_bytes=int(block), window_bytes=int(window), certificate=False)
fit_blocks(RowStore(warm), model + ".warm", **options).topk(RowStore(warm).rows()[:], 1)
own = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (own + int(space),) * 2)
store = RowStore(data)
for what, size in (("rows", store.nbytes), ("weights", 4 * store.shape[1] * store.n_outputs)):
    try:
        np.empty(size, np.int8)
    except MemoryError:
        print("no room for the", what)
made = fit_blocks(store, model, **options)
right = 0
for part in store.rows().windows(int(window)):
    right += int(np.sum(made.topk(part.X, 1)[0][:, 0] == store.classes[part.y]))
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

"""The sparse table of weights: what it holds, and that a fit on it is a fit on an array, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from helpers import make_data, make_problem
from manyclass import LinearClassifier
from manyclass.kernels import table as tables
from manyclass.kernels.jit import jit
from manyclass.kernels.rows import make_rows, row_span
from manyclass.objective.losses import CrammerSingerLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import minimize
from manyclass.solvers import ActiveSetSDCA
from manyclass.solvers.dual._image import TableImage, larger_table, table_matrix

DTYPES = (np.float32, np.float64)


@jit
def add_all(table, rows, row, classes, coef, reg, begin):
    """Add ``coef[t] x_row[t]`` to the class; returns how far the room lasted."""
    one, value = np.empty(1, np.int64), np.empty(1, coef.dtype)
    slots, unused = np.empty(64, np.int64), np.empty(1, coef.dtype)
    for t in range(begin, len(row)):
        one[0], value[0] = classes[t], coef[t]
        if not tables.has_room(table, rows, row[t], 1):
            return t
        first, last = row_span(rows, row[t])
        tables.image_scores(table, rows, row[t], first, last, one, 1, reg, unused, slots)
        tables.add_to_image(table, rows, row[t], first, last, value, one, 1, slots)
    return len(row)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), K=st.sampled_from([1, 2, 3, 17, 300]), wide=st.booleans())
def test_table_is_the_array(seed, K, wide):
    """Any sequence of additions, with room for few entries at first."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[wide]
    X = sp.random(20, 7, 0.4, format="csr", random_state=seed % 1000, dtype=np.float64).astype(dtype)
    rows, reg = make_rows(X), L2()
    times = int(rng.integers(0, 400))
    row, classes = rng.integers(0, 20, times), rng.integers(0, K, times) ** 2 % K
    coef = rng.normal(size=times).astype(dtype)
    state = tables.make_table(7, 4, dtype).arrays()
    done = 0
    while (done := add_all(tables.table_of(state), rows, row, classes, coef, reg, done)) < times:
        old = tables.table_of(state)
        state = larger_table(old, 2 * old.slots + 1, 2).arrays()
    table = tables.table_of(state)
    expected = np.zeros((7, K), dtype)
    for i, k, c in zip(row, classes, coef):
        for t in range(X.indptr[i], X.indptr[i + 1]):
            expected[X.indices[t], k] += X.data[t] * c
    weights = table_matrix(table, reg, K, 2)
    np.testing.assert_allclose(weights.toarray(), expected, rtol=1e-4 if dtype == np.float32 else 1e-12)
    assert sp.csr_matrix((weights.data, weights.indices, weights.indptr), weights.shape).has_canonical_format
    g, conjugate = np.sum([tables.table_sums(table, reg, 0, 3), tables.table_sums(table, reg, 3, 7)], axis=0)
    np.testing.assert_allclose([g, conjugate], 0.5 * np.sum(np.float64(expected) ** 2), rtol=1e-4)
    assert table.used[0] <= table.slots
    taken = np.count_nonzero(table.keys.reshape(-1, 2)[:, 0] >= 0)
    assert table.held.sum() <= taken  # what features have given up still lies there


def active_problem(reg, dtype, intercept, weighted, K=40, n=150, threads=1):
    data = make_data("class", n=n, d=12, K=K, seed=3, weighted=weighted, density=0.3)
    loss = CrammerSingerLoss(0.1)
    return make_problem(loss, data, reg=reg, lam=1e-3, dtype=dtype, intercept=intercept, n_threads=threads)


@pytest.mark.parametrize("sampling", ["permutation", "rounds"])
@pytest.mark.parametrize(
    ("reg", "dtype", "intercept", "weighted"),
    [
        (L2(), np.float64, False, False),
        (L2(), np.float32, True, True),
        (ElasticNet(0.3), np.float64, True, False),
        (ElasticNet(0.3), np.float32, False, True),
    ],
)
def test_a_fit_on_the_table_is_a_fit_on_the_array(reg, dtype, intercept, weighted, sampling):
    problem = active_problem(reg, dtype, intercept, weighted, threads=2)
    solvers = {name: ActiveSetSDCA(first=4, more=2, storage=name, sampling=sampling) for name in ("dense", "sparse")}
    states = {name: solver.state(problem) for name, solver in solvers.items()}
    runs = [solver.iterate(problem, states[name], 0) for name, solver in solvers.items()]
    for _, (dense, sparse) in zip(range(16), zip(*runs)):
        W, V = (solvers[name].weights(problem, states[name])[0] for name in ("dense", "sparse"))
        np.testing.assert_array_equal(V.toarray(), W)
        for name in ("b", "rivals", "bias"):
            np.testing.assert_array_equal(states["dense"][name], states["sparse"][name])
        if dense.bound is not None:
            assert sparse.bound.primal == pytest.approx(dense.bound.primal, rel=1e-6)
            assert sparse.bound.dual == pytest.approx(dense.bound.dual, rel=1e-6)


@pytest.mark.parametrize("sampling", ["permutation", "rounds"])
def test_the_certificate_is_true(sampling):
    problem = active_problem(L2(), np.float64, True, True, threads=2)
    found = minimize(problem, ActiveSetSDCA(storage="sparse", sampling=sampling), tol=1e-4, max_iter=2000)
    assert found.certificate.relative_gap <= 1e-4
    W = found.weights.toarray()
    assert problem.value(W, found.intercept) == pytest.approx(found.certificate.primal, rel=1e-9)
    best = minimize(problem, ActiveSetSDCA(storage="dense"), tol=1e-7, max_iter=5000).certificate
    assert found.certificate.dual <= best.primal * (1 + 1e-9)
    assert best.dual <= found.certificate.primal * (1 + 1e-9)


@pytest.mark.parametrize("sampling", ["permutation", "rounds"])
def test_room_is_made_in_the_midst_of_an_epoch(sampling, monkeypatch):
    problem = active_problem(L2(), np.float64, False, False, threads=2)
    solver = ActiveSetSDCA(storage="sparse", sampling=sampling)
    expected = minimize(problem, solver, max_iter=7, tol=1e-12, warn=False)
    grown = []
    enlarge, arrays = TableImage.enlarge, TableImage.arrays

    def small(self, problem):
        return tables.make_table(problem.n_features, 8, problem.dtype).arrays()

    def counted(self, problem, state):
        grown.append(len(state["keys"]))
        enlarge(self, problem, state)

    monkeypatch.setattr(TableImage, "arrays", small)
    monkeypatch.setattr(TableImage, "enlarge", counted)
    found = minimize(problem, solver, max_iter=7, tol=1e-12, warn=False)
    assert len(grown) >= 2
    assert arrays is not small
    np.testing.assert_array_equal(found.weights.toarray(), expected.weights.toarray())


def test_storage():
    problem = active_problem(L2(), np.float64, False, False)
    assert "V" in ActiveSetSDCA().state(problem)  # small: an array
    assert "keys" in ActiveSetSDCA(storage="sparse").state(problem)
    with pytest.raises(ValueError, match=r"The 'storage' parameter of ActiveSetSDCA must be a str among .* Got 'disk'"):
        ActiveSetSDCA(storage="disk").check()
    data = make_data("class", n=20, d=3, K=4)
    with pytest.raises(ValueError, match="storage='sparse' needs sparse rows, got dense rows"):
        ActiveSetSDCA(storage="sparse").prepare(make_problem(CrammerSingerLoss(0.1), data, view="dense"))


def test_an_estimator_keeps_sparse_weights(monkeypatch, tmp_path):
    from manyclass.solvers.dual import _image

    monkeypatch.setattr(_image, "_DENSE_BYTES", 0)
    data = make_data("class", n=300, d=15, K=120, seed=1, density=0.3)
    X = sp.csr_matrix(data.X)
    model = LinearClassifier("crammer_singer", alpha=1e-2, max_iter=1000, random_state=0).fit(X, data.T)
    assert model.solver_ == "sdca_active"
    assert model.duality_gap_ <= 1e-3
    assert sp.issparse(model.model_.weights)
    assert isinstance(model.coef_, np.ndarray)
    monkeypatch.undo()
    dense = LinearClassifier("crammer_singer", alpha=1e-2, max_iter=1000, random_state=0).fit(X, data.T)
    np.testing.assert_array_equal(model.coef_, dense.coef_)
    np.testing.assert_array_equal(model.predict(X), dense.predict(X))

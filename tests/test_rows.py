"""The row view: every container of rows does what dense NumPy does, without a copy or a compilation of its own."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from helpers import cast
from manyclass.kernels import products, rows as kernels
from manyclass.kernels.rows import CSRRows, has_duplicates, make_rows, n_stored, read_only, scan_indices
from manyclass.kernels.vectors import MOST
from manyclass.objective.penalties import L2, ElasticNet
from registry import VIEWS

REG = ElasticNet(0.3)
N, D, K = 12, 7, 9


def shrunk(V):
    return np.sign(V) * np.maximum(np.abs(V) - 0.3, 0)


@numba.njit
def _everything(rows, i, V, coef, lo, hi, classes, reg, U, W):
    """All operations on row i: scores of a range and of some classes, both updates of V, the norm, the row count."""
    s, t = np.ones(hi - lo, V.dtype), np.ones(classes.size, V.dtype)
    products.add_scores(rows, i, V, lo, hi, reg, s)
    begin, end = kernels.row_span(rows, i)
    products.add_sparse_scores(rows, i, begin, end, V, classes, classes.size, reg, t)
    products.add_outer(rows, i, coef[: hi - lo], lo, hi, U)
    products.add_sparse_outer(rows, i, begin, end, coef[: classes.size], classes, classes.size, W)
    return s, t, U, W, kernels.squared_norm(rows, i), kernels.n_rows(rows)


def everything(rows, i, V, coef, lo, hi, classes):
    return _everything(rows, i, V, coef, lo, hi, classes, cast(REG, V.dtype), np.copy(V), np.copy(V))


@numba.njit
def _within(rows, i, coef, classes, first, last, U, W):
    """Both updates of V, for the features first <= j < last."""
    products.add_outers(rows, i, 1, coef.reshape(1, -1), 0, coef.size, first, last, U)
    products.add_sparse_outer_within(rows, i, coef[: classes.size], classes, classes.size, first, last, W)


@pytest.fixture
def X(dtype):
    """Sparse rows: the first is empty, the last full; some values are stored zeros in no view."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.4)
    X[0] = 0
    X[-1] = rng.normal(size=D)
    return X.astype(dtype)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("lo", "hi"), [(0, K), (2, 5), (K - 1, K), (4, 4)])
def test_operations_equal_dense_numpy(view, X, dtype, lo, hi, order):
    rng = np.random.default_rng(1)
    V, coef = rng.normal(size=(D, K)).astype(dtype, order=order), rng.normal(size=K).astype(dtype)
    classes = rng.permutation(K)[:4]
    rows = make_rows(view(X))
    close = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    for i in range(N):
        s, t, U, W, norm, n = everything(rows, i, V, coef, lo, hi, classes)
        scores = 1 + X[i] @ shrunk(V)
        np.testing.assert_allclose(s, scores[lo:hi], **close)
        np.testing.assert_allclose(t, scores[classes], **close)
        expected = V.copy()
        expected[:, lo:hi] += np.outer(X[i], coef[: hi - lo])
        np.testing.assert_allclose(U, expected, **close)
        expected = V.copy()
        expected[:, classes] += np.outer(X[i], coef[:4])
        np.testing.assert_allclose(W, expected, **close)
        assert norm == pytest.approx((X[i].astype(np.float64) ** 2).sum(), rel=1e-14)
        assert n == N


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("first", "last"), [(0, D), (2, 5), (3, 3)])
def test_updates_of_a_range_of_features_are_part_of_the_whole_ones(view, X, dtype, first, last, order):
    rng = np.random.default_rng(1)
    V, coef = rng.normal(size=(D, K)).astype(dtype, order=order), rng.normal(size=K).astype(dtype)
    classes = rng.permutation(K)[:4]
    rows = make_rows(view(X))
    for i in range(N):
        U, W = np.copy(V), np.copy(V)
        _within(rows, i, coef, classes, first, last, U, W)
        _, _, whole, sparse, *_ = everything(rows, i, V, coef, 0, K, classes)
        for found, expected in ((U, whole), (W, sparse)):
            np.testing.assert_array_equal(found[first:last], expected[first:last])
            outside = np.delete(np.arange(D), np.arange(first, last))
            np.testing.assert_array_equal(found[outside], V[outside])


@numba.njit
def _scores_and_update(rows, i, V, coef, lo, hi, reg, U):
    s = np.ones(hi - lo, V.dtype)
    products.add_scores(rows, i, V, lo, hi, reg, s)
    products.add_outer(rows, i, coef[lo:hi], lo, hi, U)
    return s


def spread(array):
    """The same numbers, each before one that must not be read."""
    return np.stack([array, np.full_like(array, 10**6)], axis=1)[:, 0]


@pytest.mark.parametrize("name", ["data", "indices"])
def test_strided_rows_are_read_by_their_strides(X, dtype, name):
    rng = np.random.default_rng(1)
    V, coef = rng.normal(size=(D, 16)).astype(dtype), rng.normal(size=16).astype(dtype)
    rows = make_rows(sp.csr_matrix(X))
    close = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    strided = rows._replace(**{name: read_only(spread(getattr(rows, name)))})
    for i in range(N):
        U, W = V.copy(), V.copy()
        s, t = (_scores_and_update(r, i, V, coef, 0, 16, L2(), A) for r, A in ((rows, U), (strided, W)))
        np.testing.assert_allclose(t, s, **close)
        np.testing.assert_allclose(W, U, **close)


@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("values", [np.float32, np.float64])
def test_vectors_of_outputs_equal_dense_numpy(X, dtype, values, indices):
    """Blocks of all sizes, and outputs that remain; the same last bits whatever range an output is part of."""
    rng = np.random.default_rng(1)
    X = X.astype(values)
    S = sp.csr_matrix(X)
    rows = CSRRows(*map(read_only, (S.data, S.indices.astype(indices), S.indptr.astype(indices))))
    close = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    for width in [*range(2, 42), MOST - 1, MOST, MOST + 1]:
        V, coef = rng.normal(size=(D, width + 3)).astype(dtype), rng.normal(size=width + 3).astype(dtype)
        for i in (0, 1, N - 1):
            U = V.copy()
            s = _scores_and_update(rows, i, V, coef, 2, 2 + width, L2(), U)
            np.testing.assert_allclose(s, 1 + X[i] @ V[:, 2 : 2 + width], **close)
            expected = V.copy()
            expected[:, 2 : 2 + width] += np.outer(X[i], coef[2 : 2 + width])
            np.testing.assert_allclose(U, expected, **close)
            half, parts = 2 + width // 2, V.copy()
            left = _scores_and_update(rows, i, V, coef, 2, half, L2(), parts)
            right = _scores_and_update(rows, i, V, coef, half, 2 + width, L2(), parts)
            np.testing.assert_array_equal(np.concatenate([left, right]), s)
            np.testing.assert_array_equal(parts, U)


def test_one_output_is_a_case_of_many(view, X, dtype):
    """With one output there are loops of its own."""
    rng = np.random.default_rng(1)
    V, coef = rng.normal(size=(D, 1)).astype(dtype), rng.normal(size=1).astype(dtype)
    rows = make_rows(view(X))
    close = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    for i in range(N):
        s, _, U, *_ = everything(rows, i, V, coef, 0, 1, np.zeros(1, np.int64))
        np.testing.assert_allclose(s, 1 + X[i] @ shrunk(V), **close)
        np.testing.assert_allclose(U, V + np.outer(X[i], coef), **close)


def test_squared_norm_is_accumulated_in_float64():
    """A sum of float32 squares that float32 cannot hold."""
    x = np.full((1, 100_000), 0.1, np.float32)
    V = np.zeros((1, 1), np.float32)
    norm = everything(make_rows(x), 0, V.repeat(x.size, 0), V[0], 0, 1, np.zeros(1, np.int64))[4]
    assert norm == pytest.approx(x.size * float(np.float32(0.1)) ** 2, rel=1e-12)


@numba.njit
def _products_of_rows(rows, n):
    found = np.empty((n, n))
    for i in range(n):
        for k in range(n):
            found[i, k] = kernels.row_dot(rows, i, k)
    return found


def test_products_of_rows(view, X, dtype):
    exact = X.astype(np.float64)
    np.testing.assert_allclose(_products_of_rows(make_rows(view(X)), N), exact @ exact.T, rtol=1e-13, atol=1e-13)


def test_no_view_copies_and_none_can_be_written_to(view, X):
    held = view(X)
    rows = make_rows(held)
    parts = (held.data, held.indices, held.indptr) if sp.issparse(held) else (held,)
    for part, array in zip(parts, rows):
        assert np.shares_memory(part, array)
        assert type(array) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_view_leaves_the_callers_flags_alone():
    X = np.ones((2, 2))
    read_only(X)[0]
    X[0, 0] = 2
    assert X.flags.writeable


@pytest.mark.parametrize(
    "names", [("csr-int32", "csr-frozen"), ("dense-c", "dense-frozen", "dense-mapped")], ids=["csr", "dense"]
)
def test_writable_read_only_and_mapped_share_one_specialization(names, X, tmp_path):
    types = {tuple(numba.typeof(array) for array in make_rows(VIEWS[name](X, tmp_path))) for name in names}
    assert len(types) == 1


def test_mixed_precision_works_in_that_of_the_weights():
    """float32 rows, float64 weights: nothing is rounded to float32 on the way."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1, D)).astype(np.float32)
    V, coef = rng.normal(size=(D, K)), rng.normal(size=K)
    s, _, U, *_ = everything(make_rows(x), 0, V, coef, 0, K, np.arange(2))
    np.testing.assert_allclose(s, 1 + x[0].astype(np.float64) @ shrunk(V), rtol=1e-13)
    np.testing.assert_allclose(U, V + np.outer(x[0].astype(np.float64), coef), rtol=1e-14)


def test_n_stored_counts_values(X):
    assert n_stored(make_rows(sp.csr_matrix(X))) == np.count_nonzero(X)
    assert n_stored(make_rows(X)) == X.size
    assert n_stored(make_rows(sp.csr_matrix(X)[3:6])) == np.count_nonzero(X[3:6])


def test_has_duplicates():
    def duplicated(indices, indptr):
        arrays = read_only(np.array(indices, np.int32)), read_only(np.array(indptr, np.int32))
        return has_duplicates(*arrays, np.full(4, -1, np.int64))

    assert not duplicated([0, 1, 1, 3], [0, 2, 2, 4])
    assert duplicated([0, 1, 3, 1, 3], [0, 2, 2, 5])
    assert not duplicated([], [0, 0])


def test_a_row_view_of_a_csr_matrix_is_csr(X):
    assert isinstance(make_rows(sp.csr_array(X)), CSRRows)
    assert isinstance(make_rows(sp.csr_matrix(X)), CSRRows)


def scanned(indices, indptr, dtype=np.int32):
    unsigned = np.asarray(indices, dtype).view(f"u{np.dtype(dtype).itemsize}")
    return scan_indices(read_only(unsigned), read_only(np.array(indptr, dtype)))


@pytest.mark.parametrize("at", [1, 4095, 4096, 4097, 8191, 8192, 8193, 16385, 19999])
def test_duplicates_are_found_wherever_they_are_and_not_between_rows(at):
    """Indices are compared in blocks over all rows at once."""
    indices = np.arange(20000, dtype=np.int32)
    indices[at] = indices[at - 1]
    one, several = (read_only(np.array(bounds, np.int32)) for bounds in ([0, 20000], [0, at, at, 20000]))
    assert not scanned(indices, one)[1]
    assert has_duplicates(read_only(indices), one, np.full(20000, -1, np.int64))
    assert scanned(indices, several)[1]
    assert not has_duplicates(read_only(indices), several, np.full(20000, -1, np.int64))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("at", [0, 4095, 4096, 8191, 9999])
def test_an_index_out_of_range_is_found_wherever_it_is(at, dtype):
    """A negative one is, as an unsigned integer, larger than any other."""
    indices = np.zeros(10000, dtype)
    for value in (7, -1):
        indices[at] = value
        assert scanned(indices, [0, 10000], dtype)[0] == int(dtype(value)) % 2 ** (8 * indices.itemsize)
    assert scanned([], [0, 0, 0], dtype) == (0, True)


def test_order_of_random_rows_is_that_of_numpy():
    """Empty rows, rows of one entry, and rows that begin and end where blocks do."""
    rng, found = np.random.default_rng(0), set()
    for _ in range(300):
        bounds = np.sort(rng.choice([0, 4095, 4096, 4097, 8192, *rng.integers(0, 9000, 4)], 7))
        indptr = np.array([0, *bounds, 9000])
        indices = np.concatenate([1 + np.sort(rng.choice(20000, n, replace=False)) for n in np.diff(indptr)])
        if rng.random() < 0.7:
            t = rng.choice(np.append(bounds[(bounds > 0) & (bounds < 9000)], rng.integers(1, 9000)))
            indices[t] = indices[t - 1] - rng.integers(0, 2)
        expected = all((np.diff(indices[a:b]) > 0).all() for a, b in zip(indptr[:-1], indptr[1:], strict=True))
        assert scanned(indices, indptr) == (indices.max(), expected)
        found.add(expected)
    assert found == {True, False}

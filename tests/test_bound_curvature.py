"""Bounds of partition functions: they touch, they dominate, and their inverses and forms agree with plain algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from scipy.special import logsumexp

from helpers import make_data, make_problem
from manyclass.objective.losses import LogisticLoss, MultinomialLoss
from manyclass.solvers.bound import LowRankDiagonal, partition_bound
from manyclass.solvers.bound.features import FeatureForm
from manyclass.solvers.bound.forms import KroneckerForm
from manyclass.solvers.bound.labels import ORDERS, Labels
from manyclass.solvers.bound.low_rank import nystrom, woodbury
from manyclass.solvers.bound.running import LowRank, Running, low_rank_curvature
from manyclass.solvers.bound.steps import Steps
from manyclass.solvers.primal.base import constant


def algorithm_1(f, log_measure, theta, order):
    """Jebara and Choromanska's algorithm 1, as it is printed, in logarithms."""
    a = log_measure + f @ theta
    labels = {"ascending": np.argsort(a), "descending": np.argsort(-a), "given": np.arange(len(a))}[order]
    z, g, sigma = -np.inf, np.zeros(f.shape[1]), np.zeros((f.shape[1],) * 2)
    for y in labels:
        if a[y] == -np.inf:
            continue
        l = f[y] - g
        r = a[y] - z
        beta = 0.0 if np.isinf(r) else 0.25 if abs(r) < 1e-6 else np.tanh(r / 2) / (2 * r)
        z_new = np.logaddexp(z, a[y])
        g = g + np.exp(a[y] - z_new) * l
        sigma += beta * np.outer(l, l)
        z = z_new
    return z, g, sigma


def random_model(rng, scale):
    K, D = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    f = rng.normal(size=(K, D)) * 10.0 ** rng.uniform(-2, 1)
    if K > 2 and rng.random() < 0.3:
        f[1] = f[0]  # ties
    log_measure = rng.normal(size=K) * 3 * (rng.random() < 0.5)
    if K > 1 and rng.random() < 0.3:
        log_measure[rng.integers(K - 1)] = -np.inf
    return f, log_measure, rng.normal(size=D) * scale


@given(
    seed=st.integers(0, 10**6), size=st.sampled_from([0.0, 0.1, 1.0, 30.0, 1e4]), order=st.sampled_from(sorted(ORDERS))
)
def test_the_bound_touches_and_dominates(seed, size, order):
    rng = np.random.default_rng(seed)
    f, log_measure, theta = random_model(rng, size)
    bound = partition_bound(f, theta, log_measure, order=order)
    exact = logsumexp(log_measure + f @ theta)
    assert bound(np.zeros(len(theta))) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    for far in (1e-3, 0.1, 1.0, 10.0, 1e3, 1e5):
        move = rng.normal(size=len(theta)) * far
        above, there = bound(move), logsumexp(log_measure + f @ (theta + move))
        assert above >= there - 1e-10 * (1 + abs(there) + abs(exact) + abs(bound.mean @ move))


@given(seed=st.integers(0, 10**6), order=st.sampled_from(sorted(ORDERS)))
def test_the_bound_is_that_of_the_printed_algorithm(seed, order):
    f, log_measure, theta = random_model(np.random.default_rng(seed), 1.0)
    bound = partition_bound(f, theta, log_measure, order=order)
    z, g, sigma = algorithm_1(f, log_measure, theta, order)
    assert bound.log_partition == pytest.approx(z, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(bound.mean, g, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(bound.curvature, sigma, rtol=1e-9, atol=1e-9 * max(1, np.abs(sigma).max()))


def test_the_gradient_of_the_bound_is_that_of_the_partition_function():
    rng = np.random.default_rng(0)
    f, theta = rng.normal(size=(6, 4)), rng.normal(size=4)
    steps = 1e-6 * np.eye(4)
    slope = [(logsumexp(f @ (theta + s)) - logsumexp(f @ (theta - s))) / 2e-6 for s in steps]
    np.testing.assert_allclose(partition_bound(f, theta).mean, slope, rtol=1e-7)


def test_the_order_of_the_labels_matters():
    """Highest first has the smaller trace: labels of no weight are compared with the heaviest, not with each other."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(50):
        f, theta = rng.normal(size=(8, 4)), rng.normal(size=4) * 3
        traces = [np.trace(partition_bound(f, theta, order=order).curvature) for order in ("descending", "ascending")]
        ratios.append(traces[0] / traces[1])
    assert 0.3 < np.mean(ratios) < 0.8


@pytest.mark.parametrize("sizes", [[1, 1], [1, 4, 2, 17, 30], [3, 3, 3]])
@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_products_and_diagonals_are_those_of_the_blocks(sizes, order, share):
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    L = rng.normal(size=offsets[-1]) * 3
    L[-1] = -np.inf if sizes[-1] > 1 else 0.0
    labels = Labels(L, offsets, rng.random(len(sizes)), order)
    blocks, squares = labels.blocks(share), labels.squares()
    v = rng.normal(size=offsets[-1])
    expected, diagonal = [], []
    for i, m in enumerate(sizes):
        C = blocks[squares[i] : squares[i + 1]].reshape(m, m)
        np.testing.assert_allclose(C, C.T, atol=1e-14)
        np.testing.assert_allclose(C.sum(axis=1), 0, atol=1e-14)
        assert np.linalg.eigvalsh(C).min() > -1e-14
        expected.append(C @ v[offsets[i] : offsets[i + 1]])
        diagonal.append(np.diag(C))
    np.testing.assert_allclose(labels.apply(share, v), np.concatenate(expected), atol=1e-13)
    np.testing.assert_allclose(labels.diagonal(share), np.concatenate(diagonal), atol=1e-14)


# --- low rank ---


@given(seed=st.integers(0, 10**6))
def test_low_rank_dominates_what_was_added(seed):
    rng = np.random.default_rng(seed)
    size, rank, n = int(rng.integers(2, 12)), int(rng.integers(1, 4)), int(rng.integers(1, 30))
    rows = rng.normal(size=(n, size)) * 10.0 ** rng.uniform(-2, 2, (n, 1))
    rows[rng.random(n) < 0.2] = rows[0]  # already in the span
    weights = rng.random(n)
    start = rng.random(size) + 0.1
    found = LowRankDiagonal(start, rank)
    rows *= np.sqrt(weights)[:, None]
    for part in np.array_split(rows, int(rng.integers(1, n + 1))):  # alone and together
        found.add(part)
    exact = np.diag(start) + rows.T @ rows
    largest = np.linalg.eigvalsh(exact).max()
    assert np.linalg.eigvalsh(found.dense() - exact).min() >= -1e-11 * largest
    u = rng.normal(size=size)
    np.testing.assert_allclose(found.dense() @ found.solve(u), u, atol=1e-6 * np.abs(u).max())


def test_low_rank_of_full_rank_is_exact():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(20, 5))
    found = LowRankDiagonal(np.ones(5), 5)
    for row in rows:
        found.add(row)
    np.testing.assert_allclose(found.dense(), np.eye(5) + rows.T @ rows, atol=1e-10)


@pytest.mark.parametrize("safe", [True, False])
def test_low_rank_keeps_the_largest_and_at_least_the_diagonal(safe):
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(40, 12)) * np.linspace(0.1, 3, 12)
    found = LowRankDiagonal(np.full(12, 0.5), 3, safe=safe)
    found.add(rows)
    exact = rows.T @ rows + 0.5 * np.eye(12)
    inner = found.rows @ found.rows.T
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-9)
    assert (np.diff(np.diag(inner)) <= 0).all()
    above = np.diag(found.dense()) - np.diag(exact)
    assert above.min() > (0.1 if safe else -1e-9)
    if not safe:
        np.testing.assert_allclose(above, 0, atol=1e-9)


def test_the_projection_often_given_is_no_bound_and_ours_is():
    """Rank-one updates that put the residual's own square into the diagonal lose the cross term."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 8)) + 2.0
    V, S, d = np.eye(8)[:1], np.zeros((1, 1)), np.ones(8)
    for q in rows:
        p = V @ q
        S, d = S + np.outer(p, p), d + (q - p @ V) ** 2
    naive = V.T @ S @ V + np.diag(d)
    found = LowRankDiagonal(np.ones(8), 1)
    for q in rows:
        found.add(q)
    exact = np.eye(8) + rows.T @ rows
    assert np.linalg.eigvalsh(naive - exact).min() < -1.0
    assert np.linalg.eigvalsh(found.dense() - exact).min() > -1e-9


def test_woodbury_and_nystrom_against_dense_algebra():
    rng = np.random.default_rng(3)
    rows, d, u = rng.normal(size=(3, 9)), rng.random(9) + 0.1, rng.normal(size=9)
    np.testing.assert_allclose(woodbury(d, rows, u), np.linalg.solve(np.diag(d) + rows.T @ rows, u), rtol=1e-10)
    A = rng.normal(size=(9, 9))
    A = A @ A.T
    basis = np.linalg.qr(rng.normal(size=(9, 4)))[0].T
    B = nystrom(basis, basis @ A)
    assert np.linalg.eigvalsh(A - B.T @ B).min() > -1e-9
    np.testing.assert_allclose(B.T @ B @ basis.T, A @ basis.T, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LowRankDiagonal(-np.ones(3), 1), "diagonal must be"),
        (lambda: LowRankDiagonal(np.ones(3), 0), "rank must be an integer of at least 1, got 0"),
        (lambda: LowRankDiagonal(np.zeros(3), 1).solve(np.ones(3)), "diagonal must be positive to solve, got a zero"),
        (lambda: partition_bound(np.ones((0, 2)), np.ones(2)), "with K >= 1, got"),
        (lambda: partition_bound(np.ones((2, 2)), np.ones(3)), "theta must have shape"),
        (lambda: partition_bound(np.full((2, 2), np.nan), np.ones(2)), "finite"),
        (lambda: partition_bound(np.ones((2, 2)), np.ones(2), np.full(2, -np.inf)), "at least one label"),
        (lambda: partition_bound(np.ones((2, 2)), np.ones(2), order="down"), "order must be one of"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- forms ---


def general(form, X, K):
    """The same model, with every joint feature written out: x (kron) e_y, class by class."""
    x = np.hstack([X, np.full((len(X), 1), form.constant)]) if form.constant else X
    D = x.shape[1]
    F = np.zeros((len(X), form.labels, K, D))
    for k in range(K):
        F[:, k + form.labels - K, k] = x
    return FeatureForm(F.reshape(-1, K * D), form.offsets, form.y, form.scale)


@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("loss", [MultinomialLoss(), LogisticLoss()])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("density", [0.05, 0.6])
def test_kronecker_is_the_general_form(view, loss, intercept, density):
    K = 4 if loss.joint else 1
    data = make_data(loss.targets, n=50, d=12, K=K, seed=5, weighted=True, density=density)
    problem = make_problem(loss, data, view=view, intercept=intercept, lam=0.02)
    form = KroneckerForm.of(problem, constant(problem))
    plain = general(form, data.X, K)
    rng = np.random.default_rng(0)
    point = rng.normal(size=form.shape)
    point[-1] *= intercept
    u = point[: form.width].T.reshape(-1, 1)
    one, other = Steps(form, 0.02, "ascending"), Steps(plain, 0.02, "ascending")
    S, T = one.scores(point), other.scores(u)
    np.testing.assert_allclose(form.spread(S), plain.spread(T), atol=1e-12)

    G, H = np.empty((form.reduced,) * 2), np.empty((plain.reduced,) * 2)
    slope, tilt = one.gradient(point, S, G, 0.3), other.gradient(u, T, H, 0.3)
    if intercept:  # bears no penalty in the one, and one in the other
        bare = np.zeros((K, form.width))
        bare[:, -1] = 0.02
        tilt = tilt - bare.reshape(-1, 1) * u
        H -= np.diag(bare.ravel())
    np.testing.assert_allclose(slope[: form.width].T.reshape(-1, 1), tilt, atol=1e-12)
    # Reduced parameters are a basis of those whose classes sum to zero.
    basis = np.stack([form.expand(e)[: form.width].T.ravel() for e in np.eye(form.reduced)])
    np.testing.assert_allclose(G, basis @ H @ basis.T, atol=1e-12)
    np.testing.assert_allclose(form.reduce(slope), basis @ tilt[:, 0], atol=1e-12)

    ways = rng.normal(size=(3, *form.shape))
    ways[:, -1] *= intercept
    flat = ways[:, : form.width].transpose(0, 2, 1).reshape(3, -1, 1)
    (Y, d), (Z, e) = one.products(S, 0.3, ways), other.products(T, 0.3, flat)
    np.testing.assert_allclose(Y[:, : form.width].transpose(0, 2, 1).reshape(Z.shape), Z, atol=1e-12)
    np.testing.assert_allclose(d[: form.width].T.reshape(-1, 1), e, atol=1e-12)


def one_form(kind, n, d):
    rng = np.random.default_rng(0)
    if kind == "general":
        sizes = rng.integers(1, 5, n)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        F = sp.csr_matrix(rng.normal(size=(offsets[-1], d)))
        return FeatureForm(F, offsets, np.zeros(n, np.int64), np.full(n, 1 / n))
    loss = MultinomialLoss() if kind == "multinomial" else LogisticLoss()
    data = make_data(loss.targets, n=n, d=d, K=3 if loss.joint else 1, seed=1)
    problem = make_problem(loss, data, intercept=True)
    return KroneckerForm.of(problem, constant(problem))


@pytest.mark.parametrize("rank", [1, 3, 10**6])
@pytest.mark.parametrize("kind", ["multinomial", "binary", "general"])
def test_the_low_rank_curvature_of_all_samples_majorizes(kind, rank):
    """Against the full curvature; the same with as many rows as parameters."""
    form = one_form(kind, 30, 6)
    steps = Steps(form, 0.1, "ascending")
    point = np.random.default_rng(1).normal(size=form.shape)
    S = steps.scores(point)
    found = low_rank_curvature(steps, S, rank).matrix.dense()
    G = np.empty((form.reduced,) * 2)
    steps.gradient(point, S, G)
    basis = np.stack([form.expand(e).ravel() for e in np.eye(form.reduced)])
    more = basis @ found @ basis.T - G
    assert np.linalg.eigvalsh(more).min() > -1e-10
    if rank == 10**6:
        np.testing.assert_allclose(more, 0, atol=1e-5 * np.abs(G).max())
    else:
        assert np.abs(more).max() > 1e-3 * np.abs(G).max()


@pytest.mark.parametrize("rank", [1, 4])
def test_adding_samples_costs_rank_times_parameters(rank, monkeypatch):
    """m - 1 rows of m labels, in turns of at most ``rank``: O(k D) numbers at a time, O(k D) operations each."""
    form = one_form("multinomial", 30, 6)
    sizes, add = [], LowRankDiagonal.add
    monkeypatch.setattr(LowRankDiagonal, "add", lambda self, rows: (sizes.append(rows.shape), add(self, rows))[1])
    part = form.take(np.arange(form.n))
    LowRank.zero(form, rank, safe=True).add(part, np.tile((np.eye(3) - 1 / 3).ravel(), form.n))
    assert sum(rows for rows, _ in sizes) == 2 * form.n
    assert max(rows for rows, _ in sizes) == rank
    assert {size for _, size in sizes} == {7 * 3}


@pytest.mark.parametrize("kind", ["multinomial", "binary", "general"])
def test_the_updated_inverse_is_the_inverse_of_the_sum(kind):
    rng = np.random.default_rng(0)
    form = one_form(kind, 30, 20)
    kept = [Running(Running.first(form, 0.1, inverse), inverse) for inverse in (False, True)]
    for index in (np.array([3]), np.array([7, 0, 12]), np.arange(20, 29)):
        part = form.take(index)
        steps = Steps(part, 0.1, "ascending")
        S = part.scores(rng.normal(size=form.shape), 0, part.n)
        C = steps.labels(S, 0, part.n).blocks(1.0)
        for running in kept:
            running.add(part, C)
    np.testing.assert_allclose(kept[0].matrix @ kept[1].matrix, np.eye(form.reduced), atol=1e-9)
    u = rng.normal(size=form.reduced)
    np.testing.assert_allclose(kept[0].solve(u), kept[1].solve(u), rtol=1e-8, atol=1e-8)

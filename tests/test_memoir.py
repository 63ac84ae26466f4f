"""Properties of MEMOIR: it is its own plain reading, step for step, however its weights are held and truncated."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from indexes import THOROUGH
from manyclass import CrammerSinger, LinearClassifier, Memoir
from manyclass.datasets import make_many_classes
from manyclass.kernels import live_bounds
from manyclass.mips import SimpleLSH
from manyclass.solvers.memoir import solver as memoir_solver, weights as memoir_weights
from manyclass.solvers.memoir.learner import MemoirLearner

N, D, K = 240, 80, 20


@pytest.fixture(scope="module")
def data():
    X, y = make_many_classes(N, D, K, nnz_per_row=8, random_state=0)
    return X.astype(np.float64), y.astype(np.int32)


def orders(epochs, n=N):
    rng = np.random.default_rng(0)
    return [rng.permutation(n) for _ in range(epochs)]


def plain_rival(scores, y):
    """The best class but y; of scores of 0 the first after y, cyclically, else the lowest number."""
    scores = scores.copy()
    scores[y] = -np.inf
    if scores.max() == 0:
        return next((y + a) % len(scores) for a in range(1, len(scores)) if scores[(y + a) % len(scores)] == 0)
    return int(scores.argmax())


def plain(X, y, some_orders, *, batch, alpha, l1_ratio, eta0, eta_step=None, c=None, touched=False, printed=False):
    """Every formula written out on a dense W, nothing lazy: the points after each step."""
    W, points, seen = np.zeros((X.shape[1], K)), [], 0
    c = np.ones(X.shape[0]) if c is None else c
    for order in some_orders:
        for begin in range(0, len(order), batch):
            some = order[begin : begin + batch]
            t = len(points)
            eta = eta0 / (1 + eta_step * t) if eta_step is not None else eta0 / (1 + alpha * eta0 * seen)
            W = W * (1 - eta * len(some) * alpha * (1 - l1_ratio))
            step, used = np.zeros_like(W), set()
            for i in some:
                scores = X[i] @ W
                r = plain_rival(scores, y[i])
                used |= {int(y[i]), r}
                if 1 + scores[r] - scores[y[i]] > 0:
                    step[:, y[i]] += eta * c[i] * X[i]
                    step[:, r] -= eta * c[i] * X[i]
            W = W + step
            tau = eta * len(some) * alpha * l1_ratio
            if touched and l1_ratio:
                some_classes = sorted(used)
                part = W[:, some_classes]
                tau *= K / len(some_classes)
                W[:, some_classes] = np.sign(part) * np.maximum(np.abs(part) - tau, 0)
            elif l1_ratio:
                W = np.sign(W) * np.maximum(np.abs(W) - tau, 0)
            elif np.linalg.norm(W) > 0:
                strength = alpha * len(some) if printed else alpha
                W = W * min(1.0, 1.0 / (np.sqrt(strength) * np.linalg.norm(W)))
            points.append(W)
            seen += len(some)
    return points


def certified(alpha, tol):
    return LinearClassifier(
        CrammerSinger(gamma=0.01),
        solver="sdca",
        alpha=alpha,
        fit_intercept=False,
        tol=tol,
        max_iter=500,
        random_state=0,
    )


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def learnt(X, y, some_orders, *, batch, c=None, **options):
    learner = MemoirLearner(X.shape[1], K, X.dtype, **options)
    met = [learner.epoch(X, y, order, batch_size=batch, weights=c) for order in some_orders]
    return learner, met


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("alpha", "eta0", "eta_step"), [(1e-3, 0.3, 0.02), (0.05, 0.4, None), (1.0, 0.1, 0.0)])
def test_steps_are_those_of_the_plain_reading(data, sparse, l1_ratio, alpha, eta0, eta_step):
    """Lazy scaling, lazy truncation and the norm kept up are the eager ones; l2 with alpha = 1 meets its ball."""
    X, y = data
    c = np.random.default_rng(1).integers(0, 3, N).astype(float)
    options = {"alpha": alpha, "l1_ratio": l1_ratio, "eta0": eta0, "eta_step": eta_step}
    expected = plain(X.toarray(), y, orders(2), batch=7, c=c, **options)[-1]
    learner, _ = learnt(X, y, orders(2), batch=7, c=c, sparse=sparse, **options)
    np.testing.assert_allclose(dense(learner.weights()), expected, atol=1e-12)
    np.testing.assert_allclose(learner.norm(), np.linalg.norm(expected), rtol=1e-10)
    assert np.linalg.norm(expected) > 0 or alpha * l1_ratio >= 0.5


@pytest.mark.parametrize("sparse", [False, True])
def test_truncation_of_touched_classes(data, sparse):
    X, y = data
    options = {"alpha": 2e-3, "l1_ratio": 1.0, "eta0": 0.3, "eta_step": 0.02}
    expected = plain(X.toarray(), y, orders(2), batch=7, touched=True, **options)[-1]
    learner, _ = learnt(X, y, orders(2), batch=7, sparse=sparse, truncation="touched", **options)
    np.testing.assert_allclose(dense(learner.weights()), expected, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_mean_is_that_of_the_points(data, sparse):
    X, y = data
    options = {"alpha": 1e-2, "l1_ratio": 0.0, "eta0": 0.3, "eta_step": 0.0}
    points = plain(X.toarray(), y, orders(5), batch=9, **options)
    learner, _ = learnt(X, y, orders(5), batch=9, sparse=sparse, average=True, **options)
    # The mean begins anew with epochs 1, 2, 4 (from 0 on): that of the last fifth here.
    steps = -(-N // 9)
    np.testing.assert_allclose(dense(learner.weights()), np.mean(points[4 * steps :], axis=0), atol=1e-12)


def test_folding_the_scale_changes_nothing(data, monkeypatch):
    X, y = data
    options = {"alpha": 1e-2, "l1_ratio": 0.4, "eta0": 0.5, "eta_step": 0.0, "sparse": True}
    expected, _ = learnt(X, y, orders(3), batch=5, **options)
    monkeypatch.setattr("manyclass.solvers.memoir.learner._FOLD", 0.5)
    folded, _ = learnt(X, y, orders(3), batch=5, **options)
    assert folded.scale >= 0.4 > expected.scale
    np.testing.assert_allclose(dense(folded.weights()), dense(expected.weights()), atol=1e-12)


def test_the_norm_stays_within_its_ball(data):
    X, y = data
    alpha = 0.3
    learner = MemoirLearner(D, K, X.dtype, alpha=alpha, eta0=1.0, eta_step=0.0, sparse=True)
    bound = False
    for begin in range(0, N, 10):
        batch = memoir_weights.rows_of(X, np.arange(begin, begin + 10), X.dtype)
        learner.step(batch, y[begin : begin + 10])
        norm = np.linalg.norm(dense(learner.weights()))
        assert norm <= 1 / np.sqrt(alpha) * (1 + 1e-12)
        np.testing.assert_allclose(learner.norm(), norm, rtol=1e-10)
        bound |= norm > 0.999 / np.sqrt(alpha)
    assert bound


@pytest.mark.parametrize("sparse", [False, True])
def test_the_printed_ball_is_smaller_and_may_exclude_the_optimum(data, sparse):
    X, y = data
    options = {"alpha": 1e-2, "eta0": 0.5}
    expected = plain(X.toarray(), y, orders(3), batch=16, l1_ratio=0.0, printed=True, **options)
    learner, _ = learnt(X, y, orders(3), batch=16, sparse=sparse, ball="printed", **options)
    np.testing.assert_allclose(dense(learner.weights()), expected[-1], atol=1e-12)
    radius = 1 / np.sqrt(1e-2 * 16)
    norms = [np.linalg.norm(W) for W in expected]
    assert max(norms) <= radius * (1 + 1e-12)
    assert norms[-1] > 0.999 * radius
    assert np.linalg.norm(certified(1e-2, tol=3e-2).fit(X, y).coef_) > 1.5 * radius


def test_the_ball_holds_the_optimum(data):
    """||W*|| <= 1 / sqrt(alpha) for the mean of the losses; a sum over b rows needs sqrt(b) times as much."""
    X, y = data
    norms = []
    for alpha in (1e-3, 1e-2, 0.1):
        model = certified(alpha, tol=3e-2).fit(X, y)
        norms.append(np.linalg.norm(model.coef_) * np.sqrt(alpha))
    assert 0.2 < max(norms) <= 1.0 + 1e-6  # the bound is not idle


def test_l2_approaches_the_optimum(data):
    X, y = data
    alpha = 1e-2
    best = certified(alpha, tol=1e-3).fit(X, y)

    def objective(W):
        scores = X @ W
        own = scores[np.arange(N), y].copy()
        scores[np.arange(N), y] = -np.inf
        return np.maximum(0, 1 + scores.max(axis=1) - own).mean() + alpha / 2 * (W**2).sum()

    found = []
    for batch in (4, 16):
        learner, _ = learnt(X, y, orders(32), batch=batch, alpha=alpha, eta0=0.5, average=True, sparse=True)
        found.append(objective(dense(learner.weights())))
    # The batch size does not change the problem.
    assert max(found) <= 1.02 * best.objective_
    assert min(found) >= best.objective_ * (1 - 1e-3)


def test_l1_leaves_fewer_weights_the_larger_alpha(data):
    X, y = data
    counts = [
        learnt(X, y, orders(3), batch=6, alpha=alpha, l1_ratio=1.0, eta0=0.3, eta_step=0.0, sparse=True)[0]
        .weights()
        .nnz
        for alpha in (1e-4, 1e-3, 3e-3, 1e-2, 1e-1)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 1.5 * counts[2] > 100 * counts[-1]


def test_memory_follows_the_weights_that_are_left(data, monkeypatch):
    """Truncation gives slots back: a table does not keep what it has once held."""
    X, y = data
    monkeypatch.setattr(memoir_weights.TableWeights, "tidy", lambda self: None)
    options = {"l1_ratio": 1.0, "eta0": 0.3, "eta_step": 0.0, "sparse": True}
    held = {}
    for alpha in (1e-6, 1e-2):
        learner, _ = learnt(X, y, orders(6), batch=6, alpha=alpha, **options)
        table = learner.U.view()
        held[alpha] = int(table.held.sum()), learner.weights().nnz, int(table.capacity.sum())
    assert held[1e-2][0] <= 1.34 * held[1e-2][1] + D
    assert held[1e-2][2] < held[1e-6][2] / 2


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rivals_are_exact_and_never_the_true_class(sparse, dtype, monkeypatch):
    """Of small whole numbers, with many ties; by the list of touched classes, by the scan, and by bounds."""
    rng = np.random.default_rng(0)
    d = 30
    for density, bounded in ((0.02, 512), (0.4, 512), (0.02, 0), (0.4, 0)):
        monkeypatch.setattr(memoir_weights, "_BOUNDED", bounded)
        monkeypatch.setattr(memoir_weights, "_REFRESHED", 0)
        W = (rng.integers(-3, 4, (d, K)) * (rng.random((d, K)) < density)).astype(dtype)
        X = (rng.integers(-1, 4, (200, d)) * (rng.random((200, d)) < 0.2)).astype(dtype)
        y = rng.integers(0, K, 200).astype(np.int32)
        learner = MemoirLearner(d, K, dtype, sparse=sparse)
        learner.start(sp.csr_matrix(W))
        np.testing.assert_array_equal(dense(learner.weights()), W)
        batch = memoir_weights.rows_of(sp.csr_matrix(X), np.arange(200), np.dtype(dtype))
        S = X @ W
        for threads in (1, 3):
            rivals, best, own = learner.U.rivals(batch, y, threads)
            assert not np.any(rivals == y)
            np.testing.assert_array_equal(rivals, [plain_rival(s, k) for s, k in zip(S, y)])
            np.testing.assert_array_equal(best, S[np.arange(200), rivals])
            np.testing.assert_array_equal(own, S[np.arange(200), y])


@pytest.mark.parametrize(("l1_ratio", "truncation"), [(0.0, "lazy"), (1.0, "lazy"), (1.0, "touched")])
def test_bounds_of_blocks_change_nothing(l1_ratio, truncation, monkeypatch):
    """The same points with bounds, made once and kept up, as without; they do bound, and less is read."""
    monkeypatch.setattr(live_bounds, "_LISTED", 12)
    monkeypatch.setattr(live_bounds, "_COPIED", 4)
    monkeypatch.setattr(memoir_weights.TableWeights, "tidy", lambda self: None)  # which makes bounds afresh
    many = 600
    X, y = make_many_classes(1200, 1000, many, nnz_per_row=20, random_state=0)
    X, y = X.astype(np.float64), y.astype(np.int32)
    runs = {}
    for bounded in (True, False):
        monkeypatch.setattr(memoir_weights, "_BOUNDED", 0 if bounded else 10**6)
        learner = MemoirLearner(
            1000, many, X.dtype, alpha=1e-5, l1_ratio=l1_ratio, eta0=0.3, truncation=truncation, sparse=True
        )
        met = []
        for epoch, order in enumerate(orders(5, 1200)):
            # From the first batch of the third epoch on, never again.
            monkeypatch.setattr(memoir_weights, "_REFRESHED", 0 if epoch < 2 else 10**6)
            met.append(learner.epoch(X, y, order, batch_size=40))
        runs[bounded] = learner, met
    (with_bounds, met), (without, expected) = runs[True], runs[False]
    np.testing.assert_allclose(dense(with_bounds.weights()), dense(without.weights()), rtol=1e-9, atol=1e-12)
    assert [a.updates for a in met] == [b.updates for b in expected]
    np.testing.assert_allclose([a.loss for a in met], [b.loss for b in expected], rtol=1e-9)
    place, bound, copy = with_bounds.U._bounds
    if truncation == "lazy":
        U, chosen = dense(with_bounds.U.export()), np.flatnonzero(place >= 0)
        assert len(chosen) > len(copy) > 0
        highest = np.pad(U[chosen], ((0, 0), (0, -many % 16))).reshape(len(chosen), -1, 16).max(axis=2)
        assert (bound[place[chosen]] >= highest).all()
        held = chosen[place[chosen] < len(copy)]
        np.testing.assert_array_equal(copy[place[held], :many], U[held])
    # Asked for rivals within the margin alone, it reads less, and is wrong about none of them.
    batch, read = memoir_weights.rows_of(X, np.arange(1200), X.dtype), []
    for scale in (0.0, with_bounds.scale):
        with_bounds.U._read = 0
        rivals, best, own = with_bounds.U.rivals(batch, y, 1, scale)
        read.append(with_bounds.U._read)
        inside = 1 + with_bounds.scale * (best - own) > 0
        if not scale:
            exact, expected_inside = rivals, inside
    np.testing.assert_array_equal(inside, expected_inside)
    np.testing.assert_array_equal(rivals[inside], exact[inside])
    assert 0 < inside.sum() < 1200
    if truncation == "lazy":  # the other one moves weights behind the bounds' back: they are dropped
        assert read[1] < read[0]


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_a_search_of_few_blocks_tells_what_it_misses(l1_ratio):
    many = 600
    X, y = make_many_classes(2400, 1000, many, nnz_per_row=20, random_state=0)
    y = y.astype(np.int32)

    def made(most, threads=1):
        return MemoirLearner(
            1000, many, X.dtype, alpha=1e-5, l1_ratio=l1_ratio, eta0=0.3, sparse=True, search=most, n_threads=threads
        )

    def fitted(most, threads=1):
        learner = made(most, threads)
        return learner, [learner.epoch(X, y, order, batch_size=40) for order in orders(3, 2400)]

    exact, _ = fitted(None)
    every, met = fitted(1000)
    np.testing.assert_array_equal(dense(every.weights()), dense(exact.weights()))
    assert [a.recall for a in met] == [1.0] * 3
    errors = []
    for most in (1, 6):
        learner, met = fitted(most)
        np.testing.assert_array_equal(dense(learner.weights()), dense(fitted(most, 3)[0].weights()))
        # What it finds depends on the bounds, which a resumed fit has to make as one that goes on.
        stopped, resumed = made(most), made(most)
        for order in orders(3, 2400):
            stopped.epoch(X, y, order, batch_size=40)
            resumed.unpack(stopped.pack())
            stopped, resumed = resumed, made(most)
        np.testing.assert_array_equal(dense(learner.weights()), dense(stopped.weights()))
        assert 0 < met[-1].recall < 1
        assert met[-1].loss < met[0].loss
        errors.append(met[-1].margin_error)
    assert errors[0] > errors[1] > 0
    # At the same weights no row gets a better rival, and fewer blocks are read.
    batch, read, best = memoir_weights.rows_of(X, np.arange(2400), X.dtype), [], []
    for most in (0, 6, 1):
        exact.U._read = 0
        rivals, found, _ = exact.U.rivals(batch, y, 1, 0.0, most)
        assert not np.any(rivals == y)
        read.append(exact.U._read)
        best.append(found)
    assert read[1] > read[2]
    assert (best[0] >= best[1]).all()
    assert (best[0] > best[1]).any()


@pytest.mark.parametrize("name", THOROUGH)
@pytest.mark.parametrize("sparse", [False, True])
def test_an_index_that_scores_all_classes_is_the_exact_search(data, name, sparse):
    """It is kept up to date: after two epochs the weights are those without an index."""
    X, y = data
    if name == "small_world":  # a walk for each changed class: slow where all classes are met
        X, y = X[:36], y[:36]
    options = {"alpha": 1e-3, "eta0": 0.3, "eta_step": 0.02, "sparse": sparse}
    some = orders(2, X.shape[0])
    expected, _ = learnt(X, y, some, batch=12, **options)
    learner, met = learnt(X, y, some, batch=12, search=THOROUGH[name](), **options)
    np.testing.assert_allclose(dense(learner.weights()), dense(expected.weights()), atol=1e-10)
    assert all(m.recall == 1.0 and m.margin_error <= 1e-12 for m in met)


@pytest.mark.parametrize("hashed_features", [None, 40])
@pytest.mark.parametrize("sparse", [False, True])
def test_codes_that_follow_the_steps_are_those_of_the_weights(data, sparse, hashed_features):
    """With longer and longer vectors, whose bound grows, and with classes that come later."""
    X, y = data
    X, y = sp.csr_matrix(X), y.astype(np.int32)
    index = SimpleLSH(bits=512, candidates=5, hashed_features=hashed_features)
    learner = MemoirLearner(D, K - 2, X.dtype, alpha=1e-3, eta0=0.3, sparse=sparse, search=index)
    early = np.flatnonzero(y < K - 2)
    bounds = []
    for some in (early[:40], early[40:80], np.arange(N)):
        if len(some) == N:
            learner.grow(K)
        for begin in range(0, len(some), 20):
            rows = some[begin : begin + 20]
            learner.step(memoir_weights.rows_of(X, rows, X.dtype), y[rows])
        bounds.append(learner.proposals._bound)
    U = dense(learner.U.export())
    np.testing.assert_allclose(learner.proposals.squares, (U**2).sum(axis=0), rtol=1e-9, atol=1e-12)
    assert bounds[0] < bounds[-1]
    assert bounds[-1] ** 2 >= learner.proposals.squares.max()
    codes = learner.proposals._codes.copy()
    planes = learner.proposals._planes
    sides = planes.sides(sp.csr_matrix(U.T)).astype(np.float32)
    expected = planes.class_codes(sides, np.sqrt((U**2).sum(axis=0)), bounds[-1])
    assert np.unpackbits((codes ^ expected).view(np.uint8)).mean() < 1e-3  # sums in another order
    assert (learner.U.vectors(np.arange(K)) != 0).sum() > 0


def test_many_classes_are_searched_in_sixteen_blocks(monkeypatch):
    X, y = make_many_classes(1200, 60_000, 600, nnz_per_row=20, random_state=0)

    def weights(search):
        model = LinearClassifier(CrammerSinger(gamma=0), alpha=1e-5, solver=Memoir(search=search), max_iter=2)
        return model.set_params(random_state=0).fit(X, y).model_.weights

    exact, few = weights("exact"), weights(16)
    assert abs(exact - few).max() > 0
    assert abs(weights("auto") - exact).max() == 0
    monkeypatch.setattr(memoir_solver, "_MISSING", 600)
    assert abs(weights("auto") - few).max() == 0


def test_an_index_that_misses_is_told(data):
    X, y = data
    _, met = learnt(
        X, y, orders(3), batch=12, alpha=1e-3, eta0=0.3, sparse=True, search=SimpleLSH(bits=64, candidates=1)
    )
    assert 0 < met[-1].recall < 1
    assert met[-1].margin_error > 0
    # Proposals are scored on the live weights: it learns all the same.
    assert met[-1].loss < met[0].loss


@pytest.mark.parametrize("search", [None, SimpleLSH(bits=64, candidates=5)])
@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_change_a_bit(data, sparse, search):
    import copy

    X, y = data
    found = [
        dense(
            learnt(
                X, y, orders(2), batch=30, n_threads=threads, search=copy.deepcopy(search), sparse=sparse, alpha=1e-3
            )[0].weights()
        )
        for threads in (1, 3)
    ]
    np.testing.assert_array_equal(*found)


def test_dense_rows_are_sparse_rows(data):
    X, y = data
    options = {"alpha": 1e-3, "eta0": 0.3}
    ours, _ = learnt(X.toarray(), y, orders(2), batch=7, sparse=False, **options)
    theirs, _ = learnt(X, y, orders(2), batch=7, sparse=False, **options)
    np.testing.assert_array_equal(ours.weights(), theirs.weights())


def test_float32_is_near_float64(data):
    X, y = data
    options = {"alpha": 1e-2, "eta0": 0.1, "sparse": True, "average": True}
    double, _ = learnt(X, y, orders(4), batch=7, **options)
    single, _ = learnt(X.astype(np.float32), y, orders(4), batch=7, **options)
    assert single.weights().dtype == np.float32
    np.testing.assert_allclose(dense(single.weights()), dense(double.weights()), atol=0.05)


@pytest.mark.parametrize("sparse", [False, True])
def test_classes_may_come_later(data, sparse):
    """A class that has weights 0 until its rows come is one that was there from the start."""
    X, y = data
    options = {"alpha": 1e-3, "eta0": 0.3, "eta_step": 0.0, "average": True, "sparse": sparse}
    early, late = np.flatnonzero(y < 15), np.flatnonzero(y >= 15)
    grown = MemoirLearner(D, 15, X.dtype, **options)
    grown.epoch(X, y, early, batch_size=6)
    grown.grow(K)
    grown.epoch(X, y, late, batch_size=6)
    assert grown.n_classes == K
    assert grown.weights().shape == (D, K)
    assert np.abs(dense(grown.weights())[:, 15:]).sum() > 0

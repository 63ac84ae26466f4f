"""Mixed weights: what is found through their coarse copy is what all scores, of the weights themselves, tell."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from manyclass.kernels import proposals
from manyclass.kernels.mixed import make_mixed
from manyclass.kernels.rows import make_rows
from manyclass.kernels.scoring import Scorer
from manyclass.objective.losses import CrammerSingerLoss
from manyclass.objective.penalties import L2

#: Weights of a feature: in how many classes, and how they are drawn. "outlier": one makes the others coarse.
KINDS = ("gauss", "outlier", "equal", "tiny", "zero")


def weights_of(rng, kind, d, K, dtype):
    W = rng.normal(size=(d, K))
    if kind == "equal":
        W = np.round(W)
    if kind == "tiny":
        W *= 1e-6
    if kind == "zero":
        W[:] = 0
    if kind == "outlier":
        W[np.arange(d), rng.integers(0, K, d)] = 300
    held = rng.random((d, K)) < np.linspace(0, 1, d)[:, None]
    return sp.csr_matrix(W * held, dtype=dtype)


def rows_of(rng, n, d, dtype):
    X = sp.random(n, d, 0.4, format="lil", random_state=int(rng.integers(1000)), data_rvs=rng.standard_normal)
    X[0] = 0  # every class has the score of its intercept
    return sp.csr_matrix(X, dtype=dtype)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    K=st.sampled_from([3, 200, 1024, 2500]),
    k=st.sampled_from([1, 2, 5, 70]),
    types=st.sampled_from([(np.float32, np.float32), (np.float64, np.float32), (np.float64, np.float64)]),
    intercept=st.booleans(),
)
def test_the_best_classes_are_those_of_all_scores(seed, kind, K, k, types, intercept):
    """To the last bit, in values of both signs, with equal scores, and in rows without features."""
    rng = np.random.default_rng(seed)
    W = weights_of(rng, kind, 11, K, types[1])
    X = rows_of(rng, 25, 11, types[0])
    scorer = Scorer(W, (np.round(rng.normal(size=K), 1) * intercept).astype(types[1]))
    expected = scorer.best(X, min(k, K), 1)
    found = scorer.best_mixed(X, min(k, K), 2, make_mixed(W, full=False))
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_weights_that_are_listed_twice_are_added():
    doubled = sp.csr_matrix(([3.0, 3.0, -1.0, 2.0], [0, 0, 1, 2], [0, 4]), shape=(1, 3))
    mixed = make_mixed(doubled)
    np.testing.assert_array_equal(mixed.full, [[6, -1, 2]])
    for weights in (mixed, make_mixed(doubled, full=False)):
        np.testing.assert_array_equal(weights.coarse, [[127, -21, 42]])
        assert weights.largest[0] == 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_and_rivals_are_those_of_all_scores(kind, gamma, dtype):
    rng = np.random.default_rng(5)
    n, d, K, more = 60, 14, 1500, 6
    W, X = weights_of(rng, kind, d, K, dtype), rows_of(rng, n, d, dtype)
    y = rng.integers(0, K, n)
    y[: n // 2] = np.asarray((X @ W).argmax(axis=1)).ravel()[: n // 2]  # rows with a large score of their own
    c, bias = rng.random(n), (0.1 * rng.normal(size=K)).astype(dtype)
    c[3] = 0
    # Active rivals: some of the best classes, with and without a dual variable.
    scores = X @ W.toarray() + bias
    ranked = np.argsort(-scores, axis=1)[:, [0, 1, 4]]
    rivals = np.sort([[k for k in row if k != t][:2] for row, t in zip(ranked, y)])
    indptr, b = np.arange(0, 2 * n + 1, 2), np.tile(np.array([0.5, 0.0], dtype), n)
    loss, rows = CrammerSingerLoss(gamma), make_rows(X)
    lists = bias, indptr, rivals.astype(np.int32).ravel(), b, 0.5

    def propose(kernel, *arguments):
        found = np.empty((n, more), np.int32)
        return kernel(rows, y, c, loss, *arguments, found, 0, n), found

    expected, exact = propose(proposals.propose, L2(), np.ascontiguousarray(W.toarray()), *lists)
    losses, found = propose(proposals.propose_mixed, make_mixed(W), *lists)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert losses == pytest.approx(expected, rel=tolerance)
    np.testing.assert_array_equal(found >= 0, exact >= 0)
    for i in range(n):
        s = scores[i] - scores[i, y[i]] + 1
        classes, true = found[i][found[i] >= 0], exact[i][exact[i] >= 0]
        assert len(np.unique(classes)) == len(classes)
        np.testing.assert_allclose(s[classes], s[true], atol=tolerance * max(1, np.abs(s).max()))
        assert not {y[i], *rivals[i][b[2 * i : 2 * i + 2] > 0]} & {*classes}

"""Linear chains: marginals, log Z, best paths and gradients, beside the enumeration of all label sequences."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

from manyclass.solvers import LBFGS
from manyclass.solvers.chain import ChainProblem, Chains, parts
from manyclass.solvers.primal.on_values import on_values


def make(seed, n=7, d=4, K=3, scale=1.0, sparse=False):
    """Sequences of one to five tokens, their labels, and a point."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0], np.cumsum(rng.integers(1, 6, n))]).astype(np.int64)
    X = rng.normal(size=(edges[-1], d)) * (rng.random((edges[-1], d)) < 0.7)
    y = rng.integers(0, K, edges[-1])
    point = rng.normal(size=(d + K + 2, K)) * scale
    return sp.csr_matrix(X) if sparse else X, edges, y, point


def enumerate_all(X, edges, point):
    """For each sequence: all label sequences, and their scores."""
    W, A, first, last = parts(point)
    dense, K = X.toarray() if sp.issparse(X) else X, point.shape[1]
    for b, e in pairwise(edges):
        S = dense[b:e] @ W
        paths = np.array(list(product(range(K), repeat=e - b)))
        scores = S[np.arange(e - b), paths].sum(axis=1) + first[paths[:, 0]] + last[paths[:, -1]]
        yield paths, scores + sum(A[paths[:, t], paths[:, t + 1]] for t in range(e - b - 1))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("K", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0], ids=["scaled", "wide", "logarithms"])
def test_marginals_and_paths_are_those_of_all_sequences(sparse, K, scale):
    X, edges, y, point = make(K, K=K, scale=scale, sparse=sparse)
    chains = Chains(X, edges, n_threads=2)
    marginals, log_z = chains.read(point)
    best = chains.best(point)
    _, losses = chains.read(point, y)
    for i, (paths, scores) in enumerate(enumerate_all(X, edges, point)):
        b, e = edges[i : i + 2]
        assert log_z[i] == pytest.approx(logsumexp(scores), rel=1e-13)
        p = np.exp(scores - logsumexp(scores))
        expected = [[p[paths[:, t] == k].sum() for k in range(K)] for t in range(e - b)]
        np.testing.assert_allclose(marginals[b:e], expected, rtol=1e-9, atol=1e-13)
        np.testing.assert_array_equal(best[b:e], paths[np.argmax(scores)])
        own = scores[(paths == y[b:e]).all(axis=1)][0]
        assert losses[i] == pytest.approx(logsumexp(scores) - own, rel=1e-11, abs=1e-11 * scale)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [1.0, 400.0], ids=["scaled", "logarithms"])
def test_value_and_gradient_are_those_of_all_sequences(sparse, scale):
    X, edges, y, point = make(3, scale=scale, sparse=sparse)
    K, weights = point.shape[1], np.random.default_rng(4).random(len(edges) - 1)
    problem = ChainProblem(X, edges, y, K, weights / weights.sum(), 0.3, n_threads=2)
    gradient = np.empty_like(point)
    value = problem.value(point, gradient)
    total, expected = 0.15 * np.sum(point**2), 0.3 * point
    dense = X.toarray() if sparse else X
    for i, (paths, scores) in enumerate(enumerate_all(X, edges, point)):
        tokens, truth = dense[edges[i] : edges[i + 1]], y[edges[i] : edges[i + 1]]
        c, p = weights[i] / weights.sum(), np.exp(scores - logsumexp(scores))
        own = scores[(paths == truth).all(axis=1)][0]
        total += c * (logsumexp(scores) - own)
        for path, share in [*zip(paths, p), (truth, -1.0)]:
            counts = np.zeros_like(point)
            for x, k in zip(tokens, path):
                parts(counts)[0][:, k] += x
            for j, k in pairwise(path):
                parts(counts)[1][j, k] += 1
            parts(counts)[2][path[0]] += 1
            parts(counts)[3][path[-1]] += 1
            expected = expected + c * share * counts
    assert value == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-11 * scale)


def test_scores_beyond_the_exponents_of_float64_lose_no_path():
    # The best path begins with a label that is e^-900 as probable as the other one, which no later token allows.
    X = np.array([[0.0, -900.0], [-2000.0, 0.0]])
    point = np.vstack([np.eye(2), [[0.0, -3000.0], [-3000.0, 0.0]], np.zeros((2, 2))])
    chains = Chains(X, np.array([0, 2]))
    marginals, log_z = chains.read(point)
    assert log_z[0] == pytest.approx(-900.0)
    np.testing.assert_allclose(marginals, [[0, 1], [0, 1]], atol=1e-300)
    np.testing.assert_array_equal(chains.best(point), [1, 1])


def test_ties_of_paths_go_to_the_lower_labels():
    assert Chains(np.zeros((4, 2)), np.array([0, 3, 4])).best(np.zeros((7, 3))).tolist() == [0, 0, 0, 0]


def test_results_do_not_depend_on_threads_and_pieces(monkeypatch):
    X, edges, y, point = make(5, n=60, sparse=True)
    scale = np.full(60, 1 / 60)
    found = []
    for threads, tokens in ((1, 4096), (3, 4096), (3, 7), (1, 1)):
        monkeypatch.setattr("manyclass.solvers.chain._TOKENS", tokens)
        problem, gradient = ChainProblem(X, edges, y, 3, scale, 0.1, threads), np.empty_like(point)
        found.append((problem.value(point, gradient), gradient))
        assert problem.pieces[0][0] == 0
        assert problem.pieces[-1][1] == 60
        assert len(problem.pieces) == {4096: 1, 7: len(problem.pieces), 1: 60}[tokens]
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    for value, gradient in found[2:]:
        assert value == pytest.approx(found[0][0], rel=1e-14)
        np.testing.assert_allclose(gradient, found[0][1], atol=1e-14)


def test_the_descent_ends_at_the_optimum_below_its_certified_gap():
    X, edges, y, _ = make(6, n=30)
    problem = ChainProblem(X, edges, y, 3, np.full(30, 1 / 30), 0.05)
    descent = on_values(LBFGS())
    state = descent.state(problem)
    records = []
    for progress in descent.iterate(problem, state, 0):
        records.append((progress.estimate.primal, progress.estimate.dual))
        if progress.iteration == 60:
            break
    best = records[-1][0]
    assert (np.diff([value for value, _ in records]) <= 1e-14).all()
    assert all(dual <= best + 1e-14 for _, dual in records)
    assert best - records[-1][1] <= 1e-12
    # A gradient of zero where the objective is strictly convex: the only minimum.
    gradient = np.empty(problem.shape)
    problem.value(state["point"], gradient)
    assert np.abs(gradient).max() < 1e-6

"""The steps of the out-of-core fit and its sums, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

from manyclass.solvers.out_of_core.state import BlockState, LogSums
from manyclass.solvers.out_of_core.steps import Schedule, visit


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

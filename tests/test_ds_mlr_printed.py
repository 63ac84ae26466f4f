"""DS-MLR as printed: Algorithm 1 to the letter, and the random queue of Algorithm 2."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy.special import logsumexp

from manyclass.distributed import run_threads
from manyclass.solvers import DSMLR
from manyclass.solvers.ds_mlr.grid import make_grid
from manyclass.solvers.ds_mlr.rounds import Rounds
from test_ds_mlr import apart, problem_of, quietly


@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("eta0", [0.02, 3.0])
def test_literal_iterations_are_those_of_the_paper(view, eta0):
    """Algorithm 1 on one worker by hand: equation (13) for each row of each block, then b = -log sum exp(s)."""
    problem, data = problem_of(view=view)
    X, y, c, K, lam = data.X, data.T, data.weights / data.weights.mean(), 7, 0.02
    constant = np.sqrt(np.average((X**2).sum(1), weights=data.weights))
    X = np.hstack([X, np.full((len(X), 1), constant)])
    solver = DSMLR(algorithm="literal", eta0=eta0, block_classes=2, n_shards=4)
    grid = make_grid(len(X), K, 1, block_classes=2, n_shards=4)
    W, b = np.zeros((X.shape[1], K)), np.full(len(X), 1 / K)
    for t in range(3):
        eta = eta0 / (c * (X**2).sum(1)).max() / np.sqrt(t + 1)
        for shard, block in grid.meetings(0):
            (begin, end), (lo, hi) = grid.rows(shard), grid.classes(block)
            for i in begin + np.random.default_rng([5, t, shard, block]).permutation(end - begin):
                step = c[i] * (np.exp(X[i] @ W[:, lo:hi] + b[i]) - (y[i] == np.arange(lo, hi)))
                decay = np.append(np.full(len(W) - 1, lam), 0)[:, None] * W[:, lo:hi]
                W[:, lo:hi] -= eta * K * (decay + np.outer(X[i], step))
        b = -logsumexp(X @ W, axis=1)
    found = quietly(problem, solver, tol=0, max_iter=3, seed=5)
    np.testing.assert_allclose(found.weights, W[:-1], rtol=1e-9, atol=1e-9 * np.abs(W).max())
    np.testing.assert_allclose(found.intercept, constant * W[-1], rtol=1e-9, atol=1e-9 * np.abs(W).max())


@pytest.mark.parametrize("schedule", ["ring", "random"])
@pytest.mark.parametrize("size", [1, 2])
def test_literal_iterations_that_diverge_say_what_to_do(schedule, size):
    problem, options = problem_of()[0], {"algorithm": "literal", "eta0": 1e6, "schedule": schedule}
    fits = {
        1: lambda: quietly(problem, DSMLR(n_workers=2, **options), max_iter=20),
        2: lambda: apart(problem, 2, iterations=20, **options),
    }
    with pytest.raises(ValueError, match=r"'literal' has diverged: after \d+ iterations .*smaller eta0 .*'printed'"):
        fits[size]()


def test_blocks_of_a_random_queue_begin_and_go_on_anywhere():
    """Each block visits each worker once in a round, and returns; routes differ by block, round and seed."""
    grid = make_grid(60, 40, 3, block_classes=2)
    owners = {b: grid.worker_of(grid.first_shard(b)) for b in range(grid.n_blocks)}

    def routes_of(seed):
        routes, lock = [{b: [] for b in owners} for _ in range(2)], threading.Lock()

        def work(comm):
            rounds = Rounds(comm, grid)
            rounds.seed = seed
            for route in routes:

                def visit(shard, block, payload, route=route):
                    with lock:
                        if not route[block] or route[block][-1] != comm.rank:
                            route[block].append(comm.rank)
                    payload += 1

                mine = {b: np.zeros(2) for b in owners if owners[b] == comm.rank}
                back = rounds.queue(mine, visit)
                assert back.keys() == mine.keys()
                assert all((payload == grid.n_shards).all() for payload in back.values())

        run_threads(3, work, timeout=60)
        assert all(sorted(route[b]) == [0, 1, 2] for route in routes for b in owners)
        return routes

    fixed, drawn, again, other = (routes_of(seed) for seed in (None, 1, 1, 2))
    assert all(route[b] == [(owners[b] + h) % 3 for h in range(3)] for route in fixed for b in owners)
    assert drawn == again
    assert drawn != other
    assert drawn[0] != drawn[1]
    assert {tuple(route) for route in drawn[0].values()} > {(0, 1, 2)}
    assert {route[0] for route in drawn[0].values()} == {0, 1, 2}
    assert any(drawn[0][b][0] != owners[b] for b in owners)

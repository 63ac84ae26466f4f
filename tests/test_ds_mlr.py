"""Property tests of DS-MLR: results are the same for any number and kind of workers, sums are exact."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning

from helpers import make_data, make_problem, multinomial, objective
from manyclass.datasets import make_many_classes
from manyclass.distributed import run_threads
from manyclass.distributed.hybrid import HybridJob
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import minimize
from manyclass.solvers import DSMLR, AcceleratedSDCA
from manyclass.solvers.ds_mlr.grid import make_grid
from manyclass.solvers.ds_mlr.worker import Worker

#: Every way to go, each with a grid that does not depend on the number of workers.
WAYS = {
    "two_phase": {"start": 2},
    "recomputed": {"start": 2, "keep_scores": False},
    "diagonal": {"start": 0, "precondition": "diagonal"},
    "diagonal, recomputed": {"start": 1, "precondition": "diagonal", "keep_scores": False},
    "stochastic": {"algorithm": "stochastic"},
    "printed": {"algorithm": "printed"},
    "literal": {"algorithm": "literal", "eta0": 0.1},
}


def problem_of(K=7, view="csr", dtype=np.float64, intercept=True, **options):
    options = {"n": 90, "d": 11, "weighted": True, **options}
    data = make_data("class", K=K, **options)
    return make_problem(MultinomialLoss(), data, view=view, dtype=dtype, intercept=intercept, lam=0.02), data


def part(problem: Problem, comm, grid) -> tuple[Problem, float]:
    """The rows of one process, and the mean of its weights."""
    begin, end = grid.rows_of(comm.rank)
    rows = problem.rows
    X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(problem.n_samples, problem.n_features))[begin:end]
    weights = problem.sample_weight[begin:end]
    mine = Problem(
        rows=make_rows(X),
        targets=ClassTargets(problem.targets.y[begin:end], problem.n_outputs),
        loss=problem.loss,
        penalty=problem.penalty,
        lam=problem.lam,
        n_features=problem.n_features,
        sample_weight=weights,
        intercept=problem.intercept,
        dtype=problem.dtype,
    )
    return mine, float(weights.mean())


def quietly(problem, solver, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return minimize(problem, solver, warn=False, **options)


def on(comm, scale=1.0, slow=(), **options):
    """The solver of one process; and of workers that sleep."""
    solver = DSMLR(comm=comm, **options)
    solver.scale, solver.slow = scale, slow
    return solver


def apart(problem, size, *, iterations=6, threads=1, **options):
    """The fit of ``size`` processes (threads that know only their rows), of ``threads`` workers each."""
    solver = {"n_workers": threads, "block_classes": 2, **options}

    def fit(comm):
        grid = make_grid(problem.n_samples, problem.n_outputs, comm.size, block_classes=2)
        mine, scale = part(problem, comm, grid)
        result = quietly(mine, on(comm, scale, **solver), tol=0, max_iter=iterations, check_every=3)
        traffic = replace(comm.traffic)
        return replace(result, weights=result.weights.assemble(comm)), traffic

    return run_threads(size, fit, timeout=60)


# --- the grid -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("K", [1, 4, 40, 400])
def test_every_block_meets_every_shard_once_and_no_two_meet(size, K):
    grid = make_grid(100, K, size)
    met = {worker: list(grid.meetings(worker)) for worker in range(size)}
    assert sorted(pair for pairs in met.values() for pair in pairs) == [
        (shard, block) for shard in range(grid.n_shards) for block in range(grid.n_blocks)
    ]
    assert sum(hi - lo for lo, hi in map(grid.classes, range(grid.n_blocks))) == K
    assert [grid.rows(shard)[0] for shard in range(grid.n_shards)] + [100] == list(grid.edges)
    for worker in range(size):
        assert all(grid.worker_of(shard) == worker for shard in grid.shards_of(worker))
    for shard in range(grid.n_shards):
        # At any step of the ring, blocks are at different shards.
        order = [block for _, block in sorted((s, b) for s, b in met[grid.worker_of(shard)] if s == shard)]
        assert len(set(order)) == grid.n_blocks
    assert sorted(block for worker in range(size) for block in grid.blocks_of(worker)) == list(range(grid.n_blocks))


def test_processes_cut_rows_as_they_like():
    assert make_grid([60, 60], 40, 2) == make_grid(120, 40, 2)
    grid = make_grid([10, 110], 40, 2)
    assert (grid.rows_of(0), grid.rows_of(1)) == ((0, 10), (10, 120))


@pytest.mark.parametrize("rows", [[110, 10], [60, 40], [30, 30, 60], [60, 12, 48]])
def test_every_process_cuts_its_own_rows_evenly(rows):
    """The first processes decide where the rows of the last one begin: its shards were not cut anew."""
    size = len(rows)
    grid = make_grid(rows, 40, size)
    for process, n in enumerate(rows):
        shards = np.diff([grid.rows(shard)[0] for shard in grid.shards_of(process)] + [grid.rows_of(process)[1]])
        assert shards.sum() == n
        assert shards.max() - shards.min() <= 1


# --- the mathematics ------------------------------------------------------------------------------------------------


def test_the_doubly_separable_objective_is_the_objective_at_the_best_multipliers():
    """L2 of the paper, a sum over (example, class) pairs, touches L1 from above at b_i = -logsumexp."""
    data = make_data("class", K=5)
    n, K, lam = len(data.X), 5, 0.1
    rng = np.random.default_rng(0)
    W = rng.normal(size=(data.X.shape[1], K))
    S, Y = data.X @ W, np.eye(K)[data.T]

    def pairs(b):
        b = b[:, None]
        each = lam * (W**2).sum(axis=0) / (2 * n) - Y * S / n + np.exp(S + b) / n - b / (n * K) - 1 / (n * K)
        return each.sum()

    best = -logsumexp(S, axis=1)
    assert pairs(best) == pytest.approx(objective(multinomial, data, L2(), lam, W), rel=1e-12)
    for _ in range(20):
        assert pairs(best + rng.normal(scale=0.3, size=n)) > pairs(best)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("workers", [1, 3])
def test_partial_sums_gradient_and_certificate_are_exact(kept, scale, workers):
    problem, data = problem_of()
    solver = DSMLR(n_workers=workers, block_classes=2, keep_scores=kept).prepare(problem)
    state = solver.state(problem)
    rng = np.random.default_rng(1)
    whole = rng.normal(scale=scale, size=(problem.n_features + 1, 7))
    blocks = [solver._known(problem).grid.classes(block) for block in range(4)]
    for block, (lo, hi) in enumerate(blocks):
        state[f"weights.{block}"][:] = whole[:, lo:hi]
    W, b = solver.weights(problem, state)
    np.testing.assert_array_equal(W, whole[:-1])
    S = data.X @ W + b
    solver._begin(solver._workers(problem, state), state)
    for block, (lo, hi) in enumerate(blocks):
        np.testing.assert_allclose(state["lse"][:, block], logsumexp(S[:, lo:hi], axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state["value"], objective(multinomial, data, L2(), 0.02, W, b), rtol=1e-12)
    residual = softmax(S, axis=1) - np.eye(7)[data.T]
    residual *= problem.sample_weight[:, None] / len(S)
    gradient = data.X.T @ residual + 0.02 * W
    found = np.hstack([state[f"gradient.{block}"] for block in range(4)])
    np.testing.assert_allclose(found[:-1], gradient, rtol=1e-9, atol=1e-12 * scale)
    constant = solver._known(problem).share.constant
    np.testing.assert_allclose(found[-1], constant * residual.sum(axis=0), atol=1e-12)
    ours = solver.certificate(problem, state, final=True)
    dual, V = np.zeros((len(S), 7)), np.zeros((problem.n_features, 7))
    theirs = problem.certify(W, b, problem.respond(W, b, dual), dual, V)
    assert ours.primal == pytest.approx(theirs.primal, rel=1e-12)
    assert ours.dual == pytest.approx(theirs.dual, rel=1e-9)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("schedule", ["ring", "queue"])
@pytest.mark.parametrize("view", ["csr", "dense"])
def test_the_diagonal_is_the_hessians(view, schedule, kept):
    problem, data = problem_of(view=view)
    options = {"block_classes": 2, "keep_scores": kept, "schedule": schedule}
    solver = DSMLR(n_workers=2, precondition="diagonal", **options).prepare(problem)
    state = solver.state(problem)
    rng = np.random.default_rng(1)
    grid, constant = solver._known(problem).grid, solver._known(problem).share.constant
    for block in range(4):
        lo, hi = grid.classes(block)
        state[f"weights.{block}"][:] = rng.normal(size=(problem.n_features + 1, hi - lo))
    team = solver._workers(problem, state)
    solver._begin(team, state)
    metric = solver._metric(problem, team, state)
    W, b = solver.weights(problem, state)
    X = np.hstack([data.X, np.full((len(data.X), 1), constant)])
    P = softmax(data.X @ W + b, axis=1) * (1 - softmax(data.X @ W + b, axis=1))
    expected = (X**2).T @ (P * problem.sample_weight[:, None]) / len(X) + problem.lam
    for block in range(4):
        lo, hi = grid.classes(block)
        Q = rng.normal(size=(problem.n_features + 1, hi - lo))
        np.testing.assert_allclose(metric.times(Q.copy(), block, lo), Q / expected[:, lo:hi], rtol=1e-9)


# --- the number of workers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_ring_gives_the_same_on_any_number_of_workers(way):
    problem, _ = problem_of()
    runs = [
        quietly(problem, DSMLR(n_workers=size, block_classes=2, **WAYS[way]), tol=0, max_iter=6, check_every=2)
        for size in (1, 2, 3, 4)
    ]
    runs += [found[0] for size in (2, 3) for found in apart(problem, size, **WAYS[way])]
    runs += [found[0] for found in apart(problem, 2, threads=2, **WAYS[way])]
    for other in runs[1:]:
        np.testing.assert_allclose(other.weights, runs[0].weights, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.intercept, runs[0].intercept, rtol=1e-9, atol=1e-12)
        assert other.certificate.primal == pytest.approx(runs[0].certificate.primal, rel=1e-12)


@pytest.mark.parametrize("way", ["two_phase", "recomputed", "stochastic", "printed", "literal"])
def test_with_more_blocks_than_sums_the_ring_gives_the_same(way):
    """Rows store two sums, not one for each of 14 blocks."""
    problem, _ = problem_of(K=28)
    options = {**WAYS[way], "block_classes": 2, "n_shards": 18}
    runs = [quietly(problem, DSMLR(n_workers=n, **options), tol=0, max_iter=6, check_every=2) for n in (1, 3)]
    runs += [found for found, _ in apart(problem, 2, **options)]
    for other in runs:
        assert other.state["lse"].shape[1] == 2
        np.testing.assert_allclose(other.weights, runs[0].weights, rtol=1e-9, atol=1e-12)
        assert other.certificate.primal == pytest.approx(runs[0].certificate.primal, rel=1e-12)


@pytest.mark.parametrize("schedule", ["ring", "queue"])
def test_with_more_blocks_than_sums_normalizers_are_exact(schedule):
    """After an iteration of the first phase; and its steps come as near as with the sums of all blocks."""
    problem, data = problem_of(K=28, n=240)
    solver = DSMLR(n_workers=2, block_classes=2, schedule=schedule, algorithm="stochastic").prepare(problem)
    state = solver.state(problem)
    steps = solver.iterate(problem, state, 0)
    for _ in range(3):
        next(steps)
    W, b = solver.weights(problem, state)
    np.testing.assert_allclose(state["total"], logsumexp(data.X @ W + b, axis=1), rtol=1e-12)
    # In a queue the order of the blocks is by chance: there the error of the middle one of five fits.
    fits = 5 if schedule == "queue" else 1
    options = {"algorithm": "stochastic", "n_workers": 2, "schedule": schedule, "max_iter": 20}
    far = {width: np.median([error(problem, block_classes=width, **options) for _ in range(fits)]) for width in (2, 4)}
    assert far[2] < 1.3 * far[4] < 0.1


@pytest.mark.parametrize("size", [12, 13, 64, 200])
def test_log_sum_exps_of_a_worker_fall_with_the_number_of_workers(size):
    grid = make_grid(12000, 4000, size)
    most = max(grid.rows_of(worker)[1] - grid.rows_of(worker)[0] for worker in range(size))
    assert grid.n_blocks >= size
    assert grid.n_sums * most <= 12 * 12000 / size + 12


def test_blocks_pass_all_threads_of_a_process_before_they_leave_it():
    def walk(outer):
        def visit(comm):
            path = []
            if comm.rank == 0:
                comm.post([0], np.zeros(1), 1)
            for _ in range(1):
                message = comm.receive()
                path.append((int(message.header[0]), comm.rank))
                if message.header[0] < comm.size - 1:
                    comm.post(message.header + 1, message.buffer, (comm.rank + 1) % comm.size)
            assert comm.allreduce(np.float64(comm.rank)) == sum(range(comm.size))
            comm.barrier()
            return path[0]

        return HybridJob(outer, 3).run(visit), outer.traffic.messages

    parts = run_threads(2, walk, timeout=30)
    hops = sorted(hop for found, _ in parts for hop in found)
    assert hops == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
    assert [messages for _, messages in parts] == [1, 1]


@pytest.mark.parametrize("precondition", ["auto", "diagonal"])
@pytest.mark.parametrize("kept", [True, False])
def test_storage_and_communication_are_those_of_a_partition(kept, precondition):
    problem, _ = problem_of(K=24, n=240, d=30)
    n, d, K, size, pairs = 240, 31, 24, 4, 3
    iterations, blocks = 5, 12
    for result, traffic in apart(
        problem,
        size,
        iterations=iterations,
        start=0,
        history_size=pairs,
        keep_scores=kept,
        schedule="ring",
        precondition=precondition,
    ):
        held = sum(array.nbytes for name, array in result.state.items() if name.split(".")[0] in ("weights", "stack"))
        assert held == 8 * (1 + 2 * pairs) * d * K / size  # O(KD / P)
        named = {name.split(".")[0] for name in result.state if "." in name}
        assert named == {"weights", "gradient", "stack"} | ({"curvature"} if precondition == "diagonal" else set())
        assert result.state["lse"].nbytes == 8 * n * blocks / size  # O(N / P x blocks)
        assert result.state["scores"].nbytes == (8 * n * K / size if kept else 0)
        assert len(result.state["lse"]) == n / size  # O(N D / P)
        # A hop carries one block, twice as much where scores are made on the way: O(KD / P).
        hop = 8 * d * K / blocks
        assert traffic.largest <= (1 if kept else 2) * hop + 64
        # Rounds of P hops, each of K D / P numbers: one for scores and one for the gradient in each iteration.
        rounds = (2 if kept else 8) * iterations
        if precondition == "diagonal":
            rounds += 1  # of the first five
        looks = 1 + 2 * 3 + 1  # to begin, in certificates, for the model at the end
        assert traffic.messages <= blocks * (rounds + (1 if kept else 4) * looks) + 60 * iterations


# --- the optimum ----------------------------------------------------------------------------------------------------


def iris():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return Problem(make_rows(X), ClassTargets(y.astype(np.int32), 3), MultinomialLoss(), L2(), lam=1e-3, n_features=4)


def digits():
    X, y = load_digits(return_X_y=True)
    targets = ClassTargets(y.astype(np.int32), 10)
    return Problem(make_rows(X / 16), targets, MultinomialLoss(), L2(), lam=1e-3, n_features=64, intercept=True)


def error(problem, **options):
    """Of the objective, relative to a certified optimum."""
    optimum = minimize(problem, AcceleratedSDCA(), tol=1e-9, max_iter=5000).certificate.primal
    settings = {"tol": 0, "max_iter": options.pop("max_iter", 80)}
    return quietly(problem, on(None, **options), **settings).certificate.primal / optimum - 1


def test_two_phases_reach_what_stale_normalizers_do_not():
    assert error(iris(), n_workers=2) < 1e-6
    assert error(iris(), n_workers=2, algorithm="printed", max_iter=100) > 2e-2
    assert error(digits(), n_workers=2) < 1e-5
    assert error(digits(), n_workers=2, algorithm="printed") > 1e-2


def test_the_diagonal_saves_iterations_where_features_and_classes_are_of_different_frequency():
    X, y = make_many_classes(3000, 2000, 60, random_state=0)
    targets = ClassTargets(y.astype(np.int32), 60)
    problem = Problem(make_rows(X), targets, MultinomialLoss(), L2(), lam=1e-5, n_features=2000, intercept=True)
    iterations = {
        kind: quietly(problem, DSMLR(precondition=kind), tol=1e-4, max_iter=200, check_every=1).n_iter
        for kind in ("none", "diagonal", "auto")
    }
    assert iterations["auto"] == iterations["diagonal"] < 0.7 * iterations["none"]


def test_queue_reaches_the_optimum():
    text, _ = problem_of(K=12, n=600, d=40, density=0.2)
    # A block for each worker: nothing piles up, whatever the machine is doing.
    alone = {"algorithm": "stochastic", "eta0": 2.0, "block_classes": 6, "max_iter": 150}
    assert error(text, schedule="queue", n_workers=2, **alone) < 1e-3
    assert error(text, schedule="queue", n_workers=3, max_iter=60) < 1e-4
    assert error(text, schedule="random", n_workers=3, max_iter=60) < 1e-4
    assert error(text, schedule="queue", n_workers=3, keep_scores=False, max_iter=60) < 1e-4


def test_queue_leaves_out_what_piles_up_and_reaches_the_optimum():
    text, _ = problem_of(K=12, n=600, d=40, density=0.2)
    solver = on(None, schedule="queue", n_workers=2, block_classes=1, algorithm="stochastic", slow=(0.0, 10.0))
    result = quietly(text, solver, tol=0, max_iter=12, check_every=12)
    fast, slow = result.solver._team.workers
    assert 12 < slow.rounds.skipped < 12 * 12
    assert fast.rounds.skipped < slow.rounds.skipped / 2
    assert error(text, schedule="queue", n_workers=2, block_classes=1, slow=(0.0, 5.0), max_iter=60) < 1e-4


def test_queue_within_a_process_leaves_a_slow_worker_less_and_changes_nothing(monkeypatch):
    problem, _ = problem_of(K=16)
    taken: Counter[int] = Counter()
    plain = Worker.score_block

    def counted(worker, *arguments):
        if worker.slow:
            time.sleep(0.002)
        taken[worker.rank] += 1
        plain(worker, *arguments)

    monkeypatch.setattr(Worker, "score_block", counted)
    options = {"block_classes": 1, "start": 0, "precondition": "none"}
    alone = quietly(problem, DSMLR(**options), tol=0, max_iter=8)
    taken.clear()
    queue = on(None, schedule="queue", n_workers=2, slow=(0.0, 1.0), **options)
    shared = quietly(problem, queue, tol=0, max_iter=8)
    assert shared.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-10)
    assert shared.certificate.dual == pytest.approx(alone.certificate.dual, rel=1e-9)
    # All blocks and shards of 8 iterations and their certificates, a small part of them by the slow one.
    assert taken.total() % (16 * 16) == 0
    assert taken[1] < 0.3 * taken.total()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("algorithm", ["two_phase", "stochastic", "printed"])
@pytest.mark.parametrize("eta0", [1e-300, 1.0, 1e6, 1e300])
def test_no_step_makes_nan(dtype, algorithm, eta0):
    data = make_data("class", K=6, n=60, d=8)
    data.X[3] *= 1e8
    problem = make_problem(MultinomialLoss(), data, dtype=dtype, lam=1e-3, intercept=True)
    for schedule in ("ring", "queue", "random"):
        solver = DSMLR(n_workers=2, algorithm=algorithm, eta0=eta0, schedule=schedule, block_classes=2)
        result = quietly(problem, solver, tol=0, max_iter=8, check_every=1)
        assert np.isfinite(result.weights).all()
        assert np.isfinite([(record.primal, record.gap) for record in result.history]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "star"}, "'schedule' parameter of DSMLR must be a str among"),
        ({"n_workers": 0}, "'n_workers' parameter of DSMLR must be an int in the range"),
        ({"eta0": np.nan}, "'eta0' parameter"),
        ({"precondition": True}, "'precondition' parameter"),
        ({"block_classes": 0}, "'block_classes' parameter"),
        ({"n_shards": 2, "n_workers": 3}, "n_shards must be at least the number of workers"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        minimize(problem_of()[0], DSMLR(**options))


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [(CrammerSingerLoss(0.1), L2()), (MultinomialLoss(1.0), L2()), (MultinomialLoss(), L1())],
)
def test_other_problems_are_refused(loss, penalty):
    problem = make_problem(loss, make_data("class"), reg=penalty)
    with pytest.raises(ValueError, match="'ds_mlr'"):
        minimize(problem, DSMLR())

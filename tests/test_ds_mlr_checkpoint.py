"""DS-MLR goes on from a checkpoint, on any number of workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manyclass.distributed import run_threads
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import minimize
from manyclass.solvers import DSMLR

K, D, N = 7, 5, 240
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
Y = (X @ RNG.normal(size=(D, K))).argmax(axis=1).astype(np.int32)


def problem(rank=0, size=1, lam=1e-3, dtype=np.float64):
    b, e = N * rank // size, N * (rank + 1) // size
    rows, targets = make_rows(X[b:e].astype(dtype)), ClassTargets(Y[b:e], K)
    return Problem(rows, targets, MultinomialLoss(), L2(), lam=lam, n_features=D)


def fit(size, folder, max_iter, tol=1e-9, n_workers=1, lam=1e-3, **kwargs):
    """On so many processes, here threads that hold rows of their own."""

    def work(comm):
        solver = DSMLR(comm=comm, n_workers=n_workers, **kwargs)
        found = minimize(
            problem(comm.rank, comm.size, lam),
            solver,
            tol=tol,
            max_iter=max_iter,
            checkpoint=folder,
            checkpoint_seconds=0.0,
            warn=False,
        )
        return found if size == 1 else replace(found, weights=found.weights.assemble(comm))

    return run_threads(size, work)


@pytest.mark.parametrize(("stopped", "start"), [(1, 3), (6, 2)], ids=["first phase", "second phase"])
@pytest.mark.parametrize(("before", "after"), [((3, 1), (1, 1)), ((1, 2), (2, 1)), ((2, 1), (1, 3))])
def test_goes_on_with_another_number_of_ranks(before, after, stopped, start, tmp_path):
    folder = tmp_path / "run"
    grid = {"start": start, "block_classes": 2, "n_shards": 12}
    whole = fit(1, None, 60, **grid)[0]
    fit(before[0], folder, stopped, n_workers=before[1], **grid)
    assert (folder / "manifest.json").exists()
    # No iteration is lost: with those before the stop, it takes as many as without one.
    found = fit(after[0], folder, whole.n_iter + 2, n_workers=after[1], **grid)
    assert all(np.array_equal(result.weights, found[0].weights) for result in found)
    assert found[0].certificate.relative_gap <= 1e-9
    assert found[0].certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-9)
    np.testing.assert_allclose(found[0].weights, whole.weights, atol=2e-4)


@pytest.mark.parametrize("precondition", ["spectrum", "diagonal"])
def test_what_the_recursion_begins_with_is_kept(precondition, tmp_path):
    """Between two refreshings: made of earlier weights than those at the stop."""
    options = {"precondition": precondition, "block_classes": 2, "n_shards": 12, "tol": 0.0}
    whole = fit(1, None, 13, **options)[0]
    fit(2, tmp_path, 7, **options)
    found = fit(1, tmp_path, 13, n_workers=2, **options)[0]
    np.testing.assert_allclose(found.weights, whole.weights, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="precondition"):
        fit(1, tmp_path, 20, **{**options, "precondition": "none"})


@pytest.mark.parametrize("stopped", [2, 6], ids=["first phase", "second phase"])
def test_goes_on_with_another_grid(stopped, tmp_path):
    """Blocks are cut anew, and log-sum-exps of the old ones are of no use."""
    first = fit(2, tmp_path, stopped, start=3, block_classes=2)[0]
    found = fit(1, tmp_path, 60, n_workers=3, start=3, block_classes=3, n_shards=5)[0]
    if len(first.history) > 1:
        assert found.history[0] == first.history[0]
    assert found.certificate.relative_gap <= 1e-9
    assert found.certificate.primal == pytest.approx(fit(1, None, 60)[0].certificate.primal, rel=1e-9)


@pytest.mark.parametrize("kept", [True, False], ids=["scores kept", "scores made anew"])
@pytest.mark.parametrize("precondition", ["spectrum", "diagonal"])
@pytest.mark.parametrize(("size", "n_workers"), [(1, 1), (1, 3), (3, 1)])
@pytest.mark.parametrize("stopped", [1, 2, 7], ids=["first phase", "its end", "second phase"])
def test_as_many_ranks_go_on_to_the_same_bits(size, n_workers, precondition, kept, stopped, tmp_path):
    options = {"n_workers": n_workers, "precondition": precondition, "start": 2, "keep_scores": kept, "tol": 0.0}
    whole = fit(size, None, 12, **options)
    fit(size, tmp_path, stopped, **options)
    for found, expected in zip(fit(size, tmp_path, 12, **options), whole):
        np.testing.assert_array_equal(found.weights, expected.weights)
        np.testing.assert_array_equal(found.intercept, expected.intercept)
        assert found.certificate == expected.certificate
        assert found.n_iter == expected.n_iter == 12


@pytest.mark.parametrize("stopped", [1, 2, 4], ids=["first phase", "its end", "second phase"])
def test_as_many_ranks_go_on_to_the_same_bits_with_more_blocks_than_sums(stopped, tmp_path, monkeypatch):
    monkeypatch.setattr("manyclass.solvers.ds_mlr.grid._SHARDS", 3)
    options = {"block_classes": 2, "n_shards": 4, "start": 2, "tol": 0.0}
    whole = fit(2, None, 8, **options)
    fit(2, tmp_path, stopped, **options)
    for found, expected in zip(fit(2, tmp_path, 8, **options), whole):
        assert found.state["lse"].shape[1] == 2
        np.testing.assert_array_equal(found.weights, expected.weights)
        assert found.certificate == expected.certificate


@pytest.mark.parametrize("kept", [True, False])
def test_a_resumed_run_makes_the_scores_anew_where_those_kept_are_others(kept, tmp_path):
    fit(2, tmp_path, 5, keep_scores=kept)
    found = fit(1, tmp_path, 60, keep_scores=not kept)[0]
    assert found.n_iter > 5
    assert found.certificate.relative_gap <= 1e-9
    assert found.certificate.primal == pytest.approx(fit(1, None, 60)[0].certificate.primal, rel=1e-9)


def test_another_problem_is_refused(tmp_path):
    fit(2, tmp_path, 3)
    with pytest.raises(ValueError, match=r"another run .*lam: found 0\.001, expected 0\.002"):
        fit(1, tmp_path, 3, lam=2e-3)


def test_a_failure_between_two_epochs_loses_none(tmp_path, monkeypatch):
    """The last epoch that ended is on disk."""
    calls = []
    inner = DSMLR._descend

    def fail(self, extent, team, state):
        calls.append(int(state["iteration"]))
        if state["iteration"] == 5 and self._comm.rank == 1:
            raise ArithmeticError("a bug")
        inner(self, extent, team, state)

    with monkeypatch.context() as patch:
        patch.setattr(DSMLR, "_descend", fail)
        with pytest.raises(ArithmeticError, match="a bug"):
            fit(3, tmp_path, 60)
    assert max(calls) == 5
    found = fit(2, tmp_path, 60)
    assert found[0].history.last.iteration > 5
    assert found[0].certificate.relative_gap <= 1e-9

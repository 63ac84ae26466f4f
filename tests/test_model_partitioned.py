"""Models whose blocks of classes are in several processes: predictions, files, faults, and what a process holds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manyclass import DSMLR, LinearClassifier, ShardedModel, load
from manyclass.distributed import run_threads
from manyclass.models import partitioned

X, y = load_digits(return_X_y=True)
X, y = (X / 16)[:600], np.array([f"digit {label}" for label in y])[:600]


def fitted(comm, rows=None, max_iter=None, **fit):
    """The estimator of one process, by default on consecutive rows."""
    n = len(X)
    rows = slice(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size) if rows is None else rows
    model = LinearClassifier(
        solver=DSMLR(comm=comm, block_classes=3), alpha=1e-2, tol=1e-4, random_state=0, max_iter=max_iter
    )
    return model.fit(X[rows], y[rows], **fit), X[rows], y[rows]


def test_predictions_are_those_of_the_assembled_and_of_the_saved_model(tmp_path):
    def work(comm):
        model, rows, labels = fitted(comm)
        whole = model.model_.assemble()
        assert sum(block.shape[1] for block in model.model_.columns.blocks.values()) < 10
        np.testing.assert_array_equal(model.decision_function(rows), whole.scores(rows))
        np.testing.assert_array_equal(model.predict(rows), whole.predict(rows))
        for found, expected in zip(model.predict_topk(rows, 3), whole.topk(rows, 3)):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(model.predict_proba(rows), whole.probabilities(rows), rtol=1e-12)
        assert model.score(rows, labels) == np.mean(whole.predict(rows) == labels) > 0.9
        model.save(tmp_path / "m")
        saved = load(tmp_path / "m")
        np.testing.assert_array_equal(saved.predict(rows), whole.predict(rows))
        return whole, model

    (whole, model), *_ = run_threads(3, work, timeout=60)
    saved = load(tmp_path / "m")
    assert isinstance(saved, ShardedModel)
    assert [(block.lo, block.hi) for block in saved.blocks] == [(0, 2), (2, 5), (5, 7), (7, 10)]
    saved.verify()
    np.testing.assert_array_equal(saved.assemble().weights, whole.weights)
    np.testing.assert_array_equal(saved.scores(X), whole.scores(X))
    assert saved.record["relative_gap"] == model.duality_gap_ <= 1e-4
    assert saved.parameters["solver"] == "DSMLR(block_classes=3)"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m"]


def test_two_classes_are_one_column_of_the_first_process(tmp_path):
    def work(comm):
        rows = np.flatnonzero(y <= "digit 1")[comm.rank :: comm.size]
        model, mine, labels = fitted(comm, rows)
        model.save(tmp_path / "m")
        return model.coef_ if comm.size == 1 else model.model_.columns.shape, model.score(mine, labels)

    assert [shape for shape, score in run_threads(2, work, timeout=60) if score > 0.95] == [(64, 1)] * 2
    assert load(tmp_path / "m").predict(X[:2]).tolist() == ["digit 0", "digit 1"]


def test_what_one_process_does_not_have_is_said():
    def work(comm):
        model, *_ = fitted(comm, max_iter=2)
        with pytest.raises(AttributeError, match=r"never whole in one.*assemble\(\)"):
            model.coef_  # noqa: B018
        with pytest.raises(TypeError, match="save it"):
            pickle.dumps(model.model_)
        with pytest.raises(ValueError, match="sparsify_model"):
            model.sparsify()
        return model.intercept_.shape

    with pytest.warns(match="max_iter"):
        assert run_threads(2, work, timeout=60) == [(10,), (10,)]


def test_more_than_memory_is_not_assembled(monkeypatch):
    def work(comm):
        model, *_ = fitted(comm, max_iter=2)
        monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 5000)
        with pytest.raises(MemoryError, match=r"all weights in every process 5\.0 KiB.*manyclass\.load"):
            model.model_.assemble()
        comm.barrier()

    with pytest.warns(match="max_iter"):
        run_threads(2, work, timeout=60)


def test_an_existing_path_is_refused_on_all(tmp_path):
    (tmp_path / "m").mkdir()

    def work(comm):
        model, *_ = fitted(comm, max_iter=2)
        model.save(tmp_path / "m")

    with pytest.warns(match="max_iter"), pytest.raises(ValueError, match="m exists already"):
        run_threads(2, work, timeout=60)


def test_a_process_that_fails_while_it_saves_leaves_no_model_and_the_checkpoint(tmp_path, monkeypatch):
    inner = partitioned.write_block

    def work(comm):
        model, *_ = fitted(comm, checkpoint=tmp_path / "state", checkpoint_seconds=0.0)
        comm.barrier()

        def full(folder, name, lo, *arguments):
            if lo == 5:  # of the second process
                raise OSError(28, "No space left on device")
            return inner(folder, name, lo, *arguments)

        monkeypatch.setattr(partitioned, "write_block", full)
        model.save(tmp_path / "m")

    with pytest.raises(OSError, match="No space left"):
        run_threads(2, work, timeout=60)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    monkeypatch.undo()

    def again(comm):
        model, *_ = fitted(comm, checkpoint=tmp_path / "state")
        comm.barrier()
        assert (tmp_path / "state" / "manifest.json").exists()
        model.save(tmp_path / "m")
        return model.n_iter_

    assert len(set(run_threads(3, again, timeout=60))) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["m"]

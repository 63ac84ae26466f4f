"""Weights of rows and of classes in a fit on a row store, and validation data of one from the command line."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from manyclass import LinearClassifier, OutOfCore, load
from manyclass.datasets.synthetic import make_many_classes
from manyclass.distributed import run_threads
from manyclass.io.store import RowStore, write_store
from test_cli_support import make, run


def fit(path, store, class_weight=None, comm=None):
    """Twelve epochs by blocks of five classes."""
    solver = OutOfCore(path, block_classes=5, comm=comm)
    return LinearClassifier(
        solver=solver, alpha=1e-2, tol=1.0, max_iter=12, random_state=0, class_weight=class_weight
    ).fit(store)


@pytest.fixture(scope="module")
def data():
    X, y = make_many_classes(400, 60, 8, nnz_per_row=15, dtype=np.float32)
    return X, y, np.random.default_rng(0).integers(1, 3, len(y)).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("class_weight", ["balanced", {3: 2.5, 5: 0.0}])
def test_class_weights_multiply_sample_weights(tmp_path, data, class_weight, weighted):
    X, y, own = data
    write_store(tmp_path / "s", X, y, sample_weight=own if weighted else None, shard_rows=150)
    # scikit-learn's "balanced" counts rows, whatever their weights.
    whole = compute_sample_weight(class_weight, y) * (own if weighted else 1.0)
    write_store(tmp_path / "w", X, y, sample_weight=whole, shard_rows=150)
    found = fit(tmp_path / "m", RowStore(tmp_path / "s"), class_weight)
    given = fit(tmp_path / "n", RowStore(tmp_path / "w"))
    np.testing.assert_allclose(*(model.model_.assemble().weights for model in (found, given)), rtol=1e-4, atol=1e-5)
    assert found.objective_ == pytest.approx(given.objective_, rel=1e-6)
    assert found.alpha_ == given.alpha_


def test_weights_of_rows_divide_the_default_of_alpha(tmp_path, data):
    X, y, own = data
    write_store(tmp_path / "s", X, y, sample_weight=own)
    model = LinearClassifier(solver=OutOfCore(tmp_path / "m"), max_iter=1, tol=1.0).fit(RowStore(tmp_path / "s"))
    assert model.alpha_ == pytest.approx(1 / own.sum())
    assert model.model_.parameters["alpha"] == model.alpha_


def test_ranks_count_the_classes_together(tmp_path, data):
    X, y, _ = data
    write_store(tmp_path / "s", X, y, shard_rows=150)

    def rank(comm):
        return fit(tmp_path / "m", RowStore(tmp_path / "s"), "balanced", comm).history_.last.dual

    optimum = LinearClassifier(alpha=1e-2, class_weight="balanced", tol=1e-6, dtype="float64").fit(X, y).objective_
    dual, *others = run_threads(3, rank)
    assert all(other == dual for other in others)
    assert dual <= optimum * (1 + 1e-6)
    assert load(tmp_path / "m").record["objective"] == pytest.approx(optimum, rel=5e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_class_weights_are_another_fit(tmp_path, data):
    X, y, _ = data
    write_store(tmp_path / "s", X, y)
    store, solver = RowStore(tmp_path / "s"), OutOfCore(tmp_path / "m", block_classes=5)
    model = LinearClassifier(solver=solver, max_iter=1, tol=0.0, class_weight="balanced", random_state=0)
    model.fit(store, checkpoint=tmp_path / "work")
    with pytest.raises(ValueError, match=r"belongs to another fit .*class_weight"):
        model.set_params(class_weight=None).fit(store, checkpoint=tmp_path / "work")


def test_validation_data_of_a_store(capsys, tmp_path):
    path, store = make("svm", tmp_path), tmp_path / "rows.store"
    assert run(capsys, "convert", path, "-o", store).code == 0
    words = ("fit", store, "-o", tmp_path / "m", "--solver", "out_of_core", "--alpha", "1e-2")
    judged = run(capsys, *words, "--valid", path)
    assert judged.code == 0, judged.err
    line = next(line for line in judged.out.splitlines() if "accuracy" in line)
    assert f"on {path.name}" in judged.out
    scored = run(capsys, "score", tmp_path / "m", path)
    number = line.split("accuracy")[1].split()[0]
    assert number in scored.out

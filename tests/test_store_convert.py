"""Files become stores in bounded memory, with the same rows, targets and notes that reading them gives."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass import load
from manyclass.io import DataFormatError, convert, read, write_npy, write_npz, write_svmlight, write_xmc
from manyclass.io.store import RowStore
from tensors import change_manifest
from test_cli_support import make, refused, run, table, texts

N, D = 400, 30
RNG = np.random.default_rng(0)
X = sp.random(N, D, 0.2, format="csr", random_state=0)
TARGETS = {
    "integers": RNG.integers(0, 9, N),
    "names": np.array([f"{k:02d}a" for k in RNG.integers(0, 9, N)]),
    "numbers": RNG.normal(size=N),
    "labels": sp.random(N, 7, 0.3, format="csr", random_state=1).astype(bool).astype(np.int8),
}


def same_data(found, expected):
    assert found.X.shape == expected.X.shape
    difference = abs(found.X - expected.X)
    assert difference.max() == 0
    assert found.notes == expected.notes
    if sp.issparse(expected.y):
        assert (found.y != expected.y).nnz == 0
        np.testing.assert_array_equal(found.label_names, expected.label_names)
    elif expected.y is None:
        assert found.y is None
    else:
        assert found.y.dtype.kind == expected.y.dtype.kind
        np.testing.assert_array_equal(found.y, expected.y)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("ending", ["svm", "svm.gz"])
def test_svmlight(tmp_path, targets, zero_based, ending):
    path = tmp_path / f"a.{ending}"
    write_svmlight(path, X, TARGETS[targets], zero_based=zero_based)
    store = convert(path, tmp_path / "s", dtype=np.float64, shard_bytes=4000)
    store.verify()
    assert store.n_shards > 5
    same_data(store.dataset(), read(path, dtype=np.float64))


def test_an_index_of_zero_far_down_moves_what_is_written(tmp_path):
    """Until then the file seemed to count from 1; by then shards are written."""
    lines = [f"1 {1 + i % 5}:{i + 1}\n" for i in range(60_000)]
    path = tmp_path / "late.svm"
    path.write_text("".join([*lines, "2 0:7\n", *lines[:3]]))
    store = convert(path, tmp_path / "s", shard_bytes=100_000)
    assert store.n_shards > 5
    same_data(store.dataset(), read(path))
    assert store.zero_based


def test_labels_that_turn_out_to_be_names_start_afresh(tmp_path):
    path = tmp_path / "late.svm"
    path.write_text("".join([*(f"{i % 3} 1:1\n" for i in range(90_000)), "x 2:1\n"]))
    store = convert(path, tmp_path / "s", shard_bytes=100_000)
    assert len(store) == 90_001
    same_data(store.dataset(), read(path))


@pytest.mark.parametrize("options", [{}, {"n_features": 40}, {"n_features": 12, "extra_features": "ignore"}])
def test_xmc(tmp_path, options):
    path = tmp_path / "a.xmc"
    write_xmc(path, X, TARGETS["labels"])
    path.write_text(path.read_text() + "\n\n")  # empty lines at the end do no harm
    found = convert(path, tmp_path / "s", shard_bytes=4000, **options).dataset()
    expected = read(path, **options)
    assert abs(found.X - expected.X).max() == 0
    assert (found.y != expected.y).nnz == 0


def test_arrays_and_tables(tmp_path):
    write_npz(tmp_path / "a.npz", X, TARGETS["names"])
    write_npy(tmp_path / "b.npy", X.toarray(), TARGETS["integers"])
    (tmp_path / "c.csv").write_text("text,category\nwhere is my card?,card\nwhat is my balance?,account\n")
    for name in ("a.npz", "b.npy", "c.csv"):
        store = convert(tmp_path / name, tmp_path / f"{name}.store", shard_rows=50, dtype=np.float64)
        expected = read(tmp_path / name, dtype=np.float64)
        same_data(store.dataset(), expected)
        if expected.vectorizer is not None:
            texts = ["my card is lost"]
            assert abs(store.vectorizer.transform(texts) - expected.vectorizer.transform(texts)).max() == 0
            assert store.table == store.dataset().layout == expected.layout
            assert store.table is not None
        else:
            assert store.table is None


def test_narrowing_keeps_every_value(tmp_path):
    path = tmp_path / "a.svm"
    exact = sp.csr_matrix(np.round(X.toarray() * 8) / 8)
    write_svmlight(path, exact, TARGETS["integers"])
    store = convert(path, tmp_path / "s", dtype=np.float64, narrow=True, n_features=D)
    assert store.dtype == np.float32
    assert abs(store.rows()[:] - exact).max() == 0
    write_svmlight(path, X, TARGETS["integers"])
    assert convert(path, tmp_path / "t", dtype=np.float64, narrow=True).dtype == np.float64


def test_a_wrong_line_is_named_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\n" * 50_000 + "1 2:x\n")
    with pytest.raises(DataFormatError, match="line 50001"):
        convert(path, tmp_path / "s", shard_rows=1000)
    path.write_text("1 5:1\n0 0:1 5:2\n")
    with pytest.raises(DataFormatError, match="beyond"):
        convert(path, tmp_path / "s", n_features=5)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.svm"]


def test_memory_is_that_of_a_shard_and_not_of_the_file(tmp_path):
    path = tmp_path / "big.svm.gz"
    line = "3 " + " ".join(f"{j}:0.{j}" for j in range(1, 200)) + "\n"
    with gzip.open(path, "wt", compresslevel=1) as file:
        for _ in range(50):
            file.write(line * 500)
    convert(path, tmp_path / "warm", shard_bytes=1 << 20)
    tracemalloc.start()
    try:
        store = convert(path, tmp_path / "s", shard_bytes=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert store.nbytes > 40e6
    assert peak < 30e6  # the parser's scratch for a block of text takes most of it


# --- the command line -----------------------------------------------------------------------------------------------


def test_convert_there_and_back(capsys, tmp_path):
    path = make("svm", tmp_path)
    store = tmp_path / "a.store"
    ran = run(capsys, "convert", path, "-o", store, "--shard-rows", 50)
    assert ran.code == 0, ran.err
    assert RowStore(store).n_shards == 6
    back = tmp_path / "b.svm"
    assert run(capsys, "convert", store, "-o", back).code == 0
    assert read(back).y.tolist() == read(path).y.tolist()
    assert abs(read(back).X - read(path).X).max() == 0
    shown = run(capsys, "info", store, "--verify")
    assert shown.code == 0
    assert "6 shards, every checksum as it was written" in shown.out
    refused(run(capsys, "convert", path, "-o", store), "exists already")
    refused(run(capsys, "convert", path, "-o", tmp_path / "c.npz", "--shard-rows", 5), "--shard-rows is for stores")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    refused(run(capsys, "info", tmp_path / "images"), "no manifest.json")


@pytest.mark.parametrize("solver", ["auto", "out_of_core"])
def test_columns_of_a_table_go_with_its_store(capsys, tmp_path, solver):
    rows, labels = texts()
    path, store, model = table(tmp_path / "a.csv", {"title": rows, "queue": labels}), tmp_path / "s", tmp_path / "m"
    assert run(capsys, "convert", path, "-o", store, "--to", "store", "--text-column", "title").code == 0
    assert run(capsys, "fit", store, "-o", model, "--solver", solver, "--quiet").code == 0
    new = table(tmp_path / "b.csv", {"text": labels[::-1], "queue": labels, "title": rows})
    assert run(capsys, "predict", model, new).lines == run(capsys, "predict", model, store).lines == labels
    assert run(capsys, "score", model, new).code == 0
    refused(run(capsys, "predict", model, table(tmp_path / "c.csv", {"text": rows})), "'title'", "--text-column")
    change_manifest(store, lambda facts: facts["table"].update(text=facts["table"].pop("text_column")))
    refused(run(capsys, "info", store), "the layout of the table is damaged", "write the store again")


def test_fit_predict_and_score_on_stores(capsys, tmp_path):
    path = make("svm", tmp_path)
    store, model = tmp_path / "a.store", tmp_path / "m.blocks"
    assert run(capsys, "convert", path, "-o", store, "--shard-rows", 70, "--dtype", "float32").code == 0
    fit = ("fit", store, "-o", model, "--solver", "out_of_core", "--max-iter", 3, "--alpha", "1e-2")
    ran = run(capsys, *fit, "--set", "solver.block_classes=4", "--history", tmp_path / "h.csv")
    assert ran.code == 0, ran.err
    assert "(certified; 0.001 was asked for)" in ran.out
    assert "warning: --max-iter was reached before tol" in ran.err
    assert not {"solver__path", "solver__comm"} & load(model).parameters.keys()
    assert (tmp_path / "h.csv").read_text().startswith("iteration,passes")
    lines = [run(capsys, "predict", model, data, "--top-k", 2, "--proba").lines for data in (store, path)]
    assert lines[0] == lines[1]
    assert len(lines[0]) == len(RowStore(store))
    assert run(capsys, "score", model, store).code == 0
    whole, again = tmp_path / "m.model", tmp_path / "again.blocks"
    assert run(capsys, "convert", model, "-o", whole).code == 0
    assert run(capsys, "convert", whole, "-o", again, "--block-classes", 3).code == 0
    assert len(load(again).blocks) == 4
    for other in (whole, again):
        assert (
            run(capsys, "predict", other, path, "--top-k", 2).lines
            == run(capsys, "predict", model, store, "--top-k", 2).lines
        )
    assert "in 4 blocks of classes" in run(capsys, "info", again, "--verify").out
    refused(run(capsys, *fit), "exists already")
    refused(run(capsys, "fit", path, "-o", tmp_path / "x", "--solver", "out_of_core"), "manyclass convert")
    other = (*fit[:3], tmp_path / "x", *fit[4:])
    refused(run(capsys, *other, "--set", "solver.depth=3"), "--set solver.depth: no such parameter.")
    refused(run(capsys, *other, "--sparsify", 0), "--sparsify is not for --solver out_of_core")
    refused(run(capsys, *other, "--alphas", "1,2"), "--alphas is not for --solver out_of_core")
    refused(run(capsys, *other, "--loss", "hinge"), "solver 'out_of_core' is for multinomial, got loss 'hinge'")


def test_a_fit_of_a_store_goes_on_from_its_checkpoint(capsys, tmp_path):
    store, kept = tmp_path / "a.store", tmp_path / "state"
    assert run(capsys, "convert", make("svm", tmp_path), "-o", store, "--shard-rows", 70).code == 0
    words = ["--solver", "out_of_core", "--set", "solver.certificate=epoch", "--checkpoint", kept]
    ran = run(capsys, "fit", store, "-o", tmp_path / "m", *words, "--max-iter", 2)
    assert ran.code == 0, ran.err
    refused(run(capsys, "fit", store, "-o", tmp_path / "m", *words), "--resume")
    ran = run(capsys, "fit", store, "-o", tmp_path / "m", *words, "--max-iter", 4, "--resume", "--tol", 0)
    assert ran.code == 0, ran.err
    assert f"going on after epoch 2 from {kept}" in ran.err
    ran = run(capsys, "fit", store, "-o", tmp_path / "whole", *words[:4], "--max-iter", 4, "--tol", 0)
    assert ran.code == 0, ran.err
    found, expected = (load(tmp_path / name) for name in ("m", "whole"))
    assert found.record["n_iter"] == 4
    np.testing.assert_array_equal(found.assemble().weights, expected.assemble().weights)

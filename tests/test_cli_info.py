"""``manyclass info`` and ``manyclass convert``: what a file is, and the same data in another file."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix, issparse

from manyclass import LinearModel
from manyclass.io import Dataset, TextVectorizer, read, write
from manyclass.report.advice import Facts, advise
from test_cli_support import KINDS, digits, label_sets, left, make, refused, run, texts

# --- info ------------------------------------------------------------------------------------------------------------


def facts(ran):
    """The rows of a table of names and values."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in ran.lines[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_what_data_are(capsys, tmp_path, kind):
    path = make(kind, tmp_path)
    data = read(path)
    found = json.loads(run(capsys, "info", path, "--json").out)
    assert found["kind"] == "data"
    assert found["file_bytes"] == path.stat().st_size
    assert found["format"] == data.format
    assert found["notes"] == list(data.notes)
    assert {name: found[name] for name in data.summary()} == data.summary()
    sizes = np.asarray(data.y.sum(axis=0)).ravel() if kind == "xmc" else np.unique(data.y, return_counts=True)[1]
    assert (found["largest_class"], found["smallest_class"]) == (sizes.max(), sizes.min())
    shown = facts(run(capsys, "info", path))
    assert shown["kind"] == f"data, {data.format}"
    assert shown["rows"] == str(data.n_samples)
    for note in data.notes:
        assert note in shown.values()


def test_data_without_labels_and_with_numbers(capsys, tmp_path):
    X, y = digits()
    write(tmp_path / "bare.npz", Dataset(X))
    assert facts(run(capsys, "info", tmp_path / "bare.npz"))["labels"] == "none"
    write(tmp_path / "real.npz", Dataset(X, y + 0.5))
    assert facts(run(capsys, "info", tmp_path / "real.npz"))["labels"] == "numbers to predict, 1 output"
    X, Y = label_sets()
    write(tmp_path / "sets.npz", Dataset(X, Y))
    shown = facts(run(capsys, "info", tmp_path / "sets.npz"))
    assert shown["labels"] == f"{Y.nnz / 300:.2f} a row, of 6"
    assert shown["rows without label"] == str((Y.sum(axis=1) == 0).sum())


def test_info_takes_the_options_of_a_file(capsys, tmp_path):
    (tmp_path / "what").write_text("1 2:3\n2 4:5\n")
    found = json.loads(run(capsys, "info", tmp_path / "what", "--format", "svmlight", "--zero-based", "--json").out)
    assert found["features"] == 5


def test_what_a_model_is(capsys, tmp_path):
    path = make("csv", tmp_path)
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--sparsify", "0").code == 0
    model = LinearModel.load(tmp_path / "m")
    found = json.loads(run(capsys, "info", tmp_path / "m", "--json").out)
    assert found["kind"] == "model"
    assert {name: found[name] for name in model.summary()} == model.summary()
    shown = facts(run(capsys, "info", tmp_path / "m"))
    assert shown["kind"] == f"model, multiclass, by manyclass {model.library_version}"
    assert shown["classes"] == "3 (account, card, loan)"
    assert shown["weights"].startswith("sparse float32")
    assert shown["probabilities"] == "softmax"
    assert "tfidf" in shown["texts"]
    by = model.record["solver"]
    assert shown["training"].startswith(f"converged after {model.record['n_iter']} epochs of {by}, objective ")
    assert shown["trained on"] == "data.csv (csv), 60 rows"
    assert shown["table"] == "a header, texts in column 'text', labels in 'queue', ',' between fields"


def test_a_model_of_the_library_has_no_data_to_tell_of(capsys, tmp_path):
    LinearModel(np.eye(2), np.zeros(2), classes=None, task="regression").save(tmp_path / "m")
    shown = facts(run(capsys, "info", tmp_path / "m"))
    assert shown["outputs"] == "2"
    assert not {"trained on", "training", "texts", "parameters"} & set(shown)
    assert json.loads(run(capsys, "info", tmp_path / "m", "--json").out)["record"] == {}


def test_models_without_a_certificate(capsys, tmp_path):
    words = ["--solver", "memoir", "--set", "solver.batch_size=20", "--max-iter", "2"]
    assert run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", *words, "--quiet").code == 0
    ran = run(capsys, "info", tmp_path / "m")
    assert facts(ran)["training"] == "max_iter after 2 epochs of memoir"
    assert "loss=CrammerSinger(gamma=0)" in ran.out
    assert "solver=Memoir(batch_size=20)" in ran.out
    assert "loss__gamma" not in ran.out


def test_choose_advises_what_fits(capsys, tmp_path):
    path = make("svm", tmp_path)
    found = json.loads(run(capsys, "info", path, "--choose", "--json").out)
    advice = found["advice"]
    assert set(advice["reasons"]) >= {"loss", "solver", "alpha"}
    lines = run(capsys, "info", path, "--choose").lines
    shown = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines[lines.index("what suits it") + 1 :])
    assert shown["loss"].startswith(advice["loss"])
    # The command that is shown fits.
    command = shown["here"].split()
    assert command[:2] == ["manyclass", "fit"]
    run(capsys, *command[1:], "-o", tmp_path / "advised.model")
    assert len(run(capsys, "predict", tmp_path / "advised.model", path).out.split()) == found["rows"]
    refused(run(capsys, "info", tmp_path / "advised.model", "--choose"), "is a folder or a model")


def test_a_store_tells_what_a_fit_and_each_of_its_processes_take(capsys, tmp_path):
    path = make("svm", tmp_path)
    assert run(capsys, "convert", path, "-o", tmp_path / "s").code == 2  # its name tells no format
    assert run(capsys, "convert", path, "-o", tmp_path / "train.store").code == 0
    of_file = json.loads(run(capsys, "info", path, "--choose", "--json").out)["advice"]
    store = tmp_path / "train.store"
    told = json.loads(run(capsys, "info", store, "--choose", "--processes", "2", "--json").out)
    assert {name: told["advice"][name] for name in ("loss", "solver", "alpha")} == {
        name: of_file[name] for name in ("loss", "solver", "alpha")
    }
    four = json.loads(run(capsys, "info", store, "--processes", "4", "--json").out)["bytes_of_each"]
    assert four["rows"] < told["bytes_of_each"]["rows"]
    said = run(capsys, "info", store, "--processes", "2").out
    for words in ("memory of each of 2 processes", "together, at most", "kept scores"):
        assert words in said
    refused(run(capsys, "info", path, "--processes", "2"), "write the data as a store first")
    refused(run(capsys, "info", store, "--processes", "0"), "--processes is a number of processes, at least 1")


def test_choose_repeats_the_options_of_reading(capsys, tmp_path):
    path = tmp_path / "a table.csv"
    rows = "".join(f"word{k % 3},q{k % 2},{k},{k % 5}\n" for k in range(20))
    path.write_text(f'subject,the queue,"age, years",shop\n{rows}')
    words = ["--text-column", "subject", "--label-column", "the queue", "--number-columns", '"age, years",shop']
    told = " ".join(run(capsys, "info", path, "--choose", *words).lines)
    (here,) = re.findall(r" here +(.* -o MODEL)", told)
    command = shlex.split(here)
    assert command[:3] == ["manyclass", "fit", str(path)]
    assert command[3:9] == words
    assert command[-2:] == ["-o", "MODEL"]
    run(capsys, *command[1:-1], tmp_path / "advised.model")
    assert len(run(capsys, "predict", tmp_path / "advised.model", path).out.split()) == 20


def test_what_does_not_fit_into_memory_may_stay_on_disk():
    known = Facts(100_000, 50_000, 10**7, 20, "classes", sparse=True, available=1 << 60)
    told = [
        any("solver=OutOfCore(path) on a row store" in other for other in advise(replace(known, **given)).alternatives)
        for given in ({}, {"available": 1 << 20}, {"n_outputs": 5000})
    ]
    assert told == [False, True, True]


def test_early_stopping_is_named_for_very_many_classes():
    known = Facts(100_000, 50_000, 10**7, 20, "classes", sparse=True)
    told = [
        any("early_stopping=True" in other for other in advise(replace(known, n_outputs=K)).alternatives)
        for K in (20, 5000)
    ]
    assert told == [False, True]


def test_infinite_numbers_are_null(capsys, tmp_path):
    model = LinearModel(np.eye(2), np.zeros(2), classes=None, task="regression", record={"dual": float("-inf")})
    model.save(tmp_path / "m")
    assert json.loads(run(capsys, "info", tmp_path / "m", "--json").out)["record"] == {"dual": None}


def test_a_damaged_model_is_told_as_one(capsys, tmp_path):
    assert run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", "--quiet").code == 0
    whole = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(whole[:-10])
    refused(run(capsys, "info", tmp_path / "m"), "m: the model file is cut short")
    (tmp_path / "x").write_text("neither\n")
    refused(run(capsys, "info", tmp_path / "x"), "its format cannot be detected", "--format")


# --- convert ---------------------------------------------------------------------------------------------------------

TARGETS = ("svm", "svm.gz", "libsvm.zst", "npz", "npy")


def same(a: Dataset, b: Dataset) -> bool:
    def dense(x):
        return x.toarray() if issparse(x) else np.asarray(x)

    return np.array_equal(dense(a.X), dense(b.X)) and np.array_equal(dense(a.y), dense(b.y))


@pytest.mark.parametrize("source", [kind for kind in KINDS if kind != "xmc"])
@pytest.mark.parametrize("target", TARGETS)
def test_from_and_to_every_format(capsys, tmp_path, source, target):
    path = make(source, tmp_path)
    out = tmp_path / f"out.{target}"
    ran = run(capsys, "convert", path, "-o", out, "--dtype", "float32")
    assert ran.code == 0, ran.err
    assert ran.out == ""
    assert f"wrote {out}: " in ran.err
    data = read(path)
    assert same(read(out, n_features=data.n_features), data)
    assert ("vocabulary is not kept" in ran.err) == (source in ("csv", "tsv"))


@pytest.mark.parametrize("target", ["xmc", "svm", "npz"])
def test_label_sets(capsys, tmp_path, target):
    path = make("xmc", tmp_path)
    out = tmp_path / f"out.{target}"
    assert run(capsys, "convert", path, "-o", out).code == 0
    assert same(read(out, n_features=10), read(path))


def test_classes_to_xmc_are_numbered(capsys, tmp_path):
    out = tmp_path / "out.txt"
    assert run(capsys, "convert", make("svm", tmp_path), "-o", out, "--to", "xmc").code == 0
    X, y = digits()
    assert out.read_text().splitlines()[0] == "300 64 10"
    assert same(read(out), Dataset(X, csr_matrix(np.eye(10, dtype=np.int8)[y])))


def test_nothing_is_lost(capsys, tmp_path):
    """Decimals keep their digits, and float32 its own, whatever the formats on the way."""
    text = "1 1:0.1 3:16777217\n2 2:0.30000000000000004\n"
    (tmp_path / "a.svm").write_text(text)
    for source, target in (("a.svm", "b.npz"), ("b.npz", "c.svm"), ("c.svm", "d.npy"), ("d.npy", "e.svm")):
        assert run(capsys, "convert", tmp_path / source, "-o", tmp_path / target, "--quiet") == (0, "", "")
    assert (tmp_path / "e.svm").read_text().replace(".0", "") == text
    X = csr_matrix(np.float32([[0.1, 0.3]]))
    write(tmp_path / "f.npz", Dataset(X, np.array([5])))
    assert run(capsys, "convert", tmp_path / "f.npz", "-o", tmp_path / "g.svm").code == 0
    assert np.array_equal(read(tmp_path / "g.svm").X.toarray(), X.toarray())
    assert run(capsys, "convert", tmp_path / "f.npz", "-o", tmp_path / "h.npz").code == 0
    assert read(tmp_path / "h.npz", dtype=np.float64).X.data.tolist() == X.data.astype(np.float64).tolist()
    with np.load(tmp_path / "h.npz") as stored:
        assert stored["data"].dtype == np.float32


def test_a_table_of_labels_alone(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("label\naa\nbb\n")
    refused(run(capsys, "info", tmp_path / "a.csv"), "a.csv, line 1: its only column, 'label'", "--text-column")
    assert run(capsys, "info", tmp_path / "a.csv", "--text-column", "label").code == 0


def test_texts_to_hashed_features(capsys, tmp_path):
    out = tmp_path / "out.npz"
    words = ["--vectorizer", "hashing", "--hash-features", "64"]
    ran = run(capsys, "convert", make("csv", tmp_path), "-o", out, *words)
    assert "vocabulary" not in ran.err
    expected = TextVectorizer("hashing", n_features=64).fit_transform(texts()[0])
    np.testing.assert_array_equal(read(out).X.toarray(), expected.toarray())


def test_refusals(capsys, monkeypatch, tmp_path):
    path = make("svm", tmp_path)
    before = left(tmp_path)
    refused(run(capsys, "convert", path, "-o", tmp_path / "out.csv"), "does not tell the format", "--to")
    refused(run(capsys, "convert", path, "-o", tmp_path / "no" / "out.npz"), "does not exist")
    refused(run(capsys, "convert", path, "-o", path), "is the input itself")
    refused(run(capsys, "convert", path, "-o", tmp_path / "out.npz", "--n-features", "3"), "is beyond")
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 1000)
    refused(run(capsys, "convert", path, "-o", tmp_path / "out.npy"), "as a dense matrix the data take")
    (tmp_path / "bare.svm").write_text(" 1:2\n 3:1\n")
    refused(run(capsys, "convert", tmp_path / "bare.svm", "-o", tmp_path / "out.xmc"), "y is not a matrix")
    assert left(tmp_path) == {*before, "bare.svm"}

"""``manyclass predict``: its lines are what the library predicts."""

from __future__ import annotations

import numpy as np
import pytest

from manyclass import LinearModel
from manyclass.cli import _common
from manyclass.io import Dataset, read, write, write_svmlight
from test_cli_support import digits, label_sets, left, make, refused, run, table, texts


@pytest.fixture
def model_path(capsys, tmp_path):
    assert run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", "--quiet").code == 0
    return tmp_path / "m"


def pairs(line):
    """Labels and scores of a line."""
    return [(label, float(score)) for label, _, score in (cell.rpartition(":") for cell in line.split("\t"))]


def test_labels(capsys, tmp_path, model_path):
    X, _ = digits()
    ran = run(capsys, "predict", model_path, tmp_path / "data.svm")
    assert ran.code == 0
    assert ran.lines == [str(label) for label in LinearModel.load(model_path).predict(X)]


@pytest.mark.parametrize("kind", ["svm", "svm.gz", "svm.zst", "npz"])
def test_formats_agree(capsys, tmp_path, model_path, kind):
    expected = run(capsys, "predict", model_path, tmp_path / "data.svm", "--top-k", "3").out
    assert run(capsys, "predict", model_path, make(kind, tmp_path), "--top-k", "3", "--n-jobs", "2").out == expected


def test_dense_rows_agree(capsys, tmp_path, model_path):
    expected = run(capsys, "predict", model_path, tmp_path / "data.svm", "--top-k", "3").lines
    found = run(capsys, "predict", model_path, make("npy", tmp_path), "--top-k", "3").lines
    assert [[label for label, _ in pairs(line)] for line in found] == [
        [label for label, _ in pairs(line)] for line in expected
    ]
    # Another kernel sums in another order.
    scores = [[[score for _, score in pairs(line)] for line in lines] for lines in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-5)


def test_the_best_and_their_scores(capsys, tmp_path, model_path):
    X, _ = digits()
    labels, scores = LinearModel.load(model_path).topk(X, 4)
    ran = run(capsys, "predict", model_path, tmp_path / "data.svm", "--top-k", "4")
    found = [pairs(line) for line in ran.lines]
    assert [[label for label, _ in row] for row in found] == labels.astype(str).tolist()
    # Text enough to give the numbers back to the last bit.
    np.testing.assert_array_equal(np.float32([[score for _, score in row] for row in found]), scores)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities(capsys, tmp_path, dtype):
    path = make("svm", tmp_path)
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--dtype", dtype, "--quiet").code == 0
    model = LinearModel.load(tmp_path / "m")
    X, _ = digits()
    P = model.probabilities(X.astype(dtype))
    one = run(capsys, "predict", tmp_path / "m", path, "--proba")
    best = np.array([pairs(line)[0][1] for line in one.lines], dtype)
    np.testing.assert_array_equal(best, P.max(axis=1))
    assert [pairs(line)[0][0] for line in one.lines] == model.predict(X).astype(str).tolist()
    every = run(capsys, "predict", tmp_path / "m", path, "--proba", "--top-k", "10")
    for line, row in zip(every.lines, P):
        assert dict(pairs(line)) == pytest.approx(
            {str(label): float(p) for label, p in zip(model.classes, row)}, rel=1e-6
        )


def test_few_rows_at_a_time_make_the_same_lines(capsys, monkeypatch, tmp_path, model_path):
    words = [["predict", model_path, tmp_path / "data.svm", *more] for more in ([], ["--top-k", "2", "--proba"])]
    whole = [run(capsys, *each).out for each in words]
    monkeypatch.setattr(_common, "_BUFFER", 70)
    assert [run(capsys, *each).out for each in words] == whole


def test_to_a_file(capsys, tmp_path, model_path):
    words = ["predict", model_path, tmp_path / "data.svm", "--top-k", "2"]
    expected = run(capsys, *words).out
    ran = run(capsys, *words, "-o", tmp_path / "out.tsv")
    assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / "out.tsv").read_text() == expected
    assert left(tmp_path) == {"data.svm", "m", "out.tsv"}
    assert run(capsys, *words, "-o", tmp_path / "out.tsv", "--quiet") == (0, "", "")


def test_a_file_is_written_whole_or_not_at_all(capsys, monkeypatch, tmp_path, model_path):
    calls = []
    real = LinearModel.topk

    def topk(self, X, k, n_jobs=None):
        calls.append(X.shape[0])
        if len(calls) > 2:
            raise MemoryError
        return real(self, X, k, n_jobs)

    monkeypatch.setattr(_common, "_BUFFER", 50)
    monkeypatch.setattr(LinearModel, "topk", topk)
    (tmp_path / "out.txt").write_text("what was there")
    ran = run(capsys, "predict", model_path, tmp_path / "data.svm", "-o", tmp_path / "out.txt")
    refused(ran, "out of memory")
    assert len(calls) == 3
    assert (tmp_path / "out.txt").read_text() == "what was there"
    assert left(tmp_path) == {"data.svm", "m", "out.txt"}


@pytest.mark.parametrize("kind", ["svm", "npz", "npy"])
def test_labels_in_the_data_do_not_matter(capsys, tmp_path, model_path, kind):
    X, _ = digits()
    expected = run(capsys, "predict", model_path, tmp_path / "data.svm").out
    write(tmp_path / f"bare.{kind}", Dataset(X.toarray() if kind == "npy" else X))
    assert run(capsys, "predict", model_path, tmp_path / f"bare.{kind}").out == expected
    if kind == "svm":
        write_svmlight(tmp_path / "odd.svm", X, np.where(np.arange(300) % 2, "what", "is this"[:2]))
        assert run(capsys, "predict", model_path, tmp_path / "odd.svm").out == expected


def test_the_first_index_is_that_of_the_training(capsys, tmp_path):
    X, y = digits()
    write_svmlight(tmp_path / "zero.svm", X, y, zero_based=True)
    (tmp_path / "zero.svm").write_text("0 0:0.125 1:0\n" + (tmp_path / "zero.svm").read_text())
    assert run(capsys, "fit", tmp_path / "zero.svm", "-o", tmp_path / "m", "--quiet").code == 0
    lines = (tmp_path / "zero.svm").read_text().splitlines()[1:]
    (tmp_path / "new.svm").write_text("\n".join(lines) + "\n")  # nothing in it tells that it counts from 0
    assert not read(tmp_path / "new.svm").zero_based
    ran = run(capsys, "predict", tmp_path / "m", tmp_path / "new.svm")
    assert ran.lines == [str(label) for label in LinearModel.load(tmp_path / "m").predict(X)]
    other = run(capsys, "predict", tmp_path / "m", tmp_path / "new.svm", "--one-based")
    assert other.code == 0
    assert other.out != ran.out


def test_label_sets(capsys, tmp_path):
    X, Y = label_sets()
    names = np.array(["ash", "birch", "cedar", "fir", "oak", "pine"])
    path = tmp_path / "data.svm"
    write_svmlight(path, X, Y, label_names=names)
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--alpha", "1e-3", "--quiet").code == 0
    model = LinearModel.load(tmp_path / "m")
    S, P = model.scores(X), model.probabilities(X)
    ran = run(capsys, "predict", tmp_path / "m", path)
    sets = [line.split("\t") if line else [] for line in ran.lines]
    assert [sorted(each) for each in sets] == [sorted(names[row > 0]) for row in S]
    assert any(not each for each in sets)
    assert any(len(each) > 1 for each in sets)
    for each, row in zip(sets, S):
        scores = [row[names.tolist().index(name)] for name in each]
        assert scores == sorted(scores, reverse=True)
    likely = run(capsys, "predict", tmp_path / "m", path, "--proba")
    for line, each, row in zip(likely.lines, sets, P):
        assert [(name, np.float32(p)) for name, p in (pairs(line) if line else [])] == [
            (name, row[names.tolist().index(name)]) for name in each
        ]
    best = run(capsys, "predict", tmp_path / "m", path, "--top-k", "2")
    assert [[name for name, _ in pairs(line)] for line in best.lines] == model.topk(X, 2)[0].tolist()


def test_two_classes(capsys, tmp_path):
    X, y = digits()
    write_svmlight(tmp_path / "data.svm", X, np.where(y < 5, "low", "high"))
    assert run(capsys, "fit", tmp_path / "data.svm", "-o", tmp_path / "m", "--quiet").code == 0
    model = LinearModel.load(tmp_path / "m")
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "data.svm").lines == model.predict(X).tolist()
    ran = run(capsys, "predict", tmp_path / "m", tmp_path / "data.svm", "--proba", "--top-k", "2")
    for line in ran.lines:
        (_, p), (_, q) = pairs(line)
        assert p >= q
        assert p + q == pytest.approx(1, abs=1e-6)


def test_numbers(capsys, tmp_path):
    X, _ = digits()
    y = np.asarray(X @ np.ones((X.shape[1], 2)) + [0.25, 0.5])
    write(tmp_path / "data.npz", Dataset(X, y))
    assert run(capsys, "fit", tmp_path / "data.npz", "-o", tmp_path / "m", "--quiet", "--max-iter", "2000").code == 0
    ran = run(capsys, "predict", tmp_path / "m", tmp_path / "data.npz")
    expected = LinearModel.load(tmp_path / "m").predict(X)
    np.testing.assert_array_equal(np.float32([line.split("\t") for line in ran.lines]), expected)
    for words in (["--top-k", "1"], ["--proba"]):
        refused(run(capsys, "predict", tmp_path / "m", tmp_path / "data.npz", *words), "predicts numbers")


def test_labels_with_blanks_and_breaks_keep_to_their_line(capsys, tmp_path):
    rows, labels = texts()
    named = [{"card": '"two\nlines"', "account": '"a\tb: c"', "loan": "loan, ü"}[label] for label in labels]
    named = [f'"{name}"' if "," in name else name for name in named]
    path = table(tmp_path / "data.csv", {"text": rows, "queue": named})
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--quiet").code == 0
    assert set(LinearModel.load(tmp_path / "m").classes) == {"two\nlines", "a\tb: c", "loan, ü"}
    ran = run(capsys, "predict", tmp_path / "m", path, "--top-k", "3")
    assert len(ran.lines) == len(rows)
    assert {label for line in ran.lines for label, _ in pairs(line)} == {"two lines", "a b: c", "loan, ü"}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["--top-k", "0"], "--top-k must be 1 to 10"),
        (["--top-k", "11"], "--top-k must be 1 to 10"),
        (["--n-jobs", "0"], "--n-jobs"),
        (["-o", "no/out.txt"], "the folder no does not exist"),
        (["--text-column", "x"], "no table"),
    ],
)
def test_wrong_options(capsys, monkeypatch, tmp_path, model_path, words, needle):
    monkeypatch.chdir(tmp_path)
    refused(run(capsys, "predict", model_path, tmp_path / "data.svm", *words), needle)
    assert left(tmp_path) == {"data.svm", "m"}


def test_no_probabilities(capsys, tmp_path):
    path = make("svm", tmp_path)
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--loss", "squared_hinge", "--quiet").code == 0
    refused(run(capsys, "predict", tmp_path / "m", path, "--proba"), "squared_hinge gives none", "multinomial")


def test_other_features(capsys, tmp_path, model_path):
    (tmp_path / "wide.svm").write_text("3 1:0.5 2:0.25\n4 3:1 70:1\n")
    words = ["predict", model_path, tmp_path / "wide.svm"]
    refused(run(capsys, *words), "wide.svm, line 2", "70:1", "the model has 64 features", "--extra-features ignore")
    assert len(run(capsys, *words, "--extra-features", "ignore").lines) == 2
    np.save(tmp_path / "narrow.npy", np.zeros((2, 3), np.float32))
    refused(run(capsys, "predict", model_path, tmp_path / "narrow.npy"), "3 features", "64 features")


def test_texts_for_a_model_without_vectorizer(capsys, tmp_path, model_path):
    refused(run(capsys, "predict", model_path, make("csv", tmp_path)), "it has no vectorizer")


def test_a_file_that_is_no_model(capsys, tmp_path, model_path):
    data = tmp_path / "data.svm"
    refused(run(capsys, "predict", data, data), "data.svm: not a model file")
    whole = model_path.read_bytes()
    model_path.write_bytes(whole[: len(whole) // 2])
    refused(run(capsys, "predict", model_path, data), "cut short")
    refused(run(capsys, "predict", tmp_path / "no", data), "No such file")

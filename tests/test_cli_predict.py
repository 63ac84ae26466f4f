"""``manyclass predict``: its lines are what the library predicts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest

from manyclass import LinearModel
from manyclass.cli import _common
from manyclass.io import Dataset, TextVectorizer, read, write, write_svmlight
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


# --- tables ----------------------------------------------------------------------------------------------------------


def layouts(must, others):
    """All orders of these columns, with each part of the others."""
    for size in range(len(others) + 1):
        for more in combinations(others, size):
            yield from permutations([*must, *more])


def part_of(columns, names):
    return {name: columns[name] for name in names}


#: A table of the fit, and the options that it needs: the columns by the names below; None where there is no header.
FITTED = {
    "header": (("title", "queue"), ["--text-column", "title"]),
    "header, other columns": (("id", "queue", "title", "text"), ["--text-column", "title", "--label-column", "queue"]),
    "header, positions": (("queue", "title"), ["--header", "--text-column", "1", "--label-column", "0"]),
    "no header": (("title", "queue"), []),
    "no header, other columns": (("id", "queue", "title"), ["--text-column", "2", "--label-column", "1"]),
}


@pytest.mark.parametrize("kind", FITTED)
@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_tables_have_the_header_and_the_columns_of_the_training(capsys, tmp_path, kind, format):
    rows, labels = texts(30)
    names, words = FITTED[kind]
    mark = "," if format == "csv" else "\t"
    headed = not kind.startswith("no")

    def written(name, columns, header):
        path = table(tmp_path / f"{name}.{format}", columns, mark)
        if not header:
            path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
        return path

    # Columns that a guess would take for the texts or the labels.
    columns = {
        "id": [str(i) for i in range(30)], "text": ["loan interest"] * 30, "label": ["loan"] * 30,
        "queue": labels, "title": rows,
    }  # fmt: skip
    train = written("train", part_of(columns, names), headed)
    assert run(capsys, "fit", train, "-o", tmp_path / "m", *words, "--quiet").code == 0
    model = LinearModel.load(tmp_path / "m")
    expected = model.predict(TextVectorizer.from_state(*model.vectorizer).transform(rows)).tolist()
    correct = np.mean(np.array(expected) == labels)
    assert correct > 0.9

    def check(path, *words, scored=True):
        ran = run(capsys, "predict", tmp_path / "m", path, *words)
        assert (ran.code, ran.lines) == (0, expected), (path.read_text(), words, ran.err)
        ran = run(capsys, "score", tmp_path / "m", path, *words, "--json")
        if scored:
            assert ran.code == 0, ran.err
            assert json.loads(ran.out)["accuracy"] == correct
            assert json.loads(ran.out)["n_samples"] == 30
        else:
            refused(ran, "label")

    check(train)
    bare = [part_of(columns, order) for order in layouts(("title", "queue"), ("id", "text"))]
    if headed:
        for order in layouts(("title",), ("queue", "text", "label")):
            check(written("new", part_of(columns, order), True), scored="queue" in order)
        for found in bare:  # no header, but positions
            words = [str(list(found).index(name)) for name in ("title", "queue")]
            path = written("new", found, False)
            check(path, "--no-header", "--text-column", words[0], "--label-column", words[1])
            refused(run(capsys, "predict", tmp_path / "m", path), "expected a header", "'title'", "--text-column")
    else:
        check(written("new", part_of(columns, names), True), "--header")
        check(written("new", {"title": rows}, False), scored=False)
        for found in bare:  # a header, which is asked for by its names
            check(written("new", found, True), "--text-column", "title", "--label-column", "queue")
            if len(found) != len(names):
                path = written("new", found, False)
                refused(run(capsys, "predict", tmp_path / "m", path), f"{len(found)} columns", f"expected {len(names)}")


@pytest.mark.parametrize("header", ["text", "text,label", "id,text", "Job Title,id"])
def test_a_header_without_the_column_of_the_training_is_refused(capsys, tmp_path, header):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"title": rows, "label": labels})
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--text-column", "title", "--quiet").code == 0
    names = header.split(",")
    new = table(tmp_path / "new.csv", dict.fromkeys(names, rows))
    listed = ", ".join(map(repr, names))
    refused(run(capsys, "predict", tmp_path / "m", new), f"has {listed}; expected a header", "'title'", "--text-column")
    assert run(capsys, "predict", tmp_path / "m", new, "--text-column", names[0]).lines == labels


def test_quotes_and_delimiter_are_those_of_the_training(capsys, tmp_path):
    (tmp_path / "data.csv").write_text('"lost; card|card\n"odd; loan|loan\n' * 3)
    words = ["--no-quotes", "--delimiter", "|", "--text-column", "0", "--analyzer", "char"]
    assert run(capsys, "fit", tmp_path / "data.csv", "-o", tmp_path / "m", *words, "--quiet").code == 0
    (tmp_path / "new.csv").write_text('"lost; card\n"odd, loan\n')
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "new.csv").lines == ["card", "loan"]
    (tmp_path / "new.csv").write_text('"odd, loan",x\n')
    words = ["--quotes", "--delimiter", ",", "--text-column", "0"]
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "new.csv", *words).lines == ["loan"]


def test_labels_of_a_table_do_not_matter(capsys, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"title": rows, "queue": labels})
    words = ["-o", tmp_path / "m", "--text-column", "title", "--quiet"]
    assert run(capsys, "fit", path, *words).code == 0
    new = table(tmp_path / "new.csv", {"title": rows, "queue": [""] * 60})
    assert run(capsys, "predict", tmp_path / "m", new).lines == labels


def test_a_file_with_one_text_a_line(capsys, tmp_path):
    assert run(capsys, "fit", make("csv", tmp_path), "-o", tmp_path / "m", "--quiet").code == 0
    lines = tmp_path / "new.txt"
    lines.write_text("lost card\nlost, card\n")
    words = ["predict", tmp_path / "m", lines]
    refused(run(capsys, *words), "one text a line is read with --format tsv --no-header")
    assert run(capsys, *words, "--format", "tsv", "--no-header").lines == ["card", "card"]


def test_rows_without_a_known_term_are_said(capsys, tmp_path):
    path = make("csv", tmp_path)
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--quiet").code == 0
    new = table(tmp_path / "new.csv", {"text": ["lost card", "", "xyzzy"], "id": ["1", "2", "3"]})
    ran = run(capsys, "predict", tmp_path / "m", new)
    assert ran.lines[0] == "card"
    assert len(ran.lines) == 3
    assert "2 texts of 3 without a term that the vectorizer knows, 1 of them empty" in ran.err
    assert "warning" not in ran.err
    new = table(tmp_path / "new.csv", {"text": ["", ""], "id": ["1", "2"]})
    ran = run(capsys, "predict", tmp_path / "m", new, "--quiet")
    assert len(ran.lines) == 2
    assert ran.err.startswith("manyclass: warning: no text in column 'text' of ")
    assert "--text-column" in ran.err


def test_a_model_that_does_not_say_its_columns(capsys, tmp_path):
    path = make("csv", tmp_path)
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--quiet").code == 0
    model = LinearModel.load(tmp_path / "m")
    expected = run(capsys, "predict", tmp_path / "m", path)
    facts = model.record["data"]
    replace(model, record={**model.record, "data": {**facts, "table": None}}).save(tmp_path / "old")
    ran = run(capsys, "predict", tmp_path / "old", path)
    assert ran.lines == expected.lines
    assert "does not say which column its texts were in" in ran.err
    ran = run(capsys, "predict", tmp_path / "old", path, "--text-column", "text")
    assert ran.lines == expected.lines
    assert "warning" not in ran.err
    replace(model, record={**model.record, "data": {**facts, "table": {"header": True}}}).save(tmp_path / "bad")
    for command in ("predict", "score"):
        refused(run(capsys, command, tmp_path / "bad", path), "bad: the layout of the table is damaged")


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["--top-k", "0"], "--top-k must be 1 to 10"),
        (["--top-k", "11"], "--top-k must be 1 to 10"),
        (["--n-jobs", "0"], "--n-jobs"),
        (["-o", "no/out.txt"], "the folder no does not exist"),
        (["--text-column", "x"], "has the format"),
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
    refused(run(capsys, "predict", model_path, make("csv", tmp_path)), "the model has no vectorizer")


def test_a_file_that_is_no_model(capsys, tmp_path, model_path):
    data = tmp_path / "data.svm"
    refused(run(capsys, "predict", data, data), "data.svm: not a model file")
    whole = model_path.read_bytes()
    model_path.write_bytes(whole[: len(whole) // 2])
    refused(run(capsys, "predict", model_path, data), "cut short")
    refused(run(capsys, "predict", tmp_path / "no", data), "No such file")

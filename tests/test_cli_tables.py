"""Tables of numbers, categories and texts from a shell: fit, predict, score, explain, report, info, convert."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import manyclass
from manyclass.io import TableEncoder, read
from manyclass.io.store import RowStore
from test_cli_support import fitted, refused, run, table
from test_data_typed import WRITERS

N = 90
COLORS = [["red", "blue", "green"][i % 3] for i in range(N)]
COLUMNS = {
    "id": [str(i) for i in range(N)],
    "age": [str(20 + i % 3 + i % 5) if i % 11 else "" for i in range(N)],
    "color": COLORS,
    "title": [["my card", "the rent"][i % 2] for i in range(N)],
    "queue": [f"{['x', 'y', 'z'][i % 3]}{i % 2}" for i in range(N)],
}


@pytest.fixture
def path(tmp_path):
    return table(tmp_path / "train.csv", COLUMNS)


WORDS = ["--label-column", "queue", "--text-column", "title", "--number-columns", "auto", "--category-columns", "color"]


def test_end_to_end(capsys, path, tmp_path):
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *WORDS, "--ngrams", "1", "2", "--valid", path)
    assert "numbers from 'age', categories from 'color' (3), texts from 'title', labels from 'queue'" in ran.err
    assert "not used: 'id'" in ran.err
    assert isinstance(model.text_vectorizer, TableEncoder)
    frame = pd.DataFrame({**COLUMNS, "age": pd.to_numeric(pd.Series(COLUMNS["age"]))})
    labels = model.predict(frame).tolist()
    assert labels == COLUMNS["queue"]
    assert run(capsys, "predict", tmp_path / "m", path).lines == labels
    score = json.loads(run(capsys, "score", tmp_path / "m", path, "--json").out)
    assert score["accuracy"] == 1
    why = json.loads(run(capsys, "explain", tmp_path / "m", path, "--json", "--top", "3").lines[0])
    assert "color=red" in why["features"]
    assert run(capsys, "report", tmp_path / "m", path, "-o", tmp_path / "r.html").code == 0
    assert "color=red" in (tmp_path / "r.html").read_text()
    shown = run(capsys, "info", tmp_path / "m").out
    for line in (
        "numbers 1 column, age",
        "categories 1 column, color",
        "texts 1 column, title; kind tfidf",
        "table a header",
    ):
        assert line in " ".join(shown.split())


@pytest.mark.parametrize("format", WRITERS)
def test_a_model_of_csv_reads_other_formats_by_name(capsys, path, tmp_path, format):
    fitted(capsys, path, "-o", tmp_path / "m", *WORDS)
    expected = run(capsys, "predict", tmp_path / "m", path).out
    columns = {name: COLUMNS[name] for name in ("title", "color")}
    columns["age"] = [int(x) if x else None for x in COLUMNS["age"]]
    WRITERS[format](tmp_path / f"new.{format}", columns)
    assert run(capsys, "predict", tmp_path / "m", tmp_path / f"new.{format}").out == expected
    whole = {**columns, "queue": COLUMNS["queue"]}
    WRITERS[format](tmp_path / f"train.{format}", whole)
    fitted(capsys, tmp_path / f"train.{format}", "-o", tmp_path / "other", *WORDS)
    assert run(capsys, "predict", tmp_path / "other", path).out == expected
    refused(run(capsys, "predict", tmp_path / "m", tmp_path / "gone.csv"), "gone.csv")


def test_several_columns_of_texts_have_their_own_terms(capsys, tmp_path):
    rows = {
        "title": [["card lost", "rent due"][i % 2] for i in range(N)],
        "body": [["rent card", "lost due"][i // 2 % 2] for i in range(N)],
        "queue": [f"{'xy'[i % 2]}{'ab'[i // 2 % 2]}" for i in range(N)],
    }
    path = table(tmp_path / "t.csv", rows)
    words, label = ["--text-column", "title", "--text-column", "body"], ["--label-column", "queue"]
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *words, *label, "--min-df", "2", "--valid", path)
    assert "texts from 'title', 'body', labels from 'queue'" in ran.err
    terms = ["card", "due", "lost", "rent"]
    assert model.names().tolist() == [f"{column}:{term}" for column in ("title", "body") for term in terms]
    assert run(capsys, "predict", tmp_path / "m", path).lines == rows["queue"]
    WRITERS["jsonl"](tmp_path / "new.jsonl", {name: rows[name] for name in ("body", "title")})
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "new.jsonl").lines == rows["queue"]
    refused(run(capsys, "predict", tmp_path / "m", path, *words), "leave --text-column out")
    one = ["fit", path, "-o", tmp_path / "one", "--text-column", "title", *label, "--quiet"]
    assert run(capsys, *one).code == 0
    refused(run(capsys, "predict", tmp_path / "one", path, *words), "leave --text-column out")
    refused(run(capsys, "fit", path, "-o", tmp_path / "n", *words, "--text-column", "x"), "--text-column is 'x'")
    refused(run(capsys, "fit", path, "-o", tmp_path / "n", *words, "--text-column", "queue", *label), "both column 2")
    advice = run(capsys, "info", path, "--choose", *words, *label).out
    assert "--text-column title --text-column body" in " ".join(advice.split())
    found = read(path, text_column=[1, 0], category_columns=["queue"], with_labels=False)
    assert found.vectorizer.text_columns_ == ["body", "title"]


def test_a_model_of_a_pipeline_reads_tables(capsys, path, tmp_path):
    from sklearn.pipeline import make_pipeline

    encoder = TableEncoder(ignore_columns=["queue", "title"])
    pipeline = make_pipeline(encoder, manyclass.LinearClassifier(random_state=0))
    frame = pd.read_csv(path)
    manyclass.save(pipeline.fit(frame, frame["queue"]), tmp_path / "m")
    ran = run(capsys, "predict", tmp_path / "m", path)
    assert ran.lines == pipeline.predict(frame).tolist()
    assert "does not say which column" not in ran.err
    ran = run(capsys, "score", tmp_path / "m", path, "--label-column", "queue", "--json")
    assert json.loads(ran.out)["accuracy"] == pipeline.score(frame, frame["queue"])


def test_what_is_refused(capsys, path, tmp_path):
    many = table(tmp_path / "many.csv", {**COLUMNS, "name": [f"n{i}" for i in range(N)]})
    words = ["fit", many, "-o", tmp_path / "m", "--label-column", "queue"]
    refused(run(capsys, *words), "'name' (90)", "--ignore-columns", "--text-column", "--category-columns")
    assert run(capsys, *words, "--ignore-columns", "name,title").code == 0
    assert run(capsys, "info", many, "--label-column", "queue", "--ignore-columns", "name").code == 0
    gone = table(tmp_path / "gone.csv", {name: COLUMNS[name] for name in ("id", "color", "queue")})
    refused(run(capsys, "predict", tmp_path / "m", gone), "gone.csv, line 1", "lacks 1 column of the fit, 'age'")
    wrong = table(tmp_path / "wrong.csv", {**COLUMNS, "age": ["1", "old", *COLUMNS["age"][2:]]})
    refused(run(capsys, "predict", tmp_path / "m", wrong), "wrong.csv, line 3: 'old' in column 'age'")
    refused(run(capsys, "predict", tmp_path / "m", path, "--text-column", "title"), "leave --text-column out")
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", "--number-columns", "x"), "--number-columns is 'x'", "'age'")
    refused(run(capsys, "fit", path, "-o", tmp_path / "m"), "the column of texts is not known", "--label-column")
    unlabeled = table(tmp_path / "unlabeled.csv", {"age": COLUMNS["age"], "color": COLORS})
    words = ["fit", unlabeled, "-o", tmp_path / "m", "--number-columns", "auto"]
    refused(run(capsys, *words), "unlabeled.csv has no labels", "--label-column")


def test_names_with_commas_are_quoted(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('"a,b",c,label\n1,x,A\n2,y,B\n' * 1 + "1,x,A\n2,y,B\n" * 5)
    model, _ = fitted(capsys, path, "-o", tmp_path / "m", "--number-columns", '"a,b"')
    assert model.names().tolist() == ["a,b"]


def test_convert_and_a_fit_on_the_store(capsys, path, tmp_path):
    words = ["--label-column", "queue", "--ignore-columns", "title"]
    ran = run(capsys, "convert", path, "-o", tmp_path / "rows.npz", *words)
    assert ran.code == 0
    assert "means, categories and vocabulary are not kept" in ran.err
    expected = read(path, label_column="queue", ignore_columns="title")
    assert (sp.load_npz(tmp_path / "rows.npz") != expected.X).nnz == 0
    assert run(capsys, "convert", path, "-o", tmp_path / "rows.store", *words).code == 0
    assert RowStore(tmp_path / "rows.store").vectorizer.columns == ["age", "color"]
    fitted(capsys, tmp_path / "rows.store", "-o", tmp_path / "m")
    fitted(capsys, path, "-o", tmp_path / "direct", *words)
    assert run(capsys, "predict", tmp_path / "m", path).out == run(capsys, "predict", tmp_path / "direct", path).out


def test_a_store_with_features_of_its_own_is_not_taken_for_that_of_the_fit(capsys, path, tmp_path):
    """Column 3 of one vocabulary is another word than column 3 of the other: labels were wrong, without a word."""
    other = tmp_path / "test.csv"
    other.write_text("title,queue\nnew rent,x0\nmy new card,y1\n")
    words = ["--label-column", "queue", "--text-column", "title"]
    fitted(capsys, path, "-o", tmp_path / "m", *words)
    assert run(capsys, "convert", path, "-o", tmp_path / "train.store", *words).code == 0
    assert run(capsys, "convert", other, "-o", tmp_path / "own.store", *words).code == 0
    for command in ("predict", "score", "certify"):
        refused(run(capsys, command, tmp_path / "m", tmp_path / "own.store"), "features of its own table", "--like")
    valid = ["fit", tmp_path / "train.store", "-o", tmp_path / "n", "--valid", tmp_path / "own.store"]
    refused(run(capsys, *valid), "features of its own table")
    for number, like in enumerate(("m", "train.store")):
        store = tmp_path / f"{number}.store"
        assert run(capsys, "convert", other, "-o", store, "--like", tmp_path / like).code == 0
        assert run(capsys, "predict", tmp_path / "m", store).out == run(capsys, "predict", tmp_path / "m", other).out
    refused(
        run(
            capsys,
            "convert",
            other,
            "-o",
            tmp_path / "z.store",
            "--like",
            tmp_path / "m",
            *words[2:],
            "--ngrams",
            "1",
            "2",
        ),
        "--like is for a table",
    )
    refused(
        run(capsys, "convert", other, other, "-o", tmp_path / "z.store"), "is given twice; expected different files"
    )


def test_numbers_alone_and_a_regression(capsys, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) * [1, 1000]
    y = X @ [2, 0.001] + 5
    path = tmp_path / "rows.csv"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "price": y}).to_csv(path, index=False)
    fitted(capsys, path, "-o", tmp_path / "m", "--label-column", "price", "--loss", "squared", "--alpha", "1e-6")
    found = [float(line) for line in run(capsys, "predict", tmp_path / "m", path).lines]
    np.testing.assert_allclose(found, y, atol=0.01)


def test_rows_without_a_label_are_left_out_on_demand(capsys, tmp_path):
    columns = {**COLUMNS, "queue": [queue if i % 30 else "" for i, queue in enumerate(COLUMNS["queue"])]}
    path = table(tmp_path / "some.csv", columns)
    words = ["--label-column", "queue", "--text-column", "title", "--category-columns", "color"]
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", *words), "leave out such rows with --unlabeled 'skip'")
    shown = run(capsys, "info", path, *words, "--unlabeled", "skip", "--choose").out
    assert "rows 87" in " ".join(shown.split())
    assert "--unlabeled skip" in shown  # the line to run has what the reading needs
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *words, "--unlabeled", "skip", "--valid", path)
    assert "3 rows without a label left out" in ran.err
    assert "" not in model.classes
    npz = tmp_path / "x.npz"
    np.savez(npz, X=np.eye(4), y=np.arange(4) % 2)
    refused(run(capsys, "fit", npz, "-o", tmp_path / "n", "--unlabeled", "skip"), "expected a table")


@pytest.mark.parametrize("separator", [[], ["--label-separator", ";"]])
def test_calibrate_leaves_out_labels_that_the_fit_has_not_seen(capsys, tmp_path, separator):
    path = table(tmp_path / "train.csv", COLUMNS)
    words = ["--label-column", "queue", "--category-columns", "color,title", *separator]
    fitted(capsys, path, "-o", tmp_path / "m", *words)
    queue = COLUMNS["queue"]
    other = table(tmp_path / "held.csv", {**COLUMNS, "queue": ["new", *queue[1:8], "newer", *queue[9:]]})
    for name in ("path", "other"):
        data = path if name == "path" else other
        ran = run(capsys, "calibrate", tmp_path / "m", data, "-o", tmp_path / f"{name}.model")
        assert ran.code == 0
    assert "2 labels of" in ran.err
    assert "never seen in training, on 2 rows: left out" in ran.err
    proba = run(capsys, "predict", tmp_path / "other.model", path, "--proba", "--top-k", "1")
    assert proba.code == 0
    none = table(tmp_path / "none.csv", {**COLUMNS, "queue": ["new"] * N})
    words = ["calibrate", tmp_path / "m", none, "-o", tmp_path / "n"]
    refused(run(capsys, *words), "has a label that the fit has not seen")

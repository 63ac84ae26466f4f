"""`write_report`: one page that parses, refers to nothing outside, escapes names, with the numbers of the metrics."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline

import manyclass
from manyclass import (
    LinearClassifier,
    LinearModel,
    LinearRegressor,
    StagewiseClassifier,
    TableEncoder,
    TextVectorizer,
    write_report,
)
from manyclass.metrics import log_loss
from manyclass.models.partitioned import Columns, PartitionedModel
from manyclass.models.splitting import split_model
from test_cli_support import digits, refused, run, texts

VOID = {"meta", "input", "br", "link", "path", "circle", "polyline"}


class Page(HTMLParser):
    """Checks that elements nest, and keeps text, attributes, tables and the data of the script."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.cells, self.attributes, self.data = [], [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.data = self.data or data
        else:
            self.words.append(data)
            if self.open and self.open[-1] in ("td", "th"):
                self.cells[-1].append(data)

    def row(self, name):
        return next(row for row in self.cells if row and row[0] == name)


def page(path):
    return Page(path.read_text(encoding="utf-8"))


def self_contained(found):
    """No address, no frame, no image: the policy would forbid them, too."""
    assert not {"img", "iframe", "link", "object", "a", "base"} & set(found.tags)
    assert not {"src", "href", "onclick", "onload"} & {name for name, _ in found.attributes}
    assert any("default-src 'none'" in (value or "") for _, value in found.attributes)


def test_the_page_has_the_numbers_of_the_model_and_of_the_rows(tmp_path):
    X, y = load_digits(return_X_y=True)
    model = LinearClassifier(alpha=1e-3, random_state=0).fit(X[:900] / 16, y[:900])
    write_report(model, tmp_path / "r.html", X[900:] / 16, y[900:])
    found = page(tmp_path / "r.html")
    self_contained(found)
    predicted = model.predict(X[900:] / 16)
    assert found.row("accuracy")[1] == f"{np.mean(predicted == y[900:]):.4g}"
    assert found.row("macro F1")[1] == f"{f1_score(y[900:], predicted, average='macro'):.4g}"
    assert found.row("log loss")[1] == f"{log_loss(y[900:], model.predict_proba(X[900:] / 16)):.4g}"
    assert found.row("relative duality gap")[1] == f"{model.duality_gap_:.4g}"
    best = model.predict_topk(X[900:] / 16, 3)[0]
    assert found.row("P@3")[1] == f"{(best == y[900:, None]).mean():.4g}"
    recall = {c: np.mean(predicted[y[900:] == c] == c) for c in range(10)}
    worst = min(recall, key=lambda c: (recall[c], -np.sum(y[900:] == c)))
    table = [row for row in found.cells if row and row[0] == str(worst) and row[-1] == f"{recall[worst]:.4g}"]
    assert table
    features = json.loads(found.data)
    assert [name for name, _ in features] == [str(c) for c in np.argsort(-np.bincount(y[900:]), kind="stable")]
    top, weights = model.model_.top_features(3)
    assert dict(features)["3"] == [[str(j), f"{w:+.3g}"] for j, w in zip(top, weights)]
    assert not any("left out" in word for word in found.words)
    assert found.tags.count("svg") == 2
    assert found.row("memory of the fit besides the data")[1].endswith("iB")
    assert float(found.row("seconds of evaluations")[1]) > 0
    write_report(model, tmp_path / "only.html")
    assert model.report_ == (tmp_path / "only.html").read_text(encoding="utf-8")
    assert not hasattr(LinearClassifier(), "report_")
    assert (tmp_path / "r.html").stat().st_size < 60_000


EVIL = "</script><script>alert(1)</script>&\"'<img src=x onerror=alert(1)>"


def test_names_and_texts_of_strangers_stay_text(tmp_path):
    model = LinearModel(
        np.ascontiguousarray(np.eye(3)[:, [1, 0, 2]]),
        np.zeros(3),
        np.array([EVIL, "<b>two", "<!--"]),
        "multiclass",
        parameters={"loss": EVIL},
        record={"outcome": EVIL, "data": {"source": EVIL}},
        feature_names=np.array([EVIL, "x", "</style>"]),
    )
    write_report(model, tmp_path / "r.html", np.eye(3), model.classes)
    found = page(tmp_path / "r.html")
    self_contained(found)
    assert found.tags.count("script") == 2
    assert found.tags.count("style") == 1
    assert found.row("loss")[1] == EVIL
    assert json.loads(found.data)[0][0] == EVIL
    wrong = " ".join(found.words)
    assert f"{EVIL}, predicted <b>two" in wrong


@pytest.mark.parametrize("kind", ["binary", "multilabel", "regression", "staged", "sparse", "calibrated"])
def test_every_kind_of_model_has_a_page(tmp_path, kind):
    X, y = load_digits(return_X_y=True)
    X = X / 16
    if kind == "multilabel":
        X, y = make_multilabel_classification(random_state=0)
        model = LinearClassifier("log_loss").fit(X, y)
        y = sp.csr_matrix(y)
    elif kind == "regression":
        model = LinearRegressor().fit(X, y)
    elif kind == "staged":
        model = StagewiseClassifier("fourier", n_blocks=1, block_size=32, update="linear", random_state=0).fit(X, y)
    else:
        y = np.where(y < 5, "few", "many") if kind == "binary" else y
        model = LinearClassifier("squared_hinge", alpha=0.01, random_state=0).fit(X[:900], y[:900])
        if kind == "sparse":
            model, X = model.model_.sparsify(), sp.csr_matrix(X)
        if kind == "calibrated":
            model.calibrate(X[900:], y[900:])
    write_report(model, tmp_path / "r.html", X, y)
    found = page(tmp_path / "r.html")
    self_contained(found)
    name = {"multilabel": "P@1", "regression": "R2"}.get(kind, "accuracy")
    assert 0.3 < float(found.row(name)[1]) <= 1
    assert ("log loss" in " ".join(found.words)) == (kind == "calibrated")
    write_report(model, tmp_path / "only.html")
    self_contained(page(tmp_path / "only.html"))


@pytest.mark.parametrize("kind", ["dense", "sparse", "blocks"])
def test_of_very_many_classes_the_frequent_ones_are_searchable_on_a_small_page(tmp_path, kind):
    rng = np.random.default_rng(0)
    K = 60_000
    names = np.array([f"word{j}" for j in range(40)])
    W = rng.normal(size=(40, K)).astype(np.float32)
    counts = rng.permutation(K)
    model = LinearModel(
        sp.csr_matrix(W) if kind == "sparse" else W,
        np.zeros(K, np.float32),
        np.arange(K),
        "multiclass",
        feature_names=names,
        record={"data": {"class_counts": counts}},
    )
    if kind == "blocks":
        split_model(model, tmp_path / "blocks", block_classes=25_000)
    write_report(manyclass.load(tmp_path / "blocks") if kind == "blocks" else model, tmp_path / "r.html")
    found = page(tmp_path / "r.html")
    features = json.loads(found.data)
    shown = len(features)
    assert [int(name) for name, _ in features] == np.argsort(-counts)[:shown].tolist()
    for place in (0, 17_000, shown - 1):
        top, weights = model.top_features(int(features[place][0]))
        assert features[place][1] == [[name, f"{w:+.3g}"] for name, w in zip(top, weights)]
    assert 3.9e6 < (tmp_path / "r.html").stat().st_size < 4.01e6
    sentence = next(word for word in found.words if "left out" in word)
    assert sentence == (
        f"{shown:,} of 60,000 classes, the most frequent in the rows of the fit: this table has at most 4 MB, and "
        f"{K - shown:,} classes are left out."
    )


def test_ten_thousand_classes_are_all_searchable(tmp_path):
    W = np.random.default_rng(0).normal(size=(40, 10_000)).astype(np.float32)
    model = LinearModel(W, np.zeros(10_000, np.float32), np.arange(10_000), "multiclass")
    write_report(model, tmp_path / "r.html")
    assert [name for name, _ in json.loads(page(tmp_path / "r.html").data)] == list(map(str, range(10_000)))


def test_label_sets_have_both_averages_of_f1(tmp_path):
    X, Y = make_multilabel_classification(n_samples=200, n_classes=6, random_state=0)
    model = LinearClassifier("log_loss").fit(X[:100], Y[:100])
    unseen = np.hstack([Y[100:], np.ones((100, 1), int)])  # a label that the fit had not
    write_report(model, tmp_path / "r.html", X[100:], sp.csr_matrix(unseen))
    found = page(tmp_path / "r.html")
    predicted = np.hstack([model.predict(X[100:]), np.zeros((100, 1), int)])
    for average in ("micro", "macro"):
        assert found.row(f"{average} F1")[1] == f"{f1_score(unseen, predicted, average=average, zero_division=0):.4g}"
    best = model.predict_topk(X[100:], 3)[0]
    assert found.row("P@3")[1] == f"{np.take_along_axis(unseen, best, 1).mean():.4g}"


def test_wrong_input_is_refused(tmp_path):
    model = LinearModel(np.eye(2), np.zeros(2), np.array([0, 1]), "multiclass")
    with pytest.raises(ValueError, match="given together"):
        write_report(model, tmp_path / "r.html", np.eye(2))
    with pytest.raises(ValueError, match="of this package"):
        write_report(object(), tmp_path / "r.html")
    with pytest.raises(ValueError, match="an entry for each row"):
        write_report(model, tmp_path / "r.html", np.eye(2), [0])
    with pytest.raises(ValueError, match="y has none of the classes of the model, such as 0: pass labels of the same"):
        write_report(model, tmp_path / "r.html", np.eye(2), ["a", "b"])
    parts = PartitionedModel(Columns((0, 2), (0,), {0: np.eye(2)}, (2, 2), np.dtype(float)), np.zeros(2), None,
                             np.array([0, 1]), "multiclass")  # fmt: skip
    with pytest.raises(ValueError, match="write_report is for one process: save the model"):
        write_report(parts, tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_texts_of_wrong_examples_are_shown(tmp_path):
    from sklearn.pipeline import make_pipeline

    rows, labels = texts()
    pipeline = make_pipeline(manyclass.TextVectorizer(), LinearClassifier(random_state=0)).fit(rows, labels)
    manyclass.save(pipeline, tmp_path / "m")
    wrong = ["loan" if label == "card" else label for label in labels]
    write_report(manyclass.load(tmp_path / "m"), tmp_path / "r.html", rows, np.array(wrong))
    words = page(tmp_path / "r.html").words
    assert rows[0] in words
    assert any("card against" in word for word in words)


def test_wrong_examples_are_explained_against_the_true_class(tmp_path):
    W = np.array([[3.0, 2.0, 1.0], [0.0, 0.0, 4.0]])
    model = LinearModel(W, np.array([0.0, 0.5, 0.25]), np.array(["a", "b", "c"]), "multiclass")
    write_report(model, tmp_path / "r.html", np.eye(2), ["c", "c"])
    words = " ".join(page(tmp_path / "r.html").words)
    assert "row 0: c, predicted a" in words
    assert "a against c: 1.75 = 0 +2, rest +0, intercept -0.25" in words  # b has the second score of the row
    write_report(model, tmp_path / "r.html", np.eye(2), ["new", "c"])
    assert "a against b: 0.5" in " ".join(page(tmp_path / "r.html").words)


def test_the_command_writes_the_page(capsys, tmp_path):
    X, y = digits()
    manyclass.io.write_svmlight(tmp_path / "d.svm", X, y)
    assert run(capsys, "fit", tmp_path / "d.svm", "-o", tmp_path / "m", "--quiet").code == 0
    assert run(capsys, "report", tmp_path / "m", tmp_path / "d.svm", "-o", tmp_path / "r.html").code == 0
    found = page(tmp_path / "r.html")
    assert float(found.row("accuracy")[1]) > 0.9
    assert run(capsys, "report", tmp_path / "m", "-o", tmp_path / "only.html").code == 0
    refused(run(capsys, "report", tmp_path / "m", "-o", tmp_path / "no" / "r.html"), "does not exist")


# --- rows that went wrong --------------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "age": [31.5, 45.0, None, 52.0] * 5,
        "city": ["Rome", "Oslo", "Rome", "Lima"] * 5,
        "text": [f"{word} number {k}" for k in range(5) for word in ("card", "rent", "card", "rent")],
        "label": ["a", "b"] * 10,
    }
)


def shown(path):
    """The first row that went wrong, and what is shown of it."""
    text = path.read_text(encoding="utf-8")
    return re.findall(r"<article><b>(row [0-9]+): [^<]*</b>(?:<div>(.*?)</div>)?<small>(.*?)</small>", text)


def test_wrong_rows_show_their_text_their_columns_or_their_features(tmp_path):
    path, wrong = tmp_path / "r.html", FRAME.assign(label=["b", *FRAME.label[1:]])
    texts = make_pipeline(TextVectorizer(), LinearClassifier(random_state=0)).fit(FRAME.text, FRAME.label)
    manyclass.save(texts, tmp_path / "m")
    for given in (list(wrong.text), wrong.text, wrong.text.to_numpy()):
        write_report(manyclass.load(tmp_path / "m"), path, given, wrong.label)
        ((row, what, why),) = shown(path)
        assert (row, what) == ("row 0", "card number 0")
        assert "card" in why
    table = make_pipeline(TableEncoder(text_column="text", ignore_columns="label"), LinearClassifier(random_state=0))
    manyclass.save(table.fit(FRAME, FRAME.label), tmp_path / "m")
    for given in (wrong, wrong.drop(columns="label").to_dict("list")):
        write_report(manyclass.load(tmp_path / "m"), path, given, wrong.label)
        assert shown(path)[0][1].startswith("age: 31.5, city: Rome, text: card number 0")
    X = np.zeros((6, 80))
    X[:, :2], y = np.tile([[3.0, 0.5], [-2.0, 1.0]], (3, 1)), np.array([0, 1] * 3)
    y_wrong = np.array([1, *y[1:]])
    write_report(LinearClassifier(random_state=0).fit(sp.csr_matrix(X), y), path, sp.csr_matrix(X), y_wrong)
    assert shown(path)[0][:2] == ("row 0", "0: 3, 1: 0.5")
    named = pd.DataFrame(X, columns=[f"f{k}" for k in range(80)])
    write_report(LinearClassifier(random_state=0).fit(named, y), path, named, y_wrong)
    assert shown(path)[0][:2] == ("row 0", "f0: 3, f1: 0.5")
    write_report(LinearClassifier(random_state=0).fit(X, y), path, X, y_wrong)
    assert shown(path)[0][:2] == ("row 0", "")  # 80 numbers without names say nothing
    write_report(LinearClassifier(random_state=0).fit(X, y), path, X, y_wrong, show=lambda rows: [f"<{rows}>"])
    assert shown(path)[0][:2] == ("row 0", "&lt;[0]&gt;")


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("as_table", [False, True])
def test_wrong_rows_of_a_file_show_what_stands_there(capsys, tmp_path, format, as_table):
    wrong = FRAME.assign(label=[None, *FRAME.label[1:7], "b", *FRAME.label[8:16], "b", *FRAME.label[17:]])
    (tmp_path / "all").mkdir()
    for name, part in (("all/0", wrong[:10]), ("all/1", wrong[10:]), ("train", FRAME)):
        path = tmp_path / f"{name}.{format}"
        part.to_csv(path, index=False) if format == "csv" else part.to_parquet(path)
    words = ["--text-column", "text", *(["--number-columns", "age", "--category-columns", "city"] if as_table else [])]
    fitted = run(capsys, "fit", tmp_path / f"train.{format}", "-o", tmp_path / "m", *words, "--label-column", "label")
    assert fitted.code == 0, fitted.err
    ran = run(capsys, "report", tmp_path / "m", tmp_path / "all", "-o", tmp_path / "r.html", "--unlabeled", "skip")
    assert ran.code == 0, ran.err
    found = shown(tmp_path / "r.html")
    expected = "city: Rome, text: card number 4" if as_table else "card number 4"
    assert [(row, what.replace("age: 31.5, ", "")) for row, what, _ in found] == [("row 15", expected)]


def test_wrong_rows_of_a_table_without_a_header(capsys, tmp_path):
    lines = [f"{text}\t{label}" for text, label in zip(FRAME.text, FRAME.label)]
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    (tmp_path / "test.tsv").write_text("\n".join(["card number 9\tb", *lines[1:]]))
    words = ["--no-header", "--text-column", "0", "--label-column", "1"]
    assert run(capsys, "fit", tmp_path / "train.tsv", "-o", tmp_path / "m", *words).code == 0
    ran = run(capsys, "report", tmp_path / "m", tmp_path / "test.tsv", "-o", tmp_path / "r.html")
    assert ran.code == 0, ran.err
    assert [parts[:2] for parts in shown(tmp_path / "r.html")] == [("row 0", "card number 9")]

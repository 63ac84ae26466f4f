"""``manyclass score``: its numbers are those of the metrics."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import accuracy_score, f1_score, r2_score, root_mean_squared_error

from manyclass import LinearClassifier, LinearModel
from manyclass.cli import _common
from manyclass.io import Dataset, write, write_svmlight
from manyclass.metrics import inverse_propensity, level_accuracy, precision_at_k, psndcg_at_k, psp_at_k
from test_cli_support import digits, fitted, label_sets, make, refused, run, table, texts


def scored(capsys, *words):
    """The metrics as JSON gives them."""
    ran = run(capsys, "score", *words, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.fixture
def split(capsys, tmp_path):
    """A model, data it has not seen, and both in memory."""
    X, y = digits(500)
    write_svmlight(tmp_path / "train.svm", X[:300], y[:300])
    write_svmlight(tmp_path / "test.svm", X[300:], y[300:])
    words = ["-o", tmp_path / "m", "--n-features", "64", "--quiet"]
    assert run(capsys, "fit", tmp_path / "train.svm", *words).code == 0
    return LinearModel.load(tmp_path / "m"), X[300:], y[300:]


def test_one_label_a_row(capsys, tmp_path, split):
    model, X, y = split
    found = scored(capsys, tmp_path / "m", tmp_path / "test.svm")
    predicted = model.predict(X)
    assert found["n_samples"] == 200
    assert found["accuracy"] == accuracy_score(y, predicted)
    assert found["f1_macro"] == pytest.approx(f1_score(y, predicted, average="macro"))
    assert found["precision@3"] == precision_at_k(y, model.topk(X, 3)[0], 3)
    counts = np.bincount(digits(300)[1])
    worth = inverse_propensity(counts, 300)
    assert found["psp@3"] == pytest.approx(psp_at_k(y, model.topk(X, 3)[0], 3, worth))
    assert {name for name in found if "@" in name and name.endswith("5")} == {
        "precision@5", "ndcg@5", "recall@5", "psp@5", "psndcg@5",
    }  # fmt: skip


def test_parameters_of_the_propensities(capsys, tmp_path, split):
    model, X, y = split
    files = (tmp_path / "m", tmp_path / "test.svm")
    found = scored(capsys, *files, "--propensity", "0.5", "0.4")
    worth = inverse_propensity(np.bincount(digits(300)[1]), 300, A=0.5, B=0.4)
    assert found["psp@3"] == pytest.approx(psp_at_k(y, model.topk(X, 3)[0], 3, worth))
    assert found["psp@3"] != scored(capsys, *files)["psp@3"]
    assert scored(capsys, *files, "--propensity", "0.55", "1.5") == scored(capsys, *files)
    for wrong in ("nan", "inf", "0"):
        ran = run(capsys, "score", *files, "--propensity", wrong, "1.5")
        assert ran.code != 0
        assert f"--propensity {wrong} 1.5:" in ran.err


def test_propensities_by_the_labels_of_training_data(capsys, tmp_path, split):
    model, X, y = split
    files = (tmp_path / "m", tmp_path / "test.svm")
    assert scored(capsys, *files, "--train", tmp_path / "train.svm") == scored(capsys, *files)
    found = scored(capsys, *files, "--train", tmp_path / "test.svm")
    worth = inverse_propensity(np.bincount(y), 200)
    assert found["psp@3"] == pytest.approx(psp_at_k(y, model.topk(X, 3)[0], 3, worth))
    write_svmlight(tmp_path / "two.svm", X[:2], y[:2])
    ran = run(capsys, "score", *files, "--train", tmp_path / "two.svm")
    assert ran.code != 0
    assert "three rows or more" in ran.err


def test_propensities_of_a_model_without_counts(capsys, tmp_path, split):
    _, X, y = split
    LinearClassifier(random_state=0).fit(X, y).model_.save(tmp_path / "bare")
    files = (tmp_path / "bare", tmp_path / "test.svm")
    assert not any(name.startswith("psp@") for name in scored(capsys, *files))
    ran = run(capsys, "score", *files, "--propensity", "0.5", "0.4")
    assert ran.code != 0
    assert "give --train" in ran.err
    found = scored(capsys, *files, "--propensity", "0.5", "0.4", "--train", tmp_path / "test.svm")
    worth = inverse_propensity(np.bincount(y), 200, A=0.5, B=0.4)
    lists = LinearModel.load(tmp_path / "bare").topk(X, 3)[0]
    assert found["psndcg@3"] == pytest.approx(psndcg_at_k(y, lists, 3, worth))


def test_levels_of_a_hierarchy_of_names(capsys, tmp_path):
    fitted(capsys, make("csv", tmp_path), "-o", tmp_path / "m", "--quiet")
    rows, labels = texts(30)
    rows[0], labels[0] = rows[1], "loan"  # wrong at the lower level alone, as account and loan have one parent
    assert labels[1] == "account"
    test = table(tmp_path / "test.csv", {"text": rows, "queue": labels})
    path = tmp_path / "parents.tsv"
    path.write_text("card\tplastic\naccount\tmoney\nloan\tmoney\n\nplastic\t\n")
    found = scored(capsys, tmp_path / "m", test, "--hierarchy", path)
    assert found["level_accuracy"] == pytest.approx([1.0, 29 / 30])
    wrongs = {
        "card\tplastic\naccount\tmoney\n": "'loan' of the model is none of its 4 nodes",
        "card\ta\ncard\tb\naccount\ta\nloan\ta\n": "line 2: 'card' has a second parent 'b', after 'a'",
        "card\tloan\naccount\tloan\nloan\tcard\n": "cycle",
        "card\ta\tb\n": "line 1 is",
        "-1\n-1\n-1\n": "give lines NODE, tab, PARENT",
    }
    for text, what in wrongs.items():
        path.write_text(text)
        refused(run(capsys, "score", tmp_path / "m", test, "--hierarchy", path), "--hierarchy", what)


def test_levels_of_a_hierarchy(capsys, tmp_path, split):
    model, X, y = split
    files = (tmp_path / "m", tmp_path / "test.svm")
    parents = [10] * 5 + [11] * 5 + [-1, -1]
    path = tmp_path / "parents.txt"
    path.write_text("".join(f"{parent}\n" for parent in parents))
    found = scored(capsys, *files, "--hierarchy", path)
    assert found["level_accuracy"] == level_accuracy(y, model.predict(X), parents).tolist()
    assert found["level_accuracy"][-1] == found["accuracy"]
    shown = [line.split() for line in run(capsys, "score", *files, "--hierarchy", path).lines]
    assert ["0", f"{found['level_accuracy'][0]:.4f}"] in shown
    for wrong in ("-1\n0\n", "-1\nroot\n", "1\n0\n" + "0\n" * 8):
        path.write_text(wrong)
        ran = run(capsys, "score", *files, "--hierarchy", path)
        assert ran.code != 0
        assert "--hierarchy" in ran.err


def test_ranks_among_all_classes(capsys, monkeypatch, tmp_path, split):
    model, X, y = split
    scores = model.scores(X)
    ranks = (scores >= scores[np.arange(len(y)), y][:, None]).sum(axis=1)
    expected = {str(r): float(np.mean(ranks <= r)) for r in (1, 2, 5)}
    expected |= {"median": float(np.median(ranks)), "mean_reciprocal": pytest.approx(np.mean(1 / ranks))}
    assert scored(capsys, tmp_path / "m", tmp_path / "test.svm")["rank_distribution"] == expected
    monkeypatch.setattr(_common, "_BUFFER", 70)
    assert scored(capsys, tmp_path / "m", tmp_path / "test.svm")["rank_distribution"] == expected


def test_the_table_shows_the_same(capsys, tmp_path, split):
    found = scored(capsys, tmp_path / "m", tmp_path / "test.svm", "--top-k", "7")
    ran = run(capsys, "score", tmp_path / "m", tmp_path / "test.svm", "--top-k", "7")
    cells = [line.split() for line in ran.lines]
    assert ["accuracy", f"{found['accuracy']:.4f}"] in cells
    assert ["macro", "F1", f"{found['f1_macro']:.4f}"] in cells
    names = ("precision", "ndcg", "recall", "psp", "psndcg")
    for k in (1, 3, 5, 7):
        assert [str(k), *(f"{found[f'{name}@{k}']:.4f}" for name in names)] in cells
    for rank in ("1", "2", "5"):
        assert [rank, f"{found['rank_distribution'][rank]:.4f}"] in cells


def test_quiet_leaves_the_result(capsys, tmp_path, split):
    ran = run(capsys, "score", tmp_path / "m", tmp_path / "test.svm", "--quiet")
    assert ran.err == ""
    assert "accuracy" in ran.out


def test_the_fit_shows_the_same_accuracy(capsys, tmp_path, split):
    words = ["-o", tmp_path / "n", "--n-features", "64", "--valid", tmp_path / "test.svm"]
    ran = run(capsys, "fit", tmp_path / "train.svm", *words)
    found = scored(capsys, tmp_path / "n", tmp_path / "test.svm")
    assert f"{found['accuracy']:.4f}" in ran.out
    assert f"{found['f1_macro']:.4f}" in ran.out


def test_labels_never_seen_are_errors(capsys, tmp_path, split):
    model, X, y = split
    strange = np.where(np.arange(200) < 10, 77, y)
    write_svmlight(tmp_path / "new.svm", X, strange)
    ran = run(capsys, "score", tmp_path / "m", tmp_path / "new.svm")
    assert f"warning: 1 label of {tmp_path / 'new.svm'} never seen in training, on 10 rows" in ran.err
    found = scored(capsys, tmp_path / "m", tmp_path / "new.svm")
    assert (found["unseen_labels"], found["rows_with_unseen_labels"]) == (1, 10)
    assert found["accuracy"] == np.mean(model.predict(X) == strange)
    assert found["rank_distribution"]["5"] <= 190 / 200


def test_names_that_look_like_numbers_in_one_file_only(capsys, tmp_path):
    X, y = digits()
    named = np.where(y == 9, "nine", y.astype(str))
    write_svmlight(tmp_path / "train.svm", X, named)
    write_svmlight(tmp_path / "test.svm", X[y != 9], y[y != 9])
    assert run(capsys, "fit", tmp_path / "train.svm", "-o", tmp_path / "m", "--quiet").code == 0
    model = LinearModel.load(tmp_path / "m")
    assert model.classes.dtype.kind == "U"
    found = scored(capsys, tmp_path / "m", tmp_path / "test.svm")
    assert found["accuracy"] == np.mean(model.predict(X[y != 9]) == y[y != 9].astype(str))
    assert found["unseen_labels"] == 0
    # And the other way round: the model knows numbers, the file has a name among them.
    assert run(capsys, "fit", tmp_path / "test.svm", "-o", tmp_path / "m", "--quiet").code == 0
    found = scored(capsys, tmp_path / "m", tmp_path / "train.svm", "--extra-features", "ignore")
    assert (found["unseen_labels"], found["rows_with_unseen_labels"]) == (1, (y == 9).sum())
    assert found["accuracy"] > 0.8


@pytest.mark.parametrize("kind", ["svm", "npz", "xmc"])
def test_label_sets(capsys, tmp_path, kind):
    X, Y = label_sets(400)
    rare = Y.toarray()
    rare[:300, 5] = 0  # in the test rows only
    write(tmp_path / f"train.{kind}", Dataset(X[:300], csr_matrix(rare[:300])))
    write(tmp_path / f"test.{kind}", Dataset(X[300:], csr_matrix(rare[300:])))
    words = ["-o", tmp_path / "m", "--alpha", "1e-3", "--task", "multilabel", "--quiet"]
    assert run(capsys, "fit", tmp_path / f"train.{kind}", *words).code == 0
    model = LinearModel.load(tmp_path / "m")
    ran = run(capsys, "score", tmp_path / "m", tmp_path / f"test.{kind}")
    assert ("never seen" in ran.err) == (kind == "svm")  # the other two formats name columns without a row
    found = scored(capsys, tmp_path / "m", tmp_path / f"test.{kind}", "--top-k", "3")
    truth = rare[300:]
    predicted = np.zeros_like(truth)
    predicted[:, model.classes.astype(int)] = model.predict(X[300:]).toarray()
    assert found["accuracy"] == pytest.approx(np.mean((truth == predicted).all(axis=1)))
    # A label that neither data nor model have is no class in a file of names.
    used = [*range(5), 5]
    assert found["f1_micro"] == pytest.approx(f1_score(truth[:, used], predicted[:, used], average="micro"))
    lists = model.topk(X[300:], 3)[0]
    hits = np.mean([[truth[i, int(label)] for label in row] for i, row in enumerate(lists)])
    assert found["precision@3"] == pytest.approx(hits)
    counts = rare[:300].sum(axis=0)
    assert found["psp@3"] == pytest.approx(psp_at_k(truth, lists.astype(int), 3, inverse_propensity(counts, 300)))
    assert "rank_distribution" not in found
    assert ["accuracy", "(whole", "sets)", f"{found['accuracy']:.4f}"] in [line.split() for line in ran.lines]


def test_two_classes(capsys, tmp_path):
    X, y = digits()
    write_svmlight(tmp_path / "data.svm", X, np.where(y < 5, "low", "high"))
    assert run(capsys, "fit", tmp_path / "data.svm", "-o", tmp_path / "m", "--quiet").code == 0
    found = scored(capsys, tmp_path / "m", tmp_path / "data.svm")
    assert found["recall@2"] == 1
    assert found["recall@1"] == found["accuracy"]
    assert "rank_distribution" not in found


def test_numbers(capsys, tmp_path):
    X, _ = digits()
    y = np.asarray(X @ np.linspace(-1, 1, X.shape[1])) + 0.25
    write_svmlight(tmp_path / "data.svm", X, y)
    assert run(capsys, "fit", tmp_path / "data.svm", "-o", tmp_path / "m", "--quiet", "--max-iter", "2000").code == 0
    found = scored(capsys, tmp_path / "m", tmp_path / "data.svm")
    predicted = LinearModel.load(tmp_path / "m").predict(X)
    assert found["r2"] == pytest.approx(r2_score(y, predicted), abs=1e-6)
    assert found["rmse"] == pytest.approx(root_mean_squared_error(y, predicted), rel=1e-4)
    assert "root mean squared error" in run(capsys, "score", tmp_path / "m", tmp_path / "data.svm").out
    write(tmp_path / "pair.npz", Dataset(X, np.stack([y, y], axis=1)))
    refused(run(capsys, "score", tmp_path / "m", tmp_path / "pair.npz"), "2 numbers a row; the model predicts 1 number")


def test_texts(capsys, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"text": rows, "queue": labels})
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--quiet").code == 0
    assert scored(capsys, tmp_path / "m", path)["accuracy"] == 1


@pytest.mark.parametrize(
    ("lines", "needle"),
    [
        ("1,2 3:1\n4 4:1\n", "line 1"),
        ("4 4:1\n 3:1\n", "line 2"),
    ],
)
def test_rows_that_have_not_one_label(capsys, tmp_path, split, lines, needle):
    (tmp_path / "bad.svm").write_text(lines)
    refused(run(capsys, "score", tmp_path / "m", tmp_path / "bad.svm"), needle)


def test_labels_of_another_kind(capsys, tmp_path, split):
    X, y = digits()
    write(tmp_path / "bare.npz", Dataset(X))
    refused(run(capsys, "score", tmp_path / "m", tmp_path / "bare.npz"), "has no labels", "--labels")
    write(tmp_path / "real.npz", Dataset(X, y + 0.5))
    refused(run(capsys, "score", tmp_path / "m", tmp_path / "real.npz"), "numbers to predict")
    write(tmp_path / "sets.npz", Dataset(X, label_sets()[1]))
    refused(run(capsys, "score", tmp_path / "m", tmp_path / "sets.npz"), "several labels")
    write(tmp_path / "one.npz", Dataset(X, csr_matrix(np.eye(10, dtype=np.int8)[y])))
    assert scored(capsys, tmp_path / "m", tmp_path / "one.npz")["accuracy"] > 0.9
    refused(run(capsys, "score", tmp_path / "m", tmp_path / "test.svm", "--top-k", "0"), "--top-k")
    refused(run(capsys, "score", make("svm", tmp_path), tmp_path / "test.svm"), "not a model file")

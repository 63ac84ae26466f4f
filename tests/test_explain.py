"""`explain`: contributions are values times differences of weights, add up to the margin, and are the largest."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline

import manyclass
from manyclass import LinearClassifier, LinearModel, TextVectorizer
from models import dense, model_of, ranking, rows_of
from test_cli_support import refused, run, table, texts


@pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel", "regression"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("given", [False, True])
def test_contributions_add_up_to_the_margin(task, layout, rows, given):
    rng = np.random.default_rng(0)
    model = model_of(rng, layout=layout, k=1 if task == "binary" else 5, task=task)
    X = rows_of(rng, 20)
    W, b, scores = dense(model.weights), model.intercept, model.scores(X)
    signs = np.where(scores[:, 0] > 0, 1, 0) if task == "binary" else ranking(scores)[:, 0]
    wanted = rng.integers(0, 2 if task == "binary" else 5, 20) if given else signs
    names = wanted if task == "regression" else model.classes[wanted]
    found = model.explain(sp.csr_matrix(X) if rows == "sparse" else X, 3, names if given else None)
    for i, one in enumerate(found):
        a = wanted[i]
        assert one.label == names[i]
        if task == "binary":
            difference, shift, rival = (2 * a - 1) * W[:, 0], (2 * a - 1) * b[0], model.classes[1 - a]
        elif task == "multiclass":
            other = next(c for c in ranking(scores)[i] if c != a)
            difference, shift, rival = W[:, a] - W[:, other], b[a] - b[other], model.classes[other]
        else:
            difference, shift, rival = W[:, a], b[a], None
        assert one.rival == rival
        parts = X[i] * difference
        assert one.margin == pytest.approx(parts.sum() + shift)
        assert one.margin == pytest.approx(one.contributions.sum() + one.rest + one.intercept)
        np.testing.assert_allclose(np.abs(one.contributions), np.sort(np.abs(parts[parts != 0]))[::-1][:3])
        np.testing.assert_allclose(parts[one.features], one.contributions)


def test_the_class_is_the_predicted_one_where_rounding_decides():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 60)).astype(np.float32)
    w = np.linalg.svd(X[:40])[2][-1:].T.astype(np.float32)  # scores of 40 rows are 0 up to rounding
    model = LinearModel(w, np.zeros(1, np.float32), np.array(["no", "yes"]), "binary")
    assert [one.label for one in model.explain(X)] == model.predict(X).tolist()


def test_features_have_their_names_in_data_frames_and_texts():
    frame = load_iris(as_frame=True)
    model = LinearClassifier(random_state=0).fit(frame.data, frame.target)
    found = model.explain(frame.data[:2], top=2)
    assert set(found[0].features) <= set(frame.data.columns)
    assert str(found[0]).startswith("0 against 1: ")
    rows, labels = texts()
    pipeline = make_pipeline(TextVectorizer(), LinearClassifier(random_state=0)).fit(rows, labels)
    kept = LinearModel.from_sklearn(pipeline[-1].model_.to_sklearn())
    assert kept.feature_names is None
    model = manyclass.LinearModel(
        kept.weights, kept.intercept, kept.classes, "multiclass", vectorizer=pipeline[0].to_state()
    )
    assert model.explain(["my card was stolen"], top=1)[0].features[0] in ("card", "stolen")


def test_wrong_input_is_refused():
    rng = np.random.default_rng(0)
    model, X = model_of(rng), rows_of(rng, 3)
    with pytest.raises(ValueError, match="top must be"):
        model.explain(X, 0)
    with pytest.raises(ValueError, match="one class for each row"):
        model.explain(X, labels=["class 0"])
    with pytest.raises(ValueError, match="not a class of this model"):
        model.explain(X, labels=["class 0", "class 1", "none"])
    assert model.explain(X[:0]) == []


def test_the_command_writes_a_line_for_each_row(capsys, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "t.csv", {"text": rows, "queue": labels})
    assert run(capsys, "fit", path, "-o", tmp_path / "m", "--quiet").code == 0
    ran = run(capsys, "explain", tmp_path / "m", path, "--top", "2")
    model = manyclass.load(tmp_path / "m")
    expected = model.explain(rows, 2)
    assert len(ran.lines) == len(rows)
    label, rival, margin, first, _ = ran.lines[0].split("\t")
    assert (label, rival, margin) == (expected[0].label, expected[0].rival, f"{expected[0].margin:.4g}")
    assert first.startswith(f"{expected[0].features[0]}:")
    found = json.loads(run(capsys, "explain", tmp_path / "m", path, "--json").lines[3])
    assert found["label"] == expected[3].label
    assert next(iter(found["features"])) == expected[3].features[0]
    refused(run(capsys, "explain", tmp_path / "m", path, "--top", "0"), "--top")

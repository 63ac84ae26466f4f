"""Models of texts as ONNX files: onnxruntime gives the labels, scores and probabilities of the model."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from manyclass import LinearModel, TextVectorizer

pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TEXTS = [
    "the cat sat on the mat the cat",
    "a dog's tale: dog DOG under_score x_1 42 4²",
    "ΟΔΥΣΣΕΥΣ ἦλθεν Σ'αγαπώ ΟΔΥΣ. ΟΔΟΣ",
    "İstanbul ISTANBUL straße STRASSE naïve café CAFE\u0301",
    "数据 机器 学习 数据 ⅨX Ⓐbc",
]
ODD = [
    "",
    "   ",
    "?!",
    "the  cat\n\tsat",
    "THE CAT",
    "ΟΔΟΣ'",
    "ΣΣ Σ",
    "a\x00cat",
    "the\u00a0cat",
    "ΑΣ.Σ.Α ΟΔΟΣ\u0301'\u00ad ς",
]


def text_model(texts, seed=0, **settings):
    vectorizer = TextVectorizer(**settings)
    d, rng = vectorizer.fit_transform(texts).shape[1], np.random.default_rng(seed)
    weights, intercept = rng.standard_normal((d, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    classes = np.array(["red", "grün", "blue"])
    return LinearModel(weights, intercept, classes, "multiclass", "softmax", vectorizer=vectorizer.to_state())


def outputs_of(path, X):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, {"X": X})))


def check(model, path, texts):
    found = outputs_of(path, np.array(texts, object))
    np.testing.assert_allclose(found["scores"], model.scores(model.rows(texts)), atol=3e-6)
    np.testing.assert_allclose(found["probabilities"], model.probabilities(texts), atol=3e-6)
    assert found["label"].tolist() == model.predict(texts).tolist()


@pytest.mark.parametrize("sublinear_tf", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("ngram_range", [(1, 2), (1, 1), (2, 3)])
def test_texts_give_the_same_predictions(tmp_path, ngram_range, lowercase, sublinear_tf):
    model = text_model(TEXTS, ngram_range=ngram_range, lowercase=lowercase, sublinear_tf=sublinear_tf)
    model.to_onnx(tmp_path / "m.onnx")
    for batch in (TEXTS + ODD, ["", ""], ["cat"], ["."]):
        check(model, tmp_path / "m.onnx", batch)


def test_characters_become_lower_case_and_separate_words_as_in_python(tmp_path):
    every = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    others = np.random.default_rng(0).choice(len(every), 400)
    chosen = [c for c in every if c.lower() != c] + [every[j] for j in [*range(700), *others]]
    texts = [f"a{c}b A{c}Σ x{c}Σ{c}y {c}Σ q{c}{c}" for c in chosen]
    model = text_model(texts)
    model.to_onnx(tmp_path / "m.onnx")
    check(model, tmp_path / "m.onnx", texts)


def test_labels_and_tasks_are_those_of_numbers(tmp_path):
    model = text_model(TEXTS)
    one = {"weights": model.weights[:, :1].copy(), "intercept": model.intercept[:1]}
    for changed in (
        replace(model, **one, task="binary", link="sigmoid", classes=np.array([3, 7])),
        replace(model, task="multilabel", link="sigmoid"),
    ):
        changed.to_onnx(tmp_path / "m.onnx")
        found = outputs_of(tmp_path / "m.onnx", np.array(TEXTS + ODD, object))
        expected = changed.predict(TEXTS + ODD)
        np.testing.assert_array_equal(found["label"], expected.toarray() if changed.task == "multilabel" else expected)
    rows = model.rows(TEXTS)
    model.to_onnx(tmp_path / "rows.onnx", texts=False)
    np.testing.assert_allclose(
        outputs_of(tmp_path / "rows.onnx", rows.toarray())["scores"], model.scores(rows), atol=3e-6
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"kind": "hashing", "n_features": 64}, "kind='hashing'"), ({"analyzer": "char"}, "analyzer='char'"),
     ({"analyzer": "char_wb"}, "analyzer='char_wb'")],
)  # fmt: skip
def test_what_would_predict_differently_is_refused(tmp_path, settings, named):
    model = text_model(TEXTS, **settings)
    with pytest.raises(ValueError, match=rf"{named}.*texts=False"):
        model.to_onnx(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    model.to_onnx(tmp_path / "m.onnx", texts=False)
    with pytest.raises(ValueError, match="not fitted on texts"):
        replace(model, vectorizer=None).to_onnx(tmp_path / "m.onnx", texts=True)

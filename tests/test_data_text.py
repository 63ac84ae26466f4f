"""The vectorizer and its state."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import manyclass
from manyclass import LinearClassifier
from manyclass.io import TextVectorizer

TEXTS = ["Red fish, blue fish", "ein roter Fisch", "漢字 かな", "", "fish " * 40]
SETTINGS = [
    {},
    {"analyzer": "char", "ngram_range": (1, 3), "lowercase": False},
    {"analyzer": "char_wb", "ngram_range": (2, 4), "min_df": 2},
    {"ngram_range": (1, 2), "sublinear_tf": False, "min_df": 0.3},
    {"dtype": np.float64},
    {"kind": "hashing", "n_features": 64},
    {"kind": "hashing", "n_features": 1000, "analyzer": "char", "sublinear_tf": False, "dtype": np.float64},
]


def identical(X, Z) -> bool:
    same_parts = [np.array_equal(getattr(X, part), getattr(Z, part)) for part in ("data", "indices", "indptr")]
    return all(same_parts) and X.dtype == Z.dtype and X.shape == Z.shape


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_stored_state_gives_the_same_features_to_the_last_bit(settings):
    vectorizer = TextVectorizer(**settings)
    X = vectorizer.fit_transform(iter(TEXTS))
    parameters, arrays = vectorizer.to_state()
    assert all(array.dtype != object for array in arrays.values())
    again = TextVectorizer.from_state(json.loads(json.dumps(parameters)), arrays)
    assert again.n_columns == vectorizer.n_columns == X.shape[1]
    assert repr(again) == repr(vectorizer)
    assert identical(again.transform(TEXTS), X)
    assert identical(vectorizer.transform(TEXTS), X)
    assert identical(again.transform(["a new roter text"]), vectorizer.transform(["a new roter text"]))
    second_parameters, second_arrays = again.to_state()
    assert second_parameters == parameters
    assert all(np.array_equal(second_arrays[name], array) for name, array in arrays.items())
    assert X.dtype == settings.get("dtype", np.float32)
    norms = np.sqrt(np.asarray(X.astype(np.float64).power(2).sum(axis=1))).ravel()
    assert np.all((norms == 0) | (np.abs(norms - 1) < 1e-6))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8), st.lists(st.text(max_size=20), max_size=4))
def test_any_text_survives_storing(texts, others):
    vectorizer = TextVectorizer(analyzer="char", lowercase=False).fit([*texts, "x"])
    again = TextVectorizer.from_state(*vectorizer.to_state())
    assert identical(again.transform([*texts, *others]), vectorizer.transform([*texts, *others]))


def test_hashing_counts_sublinearly():
    X = TextVectorizer("hashing", n_features=2**18).fit_transform(["aa aa aa bb"])
    expected = np.sort(np.array([1 + np.log(3), 1]) / np.hypot(1 + np.log(3), 1))
    assert np.allclose(np.sort(X.data), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"kind": "bm25"}, "kind"),
        ({"analyzer": "line"}, "analyzer"),
        ({"ngram_range": (2, 1)}, "ngram_range"),
        ({"ngram_range": (0, 1)}, "ngram_range"),
        ({"ngram_range": 2}, "ngram_range"),
        ({"min_df": 0}, "min_df"),
        ({"min_df": 1.5}, "min_df"),
        ({"min_df": True}, "min_df"),
        ({"n_features": 0}, "n_features"),
        ({"n_features": 2**31}, "n_features"),
        ({"dtype": np.int32}, "dtype"),
    ],
)
def test_wrong_parameters_are_named(settings, name):
    with pytest.raises(ValueError, match=rf"{name}\b.* must be "):
        TextVectorizer(**settings).fit(TEXTS)


def test_a_vectorizer_without_vocabulary_says_so():
    vectorizer = TextVectorizer()
    assert vectorizer.n_columns == 0
    for use in (lambda: vectorizer.transform(["a"]), vectorizer.to_state):
        with pytest.raises(ValueError, match="not fitted yet"):
            use()


def test_in_a_pipeline_and_a_grid_of_scikit_learn():
    pipeline = make_pipeline(TextVectorizer(), LinearClassifier(alpha=1e-2, random_state=0))
    search = GridSearchCV(pipeline, {"textvectorizer__analyzer": ["word", "char"]}, cv=2)
    labels = ["odd", "even"] * len(TEXTS)
    search.fit([*TEXTS, *TEXTS], labels[: 2 * len(TEXTS)])
    assert clone(pipeline)[0].get_params() == pipeline[0].get_params()
    terms = TextVectorizer().fit(["red fish", "blue fish"]).get_feature_names_out()
    assert terms.tolist() == ["blue", "fish", "red"]


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
def test_a_saved_pipeline_predicts_raw_texts(kind, tmp_path):
    pipeline = make_pipeline(TextVectorizer(kind), LinearClassifier(alpha=1e-2, random_state=0))
    labels = ["odd", "even"] * len(TEXTS)
    labels = labels[: len(TEXTS)]
    pipeline.fit(TEXTS, labels)
    manyclass.save(pipeline, tmp_path / "texts.model")
    model = manyclass.load(tmp_path / "texts.model")
    assert model.predict(TEXTS).tolist() == pipeline.predict(TEXTS).tolist()
    np.testing.assert_array_equal(model.predict(np.array(TEXTS)), pipeline.predict(TEXTS))
    np.testing.assert_allclose(model.probabilities(TEXTS), pipeline.predict_proba(TEXTS), rtol=1e-6)
    assert model.topk(list(TEXTS), 2)[0].shape == (len(TEXTS), 2)
    features = model.top_features("odd", 3)[0]
    assert all(isinstance(name, str) == (kind == "tfidf") for name in features.tolist())
    with pytest.raises(ValueError, match="X must be a list of texts, got one text"):
        model.predict(TEXTS[0])


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
@pytest.mark.parametrize("missing", [None, float("nan"), 3, ["a"]], ids=str)
def test_what_is_no_text_is_named(kind, missing):
    fitted = TextVectorizer(kind).fit(TEXTS)
    with pytest.raises(ValueError, match=r"text 1 must be a string, got .*: leave missing texts out, or replace them"):
        fitted.transform([TEXTS[0], missing])
    with pytest.raises(ValueError, match=r"text 1 must be a string, got "):
        TextVectorizer(kind).fit_transform([TEXTS[0], missing])


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
def test_the_names_of_columns_and_letters_are_no_texts(kind):
    frame = pytest.importorskip("pandas").DataFrame({"text": TEXTS})
    for wrong, got in ((frame, "a data frame: pass one column of it"), (TEXTS[0], r"one text: pass \[text\]")):
        for method in ("fit_transform", "transform"):
            with pytest.raises(ValueError, match=f"texts must be an iterable of texts, got {got}"):
                getattr(TextVectorizer(kind).fit(TEXTS), method)(wrong)
    assert TextVectorizer(kind).fit_transform(frame["text"]).shape[0] == len(TEXTS)


def test_texts_for_a_model_of_numbers_and_pipelines_that_cannot_be_kept(tmp_path):
    model = LinearClassifier().fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="not fitted on texts"):
        model.model_.predict(["one", "two"])
    labels = (["odd", "even"] * len(TEXTS))[: len(TEXTS)]
    pipeline = make_pipeline(TfidfVectorizer(), LinearClassifier()).fit(TEXTS, labels)
    with pytest.raises(ValueError, match="TfidfVectorizer -> LinearClassifier"):
        manyclass.save(pipeline, tmp_path / "no.model")


def damage(name, change):
    parameters, arrays = TextVectorizer().fit(TEXTS).to_state()
    if name in parameters:
        parameters[name] = change
    else:
        arrays[name] = change(arrays[name])
    return parameters, arrays


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vocabulary", lambda a: a[:-1]),
        ("vocabulary", lambda a: a.astype(np.int16)),
        ("vocabulary", lambda a: np.full_like(a, 0xFF)),
        ("vocabulary", lambda a: np.full_like(a, ord("a"))),
        ("offsets", lambda a: a[:-1]),
        ("offsets", lambda a: a[::-1].copy()),
        ("offsets", lambda a: a[:, None]),
        ("idf", lambda a: a[:-1]),
        ("idf", lambda a: a * np.nan),
        ("idf", lambda a: a[:0]),
        ("kind", "bm25"),
        ("analyzer", "line"),
    ],
)
def test_a_damaged_state_is_refused(name, change):
    with pytest.raises(ValueError, match=r"damaged|expected|decode"):
        TextVectorizer.from_state(*damage(name, change))


def test_an_incomplete_or_foreign_state_is_refused():
    parameters, arrays = TextVectorizer().fit(TEXTS).to_state()
    with pytest.raises(ValueError, match="lacks idf"):
        TextVectorizer.from_state(parameters, {name: arrays[name] for name in ("vocabulary", "offsets")})
    with pytest.raises(ValueError, match="parameters of the vectorizer are damaged"):
        TextVectorizer.from_state({**parameters, "colour": 1}, arrays)

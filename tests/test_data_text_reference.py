"""TextVectorizer's features are those of scikit-learn's vectorizers, to the last bit, for all settings and texts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.preprocessing import normalize

from manyclass.io import TextVectorizer

#: No terms at all, one-letter words, one accent as one and as two characters, letters that change their number in lower
#: case, scripts without spaces and from right to left, emoji of several characters, digits and spaces of other scripts,
#: control characters, punctuation, a very long word, and a word that occurs very often.
NASTY = [
    *("", " \t\n", "a b c", "café", "cafe\u0301", "İstanbul ISTANBUL ıstanbul", "Straße STRASSE ﬁsh", "ΣΟΦΟΣ σοφος"),
    *("漢字 かな交じり文", "עברית العربية", "👩\u200d👩\u200d👧 👍🏽 fish", "٣٤ ४५ 34 3.4 1e5"),
    *("no\u00a0break\u2028line\u3000wide", "nul\x00byte \x1b[0m \ufeffbom \ufffd", "snake_case don't e-mail @at #hash"),
    *(
        "x" * 5_000,
        "fish Fish " * 2_000,
        "\u0301\u0301\u0301",
        "z\u0335\u0322a\u0489l\u0334g\u0337o",
        "\U0010ffff\ue000",
    ),
    *("aa", "fish and fish and chips"),
]
OTHER = ["fish", "unseen 漢字", "", "CAFÉ cafe\u0301", "x" * 30, "straße\x00nul", "fish chips " * 3]

ANALYZERS = [("word", (1, 1)), ("word", (1, 3)), ("char", (1, 2)), ("char", (3, 3)), ("char_wb", (2, 4))]
COMMON = [
    {"analyzer": analyzer, "ngram_range": ngrams, "lowercase": lowercase, "sublinear_tf": sublinear, "dtype": dtype}
    for (analyzer, ngrams), lowercase, sublinear, dtype in product(
        ANALYZERS, (True, False), (True, False), (np.float32, np.float64)
    )
]


def identical(X, Z) -> bool:
    same_parts = [np.array_equal(getattr(X, part), getattr(Z, part)) for part in ("data", "indices", "indptr")]
    return all(same_parts) and X.dtype == Z.dtype and X.shape == Z.shape


def label(settings):
    return "-".join(str(getattr(value, "__name__", value)) for value in settings.values())


@pytest.mark.parametrize("min_df", [1, 2, 0.1])
@pytest.mark.parametrize("settings", COMMON, ids=label)
def test_terms_and_features_are_those_of_tfidf_vectorizer(settings, min_df):
    reference = TfidfVectorizer(min_df=min_df, **settings).fit(NASTY)
    vectorizer = TextVectorizer(min_df=min_df, **settings)
    fitted = vectorizer.fit_transform(iter(NASTY))
    assert vectorizer.get_feature_names_out().tolist() == reference.get_feature_names_out().tolist()
    assert identical(fitted, reference.transform(NASTY))
    assert identical(vectorizer.transform(NASTY), fitted)
    assert identical(vectorizer.transform(OTHER), reference.transform(OTHER))
    # Its own fit_transform adds the squares, of some hundred terms, in another order.
    np.testing.assert_allclose(
        fitted.toarray(), reference.fit_transform(NASTY).toarray(), rtol=100 * np.finfo(settings["dtype"]).eps
    )


@pytest.mark.parametrize("n_features", [1, 64, 2**18])
@pytest.mark.parametrize("settings", COMMON, ids=label)
def test_features_are_those_of_hashing_vectorizer(settings, n_features):
    counting = {name: value for name, value in settings.items() if name != "sublinear_tf"}
    hashing = HashingVectorizer(n_features=n_features, alternate_sign=False, norm=None, **counting)
    weighting = TfidfTransformer(use_idf=False, sublinear_tf=settings["sublinear_tf"])
    vectorizer = TextVectorizer("hashing", n_features=n_features, **settings)
    for texts in (NASTY, OTHER):
        found = vectorizer.fit_transform(iter(texts))
        counts = hashing.transform(texts)
        assert identical(found, weighting.fit_transform(counts.copy()))
        if not settings["sublinear_tf"]:
            assert identical(found, normalize(counts))
            assert identical(found, hashing.set_params(norm="l2").transform(texts))
            hashing.set_params(norm=None)


texts = st.lists(st.text(max_size=30), min_size=1, max_size=8)


@given(texts, texts, st.sampled_from(COMMON))
def test_features_of_any_text(fitted, others, settings):
    fitted = [*fitted, "some words"]
    reference, vectorizer = TfidfVectorizer(**settings).fit(fitted), TextVectorizer(**settings).fit(fitted)
    assert vectorizer.get_feature_names_out().tolist() == reference.get_feature_names_out().tolist()
    assert identical(vectorizer.transform([*fitted, *others]), reference.transform([*fitted, *others]))

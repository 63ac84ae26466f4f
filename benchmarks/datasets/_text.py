"""Texts to tf-idf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.data import Split, encode

__all__ = ["tfidf"]


def tfidf(train: Sequence[str], y: Any, test: Sequence[str], y_test: Any, **options: Any) -> Split:
    """float32 tf-idf with sublinear counts, fitted on the training texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **options)
    X, X_test = vectorizer.fit_transform(train), vectorizer.transform(test)
    codes, codes_test = encode(np.asarray(y), np.asarray(y_test))
    return Split(X, codes, X_test, codes_test)

"""RCV1 newswire, tf-idf, 47 236 features, sparse: topics (multi-label), four classes, or CCAT against the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Split, compact, encode

FILES = ("rcv1/rcv1_topics_train.svm.gz", "rcv1/rcv1_topics_test.svm.gz")
SOURCE = "multi-label svmlight files whose labels are the RCV1 topic codes numbered from 1 in alphabetical order"
VARIANTS = ("topics", "4class", "ccat")

_TOPICS = 103
_CCAT = 34
#: C15, ECAT, GCAT, MCAT.
_FOUR = (5, 60, 71, 103)


def build(folder: Path, variant: str) -> Split:
    (X, topics), (X_test, topics_test) = (_read(folder / file) for file in FILES)
    if variant == "topics":
        # One of the topics has no row at all.
        y, y_test = compact(topics, topics_test)
        return Split(X, y, X_test, y_test)
    if variant == "ccat":
        column = _CCAT - 1
        y, y_test = (part[:, [column]].toarray().ravel().astype(np.int64) for part in (topics, topics_test))
        return Split(X, y, X_test, y_test)
    (X, y), (X_test, y_test) = _one_of_four(X, topics), _one_of_four(X_test, topics_test)
    return Split(X, encode(y, y_test)[0], X_test, encode(y, y_test)[1])


def _read(path: Path) -> tuple[Any, Any]:
    from sklearn.datasets import load_svmlight_file

    X, labels = load_svmlight_file(str(path), n_features=47236, multilabel=True, dtype=np.float32, zero_based=False)
    indptr = np.cumsum([0, *(len(row) for row in labels)])
    indices = np.concatenate([np.asarray(row, np.int64) for row in labels]) - 1
    indicator = sp.csr_matrix((np.ones(len(indices), np.int8), indices, indptr), shape=(len(labels), _TOPICS))
    return X, indicator


def _one_of_four(X: Any, topics: Any) -> tuple[Any, Any]:
    four = topics[:, [number - 1 for number in _FOUR]].toarray()
    rows = np.flatnonzero(four.sum(axis=1) == 1)
    return X[rows], four[rows].argmax(axis=1)

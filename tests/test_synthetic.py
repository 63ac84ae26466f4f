"""Laws of the generated problem with many classes."""

from __future__ import annotations

import math
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from manyclass.datasets import make_many_classes, synthetic


def fingerprint(*arrays):
    return [zlib.crc32(np.ascontiguousarray(array, dtype="<i8").tobytes()) for array in arrays]


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 150),
    d=st.integers(1, 60),
    k=st.integers(1, 200),
    nnz=st.integers(1, 12),
    options=st.fixed_dictionaries(
        {
            "n_informative": st.integers(1, 5),
            "branching": st.integers(2, 6),
            "class_share": st.sampled_from([0.0, 0.3, 0.5]),
            "topic_share": st.sampled_from([0.0, 0.3, 0.5]),
            "class_exponent": st.sampled_from([0.0, 1.0, 2.5]),
            "feature_exponent": st.sampled_from([0.0, 1.0, 400.0]),
            "label_noise": st.sampled_from([0.0, 0.2, 1.0]),
            "random_state": st.integers(0, 2**70),
            "dtype": st.sampled_from([np.float32, np.float64, "f4"]),
        }
    ),
)
def test_every_problem_is_well_formed(n, d, k, nnz, options):
    X, y = make_many_classes(n, d, k, nnz_per_row=nnz, **options)
    assert isinstance(X, sparse.csr_matrix)
    assert X.shape == (n, d)
    assert X.dtype == options["dtype"]
    assert y.shape == (n,)
    assert y.dtype == np.int64
    X.check_format(full_check=True)
    for start, stop in zip(X.indptr[:-1], X.indptr[1:]):
        assert 1 <= stop - start <= nnz + nnz // 2
        assert (np.diff(X.indices[start:stop]) > 0).all()
    assert (X.data > 0).all()
    norms = np.sqrt(X.astype(np.float64).power(2).sum(axis=1))
    np.testing.assert_allclose(norms, 1.0, rtol=4 * np.finfo(X.dtype).eps * math.sqrt(2 * nnz))
    assert y.min() >= 0
    assert y.max() < k
    if n >= k:
        assert np.unique(y).size == k


def test_a_seed_gives_the_same_problem_and_another_another():
    first, again, other = (make_many_classes(300, 200, 40, random_state=seed) for seed in (7, 7, 8))
    fresh = [make_many_classes(300, 200, 40, random_state=None) for _ in range(2)]
    assert fingerprint(first[1], first[0].indices) == fingerprint(again[1], again[0].indices)
    assert first[0].data.tobytes() == again[0].data.tobytes()
    for a, b in ((first, other), fresh):
        assert (a[1] != b[1]).any()
        assert fingerprint(a[0].indices) != fingerprint(b[0].indices)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [2116744722, 2601688428, 1274844302]),
        (
            {"class_exponent": 1.3, "feature_exponent": 0.9, "label_noise": 0.1, "branching": 3},
            [3558276132, 3962576075, 1847517406],
        ),
    ],
)
def test_a_seed_means_the_same_on_every_platform_and_version(options, expected, monkeypatch):
    monkeypatch.setattr(synthetic, "_CHUNK", 4096)  # several pieces
    X, y = make_many_classes(1000, 3000, 250, random_state=123, **options)
    assert fingerprint(y, X.indptr, X.indices) == expected


@pytest.mark.parametrize("n", [5000, 1000, 300])
@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_class_sizes_follow_the_power_law(n, exponent, noise):
    k = 1000
    _, y = make_many_classes(n, 50, k, nnz_per_row=2, class_exponent=exponent, label_noise=noise)
    sizes = np.sort(np.bincount(y, minlength=k))[::-1]
    law = np.arange(1, k + 1) ** -exponent
    each = 1 if n >= k else 0
    expected = each + (n - each * k) * law / law.sum()
    assert sizes.sum() == n
    assert np.abs(sizes - expected).max() < 1.0 + 1e-9


def test_class_numbers_say_nothing_about_sizes():
    _, y = make_many_classes(50_000, 50, 1000, nnz_per_row=1)
    ranks = np.argsort(np.argsort(np.bincount(y)))
    assert abs(np.corrcoef(np.arange(1000), ranks)[0, 1]) < 0.15


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_noise_words_follow_the_law_of_words(exponent):
    n, d, nnz = 20_000, 500, 10
    X, _ = make_many_classes(n, d, 5, nnz_per_row=nnz, class_share=0, topic_share=0, feature_exponent=exponent)
    law = (np.arange(1, d + 1) + 2.7) ** -exponent
    law /= law.sum()
    lengths = np.arange(nnz // 2, nnz + nnz // 2 + 1)
    expected = n * (1 - (1 - law[:, np.newaxis]) ** lengths).mean(axis=1)
    found = np.bincount(X.indices, minlength=d)
    if exponent:
        found = np.sort(found)[::-1]
        assert found[0] > 20 * found[-1]
    # Five standard deviations of a count, and a word more for the sorting of near-equals.
    assert (np.abs(found - expected) < 5 * np.sqrt(expected) + 1).mean() > 0.99


def test_rows_speak_of_their_class_and_its_topics_only():
    k, branching, own = 64, 4, 3  # 64 classes, 16 topics, 4 topics
    options = {"nnz_per_row": 12, "n_informative": own, "branching": branching, "class_exponent": 0.0}

    def vocabularies(group, **shares):
        X, y = make_many_classes(6400, 100_000, k, **shares, **options)
        return [set(X[y // group == g].indices) for g in range(k // group)]

    classes = vocabularies(1, class_share=1.0, topic_share=0.0)
    assert all(len(words) == own for words in classes)
    # Two levels of topics: siblings share both sets, cousins only that of the grandparent.
    topics = vocabularies(1, class_share=0.0, topic_share=1.0)
    assert all(len(words) == 2 * own for words in topics)
    for c in range(k):
        for other in range(c):
            shared = 2 if c // 4 == other // 4 else 1 if c // 16 == other // 16 else 0
            assert len(topics[c] & topics[other]) == shared * own
    both = vocabularies(1, class_share=0.5, topic_share=0.5)
    assert all(len(words) == 3 * own for words in both)


def test_values_are_sublinear_tf_idf():
    X, _ = make_many_classes(400, 300, 30, nnz_per_row=30, feature_exponent=1.5, dtype=np.float64)
    n = X.shape[0]
    rarity = 1 + np.log((1 + n) / (1 + np.bincount(X.indices, minlength=X.shape[1])))
    counts = X.copy()
    counts.data /= rarity[X.indices]
    # A word said once has the smallest value of its row, and in 15 or more words of 300 there is one.
    smallest = np.repeat(np.minimum.reduceat(counts.data, X.indptr[:-1]), np.diff(X.indptr))
    counts.data = np.exp(counts.data / smallest - 1)
    np.testing.assert_allclose(counts.data, np.rint(counts.data), atol=1e-9)
    assert counts.data.max() > 3
    counts.data = np.rint(counts.data)
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    np.testing.assert_allclose(X.toarray(), expected.toarray(), rtol=1e-12)
    assert counts.sum() / n == pytest.approx(30, rel=0.05)


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
def test_label_noise_moves_that_fraction_of_the_labels_and_nothing_else(rate):
    n = 20_000
    X, clean = make_many_classes(n, 100, 50, nnz_per_row=4, random_state=3)
    X_noisy, noisy = make_many_classes(n, 100, 50, nnz_per_row=4, random_state=3, label_noise=rate)
    assert X.data.tobytes() == X_noisy.data.tobytes()
    assert X.indices.tobytes() == X_noisy.indices.tobytes()
    sizes = np.bincount(clean)
    assert np.bincount(noisy).tolist() == sizes.tolist()
    # A label may meet its like among those that move.
    expected = rate * n * (1 - ((sizes / n) ** 2).sum())
    changed = (clean != noisy).sum()
    assert changed <= round(rate * n)
    assert changed == pytest.approx(expected, abs=5 * math.sqrt(expected))


def nearest_centroid_accuracy(X, y, k):
    """Trained on one half of the rows, tested on the other."""
    half = len(y) // 2
    members = sparse.csr_matrix((np.ones(half), (y[:half], np.arange(half))), shape=(k, half))
    centroids = (members @ X[:half]).toarray()
    centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-12)
    return np.mean(np.argmax(X[half:] @ centroids.T, axis=1) == y[half:])


def test_centroids_find_the_classes_the_better_the_cleaner():
    k = 200
    options = {"n_samples": 6000, "n_features": 2000, "n_classes": k}
    largest = np.bincount(make_many_classes(**options)[1]).max() / 6000
    clean = nearest_centroid_accuracy(*make_many_classes(**options), k)
    noisy = nearest_centroid_accuracy(*make_many_classes(**options, label_noise=0.3), k)
    random = nearest_centroid_accuracy(*make_many_classes(**options, label_noise=1.0), k)
    mute = nearest_centroid_accuracy(*make_many_classes(**options, class_share=0, topic_share=0), k)
    loud = nearest_centroid_accuracy(*make_many_classes(**options, class_share=0.3), k)
    assert loud > clean > 0.7 > 3 * largest
    assert 0.45 < noisy < 0.75
    assert max(random, mute) < 1.2 * largest


def test_every_class_can_be_learnt():
    k = 300
    X, y = make_many_classes(12_000, 5000, k, class_exponent=0.0, class_share=0.3)
    half = len(y) // 2
    members = sparse.csr_matrix((np.ones(half), (y[:half], np.arange(half))), shape=(k, half))
    found = np.argmax(X[half:] @ (members @ X[:half]).toarray().T, axis=1)
    hits = np.bincount(y[half:][found == y[half:]], minlength=k)
    # By chance a class is found once in 300 times.
    assert (hits / np.bincount(y[half:], minlength=k)).min() > 0.3


def test_a_million_classes_fit_in_memory():
    tracemalloc.start()
    try:
        X, y = make_many_classes(20_000, 300_000, 1_000_000, nnz_per_row=50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The 8 words of each class and topic (twice, while they are drawn), a chunk's drawing, the result twice.
    assert peak < 2 * 8 * 8 * 1_070_000 + 100 * synthetic._CHUNK + 2 * (X.data.nbytes + X.indices.nbytes)
    assert np.unique(y).size > 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_samples": 0}, "n_samples is 0; expected an integer of at least 1"),
        ({"n_samples": 10.0}, "n_samples is 10.0"),
        ({"n_features": -1}, "n_features is -1"),
        ({"n_classes": 0}, "n_classes is 0"),
        ({"nnz_per_row": 0}, "nnz_per_row is 0"),
        ({"n_informative": 0}, "n_informative is 0"),
        ({"branching": 1}, "branching is 1; expected an integer of at least 2"),
        ({"random_state": -1}, "random_state is -1"),
        ({"random_state": "seed"}, "random_state is 'seed'"),
        ({"class_share": 1.5}, "class_share is 1.5"),
        ({"topic_share": float("nan")}, "topic_share is nan"),
        ({"class_share": 0.6, "topic_share": 0.6}, r"class_share \+ topic_share is 1.2"),
        ({"label_noise": -0.1}, "label_noise is -0.1"),
        ({"class_exponent": -1}, "class_exponent is -1"),
        ({"feature_exponent": float("inf")}, "feature_exponent is inf"),
        ({"dtype": np.int32}, "dtype is int32"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(ValueError, match=message):
        make_many_classes(**{"n_samples": 10, "n_features": 10, "n_classes": 3} | change)

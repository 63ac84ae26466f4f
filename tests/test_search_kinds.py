"""What each kind of search index promises beyond the laws of all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

from indexes import whole_rows, whole_weights
from manyclass.datasets import make_many_classes
from manyclass.mips import ExactSearch, SearchIndex, SimpleLSH, SmallWorldGraph
from tensors import rewrite


def centroids(n=4000, d=3000, K=600):
    """Rows, their classes, and sparse centroids as weights: text, with topics."""
    X, y = make_many_classes(n, d, K, class_share=0.3, random_state=0)
    members = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), y)), shape=(n, K))
    W = (X.T @ members).tocsr()
    return X, y, W.multiply(1 / np.sqrt(W.multiply(W).sum(axis=0))).tocsr().astype(np.float32)


# --- exact ----------------------------------------------------------------------------------------------------------


def opposed(W):
    """Weights of both signs, as those of a machine that sets classes against each other."""
    return (W - 0.3 * W[:, np.random.default_rng(0).permutation(W.shape[1])]).tocsr()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_pruning_changes_no_bit(dtype, k):
    # Real numbers: the rounding of bounds and of scores is under test.
    X, y, W = centroids()
    W = opposed(W).astype(dtype)
    pruned, full = ExactSearch().build(W), ExactSearch(prune=False).build(W)
    for exclude in (None, y):
        for mine, theirs in zip(pruned.query(X, k, exclude), full.query(X, k, exclude)):
            np.testing.assert_array_equal(mine, theirs)
        # Bounds, blocks, and where these were in vain the full scan: each at most the length of the lists.
        work = full.multiply_adds(X, k, exclude)
        assert (pruned.multiply_adds(X, k, exclude) <= 3 * work).all()


def test_pruning_saves_most_of_the_work_where_classes_are_many():
    X, y, W = centroids(8000, 20_000, 4000)
    W = opposed(W)
    pruned, full = ExactSearch().build(W), ExactSearch(prune=False).build(W)
    for exclude in (None, y):
        assert pruned.multiply_adds(X, 1, exclude).sum() < full.multiply_adds(X, 1, exclude).sum() / 3


def test_multiply_adds_of_the_full_scan_are_those_of_the_lists():
    rng = np.random.default_rng(1)
    W, X = whole_weights(rng, 30, 100), whole_rows(rng, 20, 30)
    expected = (X != 0).astype(int) @ np.diff(W.indptr)
    np.testing.assert_array_equal(ExactSearch(prune=False).build(W).multiply_adds(X, 2), expected)
    dense = ExactSearch().build(W.toarray())
    np.testing.assert_array_equal(dense.multiply_adds(X), 100 * np.diff(X.indptr))


def test_dense_weights_are_searched_where_they_are_until_the_index_changes():
    W = np.zeros((3, 4))
    index = ExactSearch().build(W)
    W[0, 2] = 1.0  # as a solver does, between queries
    x = np.array([[1.0, 0.0, 0.0]])
    assert index.query(x)[0].tolist() == [[2]]
    index.update([1], np.array([[5.0, 0.0, 0.0]]))
    assert index.query(x)[0].tolist() == [[1]]
    assert W[0].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_weights_that_name_a_class_twice_are_summed():
    W = sp.csr_matrix((np.array([1.0, 4.0, 2.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    index = ExactSearch().build(W)
    assert index.query(np.array([[1.0]]), 3)[1].tolist() == [[4.0, 3.0, 0.0]]
    assert W.nnz == 3


# --- SimpleLSH ------------------------------------------------------------------------------------------------------


def test_bits_agree_as_often_as_the_theory_says():
    rng = np.random.default_rng(2)
    d, K, bits = 20, 30, 64 * 40
    W = rng.standard_normal((d, K)) * rng.uniform(0.2, 1.0, K)
    longest = W[:, np.linalg.norm(W, axis=0).argmax()]
    X = np.vstack([rng.standard_normal((6, d)), W[:, :6].T, longest, -longest])
    index = SimpleLSH(bits=bits, random_state=5).build(W)
    assert index.norm_bound_ == pytest.approx(1.25 * np.linalg.norm(W, axis=0).max())
    differ = index.encode(X)[:, None, :] ^ index.codes_[None]
    agree = bits - np.unpackbits(differ.view(np.uint8), axis=2).sum(axis=2)
    cosine = X @ W / (np.linalg.norm(X, axis=1)[:, None] * index.norm_bound_)
    probability = 1 - np.arccos(cosine) / np.pi
    # All of the X x W binomials within bounds that hold together but once in a thousand seeds.
    tail = 1e-3 / agree.size / 2
    assert (agree >= binom.ppf(tail, bits, probability)).all()
    assert (agree <= binom.ppf(1 - tail, bits, probability)).all()
    assert probability.max() > 0.75
    assert probability.min() < 0.25


@pytest.mark.parametrize("sparse", [False, True])
def test_codes_of_untouched_classes_stay_while_the_norms_stay_within_the_bound(sparse):
    rng = np.random.default_rng(3)
    W = rng.standard_normal((30, 50)) * (rng.random((30, 50)) < 0.5)
    W /= np.linalg.norm(W, axis=0)
    index = SimpleLSH(slack=1.25).build(sp.csr_matrix(W) if sparse else W)
    before = index.codes_.copy()
    index.update([7], 1.2 * W[:, 8][None])
    assert index.norm_bound_ == pytest.approx(1.25)
    others = np.delete(np.arange(50), 7)
    np.testing.assert_array_equal(index.codes_[others], before[others])
    assert (index.codes_[7] != before[7]).any()
    # A longer one raises the bound, and then the index is as if it had been built so.
    index.update([7], 3.0 * W[:, 8][None])
    assert index.norm_bound_ == pytest.approx(3.75)
    changed = W.copy()
    changed[:, 7] = 3.0 * W[:, 8]
    fresh = SimpleLSH(slack=1.25).build(sp.csr_matrix(changed) if sparse else changed)
    same = np.unpackbits((fresh.codes_ ^ index.codes_).view(np.uint8)).mean()
    assert same < 1e-3  # a sum in another order may fall on the other side of a plane


@pytest.mark.parametrize("sparse", [False, True])
def test_codes_of_hashed_features_are_those_of_hashed_vectors(sparse, tmp_path):
    """With the same hyperplanes; what is scored are the vectors themselves, and hyperplanes take less memory."""
    rng = np.random.default_rng(8)
    d, m, K = 400, 50, 60
    W = rng.standard_normal((d, K)) * (rng.random((d, K)) < 0.1)
    X = (rng.standard_normal((30, d)) * (rng.random((30, d)) < 0.1)).astype(np.float64)
    given = (sp.csr_matrix(W), sp.csr_matrix(X)) if sparse else (W, X)
    index = SimpleLSH(bits=512, candidates=20, hashed_features=m).build(given[0])
    H = np.zeros((d, m))
    H[np.arange(d), np.abs(index._planes.places) - 1] = np.sign(index._planes.places)
    assert (np.abs(H).sum(axis=1) == 1).all()
    assert 0.4 < (H.sum(axis=1) > 0).mean() < 0.6
    sides = (X @ H) @ index._planes.normals
    bits = np.unpackbits(index.encode(given[1]).view(np.uint8), axis=1, bitorder="little")
    assert ((sides >= 0) == bits)[np.abs(sides) > 1e-4].all()
    assert index.norm_bound_ == pytest.approx(1.25 * np.linalg.norm(H.T @ W, axis=0).max(), rel=1e-6)
    classes, scores = index.query(given[1], 3)
    np.testing.assert_allclose(scores, np.take_along_axis(X @ W, classes, axis=1), rtol=1e-10, atol=1e-12)
    assert index.nbytes < 0.5 * SimpleLSH(bits=512).build(given[0]).nbytes
    index.save(tmp_path / "index")
    again = SearchIndex.load(tmp_path / "index")
    np.testing.assert_array_equal(again.encode(given[1]), index.encode(given[1]))
    again.update([3], 5.0 * W[:, 4][None])  # a larger bound: all codes anew
    index.update([3], 5.0 * W[:, 4][None])
    np.testing.assert_array_equal(again.codes_, index.codes_)
    index.build(given[0][:100])  # of other features
    assert index.encode(given[1][:, :100]).shape == (30, 8)


def test_hashing_to_more_features_finds_more():
    X, y, W = centroids()
    recalls = [SimpleLSH(candidates=30, hashed_features=m).build(W).recall(X[:500], 5, y[:500]) for m in (8, 64, None)]
    assert recalls[0] < recalls[1] < recalls[2]


def test_more_candidates_find_more():
    X, y, W = centroids()
    index = SimpleLSH(candidates=5).build(W)
    recalls = []
    for index.candidates in (5, 50, 600):
        recalls.append(index.recall(X[:500], 5, y[:500]))
    assert recalls[0] < recalls[1] <= recalls[2] == 1.0


# --- changes in number ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda: ExactSearch(), 1.0),
        (lambda: SimpleLSH(bits=256, candidates=200), 0.9),
        (lambda: SmallWorldGraph(degree=16, width=128, build_width=64), 0.95),
    ],
    ids=["exact", "simple_lsh", "small_world"],
)
def test_recall_after_ten_thousand_random_changes(make, least, sparse):
    rng = np.random.default_rng(4)
    d, K = 24, 1500
    pool = rng.standard_normal((4 * K, d)).astype(np.float32) * rng.uniform(0.5, 1.0, (4 * K, 1)).astype(np.float32)
    pool[rng.random(pool.shape) < (0.5 if sparse else 0.0)] = 0
    wrap = sp.csr_matrix if sparse else np.asarray
    index = make().build(wrap(pool[:K].T))
    alive = np.arange(2 * K) < K
    changes = 0
    while changes < 10_000:
        held, free = np.flatnonzero(alive), np.flatnonzero(~alive)
        ids = rng.choice(held, 160, replace=False)
        index.delete(ids[:80])
        index.update(ids[80:], wrap(pool[rng.integers(0, len(pool), 80)]))
        new = rng.choice(free, 80, replace=False)
        index.insert(new, wrap(pool[rng.integers(0, len(pool), 80)]))
        alive[ids[:80]], alive[new] = False, True
        changes += 240
    X = rng.standard_normal((400, d)).astype(np.float32)
    classes, scores = index.query(X, 10)
    W = index.weights()
    W = W.toarray() if sparse else W
    assert alive[classes].all()
    np.testing.assert_array_equal(index.ids, np.flatnonzero(alive))
    S = np.where(alive[: W.shape[1]], X @ W, -np.inf)
    np.testing.assert_allclose(scores, np.take_along_axis(S, classes, axis=1), rtol=1e-4, atol=1e-4)
    best = -np.sort(-S, axis=1)[:, :10]
    assert np.mean(scores >= best[:, -1:] - 1e-4) >= least
    assert np.mean(scores[:, 0] >= best[:, 0] - 1e-4) >= least
    assert index.recall(X, 10) == pytest.approx(np.mean(scores >= best[:, -1:] - 1e-4), abs=1e-3)


def test_a_graph_whose_every_second_class_went_leads_everywhere():
    rng = np.random.default_rng(5)
    W = rng.standard_normal((16, 800))
    index = SmallWorldGraph(degree=12, width=64).build(W)
    index.delete(np.arange(0, 800, 2))
    X = W[:, 1::2].T
    found = index.query(X, 1)[1][:, 0]
    best = (X @ W[:, 1::2]).max(axis=1)
    assert np.mean(found >= best - 1e-9) >= 0.97


# --- files ----------------------------------------------------------------------------------------------------------


def test_damaged_and_foreign_files_are_refused(tmp_path):
    rng = np.random.default_rng(6)
    index = ExactSearch().build(whole_weights(rng, 10, 30))
    path = tmp_path / "a.index"
    index.save(path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="kind 'exact', expected 'small_world'"):
        SmallWorldGraph.load(path)

    def rewritten(change):
        path.write_bytes(content)
        rewrite(path, lambda header, description: change(description))
        return path.read_bytes()

    cases = [
        (content[: len(content) // 2], "the search index is cut short"),
        (b"hello, index", "not a search index: give"),
        (rewritten(lambda d: d.update(format="other")), "not a search index .format 'other'"),
        (rewritten(lambda d: d.update(version=2)), "reads up to version 1: upgrade manyclass"),
        (rewritten(lambda d: d.pop("options")), "damaged"),
        (rewritten(lambda d: d.update(kind="tree")), "kind 'tree', expected 'exact' or 'simple_lsh' or 'small_world'"),
        (rewritten(lambda d: d.update(n_features=11)), "damaged.*indptr"),
        (rewritten(lambda d: d.update(options={"colour": 1})), "damaged.*colour"),
    ]
    for broken, message in cases:
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=message):
            SearchIndex.load(path)
    with pytest.raises(FileNotFoundError):
        SearchIndex.load(tmp_path / "b.index")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        index.save(tmp_path / "none" / "a.index")


@pytest.mark.parametrize("make", [lambda: SimpleLSH(bits=64), lambda: SmallWorldGraph(degree=4)])
def test_arrays_that_lead_elsewhere_are_refused(make, tmp_path):
    rng = np.random.default_rng(7)
    index = make().build(whole_weights(rng, 10, 30))
    for name, array in index._state()[1].items():
        if array.dtype.kind in "iu" and name != "codes":
            options, arrays = index._state()
            arrays[name] = array + 10**6
            broken = type(index)(**options)
            broken._d, broken._alive = 10, np.ones(30, bool)
            with pytest.raises(ValueError, match=r"vectors|graph"):
                broken._restore(arrays)

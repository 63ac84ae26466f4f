"""Laws that every search index obeys."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from indexes import INDEXES, THOROUGH, brute_force, whole_rows, whole_weights
from manyclass.mips import ExactSearch, SearchIndex, SimpleLSH, SmallWorldGraph


@pytest.fixture(params=INDEXES)
def make(request):
    """A new index."""
    return INDEXES[request.param]


@pytest.fixture(params=["dense", "sparse"])
def sparse(request):
    """Whether the weights are sparse."""
    return request.param == "sparse"


@settings(max_examples=25)
@pytest.mark.parametrize("name", THOROUGH)
@given(
    seed=st.integers(0, 2**32),
    d=st.integers(1, 30),
    K=st.integers(1, 90),
    n=st.integers(0, 12),
    density=st.sampled_from([0.03, 0.3, 1.0]),
    sparse=st.booleans(),
    lowest=st.sampled_from([0, 0, -3]),
    excluding=st.booleans(),
)
def test_an_index_that_scores_every_class_is_brute_force(name, seed, d, K, n, density, sparse, lowest, excluding):
    # Whole numbers: many ties and zero scores, empty rows, classes without a weight.
    rng = np.random.default_rng(seed)
    W = whole_weights(rng, d, K, density=density, sparse=sparse)
    X = whole_rows(rng, n, d, density=density, sparse=bool(seed % 2), lowest=lowest)
    exclude = rng.integers(-1, K, n) if excluding and K > 1 else None
    k = int(rng.integers(1, K if exclude is not None else K + 1))
    classes, scores = THOROUGH[name]().build(W).query(X, k, exclude)
    expected, expected_scores = brute_force(X, W, k, exclude)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(classes, expected)


def test_returned_scores_are_inner_products_in_order_without_repeats_or_the_excluded(make, sparse):
    rng = np.random.default_rng(0)
    W, X = whole_weights(rng, 40, 300, sparse=sparse), whole_rows(rng, 60, 40)
    exclude = brute_force(X, W, 1)[0][:, 0]
    exclude[::5] = -1
    classes, scores = make().build(W).query(X, 7, exclude)
    S = np.asarray(X @ W.toarray() if sparse else X @ W)
    np.testing.assert_array_equal(scores, np.take_along_axis(S, classes, axis=1))
    assert (np.diff(scores, axis=1) <= 0).all()
    assert (np.diff(np.sort(classes, axis=1), axis=1) > 0).all()
    assert not (classes == exclude[:, None]).any()


def test_csr_is_dense_and_threads_and_pieces_change_nothing(make, sparse):
    rng = np.random.default_rng(1)
    W, X = rng.standard_normal((30, 200)) * (rng.random((30, 200)) < 0.5), rng.random((1500, 30))
    X[X < 0.6] = 0
    X[3] = 0
    index = make().build(sp.csr_matrix(W) if sparse else W)
    classes, scores = index.query(sp.csr_matrix(X), 4)
    dense = index.query(X, 4)
    np.testing.assert_array_equal(dense[0], classes)
    np.testing.assert_allclose(dense[1], scores, rtol=1e-12)
    threads = index.query(sp.csr_matrix(X), 4, n_jobs=3)
    np.testing.assert_array_equal(threads[0], classes)
    np.testing.assert_array_equal(threads[1], scores)
    alone = [index.query(sp.csr_matrix(X[i]), 4) for i in range(0, 1500, 100)]
    np.testing.assert_array_equal(np.vstack([found for found, _ in alone]), classes[::100])


def test_float32_is_close_to_float64(make, sparse):
    rng = np.random.default_rng(2)
    W, X = rng.standard_normal((30, 300)), rng.random((50, 30))
    found = {}
    for dtype in (np.float32, np.float64):
        weights = W.astype(dtype)
        found[dtype] = make().build(sp.csr_matrix(weights) if sparse else weights).query(X.astype(dtype), 1)
        assert found[dtype][1].dtype == dtype
    assert (found[np.float32][0] == found[np.float64][0]).mean() >= 0.95
    same = found[np.float32][0] == found[np.float64][0]
    np.testing.assert_allclose(found[np.float32][1][same], found[np.float64][1][same], rtol=1e-4)


def test_the_same_seed_gives_the_same_index(make, sparse, tmp_path):
    rng = np.random.default_rng(3)
    W, V = whole_weights(rng, 25, 150, sparse=sparse), whole_rows(rng, 30, 25, lowest=-3)
    contents = []
    for n_jobs in (None, 2):
        index = make().build(W, n_jobs=n_jobs)
        index.update(np.arange(30), V)
        index.save(tmp_path / "index")
        contents.append((tmp_path / "index").read_bytes())
    assert contents[0] == contents[1]


def test_changes_are_those_of_a_dictionary(make, sparse):
    rng = np.random.default_rng(4)
    d, K = 25, 120
    W = whole_weights(rng, d, K, sparse=sparse)
    before = W.copy()
    index = make().build(W)
    kept = {k: (W.toarray() if sparse else W)[:, k] for k in range(K)}
    for step in range(12):
        ids = rng.permutation(K + 10)[:20]
        held = np.array([k in kept for k in ids])
        V = whole_rows(rng, len(ids), d, lowest=-3, sparse=bool(step % 2))
        rows = V.toarray() if step % 2 else V
        index.delete(ids[held][:7])
        for k in ids[held][:7]:
            del kept[k]
        index.update(ids[held][7:], V[np.flatnonzero(held)[7:]])
        index.insert(ids[~held], V[np.flatnonzero(~held)])
        kept.update({k: rows[a] for a, k in enumerate(ids) if k in kept or not held[a]})
        assert index.n_classes == len(kept)
        np.testing.assert_array_equal(index.ids, sorted(kept))
        found = index.weights()
        found = found.toarray() if sp.issparse(found) else found
        for k, w in kept.items():
            np.testing.assert_array_equal(found[:, k], w)
        X = whole_rows(rng, 5, d)
        classes, scores = index.query(X, len(kept) // 2)
        assert set(classes.ravel()) <= set(kept)
        np.testing.assert_array_equal(scores, np.take_along_axis(X.toarray() @ found, classes, axis=1))
    assert (before != W).sum() == 0  # what was built from is not written to


@pytest.mark.parametrize("name", THOROUGH)
def test_an_emptied_index_can_be_filled_again(name, sparse):
    rng = np.random.default_rng(5)
    W, X = whole_weights(rng, 12, 40, sparse=sparse), whole_rows(rng, 9, 12)
    index = THOROUGH[name]().build(W)
    index.delete(np.arange(40))
    assert index.n_classes == 0
    with pytest.raises(ValueError, match="insert classes first"):
        index.query(X)
    V = whole_rows(rng, 30, 12, lowest=-3)
    index.insert(np.arange(50, 20, -1), V)
    alive = np.arange(51) > 20
    full = sp.hstack([sp.csr_matrix((12, 21)), V[::-1].T], format="csr")
    expected = brute_force(X, full, 5, alive=alive)
    np.testing.assert_array_equal(index.query(X, 5)[0], expected[0])


def test_a_saved_index_answers_and_changes_as_the_original(make, sparse, tmp_path):
    rng = np.random.default_rng(6)
    W, X = whole_weights(rng, 30, 200, sparse=sparse), whole_rows(rng, 40, 30)
    index = make().build(W)
    index.delete([3, 77])
    index.update([5, 6], whole_rows(rng, 2, 30))
    index.save(tmp_path / "a.index")
    loaded = type(index).load(tmp_path / "a.index")
    general = SearchIndex.load(tmp_path / "a.index")
    assert type(general) is type(index)
    assert vars(general).keys() >= {"_alive"}
    V = whole_rows(rng, 3, 30)
    for other in (loaded, general):
        for mine, theirs in zip(index.query(X, 5), other.query(X, 5)):
            np.testing.assert_array_equal(mine, theirs)
        assert (other.n_classes, other.n_features, other.dtype) == (198, 30, index.dtype)
        other.insert([3, 204], V[:2])
        other.update([8], V[2:])
    index.insert([3, 204], V[:2])
    index.update([8], V[2:])
    for mine, theirs in zip(index.query(X, 5), loaded.query(X, 5)):
        np.testing.assert_array_equal(mine, theirs)
    # The file was mapped, and nothing was written to it.
    assert SearchIndex.load(tmp_path / "a.index").n_classes == 198
    assert [path.name for path in tmp_path.iterdir()] == ["a.index"]


def test_bytes_are_those_of_the_arrays(make, sparse):
    rng = np.random.default_rng(7)
    small = make().build(whole_weights(rng, 30, 200, sparse=sparse))
    large = make().build(whole_weights(rng, 30, 2000, sparse=sparse))
    stored = large.weights()
    stored = stored.data.nbytes + stored.indices.nbytes if sparse else stored.nbytes
    assert stored <= large.nbytes < 6 * stored + 2000 * 100
    assert small.nbytes < large.nbytes


def test_recall_counts_what_was_found():
    rng = np.random.default_rng(8)
    W, X = rng.standard_normal((16, 400)), rng.standard_normal((200, 16))
    assert ExactSearch().build(W).recall(X, 3) == 1.0
    index = SimpleLSH(bits=64, candidates=10).build(W)
    found, best = index.query(X, 3)[0], brute_force(X, W, 3)[0]
    expected = np.mean([len(set(a) & set(b)) / 3 for a, b in zip(found, best)])
    assert 0.2 < expected < 1
    assert index.recall(X, 3) == pytest.approx(expected)
    assert np.isnan(index.recall(X[:0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index, X: index.query(X, 0), "k must be an integer from 1 to 20"),
        (lambda index, X: index.query(X, 21), "k must be an integer from 1 to 20.*got 21"),
        (lambda index, X: index.query(X, 20, [1, -1]), "k must be an integer from 1 to 19"),
        (lambda index, X: index.query(X, 1.5), "k must be an integer"),
        (lambda index, X: index.query(X, 1, [1]), "exclude must be 2 integers"),
        (lambda index, X: index.query(X, 1, [0.5, 1.5]), "exclude must be 2 integers"),
        (lambda index, X: index.query(X, 1, [-2, 0]), "exclude must contain class numbers, or -1 for none, got -2"),
        (lambda index, X: index.query(X[:, :4]), "X must have 5 features, those of the index, got 4"),
        (lambda index, X: index.query(X[0]), r"X must have two dimensions, got shape \(5,\)"),
        (lambda index, X: index.query(X * np.nan), "X has NaN or infinity in row 0"),
        (lambda index, X: index.query(sp.csr_matrix(X * np.inf)), "X has NaN or infinity in row 0"),
        (lambda index, X: index.query(sp.csc_matrix(X)), "got a csc matrix"),
        (lambda index, X: index.update([0, 20], X), "ids has 20, which the index does not contain"),
        (lambda index, X: index.update([0, 0], X), "ids must be distinct, got 0 more than once"),
        (lambda index, X: index.update([0], X), "vectors must have one row for each of the 1 ids, got 2 rows"),
        (lambda index, X: index.update([0, 1], X * np.nan), "vectors has NaN or infinity"),
        (lambda index, X: index.insert([19, 20], X), "ids has 19, which the index already contains"),
        (lambda index, X: index.insert([-1, 20], X), "ids must be between 0 and .*, got -1 to 20"),
        (lambda index, X: index.insert([20, 21], X[:, :2]), "vectors must have 5 features, those of the index, got 2"),
        (lambda index, X: index.delete([25]), "ids has 25, which the index does not contain"),
        (lambda index, X: index.delete([0.5]), "ids must be a vector of integers"),
        (lambda index, X: index.build(X * np.nan), "weights has NaN or infinity"),
        (lambda index, X: index.build(X.astype(int)), "weights must be float32 or float64"),
        (lambda index, X: index.build(X[:, :0]), "both at least 1"),
        (lambda index, X: index.build(X.tolist()), "weights must be an array or a sparse matrix, got list"),
    ],
)
def test_refusals_change_nothing(make, change, message):
    rng = np.random.default_rng(9)
    X = np.ones((2, 5))
    index = make().build(whole_weights(rng, 5, 20, sparse=False))
    before = index.query(X, 5)
    with pytest.raises(ValueError, match=message):
        change(index, X)
    assert index.n_classes == 20
    np.testing.assert_array_equal(index.query(X, 5)[0], before[0])


def test_an_index_that_was_not_built_says_so(make, tmp_path):
    for ask in (
        lambda index: index.query(np.ones((1, 2))),
        lambda index: index.insert([0], np.ones((1, 2))),
        lambda index: index.delete([0]),
        lambda index: index.save(tmp_path / "x"),
        lambda index: index.n_classes,
        lambda index: index.nbytes,
        lambda index: index.dtype,
        lambda index: index.weights(),
    ):
        with pytest.raises(ValueError, match=r"has not been built: call build\(weights\) first"):
            ask(make())


@pytest.mark.parametrize(
    ("make_wrong", "message"),
    [
        (lambda: SimpleLSH(bits=100), "bits must be a multiple of 64, got 100"),
        (lambda: SimpleLSH(bits=0), "bits must be an integer of at least 64"),
        (lambda: SimpleLSH(candidates=0), "candidates must be"),
        (lambda: SimpleLSH(slack=0.9), "slack must be a number of at least 1, got 0.9"),
        (lambda: SimpleLSH(random_state=-1), "random_state must be"),
        (lambda: SimpleLSH(hashed_features=0), "hashed_features must be an integer of at least 1"),
        (lambda: SmallWorldGraph(degree=1), "degree must be an integer of at least 2, got 1"),
        (lambda: SmallWorldGraph(width=True), "width must be"),
    ],
)
def test_options_are_checked(make_wrong, message):
    with pytest.raises(ValueError, match=message):
        make_wrong()

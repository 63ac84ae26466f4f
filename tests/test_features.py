"""Feature blocks: row by row, the same from their state, what the papers say they are."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import features
from manyclass.features import (
    Chain,
    FeatureBlock,
    FeatureSubset,
    KMeansPatches,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    RandomPatches,
    RandomPolynomial,
    Transformer,
    fresh,
    from_state,
    to_state,
)
from manyclass.features.subset import gradient_norms

SHAPE = (6, 6, 2)
D = math.prod(SHAPE)

BLOCKS = {
    "fourier": RandomFourier(24, random_state=0),
    "fourier of a given scale": RandomFourier(24, scale=9.0, random_state=0),
    "logits": RandomLogits(24, random_state=0),
    "polynomial": RandomPolynomial(24, degree=3, random_state=0),
    "random subset": FeatureSubset(7, random_state=0),
    "frequent subset": FeatureSubset(7, order="frequency"),
    "gradient subset": FeatureSubset(7, order="gradient"),
    "components": PrincipalComponents(5),
    "white components": PrincipalComponents(5, whiten=True),
    "random patches": RandomPatches(5, shape=SHAPE, patch=3, n_patches=300, random_state=0),
    "triangle patches": RandomPatches(5, shape=SHAPE, patch=3, activation="triangle", n_patches=300, random_state=0),
    "k-means patches": KMeansPatches(5, shape=SHAPE, patch=3, n_patches=300, random_state=0),
    "squares of patches": KMeansPatches(
        5, shape=SHAPE, patch=3, n_patches=300, activation="triangle", expand="squares", random_state=0
    ),
    "products of patches": KMeansPatches(
        5, shape=SHAPE, patch=3, n_patches=300, contrast=None, whiten=None, expand="products", random_state=0
    ),
    "chain": Chain(PrincipalComponents(6), RandomFourier(24), random_state=0),
    "chain of patches": Chain(
        KMeansPatches(5, shape=SHAPE, patch=3, n_patches=300, random_state=0), FeatureSubset(9), random_state=0
    ),
}


def rows(n: int = 60, d: int = D, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    """Rows with zeros, as images or counts have."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6) + 0.3 * rng.random(d)[:, None].T).astype(dtype)


def labels(n: int = 60) -> np.ndarray:
    return np.arange(n) % 3


def dense(Z: object) -> np.ndarray:
    return Z.toarray() if sp.issparse(Z) else Z  # type: ignore[attr-defined]


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest) -> FeatureBlock:
    return clone(BLOCKS[request.param])


# --- scikit-learn -----------------------------------------------------------------------------------------------------


@parametrize_with_checks(
    [
        RandomFourier(8),
        RandomLogits(8),
        RandomPolynomial(6, degree=3),
        FeatureSubset(1),
        FeatureSubset(1, order="gradient"),
        FeatureSubset(1, order="frequency"),
        PrincipalComponents(1),
        PrincipalComponents(1, whiten=True),
        RandomPatches(3, patch=2),
        KMeansPatches(2, patch=2, activation="triangle", expand="products"),
        Chain(PrincipalComponents(1), RandomFourier(5)),
        Transformer(Nystroem(n_components=5)),
    ]
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        # Nystroem warns where a check has fewer rows than components.
        warnings.filterwarnings("ignore", message="n_components > n_samples")
        check(estimator)


# --- laws of all blocks -----------------------------------------------------------------------------------------------


def test_a_block_is_what_the_protocol_asks(block):
    assert not hasattr(block, "n_features_in_")
    block.fit(rows(), labels())
    assert isinstance(block, FeatureBlock)
    made = block.transform(rows())
    assert made.shape == (60, block.n_features_out_)
    assert len(set(block.get_feature_names_out())) == block.n_features_out_
    assert np.isfinite(dense(made)).all()
    assert np.ptp(dense(made), axis=0).max() > 0


def test_chunks_are_the_whole(block):
    X = rows()
    block.fit(X, labels())
    whole = block.transform(X)
    chunks = [block.transform(X[b : b + 13]) for b in range(0, 60, 13)]
    np.testing.assert_allclose(np.vstack(chunks), whole, rtol=1e-9, atol=1e-12)
    for b, chunk in zip(range(0, 60, 13), chunks):
        np.testing.assert_array_equal(block.transform(X[b : b + 13]), chunk)


def test_sparse_rows_are_dense_rows(block):
    X = rows()
    X[X < 0.4] = 0
    one, other = clone(block).fit(X, labels()), block.fit(sp.csr_matrix(X), labels())
    made = other.transform(sp.csr_matrix(X))
    assert sp.issparse(made) == isinstance(block, FeatureSubset)
    np.testing.assert_allclose(dense(made), one.transform(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dense(one.transform(sp.csr_matrix(X))), one.transform(X), rtol=1e-9, atol=1e-11)


def test_memory_mapped_rows_are_rows(block, tmp_path):
    X = rows(dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    made = block.fit(mapped, labels()).transform(mapped)
    assert not isinstance(made, np.memmap)
    np.testing.assert_array_equal(made, clone(block).fit(X, labels()).transform(X))


def test_single_precision_is_near_double(block):
    X = rows(dtype=np.float32)
    one, other = clone(block).fit(X, labels()), block.fit(X.astype(np.float64), labels())
    made, exact = one.transform(X), other.transform(X.astype(np.float64))
    assert (made.dtype, exact.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(made, exact, rtol=2e-3, atol=2e-4 * np.abs(exact).max())
    # The same fitted block takes both.
    assert other.transform(X).dtype == np.float32
    np.testing.assert_allclose(other.transform(X), exact, rtol=2e-3, atol=2e-4 * np.abs(exact).max())


def test_small_integers_are_taken_as_they_are(block):
    X = np.random.default_rng(1).integers(0, 200, (60, D)).astype(np.uint8)
    made = block.fit(X, labels()).transform(X)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, block.transform(X.astype(np.float32)))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_state_makes_the_same_features(block, kind):
    X = rows(dtype=kind)
    block.fit(X, labels())
    expected = block.transform(X)
    spec, arrays = to_state(block)
    kept = {name: array.copy() for name, array in arrays.items()}
    again = from_state(json.loads(json.dumps(spec)), kept)
    assert type(again) is type(block)
    assert again.n_features_out_ == block.n_features_out_
    np.testing.assert_array_equal(again.transform(X), expected)
    # And the state of that one is the same state.
    spec_again, arrays_again = again.to_state()
    assert json.dumps(spec_again) == json.dumps(spec)
    assert arrays_again.keys() == arrays.keys()


def test_random_matrices_are_kept_nowhere():
    d, p = 200, 1500
    X = np.random.default_rng(0).normal(size=(50, d))
    for block in (RandomFourier(p), RandomLogits(p), RandomPolynomial(p)):
        block.set_params(random_state=3).fit(X)
        expected = block.transform(X[:5])
        assert sum(array.nbytes for array in block.to_state()[1].values()) <= 8 * 2 * p
        assert len(pickle.dumps(block)) < 4 * d * p / 10
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(block)).transform(X[:5]), expected)
        block.release()
        assert not block._drawn
        np.testing.assert_array_equal(block.transform(X[:5]), expected)


def test_seeds_decide(block):
    X = rows()
    same = [clone(block).fit(X, labels()).transform(X) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    one, other = (fresh(block, seed).fit(X, labels()).transform(X) for seed in (1, 2))
    again = fresh(block, 1).fit(X, labels()).transform(X)
    np.testing.assert_array_equal(one, again)
    random = isinstance(block, Chain) or getattr(block, "order", "random") == "random"
    if random and "random_state" in block.get_params(deep=False):
        assert not np.array_equal(one, other)


def test_refitting_forgets(block):
    X = rows()
    expected = clone(block).fit(X, labels()).transform(X)
    block.fit(rows(40, seed=5), labels(40))
    np.testing.assert_array_equal(block.fit(X, labels()).transform(X), expected)


def test_unfitted_blocks_say_so(block):
    with pytest.raises(NotFittedError):
        block.transform(rows())
    with pytest.raises(NotFittedError):
        to_state(block)


# --- damaged states ---------------------------------------------------------------------------------------------------


def test_a_damaged_state_is_refused(block):
    spec, arrays = to_state(block.fit(rows(), labels()))
    with pytest.raises(ValueError, match="the state must be of one of"):
        from_state({**spec, "block": "os.system"}, arrays)
    with pytest.raises(ValueError, match="damaged"):
        from_state({**spec, "parameters": None}, arrays)
    with pytest.raises(ValueError, match="damaged"):
        from_state({**spec, "parameters": {**spec["parameters"], "surprise": 1}}, arrays)
    for name in arrays:
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {key: array for key, array in arrays.items() if key != name})
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {**arrays, name: arrays[name][:-1]})
        spoilt = arrays[name].astype(np.float64)
        spoilt.flat[0] = np.nan
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {**arrays, name: spoilt})


def test_fitted_numbers_are_looked_at():
    spec, arrays = to_state(RandomLogits(5, random_state=0).fit(rows()))
    for name, value in (("radius_", math.nan), ("radius_", "1"), ("n_features_in_", 0), ("seed_", None)):
        with pytest.raises(ValueError, match=r"damaged|at least 1"):
            from_state({**spec, "fitted": {**spec["fitted"], name: value}}, arrays)
    with pytest.raises(ValueError, match="expected"):
        from_state({**spec, "fitted": {**spec["fitted"], "more": 1}}, arrays)


def test_other_random_numbers_are_refused():
    spec, arrays = to_state(RandomFourier(5, random_state=0).fit(rows()))
    block = from_state({**spec, "fitted": {**spec["fitted"], "seed_": spec["fitted"]["seed_"] + 1}}, arrays)
    with pytest.raises(ValueError, match="draws other random numbers"):
        block.transform(rows())


def test_indices_of_a_subset_must_be_features():
    spec, _ = to_state(FeatureSubset(3, random_state=0).fit(rows()))
    for wrong in ([0, 1, D], [-1, 0, 1], [2, 1, 3], [1, 1, 2]):
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {"indices_": np.array(wrong)})


# --- Fourier, logits, polynomials -------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [500, 8000])
def test_fourier_inner_products_are_the_gaussian_kernel(p):
    X = rows(40, 10, seed=3)
    s = 12.0
    Z = RandomFourier(p, scale=s, random_state=1).fit(X).transform(X)
    pairs = np.triu_indices(40, 1)
    kernel = np.exp(-pdist(X, "sqeuclidean") / s)
    error = (Z @ Z.T)[pairs] - kernel
    # Hoeffding: a product of two features, times p, lies in [-2, 2]; so P(|error| > t) <= 2 exp(-p t^2 / 8) for a
    # pair. All 780 pairs at once fail with a probability of 1e-6.
    assert np.abs(error).max() <= math.sqrt(8 / p * math.log(2 * len(kernel) / 1e-6))
    # The variance of a product is 1 + (k^4 - 2 k^2) / 2 ... <= 1.
    assert math.sqrt((error**2).mean()) <= 1.3 / math.sqrt(p)


def test_median_trick_is_the_median_of_all_pairs():
    X = rows(70, 9)
    block = RandomFourier(4, random_state=0).fit(X)
    assert block.scale_ == pytest.approx(np.median(pdist(X, "sqeuclidean")), rel=1e-9)
    assert RandomFourier(4, bandwidth=0.25).fit(X).scale_ == pytest.approx(block.scale_ / 4)
    many = rows(2500, 9, seed=2)
    wanted = np.median(pdist(many, "sqeuclidean"))
    assert RandomFourier(4, random_state=0).fit(many).scale_ == pytest.approx(wanted, rel=0.05)
    assert RandomFourier(4, random_state=0).fit(np.ones((5, 3))).scale_ == 1.0
    twice = np.vstack([np.zeros((50, 3)), np.ones((1, 3))])
    assert RandomFourier(4, random_state=0).fit(twice).scale_ == pytest.approx(pdist(twice, "sqeuclidean").mean())


def test_logits_are_of_order_one_whatever_the_units():
    X = 5.0 + rows(300, 30, seed=4)
    for unit in (1e-4, 1.0, 1e5):
        Z = RandomLogits(2000, scale=1.0, random_state=0).fit(unit * X).transform(unit * X)
        z = 2 * np.arctanh(Z * math.sqrt(2000))
        assert z.mean() == pytest.approx(0, abs=0.1)
        assert z.std() == pytest.approx(math.sqrt(2), rel=0.1)
    first = RandomLogits(20, random_state=0).fit(X).transform(X)
    np.testing.assert_allclose(
        RandomLogits(20, random_state=0).fit(3 * X).transform(3 * X), first, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_polynomial_inner_products_are_the_polynomial_kernel(degree):
    X = rows(30, 6, seed=5)
    p, constant = 20_000, 0.7
    Z = RandomPolynomial(p, degree=degree, constant=constant, random_state=2).fit(X).transform(X)
    centred = X - X.mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=1).mean())
    products = (centred @ centred.T + constant**2) ** degree
    # A factor's product has a second moment of at most 3 |u|^2 |v|^2, |u|^2 = |x~|^2 + constant^2.
    lengths = (centred**2).sum(axis=1) + constant**2
    deviation = np.sqrt((3 * np.outer(lengths, lengths)) ** degree / p)
    assert (np.abs(Z @ Z.T - products) / deviation).max() < 5
    assert np.abs(Z @ Z.T - products).mean() < deviation.mean()


# --- subsets ----------------------------------------------------------------------------------------------------------


def test_gradient_order_is_brute_force():
    X = rows(50, 20)
    R = np.random.default_rng(1).normal(size=(50, 4))
    brute = [math.sqrt(sum((X[:, j] @ R[:, k]) ** 2 for k in range(4))) for j in range(20)]
    np.testing.assert_allclose(gradient_norms(X, R), brute)
    np.testing.assert_allclose(gradient_norms(sp.csr_matrix(X), R), brute)
    block = FeatureSubset(6, order="gradient").fit(X, R)
    assert set(block.indices_) == set(np.argsort(brute)[-6:])
    np.testing.assert_array_equal(block.transform(X), X[:, np.sort(np.argsort(brute)[-6:])])
    y = labels(50)
    indicators = np.eye(3)[y] - np.bincount(y) / 50
    np.testing.assert_allclose(gradient_norms(X, y), gradient_norms(X, indicators), rtol=1e-5)
    np.testing.assert_allclose(gradient_norms(X, R[:, 0]), gradient_norms(X, R[:, :1] - R[:, 0].mean()))
    with pytest.raises(ValueError, match="rows of X"):
        gradient_norms(X, R[:-1])


def test_frequency_order_is_brute_force():
    X = rows(50, 20) * (np.random.default_rng(2).random((50, 20)) < np.linspace(0.1, 0.9, 20))
    stored = sp.csr_matrix(X)
    stored.data[:5] = 0.0  # stored, but not there
    counts = np.count_nonzero(stored.toarray(), axis=0)
    for kind in (stored, stored.toarray()):
        order = FeatureSubset(3, order="frequency").fit(kind).order_
        assert np.all(np.diff(counts[order]) <= 0)


@pytest.mark.parametrize("order", ["random", "frequency", "gradient"])
@pytest.mark.parametrize("reorder", ["block", "pass"])
def test_a_pass_takes_every_feature_once(order, reorder):
    X, y = rows(50, 20), labels(50)
    pattern = FeatureSubset(6, order=order, reorder=reorder)
    previous, taken = None, []
    for stage in range(8):
        previous = fresh(pattern, stage, previous).fit(X, y)
        taken.append(previous.indices_)
        assert previous.exhausted_ == (stage % 4 == 3)
    for first in (0, 4):
        assert [len(part) for part in taken[first : first + 4]] == [6, 6, 6, 2]
        assert sorted(np.concatenate(taken[first : first + 4])) == list(range(20))
    if order == "random":
        assert sorted(taken[0]) != sorted(taken[4])


def test_order_is_anew_for_each_block_or_each_pass():
    X = rows(50, 12)
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    first = FeatureSubset(4, order="gradient").fit(X, one)
    left = np.setdiff1d(np.arange(12), first.indices_)
    now, before = gradient_norms(X, other), gradient_norms(X, one)
    anew = fresh(FeatureSubset(4, order="gradient"), 0, first).fit(X, other)
    assert set(anew.indices_) == set(left[np.argsort(-now[left])[:4]])
    kept = fresh(FeatureSubset(4, order="gradient", reorder="pass"), 0, first).fit(X, other)
    assert set(kept.indices_) == set(left[np.argsort(-before[left])[:4]])
    assert set(anew.indices_) != set(kept.indices_)


def test_start_leaves_the_first_out():
    X = rows(50, 12)
    parts = [FeatureSubset(5, start=start, random_state=4).fit(X).indices_ for start in (0, 5, 10)]
    assert sorted(np.concatenate(parts)) == list(range(12))
    names = FeatureSubset(2, random_state=4).fit(X).get_feature_names_out([f"word {j}" for j in range(12)])
    assert list(names) == [f"word {j}" for j in FeatureSubset(2, random_state=4).fit(X).indices_]


# --- images -----------------------------------------------------------------------------------------------------------


def _patch_features(block: KMeansPatches | RandomPatches, filters: np.ndarray, X: np.ndarray) -> np.ndarray:
    """What the documentation says, one number at a time."""
    h, w, c = SHAPE
    side = block.patch
    grid = h - side + 1
    out = []
    for row in X:
        image = row.reshape(h, w, c)
        cells: dict[tuple[int, int], list[np.ndarray]] = {}
        for i in range(grid):
            for j in range(grid):
                # Channel by channel, then row by row: the order in which windows are laid out.
                q = image[i : i + side, j : j + side].transpose(2, 0, 1).ravel().copy()
                if block.contrast is not None:
                    q = (q - q.mean()) / math.sqrt(q.var() + block.contrast_)
                q = block.whitening_ @ (q - block.mean_)
                if block.activation == "rectified":
                    response = filters.T @ q
                    value = np.concatenate(
                        [np.maximum(0, response - block.threshold), np.maximum(0, -response - block.threshold)]
                    )
                else:
                    distance = np.linalg.norm(filters - q[:, None], axis=0)
                    value = np.maximum(0, distance.mean() - distance)
                cells.setdefault((2 * i // grid, 2 * j // grid), []).append(value)
        means = [np.mean(cells[key], axis=0) for key in sorted(cells)]
        parts = list(means)
        if block.expand == "squares":
            parts += [part**2 for part in means]
        elif block.expand == "products":
            parts += [means[a] * means[b] for a in range(4) for b in range(a, 4)]
        out.append(np.concatenate(parts))
    return np.array(out)


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.endswith("patches") and "chain" not in name])
def test_patches_are_a_direct_convolution(name):
    X = rows(7, seed=6)
    block = clone(BLOCKS[name]).fit(rows())
    np.testing.assert_allclose(
        block.transform(X), _patch_features(block, block._filters(np.float64), X), rtol=1e-9, atol=1e-11
    )


def test_sampled_patches_are_patches_and_end_white():
    X = rows(80)
    block = KMeansPatches(4, shape=SHAPE, patch=3, stride=2, n_patches=10**6, whiten=1e-9, random_state=0).fit(X)
    assert block._places == (2, 2)
    sample = block._sample(X, block._sample_size(80))
    assert sample.shape == (320, 18)
    windows = {
        X[r].reshape(SHAPE)[i : i + 3, j : j + 3].transpose(2, 0, 1).tobytes()
        for r in range(80)
        for i in (0, 2)
        for j in (0, 2)
    }
    assert {np.ascontiguousarray(q).tobytes() for q in sample} <= windows
    block._normalise(sample)
    np.testing.assert_allclose(sample.mean(axis=1), 0, atol=1e-12)
    white = (sample - block.mean_) @ block.whitening_
    variances = np.linalg.eigvalsh(white.T @ white / len(white))
    # One direction is gone: patches have mean 0.
    np.testing.assert_allclose(variances[1:], 1, rtol=0.05)
    assert variances[0] < 1e-6


def test_threads_change_no_patch():
    X = rows(dtype=np.float32)
    block = KMeansPatches(6, shape=SHAPE, patch=3, random_state=0).fit(X)
    many = rows(700, seed=8, dtype=np.float32)
    expected = block.transform(many)
    np.testing.assert_array_equal(block.set_params(n_jobs=2).transform(many), expected)
    kept = many.copy()
    KMeansPatches(2, shape=SHAPE, patch=6, random_state=0).fit(X).transform(many)
    np.testing.assert_array_equal(many, kept)


def test_kmeans_falls_and_keeps_no_empty_centre():
    from manyclass.features.kmeans import kmeans

    Z = np.random.default_rng(0).normal(size=(400, 3)) + 6 * np.eye(3)[np.arange(400) % 3]

    def inertia(centres: np.ndarray) -> float:
        return float(((Z[:, None] - centres) ** 2).sum(axis=2).min(axis=1).mean())

    errors = [inertia(kmeans(Z, 5, np.random.default_rng(1), iterations=m)) for m in range(6)]
    assert all(after <= before + 1e-12 for before, after in zip(errors, errors[1:]))
    twins = np.repeat(np.eye(3), 20, axis=0)
    centres = kmeans(twins, 8, np.random.default_rng(0))
    assert np.isfinite(centres).all()
    assert {tuple(centre) for centre in centres} <= {tuple(row) for row in np.eye(3)}


# --- principal components, chains, transformers -----------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_components_are_those_of_scikit_learn(whiten, sparse, monkeypatch):
    from manyclass.features import base

    monkeypatch.setattr(base, "_CHUNK", 9 * 15)  # nine rows at a time
    X = (rows(80, 15) + 3) * np.linspace(1, 3, 15)
    block = PrincipalComponents(4, whiten=whiten).fit(sp.csr_matrix(X) if sparse else X)
    peer = PCA(4, whiten=whiten, svd_solver="full").fit(X)
    np.testing.assert_allclose(block.explained_variance_, peer.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(np.abs(block.transform(X)), np.abs(peer.transform(X)), rtol=1e-6, atol=1e-8)


def test_chain_is_one_after_the_other():
    X = rows()
    chain = Chain(PrincipalComponents(6), RandomFourier(24, random_state=3)).fit(X)
    prepared = PrincipalComponents(6).fit_transform(X)
    np.testing.assert_allclose(chain.transform(X), RandomFourier(24, random_state=3).fit_transform(prepared))
    # The stages that follow share what was prepared, the second block takes its turn.
    pattern = Chain(PrincipalComponents(6), FeatureSubset(4), n_sample=30)
    first = fresh(pattern, 0).fit(X)
    second = fresh(pattern, 1, first).fit(X)
    assert second.first_ is first.first_
    assert sorted([*first.second_.indices_, *second.second_.indices_]) == list(range(6))


def test_fresh_sizes():
    X = rows()
    assert fresh(RandomFourier(100), 0, size=9).fit(X).n_features_out_ == 9
    assert fresh(Chain(PrincipalComponents(3), RandomLogits(100)), 0, size=9).fit(X).n_features_out_ == 9
    assert fresh(Transformer(Nystroem()), 0, size=9).fit(X).n_features_out_ == 9
    assert fresh(KMeansPatches(shape=SHAPE, patch=3, expand="squares"), 0, size=50).fit(X).n_features_out_ == 48
    with pytest.raises(ValueError, match="shape must be given"):
        fresh(KMeansPatches(), 0, size=9)
    with pytest.raises(ValueError, match="no n_components"):
        fresh(Transformer(StandardScaler()), 0, size=9)


def test_transformers_are_fitted_from_a_seed_and_not_saved():
    X = rows()
    one, again, other = (fresh(Transformer(Nystroem(n_components=5)), seed).fit(X).transform(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    with pytest.raises(ValueError, match="cannot be saved"):
        to_state(Transformer(Nystroem(n_components=5)).fit(X))
    with pytest.raises(ValueError, match="to be saved, got PCA"):
        to_state(PCA(2).fit(X))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (RandomFourier(0), "n_components must be an integer of at least 1, got 0"),
        (RandomFourier(True), "n_components must be an integer"),
        (RandomFourier(3, scale="mean"), "scale must be 'median' or a finite number above 0, got 'mean'"),
        (RandomFourier(3, bandwidth=0.0), "bandwidth must be a finite number above 0"),
        (RandomLogits(3, scale=-1.0), "scale must be a finite number above 0"),
        (RandomPolynomial(3, degree=9), "degree must be an integer of at least 1 and at most 8, got 9"),
        (RandomPolynomial(3, constant=-1.0), "constant must be a finite number of at least 0"),
        (FeatureSubset(3, order="best"), "order must be one of 'random', 'frequency', 'gradient', got 'best'"),
        (FeatureSubset(3, reorder="never"), "reorder must be one of 'block', 'pass'"),
        (FeatureSubset(3, start=D), f"start must be less than the {D} features"),
        (FeatureSubset(3, order="gradient"), "y must be given"),
        (PrincipalComponents(D + 1), f"n_components must be at most the {D} features"),
        (PrincipalComponents(2, whiten=1), "whiten must be True or False"),
        (RandomPatches(3, shape=(5, 5)), "shape must be None or"),
        (RandomPatches(3, shape=(5, 5, 3)), f"shape must have as many numbers as X has features, {D}"),
        (RandomPatches(3, shape=SHAPE, activation="relu"), "activation must be one of"),
        (RandomPatches(3, shape=SHAPE, expand="cubes"), "expand must be one of"),
        (RandomPatches(3, shape=SHAPE, contrast=0), "contrast must be None or a finite number above 0"),
        (KMeansPatches(30, shape=SHAPE, n_patches=20), "n_filters must be at most the 20 patches"),
        (KMeansPatches(3, shape=SHAPE, n_jobs=0), "n_jobs must be"),
        (Chain(3, RandomFourier(2)), "first must be a feature block"),
        (Transformer(3), "estimator must be a transformer"),
    ],
)
def test_wrong_parameters_are_named(block, message):
    with pytest.raises(ValueError, match=message):
        block.fit(rows())


def test_weights_that_do_not_fit_are_refused(monkeypatch):
    from manyclass import memory

    monkeypatch.setattr(memory, "available", lambda: 10_000)
    for block in (RandomFourier(400), RandomLogits(400), RandomPolynomial(400), PrincipalComponents(2)):
        with pytest.raises(MemoryError, match="to make it fit"):
            block.fit(rows())


def test_public_names():
    import manyclass

    for name in features.__all__:
        assert getattr(features, name) is not None
    assert manyclass.RandomFourier is RandomFourier

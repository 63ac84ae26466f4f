"""What kinds of features are what the papers say: kernels, orders, components, chains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.preprocessing import StandardScaler

from blocks import SHAPE, labels, rows
from manyclass.features import (
    Chain,
    FeatureSubset,
    KMeansPatches,
    Nystrom,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    RandomPolynomial,
    Transformer,
    fresh,
    to_state,
)
from manyclass.features.subset import gradient_norms

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
    centered = X - X.mean(axis=0)
    centered /= np.sqrt((centered**2).sum(axis=1).mean())
    products = (centered @ centered.T + constant**2) ** degree
    # A factor's product has a second moment of at most 3 |u|^2 |v|^2, |u|^2 = |x~|^2 + constant^2.
    lengths = (centered**2).sum(axis=1) + constant**2
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
    with pytest.raises(ValueError, match="shape is None; expected"):
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


# --- features that change their sign in a mirror image ----------------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [
        RandomFourier(30, n_odd=4, random_state=0),
        RandomLogits(30, n_odd=4, random_state=0),
        RandomPolynomial(30, degree=1, n_odd=4, random_state=0),
        RandomPolynomial(30, degree=3, n_odd=4, random_state=0),
    ],
    ids=lambda block: f"{type(block).__name__}{getattr(block, 'degree', '')}",
)
def test_random_features_are_means_over_a_row_and_its_mirror_image(block):
    X = rows(40, 10, seed=3)
    turned = X * np.repeat([1, -1], [6, 4])
    made = block.fit(X).transform(X)
    np.testing.assert_allclose(block.transform(turned), made, atol=1e-12)
    # The same random numbers without the option: their features of both rows.
    plain = clone(block).set_params(n_odd=0)
    plain.__dict__.update({name: value for name, value in block.__dict__.items() if name not in plain.get_params()})
    np.testing.assert_allclose(made, 0.5 * (plain.transform(X) + plain.transform(turned)), atol=1e-12)


def test_components_with_odd_features_are_those_of_rows_and_their_mirror_images():
    X = rows(80, 10, seed=3) * np.linspace(1, 3, 10)
    turned = X * np.repeat([1, -1], [6, 4])
    block = PrincipalComponents(8, n_odd=4).fit(X)
    peer = PCA(10, svd_solver="full").fit(np.vstack([X, turned]))
    assert (block.components_[:4, 6:] == 0).all()
    assert (block.components_[4:, :6] == 0).all()
    # Directions of all rows and their mirror images, with the same variances; their divisor is 159, not 79.
    for direction, variance in zip(block.components_, block.explained_variance_):
        at = int(np.abs(peer.components_ @ direction).argmax())
        assert abs(peer.components_[at] @ direction) == pytest.approx(1, abs=1e-6)
        assert variance * 79 / 80 == pytest.approx(peer.explained_variance_[at] * 159 / 160, rel=1e-6)
    for wrong in (PrincipalComponents(10, n_odd=4), PrincipalComponents(2, n_odd=10), RandomFourier(2, n_odd=10)):
        with pytest.raises(ValueError, match=r"n_components must be at most 9 for|n_odd must be less than the 10"):
            wrong.fit(X)


# --- Nystrom ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_nystrom_inner_products_are_the_projected_kernel(kind):
    X = rows(60, 10, seed=3).astype(kind)
    block = Nystrom(25, scale=12.0, random_state=1).fit(X[:40])
    assert {tuple(center) for center in block.centers_} <= {tuple(row) for row in X[:40]}
    assert len({tuple(center) for center in block.centers_}) == 25

    def kernel(A, B):
        return np.exp(-((A[:, None].astype("f8") - B) ** 2).sum(axis=2) / 12.0)

    between, here = kernel(block.centers_, block.centers_), kernel(X, block.centers_)
    expected = here @ np.linalg.solve(between + 1e-5 * np.eye(25), here.T)
    Z = block.transform(X)
    assert Z.dtype == kind
    np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-9 if kind == "f8" else 2e-4)


def test_nystrom_means_over_a_center_and_its_mirror_image():
    X = rows(40, 10, seed=3)
    turned = X * np.repeat([1, -1], [6, 4])
    block = Nystrom(20, scale=12.0, n_odd=4, random_state=1).fit(X)
    np.testing.assert_allclose(block.transform(turned), block.transform(X), atol=1e-10)
    C = block.centers_
    both = [np.exp(-((A[:, None] - C) ** 2).sum(axis=2) / 12.0) for A in (X, turned)]
    np.testing.assert_allclose(block._kernel(X, C), 0.5 * (both[0] + both[1]), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_odd", [0, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_nystrom_projections_are_products_with_the_features(dtype, n_odd, sparse):
    rng = np.random.default_rng(3)
    X, W = rng.normal(size=(80, 9)).astype(dtype), rng.normal(size=(20, 3)).astype(dtype)
    X = sp.csr_matrix(X) if sparse else X
    block = Nystrom(20, scale=12.0, n_odd=n_odd, random_state=1).fit(X)
    project = block.projection(W)
    assert project is not None
    found = project(X)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, block.transform(X) @ W, atol=2e-5 if dtype == np.float32 else 1e-12)
    with pytest.raises(ValueError, match="features"):
        project(X[:, :8])


def test_nystrom_projections_are_not_made_where_digits_would_be_lost():
    X = np.random.default_rng(4).normal(size=(60, 2))
    block = Nystrom(50, scale=1e3, random_state=1).fit(X)
    assert block.projection(np.ones((50, 2))) is None


def test_nystrom_takes_the_rows_there_are_and_equal_ones_too():
    X = np.repeat(rows(5, 4), 3, axis=0)
    block = Nystrom(100, random_state=0).fit(X)
    assert block.n_features_out_ == 15
    assert np.isfinite(block.transform(X)).all()

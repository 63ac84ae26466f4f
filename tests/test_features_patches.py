"""Features of images: patches are those of a direct convolution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone

from blocks import BLOCKS, SHAPE, rows
from manyclass.features import KMeansPatches, RandomPatches

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
    block._normalize(sample)
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


def test_kmeans_falls_and_keeps_no_empty_center():
    from manyclass.features.kmeans import kmeans

    Z = np.random.default_rng(0).normal(size=(400, 3)) + 6 * np.eye(3)[np.arange(400) % 3]

    def inertia(centers: np.ndarray) -> float:
        return float(((Z[:, None] - centers) ** 2).sum(axis=2).min(axis=1).mean())

    errors = [inertia(kmeans(Z, 5, np.random.default_rng(1), iterations=m)) for m in range(6)]
    assert all(after <= before + 1e-12 for before, after in zip(errors, errors[1:]))
    twins = np.repeat(np.eye(3), 20, axis=0)
    centers = kmeans(twins, 8, np.random.default_rng(0))
    assert np.isfinite(centers).all()
    assert {tuple(center) for center in centers} <= {tuple(row) for row in np.eye(3)}


def _mirrored(X: np.ndarray) -> np.ndarray:
    return X.reshape(-1, *SHAPE)[:, :, ::-1].reshape(len(X), -1)


@pytest.mark.parametrize("kind", [KMeansPatches, RandomPatches])
@pytest.mark.parametrize("activation", ["rectified", "triangle"])
@pytest.mark.parametrize("standardize", [False, True])
def test_a_mirror_image_keeps_half_of_the_features_and_turns_the_others(kind, activation, standardize):
    X, turned = rows(9, seed=6), _mirrored(rows(9, seed=6))
    block = kind(
        5, shape=SHAPE, patch=3, mirror=True, power=0.5, activation=activation, standardize=standardize, random_state=0
    ).fit(rows())
    here, there = block.transform(X), block.transform(turned)
    half = here.shape[1] // 2
    assert here.shape[1] == block.n_features_out_ == 4 * 10 * (2 if activation == "rectified" else 1)
    np.testing.assert_allclose(there[:, :half], here[:, :half], atol=1e-11)
    np.testing.assert_allclose(there[:, half:], -here[:, half:], atol=1e-11)
    assert np.abs(here[:, half:]).max() > 0.01
    # Sums and differences of what the same filters make of both images without the option.
    if not standardize and kind is RandomPatches:
        plain = clone(block).set_params(mirror=False).fit(rows())
        plain.mean_, plain.whitening_, plain.contrast_ = block.mean_, block.whitening_, block.contrast_
        plain.radius_ = block.radius_
        plain._filters = block._filters  # type: ignore[method-assign]
        if activation == "rectified":  # the mean distance is that to twice as many filters
            one, two = plain.transform(X), plain.transform(turned)
            np.testing.assert_allclose(here, np.hstack([one + two, one - two]) / math.sqrt(2), atol=1e-11)


@pytest.mark.parametrize("mirror", [False, True])
def test_standardized_features_have_mean_zero_and_variance_one(mirror):
    X = rows(200)
    block = KMeansPatches(4, shape=SHAPE, patch=3, mirror=mirror, standardize=True, random_state=0).fit(X)
    made = block.transform(np.vstack([X, _mirrored(X)]) if mirror else X)
    np.testing.assert_allclose(made.mean(axis=0), 0, atol=1e-9)
    variances = made.var(axis=0)
    if mirror:  # of a sum and a difference together
        variances = 0.5 * (variances[: len(variances) // 2] + variances[len(variances) // 2 :])
    np.testing.assert_allclose(variances, 1, rtol=1e-9)


def test_places_that_are_no_mirror_image_of_themselves_are_refused():
    X = rows()
    for parameters, message in (
        ({"patch": 4}, "3 for pool=2, and 0 pixels left over"),
        ({"patch": 3, "stride": 2}, "2 for pool=2, and 1 pixels left over"),
        ({"patch": 3, "expand": "squares"}, "expand must be None with mirror=True"),
    ):
        with pytest.raises(ValueError, match=message):
            KMeansPatches(4, shape=SHAPE, mirror=True, **parameters).fit(X)


def test_kmeans_of_points_that_may_be_turned():
    from manyclass.features.kmeans import kmeans

    mirror = np.array([1, 0, 2])
    rng = np.random.default_rng(0)
    Z = 0.1 * rng.normal(size=(300, 3)) + np.array([[3, 0, 0], [0, 3, 0], [0, 0, 3]])[np.arange(300) % 3]

    def inertia(centers: np.ndarray) -> float:
        both = np.vstack([centers, centers[:, mirror]])
        return float(((Z[:, None] - both) ** 2).sum(axis=2).min(axis=1).mean())

    errors = [inertia(kmeans(Z, 2, np.random.default_rng(3), iterations=m, mirror=mirror)) for m in range(5)]
    assert all(after <= before + 1e-12 for before, after in zip(errors, errors[1:]))
    # Two centers do for three clusters, two of which are each other's mirror image.
    assert errors[-1] < 0.05

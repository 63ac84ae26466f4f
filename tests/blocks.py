"""Feature blocks of every kind, and rows for them."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from manyclass.features import (
    Chain,
    FeatureSubset,
    KMeansPatches,
    Nystrom,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    RandomPatches,
    RandomPolynomial,
)

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
    "nystrom": Nystrom(24, random_state=0),
    "nystrom with odd features": Nystrom(24, scale=30.0, n_odd=30, random_state=0),
    "components": PrincipalComponents(5),
    "white components": PrincipalComponents(5, whiten=True),
    "random patches": RandomPatches(5, shape=SHAPE, patch=3, n_patches=300, random_state=0),
    "triangle patches": RandomPatches(5, shape=SHAPE, patch=3, activation="triangle", n_patches=300, random_state=0),
    "k-means patches": KMeansPatches(5, shape=SHAPE, patch=3, n_patches=300, random_state=0),
    "patches and their mirror images": KMeansPatches(
        4, shape=SHAPE, patch=3, n_patches=300, mirror=True, standardize=True, power=0.5, random_state=0
    ),
    "fourier with odd features": RandomFourier(24, n_odd=30, random_state=0),
    "logits with odd features": RandomLogits(24, n_odd=30, random_state=0),
    "polynomial with odd features": RandomPolynomial(24, degree=3, n_odd=30, random_state=0),
    "components with odd features": PrincipalComponents(5, n_odd=30),
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

"""k-means by matrix products: the same centres on any number of threads."""

from __future__ import annotations

import numpy as np

from manyclass.features.base import Array
from manyclass.runtime.threads import ranges

__all__ = ["kmeans"]

#: Points whose distances to all centres are held at a time.
_POINTS = 4096


def kmeans(Z: Array, k: int, rng: np.random.Generator, *, iterations: int = 10, mirror: Array | None = None) -> Array:
    """``k`` centres of the rows of Z, by Lloyd's iterations from rows drawn at random.

    A centre that loses all its points moves to a row drawn at random.

    Parameters
    ----------
    Z : ndarray of shape (n_points, n_features), of at least k rows
    k : int
    rng : Generator
    iterations : int
    mirror : ndarray of shape (n_features,), optional
        The order of features in the mirror image of a point, which then may stand for it: a point belongs to the centre
        that it or its mirror image is nearest to.

    Returns
    -------
    ndarray of shape (k, n_features)
    """
    centres: Array = Z[np.sort(rng.choice(len(Z), k, replace=False))].copy()
    for _ in range(iterations):
        half = 0.5 * np.einsum("ij,ij->i", centres, centres)
        nearest = np.concatenate([(Z[b:e] @ centres.T - half).argmax(axis=1) for b, e in ranges(len(Z), _POINTS)])
        if mirror is not None:
            Z = _turned(Z, centres, half, nearest, mirror)
        sizes = np.bincount(nearest, minlength=k)
        # Sums of the points of each centre: those of one centre side by side.
        order = np.argsort(nearest, kind="stable")
        used = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[used]
        centres[used] = np.add.reduceat(Z[order], starts, axis=0) / sizes[used, None]
        lost = np.flatnonzero(sizes == 0)
        if len(lost):
            centres[lost] = Z[rng.choice(len(Z), len(lost), replace=False)]
    return centres


def _turned(Z: Array, centres: Array, half: Array, nearest: Array, mirror: Array) -> Array:
    """The points, or their mirror images where these are nearer to a centre, which ``nearest`` then holds."""
    turned = Z.copy()
    for begin, end in ranges(len(Z), _POINTS):
        points = Z[begin:end]
        own = nearest[begin:end]
        here = np.einsum("ij,ij->i", points, centres[own]) - half[own]
        # A product with mirror images of centres is that of mirror images of points.
        there = points[:, mirror] @ centres.T - half
        best = there.argmax(axis=1)
        other = there[np.arange(end - begin), best] > here
        own[other] = best[other]
        turned[begin:end][other] = points[other][:, mirror]
    return turned

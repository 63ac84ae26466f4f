"""k-means by matrix products, with the same centers for any number of threads.

Not scikit-learn's `KMeans`, because its centers depend on the number of threads (by 6e-7 for float32, 50 000 x 108, 400
centers) and it cannot treat a point and its mirror image as equal.
"""

from __future__ import annotations

import numpy as np

from manyclass.features.base import Array
from manyclass.runtime.threads import ranges

__all__ = ["kmeans"]

#: Number of points whose distances to all centers are in memory at a time.
_POINTS = 4096


def kmeans(Z: Array, k: int, rng: np.random.Generator, *, iterations: int = 10, mirror: Array | None = None) -> Array:
    """Return ``k`` centers of the rows of Z, by Lloyd's iterations from rows drawn at random.

    A center that loses all its points is replaced by a row drawn at random.

    Parameters
    ----------
    Z : ndarray of shape (n_points, n_features)
        The points, at least k.
    k : int
        The number of centers.
    rng : Generator
        The source of random numbers.
    iterations : int, default=10
        The number of iterations.
    mirror : ndarray of shape (n_features,), default=None
        The order of features in the mirror image of a point. A point is then assigned to the center that is nearest to
        it or to its mirror image.

    Returns
    -------
    ndarray of shape (k, n_features)
        The centers.
    """
    centers: Array = Z[np.sort(rng.choice(len(Z), k, replace=False))].copy()
    for _ in range(iterations):
        # The product of a point with a mirrored center is that of the mirrored point with the center.
        both = centers if mirror is None else np.concatenate([centers, centers[:, mirror]])
        half = 0.5 * np.einsum("ij,ij->i", both, both)
        nearest = np.concatenate([(Z[b:e] @ both.T - half).argmax(axis=1) for b, e in ranges(len(Z), _POINTS)])
        turned = nearest >= k
        if turned.any():
            Z, nearest = Z.copy(), nearest % k
            Z[turned] = Z[turned][:, mirror]
        sizes = np.bincount(nearest, minlength=k)
        # Points sorted by center, for reduceat.
        order = np.argsort(nearest, kind="stable")
        used = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[used]
        centers[used] = np.add.reduceat(Z[order], starts, axis=0) / sizes[used, None]
        lost = np.flatnonzero(sizes == 0)
        if len(lost):
            centers[lost] = Z[rng.choice(len(Z), len(lost), replace=False)]
    return centers

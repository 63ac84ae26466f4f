"""k-means by matrix products: the same centers on any number of threads.

Not scikit-learn's `KMeans`: its centers differ in their last bits between one thread and two (float32, 50 000 x 108,
400 centers: by 6e-7), and it knows no points for which their mirror images may stand.
"""

from __future__ import annotations

import numpy as np

from manyclass.features.base import Array
from manyclass.runtime.threads import ranges

__all__ = ["kmeans"]

#: Points whose distances to all centers are held at a time.
_POINTS = 4096


def kmeans(Z: Array, k: int, rng: np.random.Generator, *, iterations: int = 10, mirror: Array | None = None) -> Array:
    """``k`` centers of the rows of Z, by Lloyd's iterations from rows drawn at random.

    A center that loses all its points moves to a row drawn at random.

    Parameters
    ----------
    Z : ndarray of shape (n_points, n_features), of at least k rows
    k : int
    rng : Generator
    iterations : int
    mirror : ndarray of shape (n_features,), optional
        The order of features in the mirror image of a point, which then may stand for it: a point belongs to the center
        that it or its mirror image is nearest to.

    Returns
    -------
    ndarray of shape (k, n_features)
    """
    centers: Array = Z[np.sort(rng.choice(len(Z), k, replace=False))].copy()
    for _ in range(iterations):
        # A product with the mirror image of a center is that of the mirror image of the point with the center.
        both = centers if mirror is None else np.concatenate([centers, centers[:, mirror]])
        half = 0.5 * np.einsum("ij,ij->i", both, both)
        nearest = np.concatenate([(Z[b:e] @ both.T - half).argmax(axis=1) for b, e in ranges(len(Z), _POINTS)])
        turned = nearest >= k
        if turned.any():
            Z, nearest = Z.copy(), nearest % k
            Z[turned] = Z[turned][:, mirror]
        sizes = np.bincount(nearest, minlength=k)
        # Sums of the points of each center: those of one center side by side.
        order = np.argsort(nearest, kind="stable")
        used = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[used]
        centers[used] = np.add.reduceat(Z[order], starts, axis=0) / sizes[used, None]
        lost = np.flatnonzero(sizes == 0)
        if len(lost):
            centers[lost] = Z[rng.choice(len(Z), len(lost), replace=False)]
    return centers

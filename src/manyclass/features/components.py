"""Principal components, from second moments that are summed over chunks of rows.

Not scikit-learn's `PCA`, which copies integer or mapped rows as floats and does not support ``n_odd``; nor its
`IncrementalPCA`, which is not exact and converts sparse rows to dense ones.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from manyclass.features.base import (
    Array,
    Block,
    check_odd,
    dense_rows,
    row_chunks,
    sample_rows,
    times,
    working_dtype,
)
from manyclass.runtime import memory

__all__ = ["PrincipalComponents"]


class PrincipalComponents(Block):
    """Principal components, fitted in one pass over chunks of rows; often the first block of a `Chain`.

    Parameters
    ----------
    n_components : int >= 1, default=50
        The number of components, at most the number of features of X.
    whiten : bool, default=False
        Whether components are divided by their standard deviations; those without variance become 0.
    n_odd : int, default=0
        The last ``n_odd`` features of X change sign in the mirror image of a row, the others do not (as those of
        `KMeansPatches` with ``mirror=True``). Components are then those of rows and mirror images: first those of the
        features that do not change sign, then ``n_components // 2`` of those that do. At least 0, less than the
        features of X.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Directions of length 1, by decreasing variance; the largest entry of each is positive.
    mean_ : ndarray of shape (n_features,)
        The mean of the rows.
    explained_variance_ : ndarray of shape (n_components,)
        Variances of the components, with divisor n - 1.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) * [1, 5, 0.1]
    >>> PrincipalComponents(1).fit(X).components_.round(1) + 0
    array([[0., 1., 0.]])
    """

    _arrays: ClassVar[tuple[str, ...]] = ("components_", "mean_", "explained_variance_")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**Block._parameter_constraints, "whiten": ["boolean"]}

    def __init__(self, n_components: int = 50, *, whiten: bool = False, n_odd: int = 0) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.n_odd = n_odd

    def _fit(self, X: Any, y: Any) -> None:
        d, p, odd = X.shape[1], int(self.n_components), int(self.n_odd)
        if p > d:
            raise ValueError(f"n_components must be at most the {d} features of X, got {p}")
        check_odd(odd, X)
        if odd and not (p // 2 <= odd and p - p // 2 <= d - odd):
            most = min(2 * odd + 1, 2 * (d - odd))
            raise ValueError(f"n_components must be at most {most} for n_odd={odd} of {d} features, got {p}")
        memory.require({"second moments": 3 * 8 * max(d - odd, odd) ** 2}, "a subset of the features first")
        self.components_, self.mean_, self.explained_variance_ = np.zeros((p, d)), np.zeros(d), np.zeros(p)
        halves = [(slice(0, d - odd), slice(0, p - p // 2)), (slice(d - odd, d), slice(p - p // 2, p))]
        for features, places in halves if odd else [(slice(0, d), slice(0, p))]:
            V, mean, variances = _components(X, features, places.stop - places.start, centered=features.start == 0)
            self.components_[places, features], self.mean_[features] = V, mean
            self.explained_variance_[places] = variances

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        p, d = int(self.n_components), int(self.n_features_in_)
        return {"components_": (p, d), "mean_": (d,), "explained_variance_": (p,)}

    def _directions(self) -> Array:
        """The components, divided by their standard deviations if they are to be."""
        if not self.whiten:
            return self.components_
        kept = self.explained_variance_ > 1e-12 * self.explained_variance_.max()
        scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, self.explained_variance_, 1.0)), 0.0)
        return np.asarray(self.components_ * scale[:, None])

    def _transform(self, X: Any) -> Array:
        dtype = working_dtype(X)
        V = self._directions()
        if sp.issparse(X):
            projected = times(X, V.T.astype(dtype))
            projected -= (V @ self.mean_).astype(dtype)
            return projected
        # Rows are centered first: the difference of products would lose digits for rows far from the origin.
        centered = dense_rows(X, dtype) - self.mean_.astype(dtype)
        product: Array = np.asarray(centered @ V.T.astype(dtype))
        return product


def _components(X: Any, features: slice, p: int, *, centered: bool) -> tuple[Array, Array, Array]:
    """Return the first ``p`` directions of some features, their mean (0 unless ``centered``) and the variances."""
    n, d = X.shape[0], features.stop - features.start
    whole = d == X.shape[1]
    # Moments about an approximate mean lose no digits; sparse rows are not centered, since they would become dense.
    near = np.zeros(d)
    if centered and not sp.issparse(X):
        sample = sample_rows(X, 1000, np.random.Generator(np.random.PCG64(0)))
        near = np.asarray((sample if whole else sample[:, features]).mean(axis=0, dtype=np.float64))
    sums, products = np.zeros(d), np.zeros((d, d))
    dtype = working_dtype(X)
    for begin, end in row_chunks(X):
        rows = X[begin:end] if whole else X[begin:end, features]
        part = dense_rows(rows, dtype if not sp.issparse(X) else np.float64)
        if not sp.issparse(part):
            part = part - near.astype(dtype)
        sums += np.asarray(part.sum(axis=0, dtype=np.float64)).ravel()
        square = part.T @ part
        products += square.toarray() if sp.issparse(square) else square
    shift = sums / n if centered else np.zeros(d)
    products -= np.outer(sums, shift)
    products /= max(1, n - 1)
    variances, directions = scipy.linalg.eigh(products, subset_by_index=(d - p, d - 1), overwrite_a=True)
    V = directions.T[::-1]
    V = V * np.where(V[np.arange(p), np.abs(V).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    return V, near + shift, np.maximum(variances[::-1], 0.0)

"""Random Fourier features of the Gaussian kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from manyclass.features.base import Array, times, working_dtype
from manyclass.features.gaussian import GaussianBlock
from manyclass.runtime import memory

__all__ = ["RandomFourier", "require_weights"]


class RandomFourier(GaussianBlock):
    """Random Fourier features: inner products of rows approximate the Gaussian kernel exp(-||x - x'||^2 / s).

    A feature is sqrt(2 / p) cos(w'x + b) with w normal of variance 2 / s and b uniform on [0, 2 pi) (Rahimi and Recht,
    Random features for large-scale kernel machines, 2007): the inner product of two rows of features is the kernel on
    average, with a standard deviation of at most 1 / sqrt(p).

    Parameters
    ----------
    n_components : int >= 1, default=512
        The number of features, p.
    scale : "median" or float > 0, default="median"
        The s of the kernel, in squared units of X; ``"median"`` is the median squared distance between pairs of up to
        1000 rows, times ``bandwidth``.
    bandwidth : float > 0, default=1.0
        The factor of the median; ignored if ``scale`` is a number.
    n_odd : int, default=0
        The last ``n_odd`` features of X change sign in the mirror image of a row, the others do not (as those of
        `KMeansPatches` with ``mirror=True``). A feature is then the mean over the row and its mirror image, so that a
        fit uses both. At least 0, less than the features of X.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers; stored with the model.

    Attributes
    ----------
    scale_ : float
        The s of the kernel.
    seed_ : int
        The seed of the random weights, which are drawn when needed and not stored.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> block = RandomFourier(20000, scale=8.0, random_state=0).fit(X)
    >>> Z = block.transform(X[:2])
    >>> float(abs(Z[0] @ Z[1] - np.exp(-((X[0] - X[1]) ** 2).sum() / 8))) < 0.02
    True
    """

    def _fit(self, X: Any, y: Any) -> None:
        require_weights(X.shape[1], self.n_components, X)
        self._fit_scale(X)
        self._weights(working_dtype(X))

    def _weights(self, dtype: Any) -> tuple[Array, ...]:
        def make(rng: np.random.Generator) -> tuple[Array, ...]:
            W = rng.standard_normal((self.n_features_in_, self.n_components), np.float32)
            W *= np.float32(math.sqrt(2.0 / self.scale_))
            return W, rng.random(self.n_components, np.float32) * np.float32(2.0 * math.pi)

        return self._draw(dtype, make)

    def _transform(self, X: Any) -> Array:
        W, phase = self._weights(working_dtype(X))
        even = X.shape[1] - int(self.n_odd)
        Z = times(X[:, :even] if self.n_odd else X, W[:even])
        Z += phase
        np.cos(Z, out=Z)
        if self.n_odd:
            # The mean of cos(z + w'x) over both signs of w'x.
            odd = times(X[:, even:], W[even:])
            Z *= np.cos(odd, out=odd)
        Z *= math.sqrt(2.0 / self.n_components)
        return Z


def require_weights(n_features: int, n_components: int, X: Any) -> None:
    """Raise a MemoryError if the random weights do not fit in memory."""
    size = 4 * n_features * n_components * (3 if working_dtype(X) == np.float64 else 1)
    memory.require({"random weights": size}, "fewer components, or principal components or a subset of features first")

"""Random Fourier features of the Gaussian kernel."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from manyclass import memory
from manyclass.features.base import Array, Block, check_count, check_real, sample_rows, times, working_dtype

__all__ = ["RandomFourier", "median_squared_distance", "require_weights"]

#: Rows whose pairwise distances the median is taken of: half a million pairs.
_SAMPLE = 1000


class RandomFourier(Block):
    """Random Fourier features: inner products of rows approximate the Gaussian kernel exp(-||x - x'||^2 / s).

    A feature is sqrt(2 / p) cos(w'x + b) with w normal of variance 2 / s and b uniform on [0, 2 pi) (Rahimi and Recht,
    Random features for large-scale kernel machines, 2007): the inner product of two rows of features is the kernel on
    average, with a standard deviation of at most 1 / sqrt(p).

    Parameters
    ----------
    n_components : int
        How many features, p.
    scale : "median" or float
        s of the kernel, in squared units of X; ``"median"`` takes the median squared distance between pairs of up to
        1000 rows, times ``bandwidth``.
    bandwidth : float
        What the median is multiplied by; without effect on a scale that is a number.
    n_odd : int
        The last so many features of X change their sign where a row becomes its mirror image, and the others stay
        (`KMeansPatches` with ``mirror=True``): a feature is then the mean of those of both rows, so that a fit is to
        all rows and their mirror images.
    random_state : int, RandomState or None

    Attributes
    ----------
    scale_ : float
        The s in use.
    seed_ : int
        Of the random weights, which are drawn again when needed and never stored.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> block = RandomFourier(20000, scale=8.0, random_state=0).fit(X)
    >>> Z = block.transform(X[:2])
    >>> float(abs(Z[0] @ Z[1] - np.exp(-((X[0] - X[1]) ** 2).sum() / 8))) < 0.02
    True
    """

    _numbers: ClassVar[tuple[str, ...]] = ("scale_",)

    def __init__(
        self,
        n_components: int = 512,
        *,
        scale: Any = "median",
        bandwidth: float = 1.0,
        n_odd: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.scale = scale
        self.bandwidth = bandwidth
        self.n_odd = n_odd
        self.random_state = random_state

    @property
    def n_features_out_(self) -> int:
        """How many features a row gets."""
        return int(self.n_components)

    def _check_parameters(self) -> None:
        check_count("n_components", self.n_components)
        check_real("bandwidth", self.bandwidth)
        check_count("n_odd", self.n_odd, least=0)
        if self.scale != "median":
            check_real("scale", self.scale, instead="'median' or ")

    def _fit(self, X: Any, y: Any) -> None:
        check_odd(self.n_odd, X)
        require_weights(X.shape[1], self.n_components, X)
        if self.scale == "median":
            self.scale_ = float(self.bandwidth) * median_squared_distance(X, self._generator(1))
        else:
            self.scale_ = float(self.scale)
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


def median_squared_distance(X: Any, rng: np.random.Generator) -> float:
    """The median squared distance between pairs of rows, of a sample: the "median trick" for a bandwidth.

    Where more than half the pairs are equal rows it is the mean, and 1 where all are.
    """
    rows = sample_rows(X, _SAMPLE, rng)
    squared = euclidean_distances(rows, squared=True)[np.triu_indices(rows.shape[0], 1)]
    if not squared.size:
        return 1.0
    # Equal rows are at a distance of rounding, not of 0, from each other.
    middle, mean = float(np.median(squared)), float(squared.mean(dtype=np.float64))
    tiny = 1e-6 * float(squared.max())
    return middle if middle > tiny else mean if mean > 0.0 else 1.0


def check_odd(n_odd: int, X: Any) -> None:
    """Raise a ValueError unless some features of X are left that a mirror image does not change."""
    if n_odd >= X.shape[1]:
        raise ValueError(f"n_odd must be less than the {X.shape[1]} features of X, got {n_odd}")


def require_weights(n_features: int, n_components: int, X: Any) -> None:
    """Refuse random weights that would not fit in memory.

    Raises
    ------
    MemoryError
    """
    size = 4 * n_features * n_components * (3 if working_dtype(X) == np.float64 else 1)
    memory.require({"random weights": size}, "fewer components, or principal components or a subset of features first")

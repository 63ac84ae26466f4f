"""Convolutional features of images: filters at all positions, an activation, averages over the cells of a grid.

Not scikit-learn's `PatchExtractor`, which copies all patches of all images at once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.utils._param_validation import StrOptions

from manyclass.features.base import (
    Array,
    Block,
    StateOf,
    dense_rows,
    row_chunks,
    sample_rows,
    working_dtype,
)
from manyclass.features.kmeans import kmeans
from manyclass.kernels.patches import pool_rectified, pool_triangle
from manyclass.runtime import memory
from manyclass.runtime.threads import ranges, resolve_n_jobs, run

__all__ = ["KMeansPatches", "RandomPatches"]

#: Number of filter responses that a thread has in memory at a time.
_RESPONSES = 2**21
#: Number of images from which means and deviations of features are computed.
_SCALED = 2000
#: The attributes with these.
_SCALES = ("center_", "deviation_")


class _Patches(Block):
    """Base class: responses of filters to normalized and whitened patches of images."""

    _numbers: ClassVar[tuple[str, ...]] = ("contrast_", "radius_")
    _arrays: ClassVar[tuple[str, ...]] = ("mean_", "whitening_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Block._parameter_constraints,
        "shape": [None, tuple, list],
        **{key: [None, *Block._parameter_constraints["power"]] for key in ("contrast", "whiten")},
        "activation": [StrOptions({"rectified", "triangle"})],
        "expand": [None, StrOptions({"squares", "products"})],
        **{key: ["boolean"] for key in ("mirror", "standardize")},
    }

    def __init__(
        self,
        n_filters: int = 100,
        *,
        shape: tuple[int, int, int] | None = None,
        patch: int = 6,
        stride: int = 1,
        contrast: float | None = 0.01,
        whiten: float | None = 0.1,
        activation: str = "rectified",
        threshold: float = 0.25,
        pool: int = 2,
        power: float = 1.0,
        expand: str | None = None,
        mirror: bool = False,
        standardize: bool = False,
        n_patches: int = 50_000,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_filters = n_filters
        self.shape = shape
        self.patch = patch
        self.stride = stride
        self.contrast = contrast
        self.whiten = whiten
        self.activation = activation
        self.threshold = threshold
        self.pool = pool
        self.power = power
        self.expand = expand
        self.mirror = mirror
        self.standardize = standardize
        self.n_patches = n_patches
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.mirror and self.expand is not None:
            raise ValueError(f"expand must be None with mirror=True, got {self.expand!r}")
        resolve_n_jobs(self.n_jobs)
        given: Any = (1, 1, 1) if self.shape is None else self.shape
        if len(given) != 3 or not all(isinstance(n, int | np.integer) and n >= 1 for n in given):
            raise ValueError(f"shape must be None or (height, width, channels), each at least 1, got {self.shape!r}")

    # --- geometry ---------------------------------------------------------------------------------------------------

    @property
    def _image(self) -> tuple[int, int, int]:
        return (1, int(self.n_features_in_), 1) if self.shape is None else tuple(map(int, self.shape))  # type: ignore[return-value]

    @property
    def _window(self) -> tuple[int, int]:
        height, width, _ = self._image
        return min(int(self.patch), height), min(int(self.patch), width)

    @property
    def _patch_size(self) -> int:
        return self._window[0] * self._window[1] * self._image[2]

    @property
    def _places(self) -> tuple[int, int]:
        (height, width, _), (h, w), stride = self._image, self._window, int(self.stride)
        return (height - h) // stride + 1, (width - w) // stride + 1

    def _check_symmetry(self) -> None:
        """Raise a ValueError unless positions and cells are symmetric under a mirror image."""
        columns = self._places[1]
        left = self._image[1] - self._window[1] - (columns - 1) * int(self.stride)
        if left or columns % min(int(self.pool), columns):
            raise ValueError(
                "mirror=True needs a number of columns of filter positions that pool divides, and no pixels left over: "
                f"got {columns} for pool={self.pool}, and {left} pixels left over; change patch, stride or pool"
            )

    @property
    def _mirrored(self) -> Array:
        """The order of the values of a patch, stored channel by channel, in its mirror image."""
        order = np.arange(self._patch_size).reshape(self._image[2], *self._window)
        return np.ascontiguousarray(order[:, :, ::-1]).ravel()

    def _cells(self) -> Array:
        """Return the cell of the grid for each position of a filter."""
        rows, columns = (np.arange(m) * min(int(self.pool), m) // m for m in self._places)
        cells: Array = (rows[:, None] * (columns[-1] + 1) + columns).ravel()
        return cells

    @property
    def n_features_out_(self) -> int:
        """The number of features."""
        return self._for_filters(int(self.n_filters))

    def _for_filters(self, n_filters: int) -> int:
        cells = math.prod(min(int(self.pool), m) for m in self._places)
        pooled = cells * n_filters * (2 if self.activation == "rectified" else 1) * (2 if self.mirror else 1)
        if self.expand == "squares":
            return 2 * pooled
        return pooled + pooled * (cells + 1) // 2 if self.expand == "products" else pooled

    def _resize(self, size: int) -> None:
        if self.shape is None:
            raise ValueError("shape is None; expected (height, width, channels) to make a given number of features")
        self.n_features_in_ = math.prod(self.shape)
        each = self._for_filters(1)
        del self.n_features_in_
        self.set_params(n_filters=max(1, size // each))

    # --- fitting ----------------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any) -> None:
        if self.shape is not None and math.prod(self.shape) != X.shape[1]:
            raise ValueError(
                f"shape must have as many pixel values as X has features, {X.shape[1]}, got {tuple(self.shape)}: "
                f"{math.prod(self.shape)}"
            )
        if self.mirror:
            self._check_symmetry()
        m, k = self._patch_size, int(self.n_filters)
        size = self._sample_size(X.shape[0])
        memory.require({"patches": 3 * 4 * size * m, "filters": 3 * 8 * k * m}, "fewer patches or filters")
        Q = self._sample(X, size)
        if self.contrast is not None:
            # Relative to the mean variance of patches.
            self.contrast_ = float(self.contrast) * float(Q.var(axis=1, dtype=np.float64).mean())
            self._normalize(Q)
        else:
            self.contrast_ = 0.0
        if self.whiten is None:
            self.mean_, self.whitening_ = np.zeros(m), np.eye(m)
        else:
            self.mean_ = self._symmetric(Q.mean(axis=0, dtype=np.float64))
            Q -= self.mean_.astype(Q.dtype)
            moments = self._symmetric((Q.T @ Q).astype(np.float64) / len(Q))
            variances, V = scipy.linalg.eigh(moments)
            floor = float(self.whiten) * float(variances.mean())
            scales = 1.0 / np.sqrt(np.maximum(variances, 0.0) + (floor if floor > 0.0 else 1.0))
            self.whitening_ = self._symmetric((V * scales) @ V.T)
            Q = Q @ self.whitening_.astype(Q.dtype)
        radius = math.sqrt(float(np.einsum("ij,ij->", Q, Q, dtype=np.float64)) / len(Q))
        self.radius_ = radius if radius > 0.0 else 1.0
        self._learn(Q)
        if self.standardize:
            self._learn_scales(self._averages(sample_rows(X, _SCALED, self._generator(3))))

    def _symmetric(self, moments: Array) -> Array:
        """Return moments of patches, with ``mirror`` those of patches and their mirror images."""
        if not self.mirror:
            return moments
        order = self._mirrored
        turned = moments[order] if moments.ndim == 1 else moments[np.ix_(order, order)]
        mean: Array = 0.5 * (moments + turned)
        return mean

    def _learn_scales(self, made: Array) -> None:
        """Compute means and deviations of features, with ``mirror`` those of images and their mirror images."""
        center, variances = made.mean(axis=0, dtype=np.float64), made.var(axis=0, dtype=np.float64)
        if self.mirror:
            half = len(center) // 2
            odd = variances[half:] + center[half:] ** 2
            center[half:] = 0.0
            variances = np.tile(0.5 * (variances[:half] + odd), 2)
        self.center_ = center
        self.deviation_ = np.sqrt(np.where(variances > 0.0, variances, 1.0))

    @abstractmethod
    def _learn(self, Q: Array) -> None:
        """Compute filters from normalized, whitened patches."""

    def _sample_size(self, n: int) -> int:
        return min(int(self.n_patches), n * math.prod(self._places))

    def _sample(self, X: Any, size: int) -> Array:
        """Draw ``size`` patches at random positions of random images."""
        rng = self._generator(1)
        n, (rows, columns), stride = X.shape[0], self._places, int(self.stride)
        # As many images as possible, with equally many patches of each.
        per_image = -(-size // n)
        images = np.sort(rng.choice(n, -(-size // per_image), replace=False))
        Q = np.empty((len(images) * per_image, self._patch_size), working_dtype(X))
        for begin, end in row_chunks(images[:, None], max(1, 2**22 // X.shape[1])):
            windows = self._windows(X[images[begin:end]])
            count = (end - begin) * per_image
            at, i, j = (
                np.repeat(np.arange(end - begin), per_image),
                rng.integers(rows, size=count),
                rng.integers(columns, size=count),
            )
            Q[begin * per_image : begin * per_image + count] = windows[at, i * stride, j * stride].reshape(count, -1)
        return Q[:size]

    def _windows(self, X: Any) -> Array:
        """Return views of all patches: (images, rows, columns, channels, height, width)."""
        dense = X.toarray() if sp.issparse(X) else X
        images = dense_rows(dense, working_dtype(X)).reshape(-1, *self._image)
        windows: Array = sliding_window_view(images, self._window, axis=(1, 2))
        return windows

    def _normalize(self, Q: Array) -> None:
        """Normalize each patch to mean 0 and variance nearly 1, less for faint ones, in place."""
        if self.contrast_ == 0.0:
            return
        Q -= Q.mean(axis=1, keepdims=True)
        variances = np.einsum("ij,ij->i", Q, Q) / Q.shape[1]
        Q /= np.sqrt(variances + Q.dtype.type(self.contrast_))[:, None]

    # --- transforming -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _filters(self, dtype: Any) -> Array:
        """Return the filters for whitened patches: (patch size, n_filters)."""

    def _all_filters(self, dtype: Any) -> Array:
        """Return the filters, with ``mirror`` followed by their mirror images."""
        F = self._filters(dtype)
        return np.concatenate([F, F[self._mirrored]], axis=1) if self.mirror else F

    def _transform(self, X: Any) -> Array:
        made = self._averages(X)
        if self.standardize:
            made -= self.center_.astype(made.dtype)
            made /= self.deviation_.astype(made.dtype)
        return made

    def _averages(self, X: Any) -> Array:
        """Return the features before they are standardized."""
        dtype = np.dtype(working_dtype(X))
        cells = self._cells()
        sizes = np.bincount(cells).astype(dtype)
        rectified = self.activation == "rectified"
        F, whitening, mean = self._all_filters(dtype), self.whitening_.astype(dtype), self.mean_.astype(dtype)
        k = F.shape[1]
        own = np.einsum("ij,ij->j", F, F)
        fused = self.whiten is not None and rectified
        if fused:
            # Filters multiplied by the whitening save the product that whitens the patches.
            F = (self.whitening_ @ F.astype(np.float64)).astype(dtype)
            mean = mean @ F
        out = np.zeros((X.shape[0], self.n_features_out_), dtype)
        stride = int(self.stride)

        def some(begin: int, end: int) -> None:
            windows = self._windows(X[begin:end])[:, ::stride, ::stride]
            # Always a copy, because it is modified in place.
            Q = np.array(windows).reshape(-1, self._patch_size)
            if self.contrast is not None:
                self._normalize(Q)
            pooled = np.zeros((end - begin, len(sizes), 2 if rectified else 1, k), dtype)
            if self.whiten is not None and not fused:
                Q = (Q - mean) @ whitening
            R = Q @ F
            if fused:
                R -= mean
            if rectified:
                pool_rectified(R, cells, dtype.type(self.threshold), pooled)
            else:
                pool_triangle(R, np.einsum("ij,ij->i", Q, Q), own, dtype.type(1.0 / k), cells, pooled)
            pooled /= sizes[:, None, None]
            if self.power != 1.0:
                np.power(pooled, dtype.type(self.power), out=pooled)
            self._arrange(pooled, out[begin:end])

        images = max(1, _RESPONSES // (len(cells) * max(k, self._patch_size)))
        run(some, ranges(X.shape[0], images), resolve_n_jobs(self.n_jobs))
        return out

    def _arrange(self, pooled: Array, out: Array) -> None:
        """Write averages, (images, cells, sides, filters), to the rows of ``out``."""
        if not self.mirror:
            self._expand(pooled.reshape(*pooled.shape[:2], -1), out)
            return
        columns = min(int(self.pool), self._places[1])
        n, cells, sides, both = pooled.shape
        grid = pooled.reshape(n, cells // columns, columns, sides, 2, both // 2)
        # A mirrored image responds to a filter as the image to the mirrored filter, in the opposite cell.
        here, there = grid[..., 0, :].reshape(n, -1), grid[:, :, ::-1, :, 1].reshape(n, -1)
        half = here.shape[1]
        np.add(here, there, out=out[:, :half])
        np.subtract(here, there, out=out[:, half:])
        out *= out.dtype.type(math.sqrt(0.5))

    def _expand(self, pooled: Array, out: Array) -> None:
        """Write averages, (images, cells, filters), and their products to the rows of ``out``."""
        n, cells, k = pooled.shape
        out[:, : cells * k] = pooled.reshape(n, -1)
        if self.expand == "squares":
            np.square(pooled.reshape(n, -1), out=out[:, cells * k :])
        elif self.expand == "products":
            at = cells * k
            for a in range(cells):
                for b in range(a, cells):
                    np.multiply(pooled[:, a], pooled[:, b], out=out[:, at : at + k])
                    at += k

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        m = self._patch_size
        scales = dict.fromkeys(_SCALES if self.standardize else (), (self.n_features_out_,))
        return {"mean_": (m,), "whitening_": (m, m), **scales}

    def to_state(self) -> StateOf:
        """Return the fitted state, which restores exactly the same features."""
        spec, arrays = super().to_state()
        return spec, arrays | {name: getattr(self, name) for name in (_SCALES if self.standardize else ())}

    def _own_parameters(self) -> dict[str, Any]:
        # The number of threads depends on the machine that loads the state.
        return {**super()._own_parameters(), "n_jobs": None}


_PARAMETERS = """shape : (height, width, channels), default=None
        The shape of the images whose pixels are the features of a row, channels last. None: a row is a sequence, an
        image of shape (1, n_features, 1).
    patch : int >= 1, default=6
        The side of a square patch in pixels, at most that of the image.
    stride : int >= 1, default=1
        The distance between neighboring positions of the filters in pixels.
    contrast : float > 0 or None, default=0.01
        Patches are centered and divided by sqrt(variance + contrast * mean variance of patches). None: they are not
        (the choice of the paper).
    whiten : float > 0 or None, default=0.1
        Patches are whitened, after ``whiten`` times the mean variance is added in all directions. None: they are not.
    activation : {"rectified", "triangle"}, default="rectified"
        ``"rectified"``: two features, max(0, r - threshold) and max(0, -r - threshold), of the response r to a filter
        of length 1. ``"triangle"``: one feature, max(0, mean distance to all filters - distance to this one).
    threshold : float >= 0, default=0.25
        The threshold of ``"rectified"``.
    pool : int >= 1, default=2
        Activations are averaged over the cells of a grid of pool x pool.
    power : float > 0, default=1.0
        The averages, which are not negative, are raised to this power; 0.5 stabilizes their variance if it grows with
        the average.
    expand : {"squares", "products"}, default=None
        Add the squares of the averages; or the products of the averages of one filter in all pairs of cells, including
        a cell with itself.
    mirror : bool, default=False
        Whether the mirror images (left to right) of the filters are used too. The features are then sums and
        differences, over sqrt(2), of those of an image and its mirror image: the first half are the same for both, the
        second half change sign. A linear fit to the first half uses all images and their mirror images; for random
        features of both halves, the second half is ``n_odd`` (`RandomFourier`). ``expand`` must be None.
    standardize : bool, default=False
        Whether features are centered and divided by their standard deviations, computed from up to 2000 images (with
        ``mirror``, and their mirror images).
    n_patches : int >= 1, default=50000
        The number of patches from which the normalization is learned.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers; stored with the model.
    n_jobs : int or None, default=None
        The number of threads, each for some images; fastest with one thread in BLAS. Results do not depend on it.

    Attributes
    ----------
    mean_ : ndarray of shape (patch_size,)
        The mean of normalized patches.
    whitening_ : ndarray of shape (patch_size, patch_size)
        The matrix that whitens normalized patches.
    contrast_ : float
        The number that is added to the variance of a patch.
    radius_ : float
        Root mean squared length of a whitened patch.
    center_, deviation_ : ndarray of shape (n_features_out_,)
        Means and standard deviations of features, if ``standardize``.
    """


class RandomPatches(_Patches):
    __doc__ = f"""Convolution of images with random filters, an activation, and averages over the cells of a grid.

    Filters have normal weights and act on normalized, whitened patches.

    Parameters
    ----------
    n_filters : int >= 1, default=100
        The number of filters.
    {_PARAMETERS}
    seed_ : int
        The seed of the random filters, which are drawn when needed and not stored.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).random((20, 8 * 8 * 3), np.float32)
    >>> RandomPatches(5, shape=(8, 8, 3), patch=3, random_state=0).fit_transform(X).shape
    (20, 40)
    """

    def _learn(self, Q: Array) -> None:
        self._filters(Q.dtype)

    def _filters(self, dtype: Any) -> Array:
        def make(rng: np.random.Generator) -> tuple[Array, ...]:
            F = rng.standard_normal((self._patch_size, int(self.n_filters)), np.float32)
            F *= (1.0 if self.activation == "rectified" else self.radius_) / np.linalg.norm(F, axis=0)
            return (F,)

        return self._draw(dtype, make)[0]


class KMeansPatches(_Patches):
    __doc__ = f"""Convolution of images with k-means centers of patches, an activation, and averages over cells.

    Filters are the centers of normalized, whitened patches of the images (Coates, Ng and Lee, An analysis of
    single-layer networks in unsupervised feature learning, 2011); for ``activation="rectified"`` scaled to length 1.

    Parameters
    ----------
    n_filters : int >= 1, default=100
        The number of filters, at most that of the patches in the sample.
    {_PARAMETERS}
    filters_ : ndarray of shape (patch_size, n_filters)
        The filters.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).random((20, 8 * 8 * 3), np.float32)
    >>> block = KMeansPatches(5, shape=(8, 8, 3), patch=3, activation="triangle", random_state=0)
    >>> block.fit_transform(X).shape
    (20, 20)
    """

    _arrays: ClassVar[tuple[str, ...]] = (*_Patches._arrays, "filters_")

    def _learn(self, Q: Array) -> None:
        k = int(self.n_filters)
        if k > len(Q):
            raise ValueError(f"n_filters must be at most the {len(Q)} patches of the sample, got {k}")
        centers = kmeans(Q, k, self._generator(2), mirror=self._mirrored if self.mirror else None)
        if self.activation == "rectified":
            lengths = np.linalg.norm(centers, axis=1, keepdims=True)
            centers /= np.where(lengths > 0.0, lengths, 1.0)
        self.filters_ = np.ascontiguousarray(centers.T)

    def _filters(self, dtype: Any) -> Array:
        return self.filters_.astype(dtype, copy=False)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {**super()._state_shapes(), "filters_": (self._patch_size, int(self.n_filters))}

"""Nystrom features: orthonormalized values of the Gaussian kernel between rows and centers drawn from the rows.

Not scikit-learn's `Nystroem`, because it takes four times as long for 20 000 rows and 1000 centers (a matrix product in
place of a triangular solve, and exp in several passes) and has neither a mean over mirror images nor `projection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg import blas
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from manyclass.features.base import (
    Array,
    dense_rows,
    sample_rows,
    squared_norms,
    times,
    working_dtype,
)
from manyclass.features.gaussian import GaussianBlock
from manyclass.kernels.gaussian import gaussian, mirrored_gaussian
from manyclass.kernels.rows import check_sparse
from manyclass.runtime import memory

__all__ = ["Nystrom"]

#: Added to the diagonal of the kernel between centers, which is 1/2 to 1.
_JITTER = 1e-5
#: Largest ratio of the weights of kernel values to those of features in `projection`: about two digits are lost.
_GROWTH = 100.0


class Nystrom(GaussianBlock):
    """Nystrom features of the Gaussian kernel exp(-||x - c||^2 / s) with centers c drawn from the rows of X.

    The features of a row are L^-1 k, with k its kernel values with the centers and L L' the kernel between the centers.
    Inner products of features are the projection of the kernel on the centers, and exact between centers (Williams and
    Seeger, Using the Nystrom method to speed up kernel machines, 2001). If the eigenvalues of the kernel decrease fast,
    far fewer features are needed than of `RandomFourier`; but the model stores the centers of every block.

    Parameters
    ----------
    n_components : int >= 1, default=512
        The number of centers and features; at most the number of rows is used.
    scale : "median" or float > 0, default="median"
        The s of the kernel, in squared units of X; ``"median"`` is the median squared distance between pairs of up to
        1000 rows, times ``bandwidth``.
    bandwidth : float > 0, default=1.0
        The factor of the median; ignored if ``scale`` is a number.
    centers : {"uniform", "residual"}, default="uniform"
        How the rows that are centers are drawn: each with the same probability, or with probabilities proportional to
        the squared residuals (the squared norms of the rows of ``y``), so that a stagewise fit puts the centers of a
        block where the earlier blocks are wrong. Without ``y``: "uniform".
    n_odd : int, default=0
        The last ``n_odd`` features of X change sign in the mirror image of a row, the others do not (as those of
        `KMeansPatches` with ``mirror=True``). The kernel is then the mean over a center and its mirror image. At
        least 0, less than the features of X.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers; stored with the model.

    Attributes
    ----------
    centers_ : ndarray of shape (n_features_out_, n_features)
        The centers.
    scale_ : float
        The s of the kernel.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> block = Nystrom(100, scale=8.0, random_state=0).fit(X)
    >>> Z = block.transform(X[:2])
    >>> float(abs(Z[0] @ Z[1] - np.exp(-((X[0] - X[1]) ** 2).sum() / 8))) < 1e-4
    True
    """

    _numbers: ClassVar[tuple[str, ...]] = (*GaussianBlock._numbers, "n_centers_")
    _arrays: ClassVar[tuple[str, ...]] = ("centers_",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GaussianBlock._parameter_constraints,
        "centers": [StrOptions({"uniform", "residual"})],
    }

    def __init__(
        self,
        n_components: int = 512,
        *,
        scale: Any = "median",
        bandwidth: float = 1.0,
        centers: str = "uniform",
        n_odd: int = 0,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_components, scale=scale, bandwidth=bandwidth, n_odd=n_odd, random_state=random_state)
        self.centers = centers

    @property
    def n_features_out_(self) -> int:
        """The number of features."""
        return int(self.n_centers_)

    def _fit(self, X: Any, y: Any) -> None:
        p, item = min(int(self.n_components), X.shape[0]), np.dtype(working_dtype(X)).itemsize
        needs = {"centers": item * p * X.shape[1], "the kernel between them": (16 + item) * p * p}
        memory.require(needs, "fewer components, or principal components or a subset of features first")
        self._fit_scale(X)
        if self.centers == "residual" and y is not None and p < X.shape[0]:
            centers: Any = X[_drawn_by(squared_norms(np.asarray(y).reshape(len(y), -1)), p, self._generator())]
        else:
            centers = sample_rows(X, p, self._generator())
        centers = centers.toarray() if sp.issparse(centers) else centers
        self.centers_, self.n_centers_ = np.array(centers, working_dtype(X)), p

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"centers_": (int(self.n_centers_), int(self.n_features_in_))}

    def _root(self, dtype: Any) -> Array:
        """Return the lower triangle L, where L L' is the kernel between the centers; kept until `release`."""
        name = np.dtype(dtype).name
        if name not in self._drawn:
            kernel = self._kernel(self.centers_.astype(np.float64), self.centers_.astype(np.float64))
            kernel[np.diag_indices_from(kernel)] += _JITTER
            root = scipy.linalg.cholesky(kernel, lower=True, overwrite_a=True, check_finite=False)
            self._drawn[name] = np.asfortranarray(root, dtype)
        found: Array = self._drawn[name]
        return found

    def _kernel(self, X: Any, centers: Array) -> Array:
        """Return the kernel between rows and centers; with odd features, the mean over centers and mirror images."""
        even = X.shape[1] - int(self.n_odd)
        scale = centers.dtype.type(1.0 / self.scale_)
        K = times(X[:, :even] if self.n_odd else X, np.ascontiguousarray(centers[:, :even].T))
        norms, center_norms = ((squared_norms(rows) * scale).astype(K.dtype) for rows in (X, centers))
        if not self.n_odd:
            gaussian(K, norms, center_norms, 2 * scale)
            return K
        odd = times(X[:, even:], np.ascontiguousarray(centers[:, even:].T))
        mirrored_gaussian(K, odd, norms, center_norms, 2 * scale)
        return K

    def _transform(self, X: Any) -> Array:
        dtype = np.dtype(working_dtype(X))
        X = X if sp.issparse(X) else dense_rows(X, dtype)
        K = self._kernel(X, self.centers_.astype(dtype, copy=False))
        solve = blas.strsm if dtype == np.float32 else blas.dtrsm
        # BLAS stores matrices by columns, so it gets the transpose; in place.
        made: Array = solve(1.0, self._root(dtype), K.T, lower=1, overwrite_b=1).T
        return made

    def projection(self, W: Array) -> Callable[[Any], Array] | None:
        """Return a function of X for ``transform(X) @ W`` without a triangular solve for each row: k' (L^-T W).

        Parameters
        ----------
        W : ndarray of shape (n_features_out_, n_outputs)
            The weights of the features.

        Returns
        -------
        callable or None
            None if L is so close to singular that the result would lose digits.
        """
        check_is_fitted(self)
        outer = scipy.linalg.solve_triangular(self._root(W.dtype), W, lower=True, trans="T", check_finite=False)
        if not np.abs(outer).max(initial=0.0) <= _GROWTH * np.abs(W).max(initial=0.0):
            return None
        centers = self.centers_.astype(W.dtype, copy=False)

        def project(X: Any) -> Array:
            check_sparse(X)
            X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False)
            return times(self._kernel(dense_rows(X, W.dtype), centers), outer)

        return project


def _drawn_by(weights: Array, size: int, rng: np.random.Generator) -> Array:
    """Indices of ``size`` rows drawn without replacement with probabilities proportional to ``weights``, sorted.

    Rows of weight 0 are drawn only after all others.
    """
    # The largest of log(weight) + Gumbel noise are such a draw (Efraimidis and Spirakis 2006, in logarithms).
    keys = np.log(np.maximum(weights, np.finfo(np.float64).tiny)) + rng.gumbel(size=len(weights))
    return np.sort(np.argpartition(keys, -size)[-size:])

"""Random logits and random polynomials: a sigmoid or products of random projections of centered rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from manyclass.features.base import (
    Array,
    Block,
    check_odd,
    sample_rows,
    squared_norms,
    times,
    working_dtype,
)
from manyclass.features.fourier import require_weights

__all__ = ["RandomLogits", "RandomPolynomial"]

#: Number of rows from which the mean and the radius are computed.
_SAMPLE = 10_000


class _Projections(Block):
    """Base class: features of random projections of rows that are centered and scaled to mean squared length 1."""

    _numbers: ClassVar[tuple[str, ...]] = ("radius_",)
    _arrays: ClassVar[tuple[str, ...]] = ("offset_",)

    n_odd: int

    @property
    def _n_projections(self) -> int:
        return int(self.n_components)

    def _fit(self, X: Any, y: Any) -> None:
        check_odd(self.n_odd, X)
        require_weights(X.shape[1], self._n_projections, X)
        rows = sample_rows(X, _SAMPLE, self._generator(1))
        mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
        if self.n_odd:
            mean[-int(self.n_odd) :] = 0.0  # the mean of rows and mirror images
        around = squared_norms(rows).mean() - mean @ mean
        # By rounding, the spread of equal rows is not exactly 0.
        self.radius_ = math.sqrt(around) if around > 1e-12 * (mean @ mean) else 1.0
        W = self._weights(np.float64 if working_dtype(X) == np.float64 else np.float32)[0]
        self.offset_ = mean @ W.astype(np.float64, copy=False)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"offset_": (self._n_projections,)}

    def _weights(self, dtype: Any) -> tuple[Array, ...]:
        def make(rng: np.random.Generator) -> tuple[Array, ...]:
            W = rng.standard_normal((self.n_features_in_, self._n_projections), np.float32)
            W /= np.float32(self.radius_)
            return W, rng.standard_normal(self._n_projections, np.float32)

        return self._draw(dtype, make)

    def _transform(self, X: Any) -> Array:
        W, biases = self._weights(working_dtype(X))
        even = X.shape[1] - int(self.n_odd)
        Z = times(X[:, :even] if self.n_odd else X, W[:even])
        with np.errstate(over="ignore"):  # an offset beyond float32 makes features that are not finite
            Z -= self.offset_.astype(Z.dtype)
        if not self.n_odd:
            return self._made(Z, biases)
        odd = times(X[:, even:], W[even:])
        made = self._made(Z + odd, biases)
        Z -= odd
        made += self._made(Z, biases)
        made *= 0.5
        return made

    @abstractmethod
    def _made(self, Z: Array, biases: Array) -> Array:
        """Return the features of projections Z, of variance 1 on average, and normal biases; Z may be overwritten."""


class RandomLogits(_Projections):
    """Random logits: a sigmoid of random projections of rows.

    A feature is (2 sigma(z) - 1) / sqrt(p) with the logit z = scale (w'(x - mean) / radius + b), where w and b are
    standard normal and radius is the root mean squared distance of rows from their mean: logits have a standard
    deviation of about ``scale`` sqrt(2) for any units of X. In Agarwal et al., Least squares revisited, appendix A.2.1,
    half as many of them were as accurate as Fourier features.

    Parameters
    ----------
    n_components : int >= 1, default=512
        The number of features, p.
    scale : float > 0, default=2.0
        The slope: small values give nearly linear features, large ones nearly step functions.
    n_odd : int, default=0
        The last ``n_odd`` features of X change sign in the mirror image of a row, the others do not (as those of
        `KMeansPatches` with ``mirror=True``). A feature is then the mean over the row and its mirror image, so that a
        fit uses both. At least 0, less than the features of X.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers; stored with the model.

    Attributes
    ----------
    radius_ : float
        Root mean squared distance of the rows of a sample from their mean.
    offset_ : ndarray of shape (n_components,)
        The projections of the mean.
    seed_ : int
        The seed of the random weights, which are drawn when needed and not stored.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> RandomLogits(7, random_state=0).fit_transform(X).shape
    (100, 7)
    """

    def __init__(
        self, n_components: int = 512, *, scale: float = 2.0, n_odd: int = 0, random_state: Any = None
    ) -> None:
        self.n_components = n_components
        self.scale = scale
        self.n_odd = n_odd
        self.random_state = random_state

    def _made(self, Z: Array, biases: Array) -> Array:
        Z += biases
        # 2 sigma(z) - 1 = tanh(z / 2).
        Z *= 0.5 * self.scale
        np.tanh(Z, out=Z)
        Z *= 1.0 / math.sqrt(self.n_components)
        return Z


class RandomPolynomial(_Projections):
    """Random polynomials of low degree: products of normal projections.

    A feature is the product of ``degree`` factors w_l'(x - mean) / radius + constant b_l, over sqrt(p), all w_l and b_l
    standard normal: the inner product of two rows of features is on average the polynomial kernel (x~'x~' +
    constant^2)^degree of the centered rows, divided by their root mean squared length.

    Parameters
    ----------
    n_components : int >= 1, default=512
        The number of features, p.
    degree : int, default=2
        The degree, from 1 to 8.
    constant : float >= 0, default=1.0
        The weight of lower degrees; with 0 there are only products of the full degree.
    n_odd : int, default=0
        The last ``n_odd`` features of X change sign in the mirror image of a row, the others do not (as those of
        `KMeansPatches` with ``mirror=True``). A feature is then the mean over the row and its mirror image, so that a
        fit uses both. At least 0, less than the features of X.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers; stored with the model.

    Attributes
    ----------
    radius_ : float
        Root mean squared distance of the rows of a sample from their mean.
    offset_ : ndarray of shape (degree * n_components,)
        The projections of the mean.
    seed_ : int
        The seed of the random weights, which are drawn when needed and not stored.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> RandomPolynomial(7, degree=3, random_state=0).fit_transform(X).shape
    (100, 7)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Block._parameter_constraints,
        "degree": [Interval(Integral, 1, 8, closed="both")],
    }

    def __init__(
        self,
        n_components: int = 512,
        *,
        degree: int = 2,
        constant: float = 1.0,
        n_odd: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.degree = degree
        self.constant = constant
        self.n_odd = n_odd
        self.random_state = random_state

    @property
    def _n_projections(self) -> int:
        return int(self.n_components) * int(self.degree)

    def _made(self, Z: Array, biases: Array) -> Array:
        Z += biases * Z.dtype.type(self.constant)
        p = int(self.n_components)
        product: Array = Z[:, :p].copy()
        for factor in range(1, int(self.degree)):
            product *= Z[:, factor * p : (factor + 1) * p]
        product *= 1.0 / math.sqrt(p)
        return product

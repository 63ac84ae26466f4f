"""Features of rows that are an array of another library, computed where the rows are.

Of the blocks whose features are products and functions of single numbers: random Fourier features, logits and
polynomials, Nystrom, principal components, subsets, and chains of these. The matrices of a fitted block are copied to
the rows once, and kept until its `release`. The features are those of `Block.transform` up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from manyclass.features.base import Array, Block
from manyclass.features.chain import Chain
from manyclass.features.components import PrincipalComponents
from manyclass.features.fourier import RandomFourier
from manyclass.features.nystrom import Nystrom
from manyclass.features.projections import RandomLogits, RandomPolynomial
from manyclass.features.subset import FeatureSubset
from manyclass.runtime.arrays import as_type, detached, namespace, place, type_of

__all__ = ["transform_there", "transforms_there"]


def transform_there(block: Any, X: Any) -> Any:
    """The features of rows X of another library, in it and on their device; None if the block has no such.

    Parameters
    ----------
    block : FeatureBlock
        A fitted block.
    X : array of shape (n, d)
        Rows of another library than NumPy.

    Returns
    -------
    array of shape (n, n_features_out_), or None
        float32 for rows of float32 or less, else float64.
    """
    if type(block) is Chain:
        first = transform_there(block.first_, X)
        return None if first is None else transform_there(block.second_, first)
    make = _MAKERS.get(type(block))
    if make is None:
        return None
    name = "float32" if type_of(X) in ("float32", "float16", "bfloat16") else "float64"
    return make(block, as_type(detached(X), name))


def transforms_there(block: Any) -> bool:
    """Whether `transform_there` gives the features of a fitted block."""
    if type(block) is Chain:
        return transforms_there(block.first_) and transforms_there(block.second_)
    return type(block) in _MAKERS


def _placed(block: Block, X: Any, make: Callable[[np.dtype[Any]], tuple[Array, ...]]) -> tuple[Any, ...]:
    """The arrays that ``make`` gives for the type of X, where X is; kept until the block is released."""
    key = f"{namespace(X).__name__} {getattr(X, 'device', '')} {type_of(X)}"
    if key not in block._drawn:
        dtype = np.dtype(type_of(X))
        block._drawn[key] = tuple(place(array, X, dtype.name) for array in make(dtype))
    found: tuple[Any, ...] = block._drawn[key]
    return found


def _halves(X: Any, W: Any, n_odd: int) -> tuple[Any, Any]:
    """Products of the features that the mirror image of a row keeps, and of those that it changes (None if none)."""
    even = int(X.shape[1]) - n_odd
    return (X[:, :even] @ W[:even, :], X[:, even:] @ W[even:, :]) if n_odd else (X @ W, None)


def _fourier(block: RandomFourier, X: Any) -> Any:
    xp = namespace(X)
    W, phase = _placed(block, X, block._weights)
    Z, odd = _halves(X, W, int(block.n_odd))
    made = xp.cos(Z + phase)
    return (made if odd is None else made * xp.cos(odd)) * math.sqrt(2.0 / block.n_components)


def _projected(made: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The features of a block of random projections, by the function of projections and biases."""

    def features(block: Any, X: Any) -> Any:
        W, biases, offset = _placed(block, X, lambda dtype: (*block._weights(dtype), block.offset_))
        Z, odd = _halves(X, W, int(block.n_odd))
        Z = Z - offset
        if odd is None:
            return made(block, Z, biases)
        return 0.5 * (made(block, Z + odd, biases) + made(block, Z - odd, biases))

    return features


def _logits(block: RandomLogits, Z: Any, biases: Any) -> Any:
    return namespace(Z).tanh((Z + biases) * (0.5 * block.scale)) * (1.0 / math.sqrt(block.n_components))


def _products(block: RandomPolynomial, Z: Any, biases: Any) -> Any:
    Z, p = Z + biases * float(block.constant), int(block.n_components)
    product = Z[:, :p]
    for factor in range(1, int(block.degree)):
        product = product * Z[:, factor * p : (factor + 1) * p]
    return product * (1.0 / math.sqrt(p))


def _nystrom(block: Nystrom, X: Any) -> Any:
    xp, scale = namespace(X), 1.0 / block.scale_

    def make(dtype: np.dtype[Any]) -> tuple[Array, ...]:
        centers = block.centers_.astype(np.float64)
        # Rounded to float32 only in the end: the root is close to singular.
        inverse = np.tril(lapack.dtrtri(block._root(np.float64), lower=1)[0])
        return centers.T, np.einsum("ij,ij->i", centers, centers) * scale, inverse.T

    centers, center_norms, inverse = _placed(block, X, make)
    products, odd = _halves(X, centers, int(block.n_odd))
    middle = 2.0 * scale * products - scale * xp.sum(X * X, axis=1, keepdims=True) - center_norms

    def kernel(exponents: Any) -> Any:
        return xp.exp(xp.where(exponents < 0, exponents, xp.zeros_like(exponents)))

    if odd is None:
        return kernel(middle) @ inverse
    aside = 2.0 * scale * odd
    return 0.5 * (kernel(middle + aside) + kernel(middle - aside)) @ inverse


def _components(block: PrincipalComponents, X: Any) -> Any:
    V, mean = _placed(block, X, lambda dtype: (block._directions().T, block.mean_))
    return (X - mean) @ V


def _subset(block: FeatureSubset, X: Any) -> Any:
    return namespace(X).take(X, place(block.indices_, X, "int64"), axis=1)


_MAKERS: dict[type, Callable[[Any, Any], Any]] = {
    RandomFourier: _fourier,
    RandomLogits: _projected(_logits),
    RandomPolynomial: _projected(_products),
    Nystrom: _nystrom,
    PrincipalComponents: _components,
    FeatureSubset: _subset,
}

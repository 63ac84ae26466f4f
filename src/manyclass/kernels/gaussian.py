"""The Gaussian kernel from inner products, in one pass over them."""

from __future__ import annotations

from manyclass.kernels.jit import jit
from manyclass.kernels.vmath import exp

__all__ = ["gaussian", "mirrored_gaussian"]


@jit
def gaussian(products, norms, center_norms, factor):
    """``products[i, j]`` becomes exp(factor products[i, j] - norms[i] - center_norms[j]), 1 at most."""
    zero = products.dtype.type(0)
    for i in range(products.shape[0]):
        row, norm = products[i], norms[i]
        for j in range(row.shape[0]):
            row[j] = exp(min(zero, factor * row[j] - norm - center_norms[j]))


@jit
def mirrored_gaussian(even, odd, norms, center_norms, factor):
    """``even[i, j]`` becomes the mean of two kernels: of the products even + odd, and even - odd."""
    zero, half = even.dtype.type(0), even.dtype.type(0.5)
    for i in range(even.shape[0]):
        row, turn, norm = even[i], odd[i], norms[i]
        for j in range(row.shape[0]):
            middle, aside = factor * row[j] - norm - center_norms[j], factor * turn[j]
            row[j] = half * (exp(min(zero, middle + aside)) + exp(min(zero, middle - aside)))

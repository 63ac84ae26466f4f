"""Functions shared by the kernels of all indexes for inner product search: class vectors, inner products, the k best.

A vectors view is a NamedTuple of arrays, dense or sparse, with one slot for each class number. Queries are always
compressed sparse rows, so that kernels are compiled for one type only. A query is stored twice: as a list of its
non-zeros, and scattered to an array with an entry for each feature (``spread``), for sparse class vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from manyclass.kernels.jit import implements, inline, is_a
from manyclass.kernels.predict import sink, worse
from manyclass.kernels.table import WeightTable, weight_at

__all__ = [
    "DenseVectors",
    "SparseVectors",
    "Vectors",
    "clear",
    "dot",
    "dot_pair",
    "entries_of",
    "offer",
    "scatter",
    "start",
]

# mypy: disable-error-code="no-untyped-def"


class DenseVectors(NamedTuple):
    """One row per class."""

    x: np.ndarray[Any, Any]


class SparseVectors(NamedTuple):
    """Class k has the features ``indices[begin[k]:end[k]]``, ascending, with the values ``data[begin[k]:end[k]]``."""

    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    begin: np.ndarray[Any, Any]
    end: np.ndarray[Any, Any]


Vectors = DenseVectors | SparseVectors


def entries_of(vectors: Any, k: Any) -> Any:
    """The features and values of class k."""
    raise TypeError("compiled: call it from a kernel")


def dot(vectors: Any, k: Any, where: Any, value: Any, spread: Any) -> Any:
    """The inner product of class k with a query: its non-zeros ``where``, ``value``, also scattered to ``spread``.

    The vectors may also be the columns of a d x K array or `WeightTable`.
    """
    raise TypeError("compiled: call it from a kernel")


def dot_pair(vectors: Any, a: Any, b: Any) -> Any:
    """The inner product of two classes."""
    raise TypeError("compiled: call it from a kernel")


@implements(entries_of)
def _entries_of(vectors: Any, k: Any) -> Any:
    if is_a(vectors, SparseVectors):

        def sparse(vectors, k):
            part = slice(vectors.begin[k], vectors.end[k])
            return vectors.indices[part], vectors.data[part]

        return sparse
    if is_a(vectors, DenseVectors):
        return lambda vectors, k: (np.arange(vectors.x.shape[1], dtype=np.int32), vectors.x[k])
    return None


@implements(dot)
def _dot(vectors: Any, k: Any, where: Any, value: Any, spread: Any) -> Any:
    if is_a(vectors, SparseVectors):

        def sparse(vectors, k, where, value, spread):
            total = spread.dtype.type(0)
            for t in range(vectors.begin[k], vectors.end[k]):
                total += spread[vectors.indices[t]] * vectors.data[t]
            return total

        return sparse
    if is_a(vectors, DenseVectors):

        def dense(vectors, k, where, value, spread):
            total = spread.dtype.type(0)
            for t in range(where.shape[0]):
                total += value[t] * vectors.x[k, where[t]]
            return total

        return dense
    if isinstance(vectors, types.Array) or is_a(vectors, WeightTable):

        def columns(vectors, k, where, value, spread):
            total = spread.dtype.type(0)
            for t in range(where.shape[0]):
                total += value[t] * weight_at(vectors, where[t], k)
            return total

        return columns
    return None


@implements(dot_pair)
def _dot_pair(vectors: Any, a: Any, b: Any) -> Any:
    if is_a(vectors, SparseVectors):

        def sparse(vectors, a, b):
            total = vectors.data.dtype.type(0)
            s = vectors.begin[a]
            t = vectors.begin[b]
            while s < vectors.end[a] and t < vectors.end[b]:
                i = vectors.indices[s]
                j = vectors.indices[t]
                if i == j:
                    total += vectors.data[s] * vectors.data[t]
                if i <= j:
                    s += 1
                if j <= i:
                    t += 1
            return total

        return sparse
    if is_a(vectors, DenseVectors):

        def dense(vectors, a, b):
            total = vectors.x.dtype.type(0)
            for j in range(vectors.x.shape[1]):
                total += vectors.x[a, j] * vectors.x[b, j]
            return total

        return dense
    return None


@inline
def scatter(where, value, spread):
    """Scatter a query to ``spread``; the values of a repeated feature are added."""
    for t in range(where.shape[0]):
        spread[where[t]] += value[t]


@inline
def clear(where, spread):
    """Reset the entries of a query in ``spread`` to zero."""
    for t in range(where.shape[0]):
        spread[where[t]] = 0


@inline
def start(value, number, size):
    """Initialize the list of the k best: a heap of entries that rank after every class."""
    for a in range(size):
        value[a] = np.nan
        number[a] = np.iinfo(np.int64).max


@inline
def offer(value, number, size, score, k):
    """Insert class k into the list of the k best if it ranks before the worst of them."""
    if worse(value[0], number[0], score, k):
        sink(value, number, size, score, k)

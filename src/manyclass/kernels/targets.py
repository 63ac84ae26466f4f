"""Targets: the second argument of a loss, for each row and each task.

`ClassTargets` gives a class number, `SignTargets` a row of +1 / -1 (one-vs-rest and multi-label), `RealTargets` a row
of real numbers, `SoftTargets` a sparse row of probabilities. ``target_row`` returns the class number, or fills and
returns the caller's buffer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.jit import implements, is_a

__all__ = [
    "ClassTargets",
    "RealTargets",
    "SignTargets",
    "SoftTargets",
    "Targets",
    "alike",
    "of_rows",
    "soft_matrix",
    "target_row",
]


class ClassTargets(NamedTuple):
    """One class per row: ``y`` holds numbers in 0 .. n_outputs - 1."""

    y: np.ndarray[Any, Any]
    n_outputs: int


class SignTargets(NamedTuple):
    """+1 in the columns ``indices[indptr[i]:indptr[i+1]]`` of row i, -1 in the others."""

    indptr: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    n_outputs: int


class RealTargets(NamedTuple):
    """A row of real targets, ``y`` of shape n x n_outputs."""

    y: np.ndarray[Any, Any]
    n_outputs: int


class SoftTargets(NamedTuple):
    """Numbers in [0, 1], those of row i that are not 0 in ``data[indptr[i]:indptr[i+1]]``, in the columns ``indices``.

    Of a distribution over the classes each row sums to 1; else they are the probabilities of labels.
    """

    data: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    n_outputs: int


Targets = ClassTargets | SignTargets | RealTargets | SoftTargets


def of_rows(targets: Targets, rows: np.ndarray[Any, Any]) -> Targets:
    """The targets of some rows, as arrays for which the kernels of the whole are compiled."""
    if isinstance(targets, ClassTargets | RealTargets):
        return targets._replace(y=alike(targets.y, targets.y[rows]))
    sizes = np.diff(targets.indptr)[rows]
    at = np.repeat(targets.indptr[rows] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) + np.arange(sizes.sum())
    indptr = alike(targets.indptr, np.concatenate([[0], np.cumsum(sizes)]))
    if isinstance(targets, SoftTargets):
        targets = targets._replace(data=alike(targets.data, targets.data[at]))
    return targets._replace(indptr=indptr, indices=alike(targets.indices, targets.indices[at]))


def alike(given: Any, array: Any) -> np.ndarray[Any, Any]:
    """A contiguous copy of an array, of the type and as writable as ``given``: kernels are compiled for both."""
    found = np.array(array, np.asarray(given).dtype, order="C")
    found.flags.writeable = np.asarray(given).flags.writeable
    return found


def soft_matrix(targets: SoftTargets) -> Any:
    """The targets as a CSR matrix that shares their memory."""
    shape = len(targets.indptr) - 1, targets.n_outputs
    return sp.csr_matrix((targets.data, targets.indices, targets.indptr), shape=shape, copy=False)


def target_row(targets: Any, i: Any, lo: Any, hi: Any, buffer: Any) -> Any:
    """The target of row i, columns lo .. hi - 1: a class number, or ``buffer`` filled."""
    raise TypeError("compiled: call it from a kernel")


@implements(target_row)
def _target_row(targets: Any, i: Any, lo: Any, hi: Any, buffer: Any) -> Any:
    if is_a(targets, ClassTargets):
        return lambda targets, i, lo, hi, buffer: targets.y[i]
    if is_a(targets, SignTargets):

        def signs(targets, i, lo, hi, buffer):
            buffer[:] = -1
            for t in range(targets.indptr[i], targets.indptr[i + 1]):
                k = targets.indices[t]
                if lo <= k < hi:
                    buffer[k - lo] = 1
            return buffer

        return signs
    if is_a(targets, RealTargets):

        def reals(targets, i, lo, hi, buffer):
            for k in range(lo, hi):
                buffer[k - lo] = targets.y[i, k]
            return buffer

        return reals
    if is_a(targets, SoftTargets):

        def shares(targets, i, lo, hi, buffer):
            buffer[:] = 0
            for t in range(targets.indptr[i], targets.indptr[i + 1]):
                k = targets.indices[t]
                if lo <= k < hi:
                    buffer[k - lo] = targets.data[t]
            return buffer

        return shares
    return None

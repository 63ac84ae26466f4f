"""Loops that do nothing but move memory, compiled like the library's kernels: what a machine can do at all."""

from __future__ import annotations

from numba import njit

__all__ = ["gather", "triad", "update"]


@njit(nogil=True, fastmath=True, error_model="numpy")
def triad(a, b, c, scale):  # type: ignore[no-untyped-def]
    """``a = b + scale * c``."""
    for i in range(a.shape[0]):
        a[i] = b[i] + scale * c[i]


@njit(nogil=True, fastmath=True, error_model="numpy")
def gather(V, indices, total):  # type: ignore[no-untyped-def]
    """``total += V[j]`` for each j of ``indices``."""
    for t in range(indices.shape[0]):
        row = V[indices[t]]
        for k in range(total.shape[0]):
            total[k] += row[k]


@njit(nogil=True, fastmath=True, error_model="numpy")
def update(V, indices, coef):  # type: ignore[no-untyped-def]
    """``V[j] += coef`` for each j of ``indices``."""
    for t in range(indices.shape[0]):
        row = V[indices[t]]
        for k in range(coef.shape[0]):
            row[k] += coef[k]

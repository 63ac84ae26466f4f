"""The projections of Crammer and Singer's loss, against a sort, where rounding and ties are at their worst."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from manyclass.kernels.jit import jit
from manyclass.kernels.simplex import project_rivals, smooth_largest


@jit
def projected(raw, curvature, coupling):
    return project_rivals(raw, curvature, coupling)


@jit
def smoothed(v, top, gamma):
    return smooth_largest(v, top, gamma)


def threshold(mu, coupling):
    """theta of `project_rivals`, from the sorted entries."""
    u = np.sort(mu[mu > 0])[::-1]
    if not len(u):
        return np.longdouble(0)
    count = np.arange(1, len(u) + 1)
    sums = np.cumsum(u)
    shared = sums / (count + 1 / coupling) if coupling > 0 else np.zeros(len(u))
    held = np.flatnonzero(u > shared)[-1]
    if np.maximum(u - shared[held], 0).sum() <= 1:
        return shared[held]
    bound = (sums - 1) / count
    return bound[np.flatnonzero(u > bound)[-1]]


def entries(seed, size, kind, dtype):
    rng = np.random.default_rng(seed)
    if kind == "equal":
        return np.full(size, rng.normal(), dtype)
    if kind == "near":
        return (1 + 1e-6 * rng.random(size)).astype(dtype)
    return (rng.normal(size=size) * 10.0 ** rng.integers(-3, 3)).astype(dtype)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 2, 7, 64, 3000]),
    kind=st.sampled_from(["equal", "near", "spread"]),
    wide=st.booleans(),
    curvature=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    coupling=st.sampled_from([0.0, 1e-3, 0.5, 1.0]),
)
def test_the_projection_is_that_of_a_sort(seed, size, kind, wide, curvature, coupling):
    dtype = np.dtype(np.float64 if wide else np.float32)
    raw = entries(seed, size, kind, dtype)
    mu = raw.astype(np.longdouble) / dtype.type(curvature)
    expected = np.maximum(mu - threshold(mu, np.longdouble(dtype.type(coupling))), 0)
    got = raw.copy()
    total = projected(got, dtype.type(curvature), dtype.type(coupling))
    # An error of theta is one of each entry: relative to the largest there are, and to their number.
    tol = 64 * float(np.finfo(dtype).eps) * max(1.0, float(abs(mu).max()))
    assert total == pytest.approx(got.astype(np.float64).sum(), rel=1e-5)
    np.testing.assert_allclose(got, expected.astype(np.float64), atol=tol)
    assert got.min() >= 0
    assert total <= 1 + 1e-6


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 2, 7, 64, 3000]),
    kind=st.sampled_from(["equal", "near", "spread"]),
    wide=st.booleans(),
    gamma=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
)
def test_the_smoothed_largest_entry_is_the_maximum_over_the_simplex(seed, size, kind, wide, gamma):
    dtype = np.dtype(np.float64 if wide else np.float32)
    v = np.maximum(entries(seed, size, kind, dtype), 0)
    top = v.max()
    if top <= 0:
        return
    exact, g = v.astype(np.longdouble), np.longdouble(dtype.type(gamma))
    p = np.maximum(exact / g - threshold(exact / g, np.longdouble(0)), 0)
    expected = float(p @ exact - g * (p @ p) / 2)
    got = smoothed(v - top, top, dtype.type(gamma))
    assert got == pytest.approx(expected, rel=200 * float(np.finfo(dtype).eps))
    assert got <= float(top) * (1 + 1e-6)

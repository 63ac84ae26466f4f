"""The vector mathematics: close to NumPy's and SciPy's over the whole range, saturating beyond it."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy.special import wrightomega

from manyclass.kernels import vmath


@numba.njit
def _exp(x, out):
    for i in range(x.size):
        out[i] = vmath.exp(x[i])


@numba.njit
def _log(x, out):
    for i in range(x.size):
        out[i] = vmath.log(x[i])


@numba.njit
def _wright_omega(x, out):
    for i in range(x.size):
        out[i] = vmath.wright_omega(x[i])


@numba.njit
def _wright_omega_below(x, out):
    for i in range(x.size):
        out[i] = vmath.wright_omega_below(x[i])


@numba.njit
def _highest(x):
    return vmath.highest(x)


def applied(kernel, x):
    out = np.empty_like(x)
    kernel(x, out)
    return out


def ulps(got, expected):
    """The error in units in the last place of ``got``'s type; ``expected`` is more precise."""
    return np.abs(got.astype(np.longdouble) - expected) / np.spacing(np.abs(expected.astype(got.dtype)))


#: Where exp saturates.
LIMIT = {np.float32: 87.0, np.float64: 700.0}


def test_exp_is_within_two_units_in_the_last_place(dtype):
    limit = LIMIT[dtype]
    x = np.concatenate([np.linspace(-limit, limit, 200_001), np.linspace(-1, 1, 100_001), [0.0, -0.0, 1e-30]])
    x = x.astype(dtype)
    assert ulps(applied(_exp, x), np.exp(x.astype(np.longdouble))).max() <= 2


def test_exp_saturates_where_it_would_overflow_or_vanish(dtype):
    limit = LIMIT[dtype]
    beyond = np.array([limit, limit + 1, 1e4, np.finfo(dtype).max], dtype)
    with np.errstate(over="ignore"):
        high, low = applied(_exp, beyond), applied(_exp, -beyond)
    assert np.isfinite(high).all()
    assert (high == high[0]).all()
    assert (low >= np.finfo(dtype).tiny).all()
    assert (low == low[0]).all()


def test_exp_of_zero_is_one(dtype):
    assert (applied(_exp, np.array([0.0, -0.0], dtype)) == 1).all()


def test_exp_rises(dtype):
    x = np.linspace(-2, 2, 10_001).astype(dtype)
    assert (np.diff(applied(_exp, x)) >= -2 * np.finfo(dtype).eps * np.exp(2)).all()


def test_log_is_within_two_units_in_the_last_place(dtype):
    tiny, huge = np.finfo(dtype).tiny, np.finfo(dtype).max
    wide = np.exp(np.linspace(np.log(tiny) * (1 - 1e-6), np.log(huge) * (1 - 1e-6), 200_001))
    near_one = 1 + np.concatenate([np.linspace(-0.4, 0.6, 100_001), np.logspace(-7, -1, 1000)])
    x = np.concatenate([wide, near_one, [tiny, huge]]).astype(dtype)
    assert ulps(applied(_log, x), np.log(x.astype(np.longdouble))).max() <= 2
    assert applied(_log, np.ones(1, dtype))[0] == 0


def test_wright_omega_equals_scipys(dtype):
    z = np.concatenate([np.linspace(-LIMIT[dtype], 50, 200_001), np.logspace(1, 15, 1001), [0.0, 1.0]]).astype(dtype)
    expected = wrightomega(z.astype(np.float64))
    error = np.abs(applied(_wright_omega, z) / expected - 1)
    # w is nearly e^z where z is negative: its relative error is then the absolute error of z - log w.
    rounding = {np.float32: 4e-6, np.float64: 1e-15}[dtype] + 2 * np.finfo(dtype).eps * np.abs(z) / (1 + expected)
    assert (error <= rounding).all()


def test_wright_omega_vanishes_below_its_range(dtype):
    w = applied(_wright_omega, np.array([-LIMIT[dtype] - 1, -1e3, -1e4, -1e5], dtype))
    assert ((w >= 0) & (w <= 1e-30)).all()


def test_wright_omega_solves_its_equation():
    z = np.linspace(-30.0, 1000.0, 20_001)
    w = applied(_wright_omega, z)
    np.testing.assert_allclose(w + np.log(w), z, rtol=4e-15, atol=4e-15)


def test_wright_omega_below_equals_wright_omega(dtype):
    z = np.concatenate([np.linspace(-LIMIT[dtype], 0, 200_001), -np.logspace(-30, 1, 1001)]).astype(dtype)
    expected = wrightomega(z.astype(np.float64))
    error = np.abs(applied(_wright_omega_below, z) / expected - 1)
    rounding = {np.float32: 5e-7, np.float64: 1e-15}[dtype] + 2 * np.finfo(dtype).eps * np.abs(z) / (1 + expected)
    assert (error <= rounding).all()


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_highest_is_the_maximum(dtype, n):
    rng = np.random.default_rng(n)
    for scale in (1e-30, 1.0, 1e30):
        for shift in (-4, 0, 4):
            x = (scale * (rng.normal(size=n) + shift)).astype(dtype)
            assert _highest(x) == x.max()
    assert _highest(np.full(n, -0.0, dtype)) == 0.0
    assert _highest(np.full(n, -np.inf, dtype)) == -np.inf
    x[n // 2] = np.inf
    assert _highest(x) == np.inf

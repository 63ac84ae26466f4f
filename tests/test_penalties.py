"""Properties of the penalties: value, conjugate and primal weight belong to one 1-strongly convex function."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from helpers import cast, g
from manyclass.kernels.operations import conjugate_term, primal, prox, value_term
from manyclass.objective.penalties import L1
from registry import PENALTIES


@numba.njit
def _terms(reg, v):
    w = np.empty_like(v)
    value, conjugate = np.empty(v.size), np.empty(v.size)
    for i in range(v.size):
        w[i] = primal(reg, v[i])
        value[i] = value_term(reg, v[i])
        conjugate[i] = conjugate_term(reg, v[i])
    return w, value, conjugate


def terms(reg, v, dtype=np.float64):
    """``grad g*(v)``, ``g(v)``, ``g*(v)``, entry by entry."""
    return _terms(cast(reg, dtype), v.astype(dtype))


@pytest.fixture
def v(reg):
    """Numbers of all sizes, the threshold, its neighbors and zeros of both signs among them."""
    edge = getattr(reg, "threshold", 1.0)
    rng = np.random.default_rng(0)
    wide = rng.normal(size=60) * 10.0 ** rng.uniform(-6, 6, 60)
    exact = [0.0, -0.0, edge, -edge, np.nextafter(edge, 9), np.nextafter(-edge, -9)]
    return np.concatenate([rng.normal(size=60) * 2, wide, exact])


def test_value_equals_its_definition(reg, v, dtype):
    v = v.astype(dtype)
    expected = [g(cast(reg, dtype), np.array([x], np.float64)) for x in v]
    np.testing.assert_allclose(terms(reg, v, dtype)[1], expected, rtol=1e-14)


def test_conjugate_and_primal_equal_numeric_maximization(reg, v):
    w, _, conjugate = terms(reg, v)
    for x, weight, value in zip(v, w, conjugate):
        # g grows like w^2 / 2: the maximum is between 0 and x.
        found = minimize_scalar(
            lambda u, x=x: g(reg, np.array([u])) - x * u,
            bounds=(min(x, 0) - 1, max(x, 0) + 1),
            method="bounded",
            options={"xatol": 1e-10 * max(1, abs(x))},
        )
        assert value == pytest.approx(-found.fun, rel=1e-9, abs=1e-9)
        assert weight == pytest.approx(found.x, rel=1e-6, abs=1e-6)


def test_fenchel_young(reg, v):
    """g(w) + g*(v) >= w v for all w and v, with equality at w = grad g*(v)."""
    w, _, conjugate = terms(reg, v)
    value = terms(reg, v)[1]
    gap = value[:, None] + conjugate[None, :] - v[:, None] * v[None, :]
    assert (gap >= -1e-14 * (1 + np.abs(v[:, None] * v[None, :]))).all()
    np.testing.assert_allclose(terms(reg, w)[1] + conjugate, w * v, rtol=1e-12, atol=1e-14)


def test_primal_is_the_prox_of_what_l2_leaves(reg, v):
    """grad g*(v) minimizes ||w - v||^2 / 2 + (g - ||.||^2 / 2)(w): no w near or far does better."""
    w = terms(reg, v)[0]

    def cost(u):
        return 0.5 * (u - v) ** 2 + terms(reg, u)[1] - 0.5 * u**2

    for other in (w * 0.99, w * 1.01, w + 1e-3, w - 1e-3, np.zeros_like(v), v):
        assert (cost(w) <= cost(other) + 1e-14 * (1 + v**2)).all()


def test_primal_is_monotone_and_never_stretches(reg, v):
    """1-strong convexity of g: 0 <= (w - w')(v - v') and |w - w'| <= |v - v'|."""
    w = terms(reg, v)[0]
    dv, dw = v[:, None] - v[None, :], w[:, None] - w[None, :]
    assert (dv * dw >= 0).all()
    assert (np.abs(dw) <= np.abs(dv) * (1 + 1e-15)).all()


def test_float32_is_near_float64(reg, v):
    v = v.astype(np.float32)
    for one, two in zip(terms(reg, v, np.float32), terms(reg, v, np.float64)):
        np.testing.assert_allclose(one, two, rtol=3e-6, atol=3e-7 * getattr(reg, "threshold", 0) * np.abs(v).max())


def test_elastic_net_without_threshold_is_l2(reg, v):
    if getattr(reg, "threshold", 0.0) == 0:
        np.testing.assert_array_equal(terms(reg, v)[0], v)


@numba.njit
def _prox(reg, z, step):
    u = np.empty_like(z)
    for i in range(z.size):
        u[i] = prox(reg, z[i], step)
    return u


@pytest.mark.parametrize("step", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("with_prox", [*PENALTIES.values(), L1()], ids=[*PENALTIES, "l1"])
def test_prox_minimizes(with_prox, step):
    """No u near or far of prox(z) has a lower ``step g(u) + (u - z)^2 / 2``."""
    z = np.concatenate([np.random.default_rng(0).normal(size=50) * 3, [0.0, step, -step, 50.0]])
    u = _prox(with_prox, z, step)
    size = np.abs if isinstance(with_prox, L1) else np.vectorize(lambda w: g(with_prox, np.array([w])))

    def cost(w):
        return step * size(w) + 0.5 * (w - z) ** 2

    for other in (u * 0.99, u * 1.01, u + 1e-3, u - 1e-3, np.zeros_like(z), z):
        assert (cost(u) <= cost(other) + 1e-12 * (1 + z**2)).all()
    single = _prox(cast(with_prox, np.float32), z.astype(np.float32), np.float32(step))
    np.testing.assert_allclose(single, u, rtol=1e-5, atol=1e-5 * (1 + step * 3))

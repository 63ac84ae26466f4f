"""Projections against brute force; learned links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize

from manyclass.objective.links.calibrated import BASES, Calibration, expand
from manyclass.objective.links.projection import onto_box, onto_simplex
from manyclass.solvers.least_squares.calibrated import fit_calibration


def nearest_on_simplex(v):
    """By trying every support: the projection is v less a constant on the right one.

    Shifted, and without ||v||^2, which is the same for all: distances of huge entries would hide small ones.
    """
    best, least = None, np.inf
    v = v - v.max()
    for bits in range(1, 2 ** len(v)):
        support = np.array([bits >> k & 1 for k in range(len(v))], bool)
        p = np.where(support, v - (v[support].sum() - 1) / support.sum(), 0.0)
        distance = p @ p - 2 * p @ v
        if (p >= 0).all() and distance < least:
            best, least = p, distance
    return best


@given(
    st.lists(
        st.one_of(st.floats(-3, 3), st.integers(-2, 2).map(float), st.sampled_from([1e4, -1e4])), min_size=1, max_size=6
    )
)
def test_the_simplex_projection_is_the_nearest_point(values):
    v = np.array(values)
    found = onto_simplex(v)
    np.testing.assert_allclose(found, nearest_on_simplex(v), atol=1e-11)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert (found >= 0).all()


def test_against_a_general_solver():
    rng = np.random.default_rng(0)
    for v in rng.normal(size=(5, 7)) * 2:
        general = minimize(
            lambda p, v=v: ((p - v) ** 2).sum(),
            np.full(7, 1 / 7),
            jac=lambda p, v=v: 2 * (p - v),
            bounds=[(0, None)] * 7,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(7)},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(onto_simplex(v), general.x, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_shapes_and_precision(dtype):
    rng = np.random.default_rng(1)
    V = rng.normal(size=(10_000, 9)).astype(dtype)
    found = onto_simplex(V)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=20 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(found[123], onto_simplex(V[123]))
    np.testing.assert_array_equal(onto_simplex(found), np.maximum(onto_simplex(found), 0))
    np.testing.assert_allclose(onto_simplex(found), found, atol=5 * np.finfo(dtype).eps)  # a projection
    huge = onto_simplex(V + dtype(1e6))  # a common shift changes nothing but the digits that the input has lost
    np.testing.assert_allclose(huge, onto_simplex((V + dtype(1e6)) - dtype(1e6)), atol=1e-6)
    strided = np.asfortranarray(V)
    np.testing.assert_array_equal(onto_simplex(strided, out=strided), found)
    assert onto_simplex(V.reshape(100, 100, 9)).shape == (100, 100, 9)


def test_projections_refuse():
    for bad in ([[np.nan, 0.0]], [[np.inf, 0.0]], [[-np.inf, -np.inf]]):
        with pytest.raises(ValueError, match="finite maximum"):
            onto_simplex(bad)
    with pytest.raises(ValueError, match="at least one class"):
        onto_simplex(np.zeros((3, 0)))
    np.testing.assert_array_equal(onto_simplex([[-np.inf, 0.0, 0.0]]), [[0, 0.5, 0.5]])
    np.testing.assert_array_equal(onto_box([[-2.0, 0.25, 9.0]]), [[0, 0.25, 1]])
    with pytest.raises(ValueError, match="NaN"):
        onto_box([[np.nan]])


@pytest.mark.parametrize("basis", [*BASES, lambda s: np.hstack([s, np.sin(s)])])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_calibration_is_the_least_squares_fit(basis, weighted):
    rng = np.random.default_rng(2)
    scores, targets = rng.normal(size=(200, 3)), rng.normal(size=(200, 3))
    weights = rng.choice([0.0, 1.0, 2.0], 200) if weighted else None
    found = fit_calibration(basis, scores, targets, weights, domain=None)
    root = np.ones(200) if weights is None else np.sqrt(weights)
    G = expand(basis, scores)
    expected = np.linalg.lstsq(G * root[:, None], targets * root[:, None], rcond=None)[0]
    np.testing.assert_allclose(found.coefficients, expected, atol=1e-9)
    np.testing.assert_allclose(found(scores), G @ expected, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_that_depend_on_each_other(dtype):
    """They sum to one with the constant: some coefficients stay zero, and predictions are the least-squares ones."""
    rng = np.random.default_rng(3)
    scores = onto_simplex(rng.normal(size=(300, 4))).astype(dtype)
    targets = np.eye(4)[rng.integers(0, 4, 300)].astype(dtype)
    found = fit_calibration("cubic", scores, targets, domain=None)
    G = expand("cubic", scores.astype(np.float64))
    best = G @ np.linalg.lstsq(G, targets, rcond=1e-6)[0]
    np.testing.assert_allclose(found(scores), best, atol=1e-8 if dtype == np.float64 else 2e-3)
    assert np.abs(found.coefficients).max() < 1e3


def test_domains_and_states():
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(50, 3))
    for domain, check in (
        ("simplex", lambda p: (p >= 0).all() and np.allclose(p.sum(1), 1)),
        ("box", lambda p: (p >= 0).all() and (p <= 1).all()),
        (None, lambda p: p.min() < 0),
    ):
        calibration = Calibration("cubic", rng.normal(size=(10, 3)), domain)
        predictions = calibration(scores)
        assert check(predictions)
        again = Calibration.from_state(*calibration.to_state())
        np.testing.assert_array_equal(again(scores), predictions)
        inplace = scores.copy()
        assert calibration(inplace, out=inplace) is inplace
        np.testing.assert_array_equal(inplace, predictions)


def test_calibrations_refuse():
    eye = np.vstack([np.zeros(2), np.eye(2)])
    with pytest.raises(ValueError, match="basis must be one of 'linear'"):
        Calibration("quartic", eye)
    with pytest.raises(ValueError, match="domain must be"):
        Calibration("linear", eye, "ball")
    with pytest.raises(ValueError, match="must have 7 rows, got 3"):
        Calibration("cubic", eye)
    with pytest.raises(ValueError, match="finite"):
        Calibration("linear", eye * np.nan)
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        Calibration("linear", eye)(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="calibrated scores must be finite"):
        Calibration("cubic", np.ones((7, 2)))(np.full((1, 2), 1e200))
    with pytest.raises(ValueError, match="one row of numbers"):
        Calibration(lambda s: s.sum(), eye, None)(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="cannot be saved to a file"):
        Calibration(np.tanh, np.eye(2), None).to_state()
    with pytest.raises(ValueError, match="needs domain, coefficients"):
        Calibration.from_state({"basis": "linear"}, {})
    with pytest.raises(ValueError, match="basis must be one of"):
        Calibration.from_state({"basis": 3, "domain": None}, {"coefficients": eye})

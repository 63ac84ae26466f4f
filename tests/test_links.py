"""Links: equal to their definitions, safe at any score, in place on request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from manyclass.objective.links import LINKS, identity, normalized_sigmoid, sigmoid, softmax

#: name -> link, its definition in float64, whether rows sum to one.
CASES = {
    "identity": (identity, lambda s: s, False),
    "sigmoid": (sigmoid, special.expit, False),
    "softmax": (softmax, lambda s: special.softmax(s, axis=-1), True),
    "normalized_sigmoid": (
        normalized_sigmoid,
        lambda s: special.softmax(special.log_expit(s), axis=-1),
        True,
    ),
}


@pytest.fixture(params=CASES, scope="module")
def link(request):
    """A link, its definition, and whether its rows sum to one."""
    return CASES[request.param]


def scores_of(dtype):
    width = np.dtype(dtype).itemsize * 8
    return hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6),
        elements=st.one_of(
            st.sampled_from([1e4, -1e4, 0.0, -0.0, 88.0, -745.0]),
            st.floats(-1e30, 1e30, width=width) if width == 64 else st.floats(-(2.0**100), 2.0**100, width=32),
        ),
    )


@given(data=st.data())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_its_definition(link, dtype, data):
    function, formula, sums_to_one = link
    scores = data.draw(scores_of(dtype))
    kept = scores.copy()
    found = function(scores)
    assert found.dtype == dtype
    assert found.shape == scores.shape
    np.testing.assert_array_equal(scores, kept)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, formula(scores.astype(np.float64)), rtol=200 * eps, atol=np.finfo(dtype).tiny)
    if sums_to_one:
        np.testing.assert_allclose(found.sum(axis=-1, dtype=np.float64), 1, rtol=4 * eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_in_place_gives_the_same_bits(link, dtype, order):
    function, _, _ = link
    scores = np.asarray(np.random.default_rng(0).normal(size=(5, 7)) * 10, dtype, order=order)
    expected = function(scores.copy(order=order))
    assert function(scores, out=scores) is scores
    np.testing.assert_array_equal(scores, expected)


def test_the_names_of_a_model_file():
    assert sorted(LINKS.items()) == [("identity", identity), ("sigmoid", sigmoid), ("softmax", softmax)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_classes_sum_to_one(dtype):
    scores = np.random.default_rng(0).normal(size=(2, 10**6)).astype(dtype)
    for function in (softmax, normalized_sigmoid):
        total = function(scores).sum(axis=1, dtype=np.float64)
        np.testing.assert_allclose(total, 1, rtol=16 * np.finfo(dtype).eps)


def test_sigmoids_too_small_for_a_number_are_still_normalized():
    found = normalized_sigmoid(np.array([[-1e4, -1e4, -1e4 - 1]]))
    np.testing.assert_allclose(found, special.softmax([[0.0, 0.0, -1.0]], axis=1))


def test_normalized_as_one_vs_rest_is():
    scores = np.random.default_rng(1).normal(size=(20, 4)) * 3
    plain = special.expit(scores)
    np.testing.assert_allclose(normalized_sigmoid(scores), plain / plain.sum(axis=1, keepdims=True), rtol=1e-13)


def test_infinite_scores():
    np.testing.assert_array_equal(sigmoid([np.inf, -np.inf, 0]), [1, 0, 0.5])
    np.testing.assert_array_equal(softmax([[-np.inf, 1.0, -np.inf]]), [[0, 1, 0]])
    np.testing.assert_array_equal(normalized_sigmoid([[np.inf, -np.inf, np.inf]]), [[0.5, 0, 0.5]])
    for row in ([np.inf, 0.0], [-np.inf, -np.inf]):
        with pytest.raises(ValueError, match="finite maximum in each row"):
            softmax([row, row])
    with pytest.raises(ValueError, match="finite maximum in each row"):
        normalized_sigmoid([[-np.inf, -np.inf]])


@pytest.mark.parametrize("function", [sigmoid, softmax, normalized_sigmoid])
def test_nan_is_refused(function):
    with pytest.raises(ValueError, match="NaN"):
        function([[0.0, np.nan], [0.0, 1.0]])


def test_what_is_no_score_is_refused(link):
    function, _, _ = link
    for bad in (1.0, ["a"], [1j], np.array([None])):
        with pytest.raises(ValueError, match="scores must be an array of real numbers"):
            function(bad)
    assert function([[1, 2]]).dtype == np.float64


def test_a_softmax_over_no_class_is_refused():
    with pytest.raises(ValueError, match="at least one class"):
        softmax(np.zeros((2, 0)))
    assert softmax(np.zeros((0, 2))).shape == (0, 2)
    assert sigmoid(np.zeros((2, 0))).shape == (2, 0)


def test_an_out_that_does_not_fit_is_refused(link):
    function, _, _ = link
    scores = np.zeros((2, 3))
    frozen = np.zeros((2, 3))
    frozen.flags.writeable = False
    for bad in (np.zeros((3, 2)), np.zeros((2, 3), np.float32), frozen):
        with pytest.raises(ValueError, match="out must be a writable float64 array"):
            function(scores, out=bad)

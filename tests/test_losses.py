"""Properties of the losses: value, gradient, conjugate and dual step belong to one convex function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import linprog, minimize

from helpers import evaluate, exact_shares, infeasibility, random_duals, random_scores, random_targets, step
from manyclass.objective.losses import CLASSIFICATION, CrammerSingerLoss
from registry import DECLARED, LOSSES, WRITTEN

EPS64 = np.finfo(np.float64).eps


def examples(case, n, K, seed=0):
    """Scores of all sizes, targets and feasible duals: n of each, as triples."""
    rng = np.random.default_rng(seed)
    T = random_targets(case.loss.targets, n, K, rng)
    return list(zip(random_scores(n, K, rng), T, random_duals(case.formula, T, K, rng)))


def size(*arrays, floor=1.0):
    """The largest number in sight: what rounding errors are measured by."""
    return max(floor, *(float(np.abs(a).max()) for a in arrays))


def held(case, t, K):
    """The entries over which phi* is strongly convex."""
    return np.arange(K) != t if case.curved == "rivals" else np.ones(K, bool)


# --- declared losses ------------------------------------------------------------------------------------------------


def test_every_declared_loss_is_under_test():
    """In its form for two classes too, with every value of its parameters that is written for its tests."""
    compiled = [case.loss for case in LOSSES.values()]
    assert WRITTEN.keys() == DECLARED.keys()
    for name, loss in DECLARED.items():
        for values in WRITTEN[name].values:
            assert loss(**values).compiled() in compiled
            assert loss(**values).compiled(binary=True) in compiled
        if name in CLASSIFICATION and loss().compiled_soft() is not None:
            assert loss().compiled_soft() in compiled


def test_messages_name_compiled_losses_as_users_do():
    for name, loss in DECLARED.items():
        for values in WRITTEN[name].values:
            plain = name == "smooth_hinge" and not values["gamma"]
            assert loss(**values).compiled().name == ("hinge" if plain else name)


@pytest.mark.parametrize("name", [name for name, loss in CLASSIFICATION.items() if loss.joint])
def test_two_classes_are_one_margin(name):
    """A joint loss of two scores is its binary form of their difference."""
    for values in WRITTEN[name].values:
        joint, binary = (CLASSIFICATION[name](**values).compiled(binary=form) for form in (False, True))
        assert binary.targets == "sign"
        for s in random_scores(60, 2, np.random.default_rng(13)):
            for t in (0, 1):
                pair = evaluate(joint, s, t)
                margin = evaluate(binary, s[1:] - s[:1], np.array([2.0 * t - 1.0]))
                assert margin.value == pytest.approx(pair.value, rel=1e-13, abs=1e-13 * size(s))
                np.testing.assert_allclose(margin.gradient, pair.gradient[1:], rtol=1e-11, atol=1e-13 * size(s))


@pytest.mark.parametrize(
    ("name", "values"), [(name, values) for name in DECLARED for values in WRITTEN[name].values if values]
)
def test_parameters_of_a_loss_are_checked(name, values):
    DECLARED[name](**values).check()
    for parameter in values:
        for wrong in (-1.0, float("nan"), "small"):
            with pytest.raises(ValueError, match=f"The '{parameter}' parameter of {DECLARED[name].__name__} must be"):
                DECLARED[name](**{**values, parameter: wrong}).check()


# --- value and gradient ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 5, 300])
def test_value_and_gradient_equal_the_formulas(case, dtype, K):
    eps = np.finfo(dtype).eps
    for s, t, _ in examples(case, 30, K):
        s = s.astype(dtype)
        t = t if np.ndim(t) == 0 else t.astype(dtype).astype(np.float64)
        value, gradient = (part[0] for part in case.formula(s[None].astype(np.float64), np.array([t])))
        found = evaluate(case.loss, s, t)
        # A rounding error of the scores may cross a kink or the width gamma.
        sharp = size(s, t) / (case.loss.smoothness or 1)
        assert abs(found.value - value) <= 30 * eps * (abs(value) + size(s, t)) * (1 + np.abs(gradient).sum())
        if case.loss.smoothness or np.unique(s).size == K:
            np.testing.assert_allclose(found.gradient, gradient, rtol=30 * eps, atol=30 * eps * sharp)


def test_gradient_equals_finite_differences(case):
    K, h = 4, 1e-6
    for s, t, _ in examples(case, 60, K, seed=1):
        if np.abs(s).max() > 100 or (s == np.round(s)).all():  # too large for h; on a kink
            continue
        shifts = h * np.eye(K)
        differences = [
            (evaluate(case.loss, s + e, t).value - evaluate(case.loss, s - e, t).value) / (2 * h) for e in shifts
        ]
        np.testing.assert_allclose(evaluate(case.loss, s, t).gradient, differences, rtol=1e-6, atol=1e-4)


def test_value_lies_above_every_tangent(case):
    """Convexity; at a kink, that the gradient is a subgradient."""
    rng = np.random.default_rng(2)
    for s, t, _ in examples(case, 60, 4, seed=2):
        here = evaluate(case.loss, s, t)
        for other in (s + rng.normal(size=4), s * 1.5, np.zeros(4), np.round(s)):
            there = evaluate(case.loss, other, t)
            rounding = 1e-14 * size(s, other, t) ** 2
            assert there.value >= here.value + here.gradient @ (other - s) - rounding


def test_gradient_is_as_smooth_as_the_loss_says(case):
    """(grad phi(s) - grad phi(s')).(s - s') >= gamma ||grad phi(s) - grad phi(s')||^2 over the curved entries.

    Where these are all entries, this is ||grad phi(s) - grad phi(s')|| <= ||s - s'|| / gamma.
    """
    rng = np.random.default_rng(3)
    gamma, tightest = case.loss.smoothness, 0.0
    for s, t, _ in examples(case, 300, 3, seed=3):
        s = np.clip(s, -3, 3)
        for other in (s + rng.normal(size=3), s + 1e-3 * rng.normal(size=3)):
            change = evaluate(case.loss, s, t).gradient - evaluate(case.loss, other, t).gradient
            squares = gamma * (change[held(case, t, 3)] ** 2).sum()
            assert change @ (s - other) >= squares - 1e-14
            tightest = max(tightest, squares / max(change @ (s - other), 1e-14))
    # No larger gamma would do as well: the constant is not merely safe.
    assert gamma == 0 or tightest > 0.6


def test_values_stay_finite_for_huge_scores(case, dtype):
    for scale in (1e4, 1e6):
        for s, t, _ in examples(case, 12, 5, seed=4):
            found = evaluate(case.loss, (s / size(s) * scale).astype(dtype), t)
            assert np.isfinite(found.value)
            assert np.isfinite(found.gradient).all()


# --- conjugate ------------------------------------------------------------------------------------------------------


def fenchel_young(case, s, t, a):
    """phi(s) + phi*(-a) + s.a, the conjugate taken in float64."""
    return evaluate(case.loss, s, t).value + evaluate(case.loss, a, t, a).conjugate + s @ a


@pytest.mark.parametrize("K", [1, 2, 5, 300])
def test_fenchel_young_inequality(case, K):
    for s, t, a in examples(case, 60, K, seed=5):
        assert fenchel_young(case, s, t, a) >= -50 * EPS64 * size(s, a, t) * (1 + np.abs(a).sum())


@pytest.mark.parametrize("K", [1, 2, 5, 300])
def test_fenchel_young_equality_at_the_gradient(case, dtype, K):
    for s, t, _ in examples(case, 60, K, seed=6):
        s = s.astype(dtype).astype(np.float64)
        t = t if np.ndim(t) == 0 else t.astype(dtype).astype(np.float64)
        a = -evaluate(case.loss, s.astype(dtype), t).gradient.astype(np.float64)
        rounding = 50 * np.finfo(dtype).eps * size(s, a, t) * (1 + np.abs(a).sum())
        assert abs(fenchel_young(case, s, t, a)) <= rounding


def numeric_conjugate(case, a, t):
    """sup_s -s.a - phi(s), searched for."""
    K = len(a)
    if isinstance(case.loss, CrammerSingerLoss) and case.loss.gamma == 0:
        # The largest violation as a linear program: xi >= 0, xi >= c_yj + s_j - s_y.
        costs = case.loss.costs
        rivals = [k for k in range(K) if k != t]
        rows = np.zeros((K - 1, K + 1))
        rows[range(K - 1), rivals] = 1
        rows[:, t], rows[:, K] = -1, -1
        bounds = [(None, None)] * K + [(0, None)]
        margins = costs[min(t, len(costs) - 1), rivals] if len(costs) else np.ones(K - 1)
        return -linprog(np.append(a, 1.0), A_ub=rows, b_ub=-margins, bounds=bounds).fun

    def below(s):
        value, gradient = case.formula(s[None], np.array([t]))
        return float(value[0] + s @ a), gradient[0] + a

    starts = (np.zeros(K), t * np.ones(K) if case.loss.targets != "class" else 0.1 * np.arange(K))
    smooth = case.loss.smoothness > 0
    found = [
        minimize(below, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        if smooth
        else minimize(lambda s: below(s)[0], start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
        for start in starts
    ]
    return -min(result.fun for result in found)


@pytest.mark.parametrize("K", [2, 3])
def test_conjugate_equals_numeric_maximization(case, K):
    for _, t, a in examples(case, 12, K, seed=7):
        assert evaluate(case.loss, a, t, a).conjugate == pytest.approx(numeric_conjugate(case, a, t), abs=2e-5)


# --- dual step ------------------------------------------------------------------------------------------------------


def rise(case, s, a, t, q, b):
    """What the dual gains on this example when ``a`` becomes ``b``."""
    move = b - a
    fall = evaluate(case.loss, b, t, b).conjugate - evaluate(case.loss, a, t, a).conjugate
    return -fall - s @ move - 0.5 * q * (move @ move)


def check_step(case, s, t, a, q, dtype):
    """The step is feasible, optimal and never lowers the dual, all up to rounding. Returns it."""
    s, a, t = s.astype(dtype), a.astype(dtype), t if np.ndim(t) == 0 else t.astype(dtype)
    b = step(case.loss, s, t, a, q).astype(np.float64)
    assert np.isfinite(b).all()
    eps = np.finfo(dtype).eps
    assert infeasibility(case.domain, b, t) <= 4 * eps * len(s)
    s, a, t = s.astype(np.float64), a.astype(np.float64), t if np.ndim(t) == 0 else t.astype(np.float64)
    q = float(dtype(q))
    exact = b if dtype is np.float64 else step(case.loss, s, t, a, q)
    # max_b of the rise is min_u phi(u) + phi*(-a) + u.a + ||u - s||^2 / (2q); at u = s + q (b - a) the two differ by
    # the Fenchel-Young gap of (u, b), which is therefore a bound on what the step has left undone.
    u = s + q * (exact - a)
    length = np.abs(a).sum() + np.abs(exact).sum() + np.abs(evaluate(case.loss, u, t).gradient).sum()
    assert fenchel_young(case, u, t, exact) <= (40 + len(s)) * EPS64 * size(s, t, q * a, q * exact) * (length + 0.1)
    # Near its maximum the rise is flat: rounding errors of b, at worst K of them in a sum, cost their squares. Where q
    # is large, float32 may leave a twentieth of the rise to the next step; its exp saturates at 1e-38 (times 1/q).
    lost = 40 * eps * size(s, t) * length + q * (40 * len(s) * eps * size(a, b, floor=0.0)) ** 2
    lost += 1e-20 * size(s, t) ** 2
    assert rise(case, s, a, t, q, b) >= max(0.0, 0.95 * rise(case, s, a, t, q, exact)) - lost
    return b


QS = [0.0, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e6]


@pytest.mark.parametrize("K", [1, 2, 3, 10, 300])
def test_dual_step_is_optimal(case, dtype, K):
    for q in QS:
        for s, t, a in examples(case, 15, K, seed=8):
            check_step(case, s, t, a, q, dtype)


@pytest.mark.parametrize("K", [2, 3])
def test_dual_step_beats_brute_force(case, K):
    rng = np.random.default_rng(9)
    for q in (0.0, 0.05, 1.0, 20.0):
        for s, t, a in examples(case, 6, K, seed=9):
            s = np.clip(s, -20, 20)
            best = rise(case, s, a, t, q, step(case.loss, s, t, a, q))
            samples = random_duals(case.formula, np.repeat(np.asarray(t)[None], 100, axis=0), K, rng)
            for b in samples:
                # The rise is concave: on the segment from a, the brute force's own best place.
                assert best >= max(rise(case, s, a, t, q, a + x * (b - a)) for x in (0.1, 0.5, 1.0)) - 1e-9


@pytest.mark.parametrize("K", [2, 20])
def test_dual_step_stays_at_the_optimum(case, K):
    """At a = -grad phi(s) there is nothing to gain, whatever q."""
    for s, t, _ in examples(case, 30, K, seed=10):
        a = -evaluate(case.loss, s, t).gradient
        for q in (0.1, 10.0):
            b = check_step(case, s, t, a, q, np.float64)
            np.testing.assert_allclose(b, a, atol=1e-6 * size(a))


def test_dual_step_float32_is_near_float64(case):
    for s, t, a in examples(case, 30, 8, seed=11):
        s, a = np.clip(s, -10, 10).astype(np.float32), a.astype(np.float32)
        t = t if np.ndim(t) == 0 else t.astype(np.float32)
        for q in (0.1, 1.0, 10.0):
            one, two = step(case.loss, s, t, a, q), step(case.loss, s.astype(np.float64), t, a, q)
            np.testing.assert_allclose(one, two, atol=3e-5 * size(a, t))


def test_dual_step_of_an_empty_row_reaches_a_corner(case):
    """q = 0: its scores are the intercept, the new dual vector is -grad phi whatever the old one."""
    for s, t, a in examples(case, 20, 4, seed=12):
        b = check_step(case, s, t, a, 0.0, np.float64)
        if case.loss.smoothness:
            np.testing.assert_allclose(b, -evaluate(case.loss, s, t).gradient, atol=1e-13 * size(s, t))


numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-30, 1e4, -1e4, 1 - 1e-16]), st.floats(-1e4, 1e4), st.floats(-2, 2)
)


@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
def test_dual_step_of_odd_inputs(name, data):
    case = LOSSES[name]
    K = data.draw(st.integers(1, 6))
    vector = st.lists(numbers, min_size=K, max_size=K).map(np.array)
    s, source = data.draw(vector), data.draw(vector)
    shares = st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=K, max_size=K)
    t = {
        "class": st.integers(0, K - 1),
        "sign": st.lists(st.sampled_from([-1.0, 1.0]), min_size=K, max_size=K).map(np.array),
        "real": vector,
        "distribution": shares.filter(lambda t: sum(t) > 1e-3).map(exact_shares),
        "probabilities": shares.map(np.array),
    }[case.loss.targets]
    t = data.draw(t)
    a = -case.formula(source[None], np.array([t]))[1][0] * data.draw(st.sampled_from([0.0, 1e-8, 0.5, 1.0]))
    q = data.draw(st.one_of(st.sampled_from(QS), st.floats(1e-6, 1e6)))
    for dtype in (np.float32, np.float64):
        check_step(case, s, t, a, q, dtype)


@pytest.mark.parametrize("K", [10_249, 100_000])
@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0])
def test_ties_of_very_many_classes(dtype, K, gamma):
    # Thousands of equal violations, as at the start of a fit: each rival has 1/(K - 1) of the dual; no NaN comes up.
    s = np.zeros(K, dtype)
    s[7] = dtype(0.83597374)
    found = evaluate(CrammerSingerLoss(gamma), s, 7)
    short = 1.0 - float(s[7])
    bound = min(1.0, short / gamma * (K - 1)) if gamma else 1.0
    assert found.value == pytest.approx(bound * short - 0.5 * gamma * bound**2 / (K - 1), rel=1e-5)
    new = step(CrammerSingerLoss(gamma), s, 7, np.zeros(K, dtype), 0.01)
    assert np.isfinite(new).all()
    assert new[7] == pytest.approx(-np.delete(new, 7).sum(dtype=np.float64), rel=1e-3)
    assert 0.99 < new[7] <= 1.0

"""Options I to V and the samplings of Prox-SDCA."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from helpers import cast, evaluate, infeasibility, make_data, make_problem, random_duals, random_scores, random_targets
from manyclass.kernels.operations import dual_step
from manyclass.objective.losses import OPTIONS, Segment, SmoothHingeLoss
from manyclass.objective.penalties import ElasticNet
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import SDCA
from manyclass.solvers.dual.sdca import SAMPLINGS

SEGMENTS = {"II": 2, "III": 3, "IV": 4, "V": 5}


@numba.njit
def _step(loss, s, a, t, q):
    new = np.full_like(s, np.nan)
    dual_step(loss, s, a, t, q, new)
    return new


def segment_step(case, option, s, t, a, q, radius):
    dtype = s.dtype
    gamma = float(case.loss.smoothness)
    loss = Segment(cast(case.loss, dtype), SEGMENTS[option], gamma, radius)
    return _step(loss, s, a.astype(dtype), int(t) if np.ndim(t) == 0 else np.asarray(t, dtype), dtype.type(q))


def rise(case, s, a, t, q, b):
    move = b - a
    fall = evaluate(case.loss, b, t, b).conjugate - evaluate(case.loss, a, t, a).conjugate
    return -fall - s @ move - 0.5 * q * (move @ move)


def examples(case, n, K, seed):
    rng = np.random.default_rng(seed)
    T = random_targets(case.loss.targets, n, K, rng)
    return zip(np.clip(random_scores(n, K, rng), -30, 30), T, random_duals(case.formula, T, K, rng))


@pytest.mark.parametrize("option", SEGMENTS)
@pytest.mark.parametrize("K", [2, 4, 9])
def test_a_step_is_feasible_and_never_lowers_the_dual(case, option, K):
    for q in (1e-6, 1e-2, 0.3, 5.0, 1e3):
        for s, t, a in examples(case, 12, K, seed=K):
            # IV and V are for a radius of at least q.
            for radius in (q, 3 * q):
                b = segment_step(case, option, s, t, a, q, radius)
                assert infeasibility(case.domain, b, t) <= 1e-14 * K
                size = 1 + np.abs(s).max() + np.abs(t).max() + q * np.abs(b - a).max()
                assert rise(case, s, a, t, q, b) >= -1e-13 * size * (1 + np.abs(a).sum() + np.abs(b).sum())
            single = segment_step(case, option, s.astype(np.float32), t, a.astype(np.float32), q, 3 * q)
            np.testing.assert_allclose(single, b, atol=2e-3 * (1 + np.abs(a).max() + np.abs(b).max()))


@pytest.mark.parametrize("K", [2, 5])
def test_option_two_is_the_best_point_of_the_segment(case, K):
    for q in (1e-2, 1.0, 30.0):
        for s, t, a in examples(case, 8, K, seed=20 + K):
            u = -evaluate(case.loss, s, t).gradient
            b = segment_step(case, "II", s, t, a, q, q)
            # A separable loss has a segment for each of its outputs: the best common one is no better.
            brute = max(rise(case, s, a, t, q, a + x * (u - a)) for x in np.linspace(0, 1, 101))
            assert rise(case, s, a, t, q, b) >= brute - 1e-7 * (1 + abs(brute))


def test_options_are_in_order(case):
    """On one output, or a joint loss, Option II gains at least as much as III, and I as II; III promises a bound."""
    K = 4 if case.loss.joint else 1
    for q in (0.05, 1.0, 20.0):
        for s, t, a in examples(case, 10, K, seed=31):
            gains = [rise(case, s, a, t, q, segment_step(case, option, s, t, a, q, 2 * q)) for option in SEGMENTS]
            slack = 1e-8 * (1 + np.abs(s).max() * (1 + np.abs(a).max()))
            assert gains[0] >= max(gains[1:]) - slack


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_reaches_the_optimum(case, option):
    if not case.loss.smoothness and option in ("IV", "V"):
        pytest.skip("their step is proportional to the smoothness of the loss")
    data = make_data(case.loss.targets, n=50, d=5, K=3, seed=5, weighted=True)
    problem = make_problem(case.loss, data, reg=ElasticNet(0.2), lam=0.1, intercept=True)
    best = minimize(problem, SDCA(), tol=1e-10, max_iter=50_000).certificate.primal
    tol = 1e-4 if case.loss.smoothness else 1e-2
    found = minimize(problem, SDCA(option=option), tol=tol, max_iter=20_000)
    assert found.outcome is Outcome.CONVERGED
    assert best * (1 - 1e-9) <= found.certificate.primal <= best * (1 + 1.01 * tol)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_sampling_reaches_the_optimum(case, sampling):
    data = make_data(case.loss.targets, n=50, d=5, K=3, seed=6, weighted=True)
    problem = make_problem(case.loss, data, lam=0.1, intercept=True)
    best = minimize(problem, SDCA(), tol=1e-10, max_iter=50_000).certificate.primal
    found = minimize(problem, SDCA(sampling=sampling), tol=1e-4, max_iter=20_000)
    assert found.outcome is Outcome.CONVERGED
    assert best * (1 - 1e-9) <= found.certificate.primal <= best * (1 + 1.01e-4)


def test_samplings_draw_what_they_say():
    data = make_data("sign", n=2000, d=4, K=1, seed=7, weighted=True)

    problem = make_problem(SmoothHingeLoss(1.0), data, lam=1e-3)
    counts = {s: np.bincount(SDCA(sampling=s)._order(problem, 0, 0), minlength=2000) for s in SAMPLINGS}
    assert (counts["permutation"] == 1).all()
    assert counts["uniform"].max() > 1
    share = problem.sample_weight * problem.norms + 1e-3 * 2000
    drawn = sum(np.bincount(SDCA(sampling="importance")._order(problem, 0, e), minlength=2000) for e in range(300))
    expected = 300 * 2000 * share / share.sum()
    # Poisson-like counts: five standard deviations over 2000 of them.
    assert (np.abs(drawn - expected) <= 5.5 * np.sqrt(expected) + 1).all()


def test_unknown_names_are_refused_before_any_work(monkeypatch):
    problem = make_problem(SmoothHingeLoss(1.0), make_data("sign", n=10, d=3, K=1))
    monkeypatch.setattr(SDCA, "state", lambda *_: pytest.fail("allocated"))
    with pytest.raises(
        ValueError, match=r"The 'option' parameter of SDCA must be a str among .*'II'.* Got '1' instead"
    ):
        minimize(problem, SDCA(option="1"))
    with pytest.raises(ValueError, match=r"The 'sampling' parameter of SDCA must be a str among .*'permutation'"):
        minimize(problem, SDCA(sampling="cyclic"))

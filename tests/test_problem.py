"""Properties of the problem: both sides of the gap are what the formulas say, and one bounds the other."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import (
    cast,
    evaluate,
    g,
    infeasibility,
    make_data,
    make_problem,
    make_targets,
    objective,
    random_duals,
)
from manyclass.kernels.rows import make_rows
from manyclass.objective.losses import LogisticLoss, MultinomialLoss, SmoothHingeLoss, SquaredLoss
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.objective.problem import Certificate, Problem
from registry import LOSSES

LAM = 0.05
#: Every loss meets each of these: rows, precision, penalty.
SETTINGS = {
    "csr": ("csr", np.float64, L2()),
    "dense": ("dense", np.float64, L2()),
    "float32-elastic_net": ("csr", np.float32, ElasticNet(0.25)),
}


@pytest.fixture(params=SETTINGS)
def setting(request):
    return SETTINGS[request.param]


def random_point(case, data, problem, seed=0):
    """A dual-feasible point, balanced where there is an intercept, its image, and an arbitrary intercept."""
    rng = np.random.default_rng(seed)
    dual = random_duals(case.formula, data.T, data.K, rng).astype(problem.dtype)
    bias = np.zeros(data.K, problem.dtype)
    if problem.intercept:
        problem.balance(dual)
        bias[:] = rng.normal(size=data.K)
    V = np.empty((problem.n_features, data.K), problem.dtype)
    problem.dual_image(dual, V)
    return dual, V, bias


def rates(data):
    """The sample weights, of mean 1."""
    return np.ones(len(data.X)) if data.weights is None else data.weights / data.weights.mean()


# --- both sides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
def test_both_sides_equal_plain_numpy(case, setting, intercept):
    view, dtype, reg = setting
    data = make_data(case.loss.targets, weighted=True, seed=1, dtype=dtype)
    problem = make_problem(case.loss, data, reg=reg, lam=LAM, view=view, dtype=dtype, intercept=intercept)
    dual, V, bias = random_point(case, data, problem)
    c, exact = rates(data), 50 * float(np.finfo(dtype).eps)
    image = data.X.T.astype(np.float64) @ (c[:, None] * dual) / (LAM * len(c))
    np.testing.assert_allclose(V, image, rtol=exact, atol=exact * np.abs(image).max())
    W = np.sign(image) * np.maximum(np.abs(image) - getattr(reg, "threshold", 0.0), 0)
    np.testing.assert_allclose(problem.primal(V), W, rtol=exact, atol=exact * np.abs(image).max())
    conjugates = [evaluate(case.loss, a, t, a).conjugate for a, t in zip(dual.astype(np.float64), data.T)]
    found = problem.certificate(V, bias, dual)
    assert found.primal == pytest.approx(objective(case.formula, data, reg, LAM, W, bias), rel=exact)
    # g*(v) = ||grad g*(v)||^2 / 2 for both penalties.
    assert found.dual == pytest.approx(-(c @ conjugates) / len(c) - LAM * 0.5 * (W**2).sum(), rel=exact, abs=exact)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_dual_is_below_the_primal_wherever_each_is_taken(case, setting, intercept):
    """Weak duality: D at any feasible (balanced) point <= P at any W, b. So P - D >= P - P(optimum)."""
    view, dtype, reg = setting
    data = make_data(case.loss.targets, weighted=True, seed=2, dtype=dtype)
    problem = make_problem(case.loss, data, reg=reg, lam=LAM, view=view, dtype=dtype, intercept=intercept)
    rng = np.random.default_rng(3)
    duals, primals = [], []
    for seed in range(8):
        dual, V, bias = random_point(case, data, problem, seed)
        found = problem.certificate(V, bias, dual)
        duals.append(found.dual)
        W = problem.primal(V).astype(np.float64)
        for scale in (0.0, 0.5, 1.0):
            b = rng.normal(size=data.K) if intercept else 0.0
            primals.append(objective(case.formula, data, reg, LAM, scale * W, b))
        primals.append(found.primal)
    assert max(duals) <= min(primals) + 20 * np.finfo(dtype).eps * max(1.0, min(primals))


def test_relative_gap_is_over_the_larger_side():
    assert Certificate(2.0, 1.0).gap == 1.0
    assert Certificate(2.0, 1.0).relative_gap == 0.5
    assert Certificate(-1.0, -4.0).relative_gap == 0.75
    assert Certificate(0.0, 0.0).relative_gap == 0.0
    assert Certificate(0.0, -1e-15).relative_gap == pytest.approx(1e-3)


def test_float32_sums_are_accumulated_in_float64():
    """10 000 equal losses, which float32 could not add up to 1e-5."""
    n = 10_000
    problem = Problem(
        rows=make_rows(np.full((n, 1), 0.1, np.float32)),
        targets=make_targets("real", np.full((n, 1), 0.7), 1, np.float32),
        loss=SquaredLoss(),
        penalty=L2(),
        lam=1.0,
        n_features=1,
        dtype=np.float32,
    )
    zero = np.zeros((1, 1), np.float32)
    found = problem.certificate(zero, zero[0], np.full((n, 1), 0.3, np.float32))
    y, a = float(np.float32(0.7)), float(np.float32(0.3))
    assert found.primal == pytest.approx(0.5 * y * y, rel=1e-13)
    assert found.dual == pytest.approx(a * y - 0.5 * a * a, rel=1e-13)


# --- the balance of an intercept ------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 12])
def test_balance_makes_the_weighted_sum_zero_and_stays_feasible(case, dtype, K):
    data = make_data(case.loss.targets, n=50, K=K, weighted=True, seed=4, dtype=dtype)
    problem = make_problem(case.loss, data, dtype=dtype, intercept=True)
    eps = np.finfo(dtype).eps
    for seed in range(4):
        dual = random_point(case, data, problem, seed)[0]
        total = np.asarray(problem.sample_weight, np.float64) @ dual
        assert np.abs(total).max() <= 4 * len(dual) * eps * max(1.0, np.abs(dual).max())
        worst = max(infeasibility(case.domain, a, t) for a, t in zip(dual.astype(np.float64), data.T))
        assert worst <= 4 * K * eps


def test_balance_leaves_a_balanced_point_alone(case):
    data = make_data(case.loss.targets, n=50, seed=5)
    problem = make_problem(case.loss, data, intercept=True)
    dual = random_point(case, data, problem)[0]
    again = dual.copy()
    problem.balance(again)
    np.testing.assert_allclose(again, dual, atol=1e-13 * max(1.0, np.abs(dual).max()))


def test_balance_of_zero_and_of_a_class_without_examples():
    data = make_data("class", n=50, K=4)
    data = data._replace(K=6)  # classes 4 and 5 have no example
    problem = make_problem(MultinomialLoss(), data, intercept=True)
    dual = random_point(LOSSES["multinomial"], data, problem)[0]
    assert np.abs(problem.sample_weight @ dual).max() <= 1e-12
    np.testing.assert_array_equal(dual[:, 4:], 0)
    zero = np.zeros_like(dual)
    problem.balance(zero)
    np.testing.assert_array_equal(zero, 0)


# --- invariances ----------------------------------------------------------------------------------------------------


def test_integer_weights_are_repeated_rows(case):
    data = make_data(case.loss.targets, seed=6)
    times = np.random.default_rng(7).integers(0, 4, len(data.X))
    weighted = make_problem(case.loss, data._replace(weights=times.astype(float)), intercept=True)
    repeated = data._replace(X=data.X.repeat(times, axis=0), T=data.T.repeat(times, axis=0))
    repeated = make_problem(case.loss, repeated, intercept=True)
    dual, V, bias = random_point(case, data, weighted)
    again = dual.repeat(times, axis=0)
    image = np.empty_like(V)
    repeated.dual_image(again, image)
    np.testing.assert_allclose(image, V, rtol=1e-12, atol=1e-13)
    one, two = weighted.certificate(V, bias, dual), repeated.certificate(V, bias, again)
    assert one.primal == pytest.approx(two.primal, rel=1e-13)
    assert one.dual == pytest.approx(two.dual, rel=1e-13)


def test_the_scale_of_the_weights_does_not_matter(case):
    data = make_data(case.loss.targets, weighted=True, seed=8)
    one = make_problem(case.loss, data)
    two = make_problem(case.loss, data._replace(weights=data.weights * 1e6))
    np.testing.assert_allclose(one.sample_weight, two.sample_weight, rtol=1e-15)
    assert one.sample_weight.mean() == pytest.approx(1.0)


def test_rows_of_weight_zero_do_not_matter(case):
    data = make_data(case.loss.targets, weighted=True, seed=9)
    ignored = data.weights == 0
    assert ignored.any()
    other = data._replace(X=np.where(ignored[:, None], 1e3, data.X))
    one, two = make_problem(case.loss, data), make_problem(case.loss, other)
    dual, V, bias = random_point(case, data, one)
    image = np.empty_like(V)
    two.dual_image(dual, image)
    np.testing.assert_array_equal(image, V)
    assert one.certificate(V, bias, dual) == two.certificate(V, bias, dual)


def test_csr_and_dense_agree(case):
    data = make_data(case.loss.targets, seed=10)
    sparse, dense = (make_problem(case.loss, data, view=view) for view in ("csr", "dense"))
    dual, V, bias = random_point(case, data, sparse)
    image = np.empty_like(V)
    dense.dual_image(dual, image)
    np.testing.assert_allclose(image, V, rtol=1e-13, atol=1e-15)
    one, two = sparse.certificate(V, bias, dual), dense.certificate(V, bias, dual)
    assert one.primal == pytest.approx(two.primal, rel=1e-14)
    assert one.dual == pytest.approx(two.dual, rel=1e-14, abs=1e-14)


@pytest.mark.parametrize(("K", "density", "expected"), [(70, 0.1, False), (70, 1.0, True), (5, 0.1, True)])
def test_dense_rows_in_either_order_of_the_weights_agree_with_csr(K, density, expected):
    """Weights are kept by outputs, except with many outputs and many zeros."""
    case = LOSSES["multinomial"]
    data = make_data("class", n=90, d=30, K=K, density=density)
    sparse, dense = (make_problem(case.loss, data, view=view) for view in ("csr", "dense"))
    assert (sparse.columns_first, dense.columns_first) == (False, expected)
    dual, V, bias = random_point(case, data, sparse)
    image = dense.zeros()
    dense.dual_image(dual, image)
    np.testing.assert_allclose(image[:, :K], V[:, :K], rtol=1e-12, atol=1e-14)
    one, two = sparse.certificate(V, bias, dual), dense.certificate(image, bias, dual)
    assert two.primal == pytest.approx(one.primal, rel=1e-13)
    assert two.dual == pytest.approx(one.dual, rel=1e-13)
    assert dense.value(image[:, :K], bias) == pytest.approx(sparse.value(V[:, :K], bias), rel=1e-13)
    assert dense.inner_product(image, np.ascontiguousarray(image)) == pytest.approx((image**2).sum(), rel=1e-12)


@pytest.mark.parametrize("name", ["multinomial", "smooth_hinge-1"])
def test_threads_do_not_change_a_bit(name):
    """More rows than a piece of a sum covers, more columns than a thread takes, more features than a piece."""
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=9000, d=5000, K=130, density=0.002)
    one, two = (make_problem(case.loss, data, n_threads=n) for n in (1, 2))
    dual, V, bias = random_point(case, data, one)
    image = np.empty_like(V)
    two.dual_image(dual, image)
    np.testing.assert_array_equal(image, V)
    assert one.certificate(V, bias, dual) == two.certificate(V, bias, dual)
    assert one.penalty_sums(V) == two.penalty_sums(V)


def test_penalty_sums_and_primal(reg, dtype):
    V = np.random.default_rng(11).normal(size=(9, 4)).astype(dtype)
    problem = make_problem(SquaredLoss(), make_data("real", d=9), reg=reg, dtype=dtype)
    W = problem.primal(V)
    value, conjugate = problem.penalty_sums(V)
    W64 = W.astype(np.float64)
    exact = cast(reg, dtype)
    assert value == pytest.approx(g(exact, W64), rel=1e-13)
    assert conjugate == pytest.approx((V * W64).sum() - g(exact, W64), rel=10 * float(np.finfo(dtype).eps), abs=1e-6)
    assert np.shares_memory(W, V) == isinstance(reg, L2)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, -1.0, float("nan"), float("inf")])
def test_a_strength_that_is_not_positive_is_refused(lam):
    with pytest.raises(ValueError, match="lam must be a positive finite number"):
        make_problem(SquaredLoss(), make_data("real"), lam=lam)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [(MultinomialLoss(), "sign"), (LogisticLoss(), "class"), (SmoothHingeLoss(0.5), "real"), (SquaredLoss(), "class")],
)
def test_a_loss_with_targets_of_another_kind_is_refused(loss, kind):
    data = make_data(kind)
    with pytest.raises(ValueError, match=f"loss '{loss.name}' takes targets of kind .*, got '{kind}'"):
        Problem(make_rows(data.X), make_targets(kind, data.T, data.K), loss, L2(), 1.0, data.X.shape[1])


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        (np.zeros(60), "positive sum"),
        (np.r_[np.ones(59), -1.0], "non-negative"),
        (np.r_[np.ones(59), np.nan], "finite"),
        (np.r_[np.ones(59), np.inf], "finite"),
        (np.ones(59), "59"),
        (np.ones((60, 1)), "60, 1"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, what):
    with pytest.raises(ValueError, match=f"sample_weight.*{what}"):
        make_problem(SquaredLoss(), make_data("real")._replace(weights=weights))


@pytest.mark.parametrize("kind", ["class", "sign", "real"])
def test_another_number_of_targets_than_of_rows_is_refused(kind):
    loss = {"class": MultinomialLoss(), "sign": LogisticLoss(), "real": SquaredLoss()}[kind]
    data = make_data(kind)
    with pytest.raises(ValueError, match=r"targets.*59.*60"):
        make_problem(loss, data._replace(T=data.T[:59]))


@pytest.mark.parametrize("loss", [SmoothHingeLoss(-0.5), SmoothHingeLoss(float("nan")), SmoothHingeLoss(float("inf"))])
def test_a_loss_with_a_senseless_number_is_refused(loss):
    with pytest.raises(ValueError, match="gamma of SmoothHingeLoss must be a finite number of at least 0"):
        make_problem(loss, make_data("sign"))


def test_a_negative_threshold_is_refused():
    with pytest.raises(ValueError, match="threshold of ElasticNet must be a finite number of at least 0"):
        make_problem(SquaredLoss(), make_data("real"), reg=ElasticNet(-0.1))


def test_rows_too_large_for_the_precision_are_refused():
    data = make_data("real")
    data = data._replace(X=data.X * 1e30)
    make_problem(SquaredLoss(), data)
    with pytest.raises(ValueError, match=r"row 1 of X.*float32"), np.errstate(over="ignore"):
        make_problem(SquaredLoss(), data, dtype=np.float32)


def test_weights_certify_themselves(case):
    """`certify` bounds the suboptimality of any weights, and its parts are the definitions."""
    for name, reg in (("l2", L2()), ("elastic net", ElasticNet(0.3)), ("l1", L1())):
        for intercept in (False, True):
            data = make_data(case.loss.targets, seed=3, weighted=True)
            problem = make_problem(case.loss, data, reg=reg, intercept=intercept)
            rng = np.random.default_rng(4)
            W, b = rng.normal(size=(8, problem.n_outputs)) * 0.1, rng.normal(size=problem.n_outputs)
            dual = np.empty((problem.n_samples, problem.n_outputs))
            V = np.empty_like(W)
            losses = problem.respond(W, b, dual)
            values, gradients = case.formula(data.X @ W + b, data.T)
            np.testing.assert_allclose(losses, problem.sample_weight @ values, rtol=1e-12)
            np.testing.assert_allclose(dual, -gradients, atol=1e-12)
            found = problem.certify(W, b, losses, dual, V)
            assert found.primal == pytest.approx(problem.value(W, b), rel=1e-12)
            # The least objective on a sample of other weights is above the dual.
            others = [rng.normal(size=W.shape) * scale for scale in (0.0, 1e-3, 0.05, 0.3, 1.0)]
            least = min(problem.value(other, b) for other in (W, *others))
            assert found.dual <= least + 1e-12, (name, intercept)
            if intercept:
                np.testing.assert_allclose(problem.sample_weight @ dual, 0, atol=1e-9)
            if name == "l1":
                assert np.abs(V).max() <= 1 + 1e-12


@pytest.mark.parametrize("view", ["csr", "dense"])
@pytest.mark.parametrize("K", [1, 3, 130])
def test_the_dual_image_does_not_depend_on_threads(view, K):
    data = make_data("sign", n=70, d=9, K=K, seed=5, weighted=True)
    dual = np.random.default_rng(0).normal(size=(70, K))
    images = []
    for threads in (1, 2, 5):
        problem = make_problem(LogisticLoss(), data, view=view, n_threads=threads)
        V = np.full((9, problem.n_columns), 7.0)
        V[:, K:] = 0
        problem.dual_image(dual, V)
        images.append(V)
    expected = data.X.T @ (problem.sample_weight[:, None] * dual) * problem.inv_lam_n
    np.testing.assert_allclose(images[0][:, :K], expected, atol=1e-12)
    np.testing.assert_array_equal(images[0], images[1])
    np.testing.assert_array_equal(images[0], images[2])

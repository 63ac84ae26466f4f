"""The estimators' losses, penalties and solvers: the optimum of independent solvers, refusals."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso
from sklearn.preprocessing import StandardScaler

import helpers
import references
from helpers import Data
from manyclass import CrammerSinger, Huber, LinearClassifier, LinearRegressor
from manyclass.objective.losses import (
    CLASSIFICATION,
    OPTIONS,
    REGRESSION,
    CrammerSingerLoss,
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SquaredHingeLoss,
)
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.optimize.choice import choose
from manyclass.solvers import SDCA, SOLVERS, AcceleratedSDCA, ActiveSetSDCA, AsyncSDCA
from manyclass.solvers.dual.sdca import SAMPLINGS
from registry import LossCase


def value(formula: helpers.Formula, data: Data, model: Any, W: Any = None, b: Any = None) -> float:
    """The objective of an estimator by its definition; of its own weights, or of others."""
    W = model.model_.densify().weights if W is None else W
    b = model.model_.intercept if b is None else b
    ratio = model.l1_ratio
    losses = helpers.objective(formula, data, L2(), 0.0, W, b)
    return losses + model.alpha_ * (0.5 * (1 - ratio) * float((W**2).sum()) + ratio * float(np.abs(W).sum()))


def certified(model: Any, formula: helpers.Formula, data: Data, best: float) -> None:
    """The objective is what it says, and no certificate on the way was less than the true suboptimality."""
    assert model.objective_ == pytest.approx(value(formula, data, model), rel=1e-9)
    for record in model.history_:
        assert record.dual <= best * (1 + 1e-9)
        assert record.primal >= best * (1 - 1e-9)
    assert model.objective_ <= best * (1 + 1.01 * model.tol)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400] / 16.0, y[:400]


# --- the pure l1 penalty ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "ran", "tol"),
    [
        ("auto", "cd", 1e-9),
        ("cd", "cd", 1e-9),
        ("fista", "fista", 1e-9),
        ("accelerated", "accelerated + slight l2", 1e-7),
        ("sdca", "sdca + slight l2", 1e-3),
        ("sdca_async", "sdca_async + slight l2", 1e-3),
    ],
)
@pytest.mark.parametrize("intercept", [False, True])
def test_lasso_is_scikit_learns(diabetes, solver, ran, tol, intercept):
    X, y = diabetes
    alpha = 10.0
    theirs = Lasso(alpha=alpha, fit_intercept=intercept, tol=1e-13, max_iter=100_000).fit(X, y)
    args = {"alpha": alpha, "l1_ratio": 1.0, "tol": tol, "fit_intercept": intercept, "random_state": 0}
    ours = LinearRegressor(solver=solver, max_iter=20_000, **args).fit(X, y)
    assert ours.solver_ == ran
    assert ours.duality_gap_ <= tol
    data = Data(X, y[:, None], 1, None)
    certified(ours, helpers.squared, data, value(helpers.squared, data, ours, theirs.coef_[:, None], theirs.intercept_))
    if tol <= 1e-7:
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.02)
        assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-6)
        np.testing.assert_array_equal(ours.coef_ != 0, theirs.coef_ != 0)


@pytest.mark.parametrize("loss", ["multinomial", "softmax_hinge", "crammer_singer"])
@pytest.mark.parametrize("intercept", [False, True])
def test_joint_losses_with_a_pure_l1_penalty(iris, loss, intercept):
    X, y = iris
    formula = {
        "multinomial": helpers.multinomial,
        "softmax_hinge": helpers.softmax_hinge,
        "crammer_singer": helpers.crammer_singer(0.1),
    }[loss]
    args = {"loss": loss, "alpha": 0.01, "l1_ratio": 1.0, "fit_intercept": intercept, "max_iter": 50_000}
    best = LinearClassifier(solver="fista", tol=1e-8, **args).fit(X, y).objective_
    data = Data(X, y, 3, None)
    for solver, ran in (("auto", "accelerated + slight l2"), ("accelerated", "accelerated + slight l2")):
        model = LinearClassifier(solver=solver, tol=1e-5, random_state=0, **args).fit(X, y)
        assert model.solver_ == ran
        certified(model, formula, data, best)
        assert 0 < np.count_nonzero(model.coef_) < model.coef_.size


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss"])
def test_one_vs_rest_with_a_pure_l1_penalty(iris, loss):
    X, y = iris
    y = y == 1
    args = {"loss": loss, "alpha": 0.05, "l1_ratio": 1.0, "tol": 1e-3, "max_iter": 20_000, "random_state": 0}
    fits = [LinearClassifier(solver=solver, **args).fit(X, y) for solver in ("auto", "sdca", "accelerated")]
    assert fits[0].solver_ == ("accelerated + slight l2" if loss == "hinge" else "cd")
    assert max(fit.history_.last.dual for fit in fits) <= min(fit.objective_ for fit in fits)
    assert max(fit.duality_gap_ for fit in fits) <= 1e-3


# --- Huber and the soft-max-of-hinge ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.0, 0.5])
@pytest.mark.parametrize("solver", ["auto", "sdca", "accelerated", "fista"])
def test_huber_is_scipys(diabetes, ratio, solver):
    X, y = diabetes
    y = y.copy()
    y[::25] += 1000.0  # outliers
    data = Data(X, y[:, None], 1, None)
    epsilon, alpha = 40.0, 1.0
    model = LinearRegressor(Huber(epsilon=epsilon), alpha=alpha, l1_ratio=ratio, solver=solver, tol=1e-6)
    model.set_params(max_iter=20_000, random_state=0).fit(X, y)
    case = LossCase(HuberLoss(epsilon), helpers.huber(epsilon), "band")
    reg = ElasticNet(ratio / (1 - ratio)) if ratio else L2()
    best = references.quasi_newton(case, data, reg, alpha * (1 - ratio), True)
    certified(model, case.formula, data, best)
    # What the outliers can do is bounded: the intercept stays where most of y is, the squared loss's does not.
    assert abs(model.intercept_ - np.median(y)) < 30
    assert abs(LinearRegressor(alpha=alpha, random_state=0).fit(X, y).intercept_ - np.median(y)) > 30


def test_huber_of_several_targets_is_each_by_itself(diabetes):
    X, y = diabetes
    args = {"loss": Huber(epsilon=20.0), "alpha": 0.5, "tol": 1e-9, "max_iter": 20_000, "random_state": 0}
    both = LinearRegressor(**args).fit(X, np.column_stack([y, -2 * y]))
    for k, target in enumerate((y, -2 * y)):
        np.testing.assert_allclose(both.coef_[k], LinearRegressor(**args).fit(X, target).coef_, atol=0.05)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("ratio", [0.0, 0.5])
@pytest.mark.parametrize("solver", ["auto", "sdca", "accelerated", "fista"])
def test_softmax_hinge_is_scipys(iris, classes, ratio, solver):
    X, y = iris
    X, y = X[y < classes], y[y < classes]
    if classes == 2:
        case, data = (
            LossCase(LogisticLoss(1.0), helpers.softplus_hinge, "box"),
            Data(X, np.where(y, 1.0, -1.0)[:, None], 1, None),
        )
    else:
        case, data = LossCase(MultinomialLoss(1.0), helpers.softmax_hinge, "simplex"), Data(X, y, 3, None)
    model = LinearClassifier("softmax_hinge", alpha=0.02, l1_ratio=ratio, solver=solver, tol=1e-7)
    model.set_params(max_iter=20_000, random_state=0).fit(X, y)
    reg = ElasticNet(ratio / (1 - ratio)) if ratio else L2()
    best = references.quasi_newton(case, data, reg, 0.02 * (1 - ratio), True)
    certified(model, case.formula, data, best)
    assert model.score(X, y) > 0.9
    assert not hasattr(model, "predict_proba")  # its link is none: scores are no log-odds


def test_softmax_hinge_is_an_upper_bound_of_crammer_singer(iris):
    X, y = iris
    args = {"alpha": 0.01, "tol": 1e-5, "max_iter": 5000, "random_state": 0}
    upper = LinearClassifier("softmax_hinge", **args).fit(X, y)
    lower = LinearClassifier(CrammerSinger(gamma=0), **args).fit(X, y)
    assert upper.objective_ > lower.history_.last.dual


# --- every solver -----------------------------------------------------------------------------------------------------

#: What solvers take, of the losses with their default parameters and an l2 penalty; all of them if nothing is said.
SMOOTH = (set(CLASSIFICATION) | set(REGRESSION)) - {"hinge"}
TAKES = {
    **dict.fromkeys(
        ("fista", "lbfgs", "preconditioned_lbfgs", "newton", "cg", "gd", "generalized_least_squares"), SMOOTH
    ),
    "cd": {"log_loss", "squared_hinge", "smooth_hinge", "squared", "huber"},
    "sdca_active": {"crammer_singer"},
    "sdca_dp": {"crammer_singer"},
    "interior_point": {"crammer_singer", "hinge", "smooth_hinge", "squared_hinge"},
    "bound": {"multinomial", "softmax_hinge"},
    "ds_mlr": {"multinomial"},
    "log_concavity": {"multinomial"},
    "memoir": set(),
    "out_of_core": set(),  # rows in memory
}


def model_of(loss: str, **parameters: Any) -> Any:
    made = LinearClassifier if loss in CLASSIFICATION else LinearRegressor
    return made(loss, alpha=0.05, random_state=0, max_iter=3000, **parameters)


@cache
def best_of(loss: str, intercept: bool = True) -> tuple[float, float]:
    """A lower and an upper bound of the least objective."""
    X, y = load_digits(return_X_y=True)
    model = model_of(loss, solver="sdca", tol=1e-5 if loss in SMOOTH else 1e-3, fit_intercept=intercept)
    model.fit(X[:300] / 16, y[:300])
    return model.history_.last.dual, model.objective_


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("loss", [*CLASSIFICATION, *REGRESSION])
def test_every_solver_fits_a_loss_or_refuses_it_by_name(digits, loss, solver):
    X, y = digits
    X, y = X[:300], y[:300]
    model = model_of(loss, solver=solver, tol=0.05 if solver == "sgd" else 1e-3)
    if loss not in TAKES.get(solver, {loss}):
        with pytest.raises(ValueError, match=rf"^solver '{solver}' .*\b{loss}\b"):
            model.fit(X, y)
        return
    model.fit(X, y)
    assert model.solver_ == solver
    assert model.duality_gap_ <= model.tol
    lower, upper = best_of(loss, SOLVERS[solver].takes_intercept)
    # No lower bound is above any objective: they agree to their gaps.
    assert model.objective_ >= lower * (1 - 1e-12)
    assert model.history_.last.dual <= upper * (1 + 1e-12)


def test_memoir_takes_the_plain_loss_of_crammer_and_singer(digits):
    X, y = digits
    model = LinearClassifier(CrammerSinger(gamma=0), solver="memoir", alpha=1e-4, random_state=0).fit(X, y)
    assert model.solver_ == "memoir"
    assert model.score(X, y) > 0.97
    assert np.isnan(model.duality_gap_)
    assert np.isnan(model.objective_)


#: loss, l1_ratio -> the solvers that fit it.
DUALS = ("sdca", "accelerated", "sdca_async")
FITS = {
    ("multinomial", 0.5): (*DUALS, "fista"),
    ("crammer_singer", 0.5): (*DUALS, "sdca_active", "fista"),
    ("log_loss", 0.5): (*DUALS, "cd", "fista"),
}


@pytest.mark.parametrize(("loss", "ratio"), FITS)
def test_every_solver_reaches_the_same_objective(digits, loss, ratio):
    X, y = digits
    models = {}
    for solver in ("auto", *FITS[loss, ratio]):
        model = LinearClassifier(loss, alpha=0.05, l1_ratio=ratio, solver=solver)
        model.set_params(max_iter=3000, random_state=0, n_jobs=2).fit(X, y)
        assert model.duality_gap_ <= model.tol
        assert solver in ("auto", model.solver_)
        models[solver] = model
    # No lower bound is above any objective: they agree to their gaps.
    assert max(m.history_.last.dual for m in models.values()) <= min(m.objective_ for m in models.values()) * (
        1 + 1e-12
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_every_solver_takes_an_l1_part_or_refuses_it_by_name(digits, solver, ratio):
    X, y = digits
    loss = {
        "sdca_active": "crammer_singer",
        "sdca_dp": "crammer_singer",
        "cd": "log_loss",
        "interior_point": "hinge",
        "memoir": CrammerSinger(gamma=0),
    }.get(solver, "multinomial")
    takes = ["sdca", "accelerated", "sdca_async", "cd", "fista", "memoir"] + ["sdca_active", "sdca_dp"] * (ratio < 1)
    model = LinearClassifier(loss, solver=solver, alpha=0.05, l1_ratio=ratio, tol=0.05, random_state=0)
    model.set_params(max_iter=20 if solver == "memoir" else 500)
    if solver in takes:
        assert 0 < np.count_nonzero(model.fit(X, y).coef_) < 640
        assert model.solver_.split()[0] == solver
        return
    penalty = "elastic net" if ratio < 1 else "l1"
    with pytest.raises(ValueError, match=rf"^solver '{solver}' needs .* penalty.*\b{penalty}\b"):
        model.fit(X, y)


REFUSED = [
    (
        {"solver": "lbfgs", "l1_ratio": 0.5},
        "solver 'lbfgs' needs a penalty with a gradient, and 'elastic net' has none",
    ),
    ({"solver": "sgd", "l1_ratio": 1.0}, "solver 'sgd' needs a penalty with a gradient, and 'l1' has none"),
    ({"solver": "cd"}, "solver 'cd' needs a loss with separate outputs, and 'multinomial' has none"),
    ({"solver": "cd", "loss": "hinge"}, "solver 'cd' needs a loss with a smooth gradient, and 'hinge' has none"),
    ({"solver": "fista", "loss": "hinge"}, "solver 'fista' needs a loss with a smooth gradient, and 'hinge' has none"),
    (
        {"solver": "lbfgs", "loss": CrammerSinger(gamma=0)},
        "needs a loss with a smooth gradient, and 'crammer_singer' has none.*gamma > 0",
    ),
    ({"solver": "sdca_active"}, "solver 'sdca_active' needs a loss with a sparse dual, and 'multinomial' has none"),
    (
        {"solver": "sdca_active", "loss": "crammer_singer", "l1_ratio": 1.0},
        "solver 'sdca_active' needs a penalty with an l2 part.*got a pure l1 penalty",
    ),
    (
        {"solver": SDCA(option="IV"), "loss": "hinge"},
        "option 'IV' takes steps in proportion to the smoothness of the loss, and hinge has none",
    ),
    ({"solver": SDCA(option="V"), "loss": CrammerSinger(gamma=0)}, "give option='I', a gamma > 0"),
    ({"solver": ActiveSetSDCA(storage="sparse"), "loss": "crammer_singer"}, "sparse"),
]


@pytest.mark.parametrize(("parameters", "message"), REFUSED, ids=[str(parameters) for parameters, _ in REFUSED])
def test_what_a_solver_cannot_do_is_refused_before_any_work(digits, monkeypatch, parameters, message):
    X, y = digits
    monkeypatch.setattr("manyclass.objective.history.Reporter.iterated", lambda *_: pytest.fail("iterated"))
    with pytest.raises(ValueError, match=message):
        LinearClassifier(**parameters).fit(X, y)


def test_what_a_regressor_cannot_do_is_refused_before_any_work(diabetes):
    X, y = diabetes
    for parameters, message in (
        ({"solver": "sdca_active"}, "needs a loss with a sparse dual, and 'squared' has none"),
        ({"solver": "lbfgs", "l1_ratio": 0.1}, "needs a penalty with a gradient"),
        ({"solver": "simplex"}, "solver must be one of 'auto'"),
        ({"solver": "memoir"}, "solver 'memoir' is for classification losses, got loss 'squared'"),
        ({"solver": SDCA(option="VI")}, "The 'option' parameter of SDCA must be"),
    ):
        with pytest.raises(ValueError, match=message):
            LinearRegressor(**parameters).fit(X, y)


def test_auto_chooses_by_the_problem(digits, diabetes):
    X, y = digits
    chosen = {
        "sdca": LinearClassifier(alpha=1.0),
        "accelerated": LinearClassifier(alpha=1e-5, tol=0.1),
        "cd": LinearClassifier("log_loss", alpha=0.05, l1_ratio=0.5),
        "accelerated + slight l2": LinearClassifier(alpha=0.05, l1_ratio=1.0),
        "interior_point": LinearClassifier("hinge", alpha=1e-7, tol=0.1),
    }
    for name, model in chosen.items():
        assert model.set_params(random_state=0).fit(X, y).solver_ == name
    X, y = diabetes
    assert LinearRegressor(alpha=1.0, l1_ratio=1.0).fit(X, y).solver_ == "cd"


@pytest.mark.parametrize(
    ("loss", "K", "lam", "view", "name"),
    [
        (MultinomialLoss(), 30, 1.0, "dense", "preconditioned_lbfgs"),
        (MultinomialLoss(), 30, 1.0, "csr", "sdca"),
        (MultinomialLoss(), 3, 1e6, "dense", "sdca"),  # 100 features per output: X'X costs more than it saves
        (LogisticLoss(), 30, 1e6, "dense", "sdca"),
        (LogisticLoss(), 30, 1e-4, "dense", "accelerated"),  # five rows per feature
        (CrammerSingerLoss(1.0), 30, 1e-4, "dense", "accelerated"),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)
def test_dense_rows_are_multiplied_by_blas_where_that_is_faster(loss, K, lam, view, name):
    problem = helpers.make_problem(loss, helpers.make_data(loss.targets, n=1500, d=300, K=K), view=view, lam=lam)
    assert choose(problem).prepare(problem).name == name
    few = helpers.make_problem(loss, helpers.make_data(loss.targets, n=100, d=300, K=K), view=view, lam=1e6)
    assert choose(few).prepare(few).name == "sdca"


@pytest.mark.parametrize(
    ("loss", "d", "K", "lam", "name"),
    [
        (MultinomialLoss(), 10, 5, 1e-6, "preconditioned_lbfgs"),
        (LogisticLoss(), 10, 5, 1e-6, "preconditioned_lbfgs"),
        (SquaredHingeLoss(), 10, 5, 1e-5, "preconditioned_lbfgs"),
        (MultinomialLoss(), 20, 5, 1e-6, "accelerated"),
        (LogisticLoss(), 80, 100, 1e-6, "preconditioned_lbfgs"),
        (LogisticLoss(), 80, 100, 1e-3, "accelerated"),
        (SquaredHingeLoss(), 80, 100, 1e-4, "accelerated"),  # fewer than 40 rows per feature
    ],
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)
def test_small_ill_conditioned_problems_are_multiplied_where_features_are_few(loss, d, K, lam, name):
    problem = helpers.make_problem(loss, helpers.make_data(loss.targets, n=1500, d=d, K=K), view="dense", lam=lam)
    assert choose(problem).name == name


@pytest.mark.parametrize("intercept", [False, True], ids=["no-intercept", "intercept"])
@pytest.mark.parametrize(("K", "name"), [(30, "accelerated"), (60, "preconditioned_lbfgs")])
def test_the_squared_hinge_is_multiplied_with_many_outputs(K, name, intercept):
    loss = SquaredHingeLoss()
    data = helpers.make_data(loss.targets, n=12_000, d=100, K=K, dtype=np.float32)
    problem = helpers.make_problem(loss, data, view="dense", lam=1e-4, intercept=intercept, dtype=np.float32)
    assert choose(problem).name == name


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", CrammerSinger(), CrammerSinger(gamma=0)], ids=str)
def test_a_weak_penalty_on_few_features_is_certified(iris, loss):
    """By tens of iterations, however weak it is; coordinate ascent is not done after a hundred epochs."""
    X, y = iris
    model = LinearClassifier(loss, alpha=1e-8, tol=1e-6, dtype=np.float64).fit(X, y)
    assert model.solver_ == "interior_point"
    assert model.duality_gap_ <= 1e-6
    assert model.n_iter_ < 60
    with pytest.warns(ConvergenceWarning):
        slow = clone(model).set_params(solver="sdca", random_state=0).fit(X, y)
    assert slow.duality_gap_ > 0.1


def test_many_classes_have_rivals_to_be_active():
    data = helpers.make_data("class", n=240, K=120)
    net, pure = (helpers.make_problem(CrammerSingerLoss(0.1), data, reg=reg) for reg in (ElasticNet(0.5), L1()))
    assert type(choose(net)) is ActiveSetSDCA
    assert type(AsyncSDCA().prepare(net)) is ActiveSetSDCA
    # Active sets take no options, and need an l2 part.
    assert type(AsyncSDCA(sampling="uniform").prepare(net)) is AsyncSDCA
    assert type(SDCA().prepare(net)) is SDCA
    assert type(choose(pure)) is AcceleratedSDCA
    assert choose(pure).prepare(pure).name == "accelerated + slight l2"
    assert AsyncSDCA().prepare(pure).name == "sdca_async + slight l2"


def test_two_classes_have_no_rivals_to_be_active(iris):
    X, y = iris
    args = {"loss": "crammer_singer", "alpha": 0.01, "random_state": 0}
    model = LinearClassifier(solver="sdca_active", **args).fit(X[:100], y[:100])
    assert model.solver_ == "sdca"
    np.testing.assert_array_equal(model.coef_, LinearClassifier(solver="sdca", **args).fit(X[:100], y[:100]).coef_)


# --- options and samplings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [SDCA, AcceleratedSDCA])
@pytest.mark.parametrize(
    ("option", "sampling"), [(option, SAMPLINGS[0]) for option in OPTIONS[1:]] + [("I", s) for s in SAMPLINGS[1:]]
)
def test_options_and_samplings_end_at_the_same_objective(iris, solver, option, sampling):
    X, y = iris
    args = {"alpha": 0.05, "tol": 1e-4, "max_iter": 20_000, "random_state": 0}
    plain = LinearClassifier(solver=solver(), **args).fit(X, y)
    model = LinearClassifier(solver=solver(option=option, sampling=sampling), **args).fit(X, y)
    assert model.duality_gap_ <= 1e-4
    assert max(plain.history_.last.dual, model.history_.last.dual) <= min(plain.objective_, model.objective_)
    # They are other methods, and not the same under another name.
    assert (model.coef_ != plain.coef_).any()
    assert model.model_.parameters["solver__option"] == option
    assert model.model_.parameters["solver__sampling"] == sampling


# --- float32 and threads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["cd", "fista", "accelerated", "sgd"])
def test_float32_and_threads(digits, solver):
    X, y = digits
    ratio = 0.0 if solver == "sgd" else 1.0
    model = LinearClassifier("squared_hinge", alpha=0.05, l1_ratio=ratio, solver=solver, tol=1e-2, max_iter=2000)
    model.set_params(random_state=0)
    double = clone(model).fit(X, y)
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.sparse_coef_.dtype == np.float32
    assert max(single.history_.last.dual, double.history_.last.dual) <= min(single.objective_, double.objective_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [clone(model).set_params(n_jobs=n_jobs, max_iter=3, tol=0.0).fit(X, y) for n_jobs in (1, 2)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)

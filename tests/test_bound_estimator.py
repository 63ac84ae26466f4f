"""LinearClassifier with solver="bound": the optimum of the dual methods, the choice of the rank, refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import BoundMajorization, LinearClassifier
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import minimize

ALPHA = 1e-2


def bound(alpha=ALPHA, *, tol=1e-4, max_iter=None, fit_intercept=True, random_state=None, **options):
    return LinearClassifier(
        alpha=alpha,
        tol=tol,
        max_iter=max_iter,
        fit_intercept=fit_intercept,
        random_state=random_state,
        solver=BoundMajorization(**options),
    )


def _expected_failures(estimator):
    """Who does not take the Hessian in walks slowly to an optimum that is at infinity, or far away."""
    found = {"check_classifiers_one_label_sample_weights": "an optimum at infinity is not certified in max_iter"}
    if not estimator.solver.stochastic:
        found["check_class_weight_classifiers"] = "class weights of 1000 and 1e-4: the check allows 1000 iterations"
        return found
    reason = "the first pass is stochastic, and other rows are other batches: see test_weights_are_repetitions"
    return found | {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [bound(rank=2, random_state=0), bound(1e-1, stochastic=False, max_iter=2000, random_state=0)],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"stochastic": False}, {"batch_size": 1}])
def test_the_optimum_is_that_of_the_dual_method(options):
    X, y = iris()
    model = bound(tol=1e-7, max_iter=2000, random_state=0, **options).fit(X, y)
    other = LinearClassifier(alpha=ALPHA, solver="sdca", tol=1e-7, max_iter=5000).fit(X, y)
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-3)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=2e-3)
    assert model.solver_ == "bound"


def test_two_classes_have_one_column_and_named_labels():
    X, y = iris()
    labels = np.array(["no", "yes"])[(y == 2).astype(int)]
    model = bound(tol=1e-8).fit(X, labels)
    assert model.coef_.shape == (1, 4)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(X, labels) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_weights_are_repeated_rows():
    X, y = iris()
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = bound(tol=1e-10).fit(X, y, sample_weight=counts)
    repeated = bound(tol=1e-10).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)


def test_rank_is_chosen_by_the_size():
    X = sp.random(40, 5000, density=0.01, random_state=0, format="csr")
    y = np.random.default_rng(0).integers(0, 3, 40).astype(np.int32)

    def ran(rows, **options):
        problem = Problem(
            make_rows(rows), ClassTargets(y, 3), MultinomialLoss(), L2(), lam=0.1, n_features=rows.shape[1]
        )
        return minimize(problem, BoundMajorization(**options), max_iter=3, warn=False).solver.rank

    assert ran(X) == 8
    assert ran(X[:, :50]) == "full"
    assert ran(X[:, :50], rank=2) == 2
    asked = BoundMajorization()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        LinearClassifier(solver=asked, max_iter=3).fit(X, y)
    assert asked.rank is None  # what the user has given stays as it is


def test_a_curvature_that_does_not_fit_is_refused_with_advice():
    X = sp.random(20, 200_000, density=1e-4, random_state=0, format="csr")
    y = np.arange(20) % 5
    with pytest.raises(MemoryError, match="rank=8"):
        bound(rank="full").fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "'rank' parameter of BoundMajorization must be an int in the range"),
        ({"rank": "half"}, "'rank' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"eta": 2.0}, r"'eta' parameter of BoundMajorization must be a float in the range \(0.0, 2.0\)"),
        ({"schedule": "slow"}, "'schedule' parameter of BoundMajorization must be a str among"),
        ({"order": "down"}, "'order' parameter"),
        ({"stochastic": "yes"}, "'stochastic' parameter"),
        ({"alpha": 0.0}, "'alpha' parameter of LinearClassifier"),
        ({"stochastic": False, "batch_size": 5}, "batch_size must be None with stochastic=False"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    X, y = iris()
    with pytest.raises(ValueError, match=message):
        bound(**options).fit(X, y)

"""scikit-learn's own checks: of the estimators with every loss, of the classifier with every solver, of the
searches."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import CrammerSinger, LinearClassifier, LinearClassifierCV, LinearRegressor, LinearRegressorCV
from manyclass.objective.losses import CLASSIFICATION
from registry import SOLVERS

#: The loss that a solver is checked with, where it does not take the default.
LOSS_OF: dict[str, Any] = {
    "sdca_active": "crammer_singer",
    "sdca_dp": "crammer_singer",
    "cd": "log_loss",
    "interior_point": "hinge",
    "memoir": CrammerSinger(gamma=0),
}

#: Solvers that draw rows at random. scikit-learn asks that weights and repeated rows give the same model to 1e-7; with
#: more rows other ones are drawn, and the fit stops on a gap: the two models agree to the tolerance, which
#: `test_integer_weights_are_repeated_rows_to_every_solver` proves. (scikit-learn lists its own SGD and SAG estimators
#: likewise.)
RANDOM = {"sdca", "accelerated", "sdca_active", "sdca_dp", "sdca_async", "sgd", "bound", "memoir"}


def same_weights(reason: str) -> dict[str, str]:
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


def expected_failures(estimator: Any) -> dict[str, str]:
    """Check -> the reason why it fails. A check that is listed here and passes is a failure of the test."""
    found = {}
    if isinstance(estimator, LinearClassifierCV | LinearRegressorCV):
        # With an l1 part coordinate descent ends at the optimum itself, and the choice is one that folds do not change.
        if not estimator.l1_ratio:
            found |= same_weights("weights and repetitions make different folds: see test_cross_validation")
        return found
    # "auto" takes coordinate descent for a lasso, and the interior point method for the hinge loss on these data.
    lasso = isinstance(estimator, LinearRegressor) and estimator.l1_ratio > 0
    if estimator.solver in RANDOM or (estimator.solver == "auto" and not (lasso or estimator.loss == "hinge")):
        found |= same_weights("equal to tol, not to 1e-7: see test_estimators")
    if estimator.solver == "memoir":
        found |= same_weights("no certificate, and steps in another order end elsewhere")
        # To call every row of the check by the class that weighs a million times as much takes an intercept.
        found["check_class_weight_classifiers"] = "memoir fits no intercept: rows on both sides of zero"
    return found


def run(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        # The checks fit on tiny, unscaled and random data, whose classes may have fewer rows than there are folds. A
        # limit of iterations met there is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The least populated class")
        check(estimator)


@parametrize_with_checks(
    [LinearClassifier(loss, max_iter=300) for loss in CLASSIFICATION]
    + [
        LinearClassifier(l1_ratio=0.5, max_iter=300),
        LinearRegressor(max_iter=1000),
        LinearRegressor("huber", max_iter=1000),
        LinearRegressor(l1_ratio=1.0),
    ],
    expected_failed_checks=expected_failures,
)
def test_every_loss(estimator, check):
    run(estimator, check)


# Some 64 checks of each solver, on tiny data: about a tenth of a second each. Of the whole grid `pytest` alone runs a
# sample; the others are run where this file is named, and with --full.
@parametrize_with_checks(
    [LinearClassifier(LOSS_OF.get(solver, "multinomial"), solver=solver, max_iter=300) for solver in SOLVERS],
    expected_failed_checks=expected_failures,
)
def test_every_solver(estimator, check):
    run(estimator, check)


@parametrize_with_checks(
    [
        LinearClassifierCV(n_alphas=2, eps=0.1, cv=2, max_iter=300),
        LinearClassifierCV("squared_hinge", alphas=[1.0], l1_ratio=[0.2, 0.5], cv=2, n_jobs=2, max_iter=300),
        LinearRegressorCV(n_alphas=2, eps=0.1, l1_ratio=0.5, cv=2, max_iter=1000),
    ],
    expected_failed_checks=expected_failures,
)
def test_searches(estimator, check):
    run(estimator, check)

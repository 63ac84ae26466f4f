"""scikit-learn estimators: thin - they validate, build a Problem, call the driver, wrap the model."""

from manyclass.estimators.bound import BoundMajorizationClassifier
from manyclass.estimators.classifier import SDCAClassifier
from manyclass.estimators.cross_validation import SDCAClassifierCV, SDCARegressorCV
from manyclass.estimators.log_linear import LogLinearModel
from manyclass.estimators.regressor import SDCARegressor

__all__ = [
    "BoundMajorizationClassifier",
    "LogLinearModel",
    "SDCAClassifier",
    "SDCAClassifierCV",
    "SDCARegressor",
    "SDCARegressorCV",
]

"""scikit-learn estimators: they validate input, build a `Problem`, call the fitting loop and store the model."""

from manyclass.estimators.calibrated import CalibratedLeastSquaresClassifier
from manyclass.estimators.classifier import LinearClassifier
from manyclass.estimators.cross_validation import LinearClassifierCV, LinearRegressorCV
from manyclass.estimators.least_squares import GeneralizedLeastSquaresClassifier
from manyclass.estimators.log_linear import LogLinearModel
from manyclass.estimators.regressor import LinearRegressor
from manyclass.estimators.stagewise import StagewiseClassifier
from manyclass.estimators.stagewise_regressor import StagewiseRegressor

__all__ = [
    "CalibratedLeastSquaresClassifier",
    "GeneralizedLeastSquaresClassifier",
    "LinearClassifier",
    "LinearClassifierCV",
    "LinearRegressor",
    "LinearRegressorCV",
    "LogLinearModel",
    "StagewiseClassifier",
    "StagewiseRegressor",
]

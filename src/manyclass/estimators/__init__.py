"""scikit-learn estimators: thin - they validate, build a Problem, call the driver, wrap the model."""

from manyclass.estimators.bound import BoundMajorizationClassifier
from manyclass.estimators.calibrated import CalibratedLeastSquaresClassifier
from manyclass.estimators.classifier import SDCAClassifier
from manyclass.estimators.cross_validation import SDCAClassifierCV, SDCARegressorCV
from manyclass.estimators.ds_mlr import DSMLRClassifier
from manyclass.estimators.least_squares import LeastSquaresClassifier
from manyclass.estimators.log_linear import LogLinearModel
from manyclass.estimators.memoir import MemoirClassifier
from manyclass.estimators.regressor import SDCARegressor
from manyclass.estimators.stagewise import StagewiseClassifier
from manyclass.estimators.stagewise_regressor import StagewiseRegressor

__all__ = [
    "BoundMajorizationClassifier",
    "LogLinearModel",
    "CalibratedLeastSquaresClassifier",
    "DSMLRClassifier",
    "LeastSquaresClassifier",
    "MemoirClassifier",
    "SDCAClassifier",
    "SDCAClassifierCV",
    "SDCARegressor",
    "SDCARegressorCV",
    "StagewiseClassifier",
    "StagewiseRegressor",
]

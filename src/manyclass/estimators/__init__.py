"""scikit-learn estimators: they validate input, build a `Problem`, call the fitting loop and store the model.

Modules are imported when their names are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyclass.runtime.lazy import on_first_use

if TYPE_CHECKING:  # "as": re-exported for type checkers
    from manyclass.estimators.calibrated import CalibratedLeastSquaresClassifier as CalibratedLeastSquaresClassifier
    from manyclass.estimators.classifier import LinearClassifier as LinearClassifier
    from manyclass.estimators.cross_validation import (
        LinearClassifierCV as LinearClassifierCV,
        LinearRegressorCV as LinearRegressorCV,
    )
    from manyclass.estimators.least_squares import (
        GeneralizedLeastSquaresClassifier as GeneralizedLeastSquaresClassifier,
    )
    from manyclass.estimators.linear_chain import LinearChainCRF as LinearChainCRF
    from manyclass.estimators.log_linear import LogLinearModel as LogLinearModel
    from manyclass.estimators.regressor import LinearRegressor as LinearRegressor
    from manyclass.estimators.stagewise import StagewiseClassifier as StagewiseClassifier
    from manyclass.estimators.stagewise_regressor import StagewiseRegressor as StagewiseRegressor

#: Public name -> its module.
_MODULES = {
    "CalibratedLeastSquaresClassifier": "calibrated",
    "LinearClassifier": "classifier",
    "LinearClassifierCV": "cross_validation",
    "LinearRegressorCV": "cross_validation",
    "GeneralizedLeastSquaresClassifier": "least_squares",
    "LinearChainCRF": "linear_chain",
    "LogLinearModel": "log_linear",
    "LinearRegressor": "regressor",
    "StagewiseClassifier": "stagewise",
    "StagewiseRegressor": "stagewise_regressor",
}

__all__ = list(_MODULES)

__getattr__, __dir__ = on_first_use(
    __name__, {name: f"manyclass.estimators.{module}" for name, module in _MODULES.items()}
)

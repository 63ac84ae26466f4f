"""scikit-learn estimators: they validate input, build a `Problem`, call the fitting loop and store the model.

Modules are imported when their names are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "LogLinearModel": "log_linear",
    "LinearRegressor": "regressor",
    "StagewiseClassifier": "stagewise",
    "StagewiseRegressor": "stagewise_regressor",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"manyclass.estimators.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

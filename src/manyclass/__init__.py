"""manyclass: linear prediction with many classes - exact, certified, fast.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from manyclass._version import __version__

if TYPE_CHECKING:
    from manyclass.estimators.bound import BoundMajorizationClassifier
    from manyclass.estimators.calibrated import CalibratedLeastSquaresClassifier
    from manyclass.estimators.classifier import SDCAClassifier
    from manyclass.estimators.cross_validation import SDCAClassifierCV, SDCARegressorCV
    from manyclass.estimators.ds_mlr import DSMLRClassifier
    from manyclass.estimators.least_squares import LeastSquaresClassifier
    from manyclass.estimators.log_linear import LogLinearModel
    from manyclass.estimators.memoir import MemoirClassifier
    from manyclass.estimators.path import RegularizationPath, regularization_path
    from manyclass.estimators.regressor import SDCARegressor
    from manyclass.estimators.stagewise import StagewiseClassifier
    from manyclass.estimators.stagewise_regressor import StagewiseRegressor
    from manyclass.features import (
        FeatureSubset,
        KMeansPatches,
        PrincipalComponents,
        RandomFourier,
        RandomLogits,
        RandomPatches,
        RandomPolynomial,
    )
    from manyclass.models.base import load_model
    from manyclass.models.linear import LinearModel
    from manyclass.models.sharded import ShardedModel
    from manyclass.models.staged import StagedModel
    from manyclass.solvers.out_of_core import fit_blocks

__all__ = [
    "BoundMajorizationClassifier",
    "LinearModel",
    "LogLinearModel",
    "CalibratedLeastSquaresClassifier",
    "DSMLRClassifier",
    "FeatureSubset",
    "KMeansPatches",
    "LeastSquaresClassifier",
    "MemoirClassifier",
    "PrincipalComponents",
    "RandomFourier",
    "RandomLogits",
    "RandomPatches",
    "RandomPolynomial",
    "RegularizationPath",
    "SDCAClassifier",
    "SDCAClassifierCV",
    "SDCARegressor",
    "SDCARegressorCV",
    "ShardedModel",
    "StagedModel",
    "StagewiseClassifier",
    "StagewiseRegressor",
    "__version__",
    "fit_blocks",
    "load_model",
    "regularization_path",
]

_HOMES = {
    "BoundMajorizationClassifier": "manyclass.estimators.bound",
    "LinearModel": "manyclass.models.linear",
    "LogLinearModel": "manyclass.estimators.log_linear",
    "CalibratedLeastSquaresClassifier": "manyclass.estimators.calibrated",
    "DSMLRClassifier": "manyclass.estimators.ds_mlr",
    "FeatureSubset": "manyclass.features.subset",
    "KMeansPatches": "manyclass.features.patches",
    "LeastSquaresClassifier": "manyclass.estimators.least_squares",
    "MemoirClassifier": "manyclass.estimators.memoir",
    "PrincipalComponents": "manyclass.features.components",
    "RandomFourier": "manyclass.features.fourier",
    "RandomLogits": "manyclass.features.projections",
    "RandomPatches": "manyclass.features.patches",
    "RandomPolynomial": "manyclass.features.projections",
    "RegularizationPath": "manyclass.estimators.path",
    "SDCAClassifier": "manyclass.estimators.classifier",
    "SDCAClassifierCV": "manyclass.estimators.cross_validation",
    "SDCARegressor": "manyclass.estimators.regressor",
    "SDCARegressorCV": "manyclass.estimators.cross_validation",
    "ShardedModel": "manyclass.models.sharded",
    "fit_blocks": "manyclass.solvers.out_of_core",
    "load_model": "manyclass.models.base",
    "StagedModel": "manyclass.models.staged",
    "StagewiseClassifier": "manyclass.estimators.stagewise",
    "StagewiseRegressor": "manyclass.estimators.stagewise_regressor",
    "regularization_path": "manyclass.estimators.path",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'manyclass' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

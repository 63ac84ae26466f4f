"""manyclass: linear prediction with many classes - exact, certified, fast.

Modules are imported when their names are first used, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from manyclass._version import __version__

if TYPE_CHECKING:  # "as": re-exported for type checkers
    from manyclass.estimators.calibrated import CalibratedLeastSquaresClassifier as CalibratedLeastSquaresClassifier
    from manyclass.estimators.certify import Suboptimality as Suboptimality, certify as certify
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
    from manyclass.estimators.path import (
        RegularizationPath as RegularizationPath,
        regularization_path as regularization_path,
    )
    from manyclass.estimators.regressor import LinearRegressor as LinearRegressor
    from manyclass.estimators.stagewise import StagewiseClassifier as StagewiseClassifier
    from manyclass.estimators.stagewise_regressor import StagewiseRegressor as StagewiseRegressor
    from manyclass.features import (
        FeatureSubset as FeatureSubset,
        KMeansPatches as KMeansPatches,
        PrincipalComponents as PrincipalComponents,
        RandomFourier as RandomFourier,
        RandomLogits as RandomLogits,
        RandomPatches as RandomPatches,
        RandomPolynomial as RandomPolynomial,
    )
    from manyclass.io.encoder import TableEncoder as TableEncoder
    from manyclass.io.text import TextVectorizer as TextVectorizer
    from manyclass.models.explain import Explanation as Explanation
    from manyclass.models.linear import LinearModel as LinearModel
    from manyclass.models.loading import load as load, save as save
    from manyclass.models.page import write_report as write_report
    from manyclass.models.sharded import ShardedModel as ShardedModel
    from manyclass.models.staged import StagedModel as StagedModel
    from manyclass.objective.losses import (
        CrammerSinger as CrammerSinger,
        Hinge as Hinge,
        Huber as Huber,
        LogLoss as LogLoss,
        Multinomial as Multinomial,
        SmoothHinge as SmoothHinge,
        SoftmaxHinge as SoftmaxHinge,
        Squared as Squared,
        SquaredHinge as SquaredHinge,
    )
    from manyclass.solvers import (
        DSMLR as DSMLR,
        FISTA as FISTA,
        LBFGS as LBFGS,
        SDCA as SDCA,
        SGD as SGD,
        AcceleratedSDCA as AcceleratedSDCA,
        ActiveSetSDCA as ActiveSetSDCA,
        AsyncSDCA as AsyncSDCA,
        BoundMajorization as BoundMajorization,
        ConjugateGradient as ConjugateGradient,
        CoordinateDescent as CoordinateDescent,
        DataParallelSDCA as DataParallelSDCA,
        GeneralizedLeastSquares as GeneralizedLeastSquares,
        GradientDescent as GradientDescent,
        InteriorPoint as InteriorPoint,
        LogConcavity as LogConcavity,
        Memoir as Memoir,
        Newton as Newton,
        OutOfCore as OutOfCore,
        PreconditionedLBFGS as PreconditionedLBFGS,
    )

#: Public name -> its module; the list of all public names.
_MODULES = {
    **dict.fromkeys(("LinearClassifier",), "estimators.classifier"),
    **dict.fromkeys(("LinearRegressor",), "estimators.regressor"),
    **dict.fromkeys(("Suboptimality", "certify"), "estimators.certify"),
    **dict.fromkeys(("LinearClassifierCV", "LinearRegressorCV"), "estimators.cross_validation"),
    **dict.fromkeys(("GeneralizedLeastSquaresClassifier",), "estimators.least_squares"),
    **dict.fromkeys(("CalibratedLeastSquaresClassifier",), "estimators.calibrated"),
    **dict.fromkeys(("StagewiseClassifier",), "estimators.stagewise"),
    **dict.fromkeys(("StagewiseRegressor",), "estimators.stagewise_regressor"),
    **dict.fromkeys(("LinearChainCRF",), "estimators.linear_chain"),
    **dict.fromkeys(("LogLinearModel",), "estimators.log_linear"),
    **dict.fromkeys(("RegularizationPath", "regularization_path"), "estimators.path"),
    **dict.fromkeys(
        (
            *("CrammerSinger", "Hinge", "Huber", "LogLoss", "Multinomial"),
            *("SmoothHinge", "SoftmaxHinge", "Squared", "SquaredHinge"),
        ),
        "objective.losses",
    ),
    **dict.fromkeys(
        (
            *("SDCA", "AcceleratedSDCA", "ActiveSetSDCA", "AsyncSDCA", "InteriorPoint", "FISTA", "LBFGS"),
            *("CoordinateDescent", "PreconditionedLBFGS", "Newton", "ConjugateGradient", "GradientDescent", "SGD"),
            *("GeneralizedLeastSquares", "BoundMajorization", "DSMLR", "LogConcavity", "Memoir", "OutOfCore"),
            "DataParallelSDCA",
        ),
        "solvers",
    ),
    **dict.fromkeys(
        (
            *("FeatureSubset", "KMeansPatches", "PrincipalComponents", "RandomFourier"),
            *("RandomLogits", "RandomPatches", "RandomPolynomial"),
        ),
        "features",
    ),
    **dict.fromkeys(("load", "save"), "models.loading"),
    **dict.fromkeys(("write_report",), "models.page"),
    **dict.fromkeys(("TableEncoder",), "io.encoder"),
    **dict.fromkeys(("TextVectorizer",), "io.text"),
    **dict.fromkeys(("LinearModel",), "models.linear"),
    **dict.fromkeys(("Explanation",), "models.explain"),
    **dict.fromkeys(("StagedModel",), "models.staged"),
    **dict.fromkeys(("ShardedModel",), "models.sharded"),
}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"manyclass.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'manyclass' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

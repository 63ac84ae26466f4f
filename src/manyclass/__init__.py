"""manyclass: linear prediction with many classes - exact, certified, fast.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from manyclass._version import __version__

if TYPE_CHECKING:  # "as": offered to type checkers, too
    from manyclass.estimators.calibrated import CalibratedLeastSquaresClassifier as CalibratedLeastSquaresClassifier
    from manyclass.estimators.classifier import LinearClassifier as LinearClassifier
    from manyclass.estimators.cross_validation import (
        LinearClassifierCV as LinearClassifierCV,
    )
    from manyclass.estimators.cross_validation import (
        LinearRegressorCV as LinearRegressorCV,
    )
    from manyclass.estimators.least_squares import (
        GeneralizedLeastSquaresClassifier as GeneralizedLeastSquaresClassifier,
    )
    from manyclass.estimators.log_linear import LogLinearModel as LogLinearModel
    from manyclass.estimators.path import (
        RegularizationPath as RegularizationPath,
    )
    from manyclass.estimators.path import (
        regularization_path as regularization_path,
    )
    from manyclass.estimators.regressor import LinearRegressor as LinearRegressor
    from manyclass.estimators.stagewise import StagewiseClassifier as StagewiseClassifier
    from manyclass.estimators.stagewise_regressor import StagewiseRegressor as StagewiseRegressor
    from manyclass.features import (
        FeatureSubset as FeatureSubset,
    )
    from manyclass.features import (
        KMeansPatches as KMeansPatches,
    )
    from manyclass.features import (
        PrincipalComponents as PrincipalComponents,
    )
    from manyclass.features import (
        RandomFourier as RandomFourier,
    )
    from manyclass.features import (
        RandomLogits as RandomLogits,
    )
    from manyclass.features import (
        RandomPatches as RandomPatches,
    )
    from manyclass.features import (
        RandomPolynomial as RandomPolynomial,
    )
    from manyclass.io.text import TextVectorizer as TextVectorizer
    from manyclass.models.base import load as load
    from manyclass.models.base import save as save
    from manyclass.models.linear import LinearModel as LinearModel
    from manyclass.models.sharded import ShardedModel as ShardedModel
    from manyclass.models.staged import StagedModel as StagedModel
    from manyclass.objective.losses import (
        CrammerSinger as CrammerSinger,
    )
    from manyclass.objective.losses import (
        Hinge as Hinge,
    )
    from manyclass.objective.losses import (
        Huber as Huber,
    )
    from manyclass.objective.losses import (
        LogLoss as LogLoss,
    )
    from manyclass.objective.losses import (
        Multinomial as Multinomial,
    )
    from manyclass.objective.losses import (
        SmoothHinge as SmoothHinge,
    )
    from manyclass.objective.losses import (
        SoftmaxHinge as SoftmaxHinge,
    )
    from manyclass.objective.losses import (
        Squared as Squared,
    )
    from manyclass.objective.losses import (
        SquaredHinge as SquaredHinge,
    )
    from manyclass.solvers import (
        DSMLR as DSMLR,
    )
    from manyclass.solvers import (
        FISTA as FISTA,
    )
    from manyclass.solvers import (
        LBFGS as LBFGS,
    )
    from manyclass.solvers import (
        SDCA as SDCA,
    )
    from manyclass.solvers import (
        SGD as SGD,
    )
    from manyclass.solvers import (
        AcceleratedSDCA as AcceleratedSDCA,
    )
    from manyclass.solvers import (
        ActiveSetSDCA as ActiveSetSDCA,
    )
    from manyclass.solvers import (
        AsyncSDCA as AsyncSDCA,
    )
    from manyclass.solvers import (
        BoundMajorization as BoundMajorization,
    )
    from manyclass.solvers import (
        ConjugateGradient as ConjugateGradient,
    )
    from manyclass.solvers import (
        CoordinateDescent as CoordinateDescent,
    )
    from manyclass.solvers import (
        GeneralizedLeastSquares as GeneralizedLeastSquares,
    )
    from manyclass.solvers import (
        GradientDescent as GradientDescent,
    )
    from manyclass.solvers import (
        LogConcavity as LogConcavity,
    )
    from manyclass.solvers import (
        Memoir as Memoir,
    )
    from manyclass.solvers import (
        Newton as Newton,
    )
    from manyclass.solvers import (
        PreconditionedLBFGS as PreconditionedLBFGS,
    )
    from manyclass.solvers.out_of_core import fit_blocks as fit_blocks

#: Public name -> the module that has it: the one list of what the package offers.
_HOMES = {
    **dict.fromkeys(("LinearClassifier",), "estimators.classifier"),
    **dict.fromkeys(("LinearRegressor",), "estimators.regressor"),
    **dict.fromkeys(("LinearClassifierCV", "LinearRegressorCV"), "estimators.cross_validation"),
    **dict.fromkeys(("GeneralizedLeastSquaresClassifier",), "estimators.least_squares"),
    **dict.fromkeys(("CalibratedLeastSquaresClassifier",), "estimators.calibrated"),
    **dict.fromkeys(("StagewiseClassifier",), "estimators.stagewise"),
    **dict.fromkeys(("StagewiseRegressor",), "estimators.stagewise_regressor"),
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
            *("SDCA", "AcceleratedSDCA", "ActiveSetSDCA", "AsyncSDCA", "CoordinateDescent", "FISTA", "LBFGS"),
            *("PreconditionedLBFGS", "Newton", "ConjugateGradient", "GradientDescent", "SGD"),
            *("GeneralizedLeastSquares", "BoundMajorization", "DSMLR", "LogConcavity", "Memoir"),
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
    **dict.fromkeys(("load", "save"), "models.base"),
    **dict.fromkeys(("TextVectorizer",), "io.text"),
    **dict.fromkeys(("LinearModel",), "models.linear"),
    **dict.fromkeys(("StagedModel",), "models.staged"),
    **dict.fromkeys(("ShardedModel",), "models.sharded"),
    **dict.fromkeys(("fit_blocks",), "solvers.out_of_core"),
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"manyclass.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'manyclass' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

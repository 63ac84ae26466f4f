"""Losses, one file each: the class that a user writes, and the NamedTuple that kernels work on."""

from manyclass.objective.losses.base import ClassificationLoss, CompiledLoss, Loss, RegressionLoss
from manyclass.objective.losses.crammer_singer import CrammerSinger, CrammerSingerLoss
from manyclass.objective.losses.hinges import Hinge, SmoothHinge, SmoothHingeLoss, SquaredHinge, SquaredHingeLoss
from manyclass.objective.losses.huber import Huber, HuberLoss
from manyclass.objective.losses.log_loss import LogisticLoss, LogLoss
from manyclass.objective.losses.multinomial import Multinomial, MultinomialLoss, SoftmaxHinge
from manyclass.objective.losses.segment import OPTIONS, Segment
from manyclass.objective.losses.soft import SoftLogisticLoss, SoftMultinomialLoss
from manyclass.objective.losses.squared import Squared, SquaredLoss

__all__ = [
    "CLASSIFICATION",
    "OPTIONS",
    "REGRESSION",
    "ClassificationLoss",
    "CompiledLoss",
    "CrammerSinger",
    "CrammerSingerLoss",
    "Hinge",
    "Huber",
    "HuberLoss",
    "LogLoss",
    "LogisticLoss",
    "Loss",
    "Multinomial",
    "MultinomialLoss",
    "RegressionLoss",
    "Segment",
    "SmoothHinge",
    "SmoothHingeLoss",
    "SoftLogisticLoss",
    "SoftMultinomialLoss",
    "SoftmaxHinge",
    "Squared",
    "SquaredHinge",
    "SquaredHingeLoss",
    "SquaredLoss",
]

#: Name -> loss. Choices, help, error messages, documentation tables and tests are generated from this list.
CLASSIFICATION: dict[str, type[ClassificationLoss]] = {
    loss.name: loss for loss in (Multinomial, CrammerSinger, SoftmaxHinge, LogLoss, SquaredHinge, SmoothHinge, Hinge)
}
REGRESSION: dict[str, type[RegressionLoss]] = {loss.name: loss for loss in (Squared, Huber)}

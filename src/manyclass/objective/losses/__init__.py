"""Losses: a NamedTuple each, with compiled behaviour attached to its type."""

from manyclass.objective.losses.base import Loss
from manyclass.objective.losses.crammer_singer import CrammerSinger
from manyclass.objective.losses.hinges import SmoothHinge, SquaredHinge
from manyclass.objective.losses.huber import Huber
from manyclass.objective.losses.log_loss import LogLoss
from manyclass.objective.losses.multinomial import Multinomial
from manyclass.objective.losses.segment import OPTIONS, Segment
from manyclass.objective.losses.squared import Squared

__all__ = [
    "OPTIONS",
    "CrammerSinger",
    "Huber",
    "LogLoss",
    "Loss",
    "Multinomial",
    "Segment",
    "SmoothHinge",
    "Squared",
    "SquaredHinge",
]

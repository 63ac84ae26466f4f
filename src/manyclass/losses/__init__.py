"""Losses: a NamedTuple each, with compiled behaviour attached to its type."""

from manyclass.losses.base import Loss
from manyclass.losses.crammer_singer import CrammerSinger
from manyclass.losses.hinges import SmoothHinge, SquaredHinge
from manyclass.losses.huber import Huber
from manyclass.losses.log_loss import LogLoss
from manyclass.losses.multinomial import Multinomial
from manyclass.losses.segment import OPTIONS, Segment
from manyclass.losses.squared import Squared

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

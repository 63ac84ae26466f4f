"""Links: functions that turn scores into probabilities."""

from collections.abc import Callable
from typing import Any

from manyclass.objective.links.identity import identity
from manyclass.objective.links.sigmoid import normalized_sigmoid, sigmoid
from manyclass.objective.links.softmax import softmax

__all__ = ["LINKS", "identity", "normalized_sigmoid", "sigmoid", "softmax"]

#: Name in model files -> link. Each takes scores of shape (..., K) and ``out``.
LINKS: dict[str, Callable[..., Any]] = {"identity": identity, "sigmoid": sigmoid, "softmax": softmax}

"""Which kernel turns scores into gradients of the losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manyclass.kernels import primal, softmax
from manyclass.kernels.targets import ClassTargets, Targets
from manyclass.objective.losses import MultinomialLoss

__all__ = ["responder"]


def responder(loss: Any, targets: Targets) -> Callable[..., float]:
    """The fastest of the kernels that do what `manyclass.kernels.primal.respond_at` does."""
    if isinstance(loss, MultinomialLoss) and isinstance(targets, ClassTargets):
        return softmax.softmax_at
    return primal.respond_at

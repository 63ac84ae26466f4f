"""What a penalty says of itself to Python; what it computes is attached to its type (`kernels.operations`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["provides"]

C = TypeVar("C", bound=type)


def provides(name: str, *abilities: str) -> Callable[[C], C]:
    """Class decorator: what messages call this penalty, and what a solver may ask of it.

    "conjugate": grad g* and g* are known everywhere; "prox": the proximal map of g; "gradient": g is differentiable.
    """

    def settle(cls: C) -> C:
        cls.name = name  # type: ignore[attr-defined]
        cls.provides = frozenset(abilities)  # type: ignore[attr-defined]
        return cls

    return settle

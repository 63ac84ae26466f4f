"""What a regulariser says of itself to Python; what it computes is attached to its type (`kernels.operations`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["provides"]

C = TypeVar("C", bound=type)


def provides(*abilities: str) -> Callable[[C], C]:
    """Class decorator: what a solver may ask of this regulariser ("conjugate": grad g* and g* are known everywhere;
    "prox": the proximal map of g; "gradient": g is differentiable)."""

    def settle(cls: C) -> C:
        cls.provides = frozenset(abilities)  # type: ignore[attr-defined]
        return cls

    return settle

"""Attributes of penalties; their operations are overloads for their types (`manyclass.kernels.operations`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["provides"]

C = TypeVar("C", bound=type)


def provides(name: str, *abilities: str) -> Callable[[C], C]:
    """Class decorator that sets ``name``, for messages, and ``provides``, the operations that solvers require.

    "conjugate": g* and grad g* are finite everywhere; "prox": the proximal map of g; "gradient": g is differentiable;
    "plain": grad g* is the identity.
    """

    def decorate(cls: C) -> C:
        cls.name = name  # type: ignore[attr-defined]
        cls.provides = frozenset(abilities)  # type: ignore[attr-defined]
        return cls

    return decorate

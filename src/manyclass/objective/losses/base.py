"""The two shapes a loss comes in.

Joint losses (multinomial, Crammer-Singer) implement the row operations of `manyclass.kernels.operations`. Separable
losses (one-vs-rest, regression) implement the ``unit_*`` operations of one score; their row operations are sums over
the K outputs, written once, here.

A compiled loss is a NamedTuple; its fields are numbers of the working precision. A user names it by a `Loss`, an object
with parameters. `describe` says the rest of the compiled one to Python:

``name``         what a user calls it
``targets``      "class", "sign" or "real": the targets it takes
``joint``        whether the K scores of an example enter together; if not, the loss is separable
``provides``     what a solver may ask for: "gradient", "hessian", "conjugate", "dual_step", "sparse_dual"
``smoothness``   gamma where phi is (1/gamma)-smooth, 0 where it is not smooth
``free_dual``    whether phi* is finite everywhere
``probability``  "softmax", "sigmoid" or None: the link that turns scores into probabilities
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from manyclass.kernels.jit import implements
from manyclass.kernels.operations import (
    dual_step,
    loss_conjugate,
    loss_gradient,
    loss_hessian,
    loss_value,
    unit_conjugate,
    unit_gradient,
    unit_hessian,
    unit_step,
    unit_value,
)
from manyclass.objective.component import Component

__all__ = ["ClassificationLoss", "CompiledLoss", "Loss", "RegressionLoss", "describe", "is_separable"]


class Loss(Component):
    """A loss as a user writes it: what it is called, its parameters, and the compiled loss they describe."""

    @abstractmethod
    def compiled(self, binary: bool = False) -> Any:
        """The NamedTuple that kernels work on; with ``binary``, its form on the one margin of two classes."""


class ClassificationLoss(Loss):
    """A loss of classes."""

    #: Whether the scores of an example enter together; it then has one class a row. If not, the loss is one-vs-rest.
    joint: ClassVar[bool]
    #: Whether a fitted model gives probabilities.
    probabilities: ClassVar[bool]


class RegressionLoss(Loss):
    """A loss of numbers."""


class CompiledLoss(Protocol):
    """What a compiled loss tells Python code; what it computes is attached to its type (see the module)."""

    name: str
    targets: str
    joint: bool
    free_dual: bool
    provides: frozenset[str]
    probability: str | None

    @property
    def smoothness(self) -> float: ...


_SEPARABLE: set[type] = set()

C = TypeVar("C", bound=type)


def describe(
    *,
    name: str | Callable[[Any], str],
    targets: str,
    joint: bool = False,
    free_dual: bool = False,
    provides: Iterable[str] = ("gradient", "hessian", "conjugate", "dual_step"),
    probability: str | None = None,
    smoothness: float | None = None,
) -> Callable[[C], C]:
    """Class decorator: the facts about a loss (see the module). ``smoothness`` None means: its field ``gamma``."""

    def settle(cls: C) -> C:
        facts: dict[str, Any] = {
            "name": property(name) if callable(name) else name,
            "targets": targets,
            "joint": joint,
            "free_dual": free_dual,
            "provides": frozenset(provides),
            "probability": probability,
            "smoothness": property(lambda self: float(self.gamma)) if smoothness is None else smoothness,
        }
        for attribute, fact in facts.items():
            setattr(cls, attribute, fact)
        if not joint:
            _SEPARABLE.add(cls)
        return cls

    return settle


def is_separable(loss: Any) -> bool:
    """Whether a Numba type is that of a separable loss."""
    return getattr(loss, "instance_class", None) in _SEPARABLE


@implements(loss_value)
def _loss_value(loss: Any, s: Any, t: Any, work: Any) -> Any:
    if not is_separable(loss):
        return None

    def total(loss, s, t, work):
        value = 0.0
        for k in range(s.shape[0]):
            value += unit_value(loss, s[k], t[k])
        return value

    return total


@implements(loss_gradient)
def _loss_gradient(loss: Any, s: Any, t: Any, out: Any) -> Any:
    if not is_separable(loss):
        return None

    def each(loss, s, t, out):
        for k in range(s.shape[0]):
            out[k] = unit_gradient(loss, s[k], t[k])

    return each


@implements(loss_hessian)
def _loss_hessian(loss: Any, s: Any, t: Any, u: Any, out: Any) -> Any:
    if not is_separable(loss):
        return None

    def each(loss, s, t, u, out):
        for k in range(s.shape[0]):
            out[k] = unit_hessian(loss, s[k], t[k]) * u[k]

    return each


@implements(loss_conjugate)
def _loss_conjugate(loss: Any, a: Any, t: Any) -> Any:
    if not is_separable(loss):
        return None

    def total(loss, a, t):
        value = 0.0
        for k in range(a.shape[0]):
            value += unit_conjugate(loss, np.float64(a[k]), np.float64(t[k]))
        return value

    return total


@implements(dual_step)
def _dual_step(loss: Any, s: Any, a: Any, t: Any, q: Any, new: Any) -> Any:
    if not is_separable(loss):
        return None

    def each(loss, s, a, t, q, new):
        for k in range(s.shape[0]):
            new[k] = unit_step(loss, s[k], a[k], t[k], q)

    return each

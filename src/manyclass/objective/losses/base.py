"""Base classes of the losses.

Joint losses (multinomial, Crammer-Singer) implement the row operations of `manyclass.kernels.operations`. Separable
losses (one-vs-rest, regression) implement the ``unit_*`` operations on one score; their row operations, sums over the K
outputs, are in this module.

Each loss has two classes: a `Loss`, the object with parameters that a user writes, and a compiled loss, the NamedTuple
that kernels work on, whose fields are numbers of the working precision. `describe` adds to the latter:

``name``         the name of the user's loss
``targets``      the targets it takes: "class", "sign", "real", "distribution" (of classes), "probabilities" (of labels)
``joint``        whether the loss depends on the K scores of an example jointly; if not, it is separable
``provides``     the operations it implements: "gradient", "hessian", "conjugate", "dual_step", "sparse_dual"
``smoothness``   gamma where phi is (1/gamma)-smooth, 0 where it is not smooth
``free_dual``    whether phi* is finite everywhere
``probability``  "softmax", "sigmoid" or None: the link that turns scores into probabilities
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from hashlib import sha256
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

__all__ = [
    "ClassificationLoss",
    "CompiledLoss",
    "Loss",
    "RegressionLoss",
    "describe",
    "is_separable",
    "signature",
    "working",
]


class Loss(Component):
    """Base class of the losses that a user writes: a name, parameters, and the compiled loss for them."""

    @abstractmethod
    def compiled(self, binary: bool = False) -> Any:
        """The NamedTuple that kernels work on; with ``binary``, its form for two classes with a single score."""


class ClassificationLoss(Loss):
    """Base class of the losses for classification."""

    #: Whether the loss depends on the K scores jointly and takes one class per row. If not, it is one-vs-rest.
    joint: ClassVar[bool]
    #: Whether a fitted model has predict_proba.
    probabilities: ClassVar[bool]

    @property
    def one_margin(self) -> bool:
        """Whether two classes need one score only, the margin."""
        return True

    def compiled_soft(self) -> Any:
        """The compiled loss for distributions over the classes, or probabilities of labels; None if there is none."""
        return None


class RegressionLoss(Loss):
    """Base class of the losses for regression."""


class CompiledLoss(Protocol):
    """The attributes of a compiled loss (see the module); its operations are overloads for its type."""

    name: str
    targets: str
    joint: bool
    free_dual: bool
    provides: frozenset[str]
    probability: str | None

    @property
    def smoothness(self) -> float: ...


def working(part: T, dtype: Any) -> T:
    """A compiled loss or penalty with its parameters, numbers and arrays, of the working precision.

    Raises
    ------
    ValueError
        If one of them is negative or not finite.
    """
    made: list[Any] = []
    for name, value in part._asdict().items():  # type: ignore[attr-defined]
        if isinstance(value, tuple):
            made.append(value)
            continue
        if not (np.isfinite(value).all() and np.all(value >= 0)):
            raise ValueError(f"{name} of {type(part).__name__} must be a finite number of at least 0, got {value!r}")
        array = isinstance(value, np.ndarray)
        made.append(np.ascontiguousarray(value, dtype) if array else np.dtype(dtype).type(value))
    return type(part)(*made)


def signature(loss: Any) -> tuple[Any, ...]:
    """The parameters of a compiled loss or a penalty as values that can be compared: numbers, and hashes of arrays."""
    return tuple(
        sha256(np.ascontiguousarray(value).tobytes()).hexdigest() if isinstance(value, np.ndarray) else float(value)
        for value in loss
        if not isinstance(value, tuple)
    )


_SEPARABLE: set[type] = set()

C = TypeVar("C", bound=type)
T = TypeVar("T")


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
    """Class decorator that sets the attributes of a compiled loss (see the module).

    With ``smoothness`` None, the attribute is the loss's field ``gamma``.
    """

    def decorate(cls: C) -> C:
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

    return decorate


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

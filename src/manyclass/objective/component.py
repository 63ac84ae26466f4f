"""`Component`, the base class of losses and solvers: objects with parameters that follow scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from sklearn.base import BaseEstimator

from manyclass.runtime.names import did_you_mean

__all__ = ["Component", "resolve"]

C = TypeVar("C", bound="Component")


class Component(BaseEstimator):  # type: ignore[misc]
    """Base class of losses and solvers, the parts of an estimator that have parameters of their own.

    ``get_params``, ``set_params``, `sklearn.base.clone` and scikit-learn's display work as for an estimator: a grid
    search can vary ``solver__option``. The constructor stores its arguments unchanged; ``fit`` calls `check`, which
    validates them.
    """

    #: The string that stands for an object with default parameters.
    name: ClassVar[str]
    #: One line for tables and ``--help``.
    summary: ClassVar[str]
    #: Names of the same thing in other libraries, for error messages.
    synonyms: ClassVar[tuple[str, ...]] = ()
    #: Constraints on the parameters, in scikit-learn's format.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def check(self) -> None:
        """Raise a ValueError if a parameter violates its constraints."""
        self._validate_params()


def resolve(kind: str, value: Any, known: Mapping[str, type[C]], others: Iterable[str] = ()) -> C:
    """The loss or solver with this name, or the object itself, validated.

    Parameters
    ----------
    kind : {"loss", "solver"}
        The name of the estimator's parameter, for messages.
    value : str or object
        A name or an object.
    known : mapping of str to class
        The classes by name.
    others : iterable of str
        Names that the caller handles itself, for messages.

    Raises
    ------
    ValueError
        If the name is unknown (the message suggests the closest one), the object is of another class, or one of its
        parameters is out of range.
    """
    if isinstance(value, str) and value in known:
        return known[value]()
    for cls in known.values():
        if type(value) is cls:
            value.check()
            return value
    given = value if isinstance(value, str) else ""
    synonyms = {word: name for name, cls in known.items() for word in cls.synonyms}
    words = [*others, *known]
    names = ", ".join(map(repr, words))
    raise ValueError(
        f"{kind} must be one of {names}, or an object such as {next(iter(known.values())).__name__}(), got "
        f"{value!r}{did_you_mean(given, words, synonyms)}"
    )

"""Losses and solvers as a user writes them: a name, or an object whose parameters follow scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from sklearn.base import BaseEstimator

from manyclass.runtime.names import did_you_mean

__all__ = ["Component", "resolve"]

C = TypeVar("C", bound="Component")


class Component(BaseEstimator):  # type: ignore[misc]
    """A part of an estimator with parameters of its own: a loss or a solver.

    ``get_params``, ``set_params``, `sklearn.base.clone` and scikit-learn's display work as for an estimator, so that a
    search over ``solver__option`` does. The constructor stores what it is given; `check` validates it, and is called by
    ``fit``.
    """

    #: What a user may write instead of the object.
    name: ClassVar[str]
    #: One line for tables and ``--help``.
    summary: ClassVar[str]
    #: Names that other libraries use for it.
    synonyms: ClassVar[tuple[str, ...]] = ()
    #: Constraints of the parameters, as scikit-learn declares them.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def check(self) -> None:
        """Raise a ValueError if a parameter is not what is expected."""
        self._validate_params()


def resolve(kind: str, value: Any, known: Mapping[str, type[C]], others: Iterable[str] = ()) -> C:
    """The object that a name stands for, or the object itself, checked.

    Parameters
    ----------
    kind : {"loss", "solver"}
        For the error.
    value : str or object
    known : mapping of str to class
        What a name may be.
    others : iterable of str
        Names that the caller understands by itself, for the error.

    Raises
    ------
    ValueError
        If the name is not known (with the nearest that is), the object is of another kind, or one of its parameters is
        out of range.
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

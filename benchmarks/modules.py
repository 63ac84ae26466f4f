"""The modules of a kind: an experiment, a data set and a peer are one file each, known by its file name."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

__all__ = ["Unknown", "module", "names", "summary"]


class Unknown(ValueError):
    """A name that nothing here has."""


def names(kind: str) -> list[str]:
    """The names of the "experiments", "datasets" or "peers"."""
    package = importlib.import_module(f"benchmarks.{kind}")
    return sorted(found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_"))


def module(kind: str, name: str) -> ModuleType:
    """The module of that name.

    Raises
    ------
    Unknown
        If there is none.
    """
    if name not in names(kind):
        raise Unknown(f"there is no {name!r} in {kind}; there are {', '.join(names(kind))}")
    return importlib.import_module(f"benchmarks.{kind}.{name}")


def summary(found: ModuleType) -> str:
    """The first line of its documentation."""
    return (found.__doc__ or "").strip().splitlines()[0]

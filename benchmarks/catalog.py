"""What there is: each room is a folder, each of its files one thing, known by its file name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from benchmarks.data import Data
from benchmarks.task import Fit, Task

__all__ = ["Method", "Unknown", "experiment", "method", "module", "names", "summary"]


class Unknown(ValueError):
    """A name that is not in the catalogue."""


def names(room: str) -> list[str]:
    """The names of a room: experiments, datasets, methods or peers."""
    package = importlib.import_module(f"benchmarks.{room}")
    return sorted(found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_"))


def module(room: str, name: str) -> ModuleType:
    """The file of that name."""
    if name not in names(room):
        raise Unknown(f"there is no {name!r} in {room}; there are {', '.join(names(room))}")
    return importlib.import_module(f"benchmarks.{room}.{name}")


def summary(found: ModuleType) -> str:
    """The first line of its documentation."""
    return (found.__doc__ or "").strip().splitlines()[0]


def experiment(name: str) -> Any:
    return module("experiments", name)


@dataclass(frozen=True)
class Method:
    """A method of ours or a peer.

    Attributes
    ----------
    name : str
        Of its file.
    ours : bool
    objectives : tuple of str
        What it can minimise.
    multilabel : bool
        Whether rows may have several classes.
    skip_reason : callable
        None, or why it cannot run on this machine.
    refuses : callable
        None, or why it cannot solve a task.
    fit : callable
        ``fit(data, task, stop, *, threads, seed) -> Fit``.
    python : callable
        The interpreter it needs, where that is not this one.
    version : str
        Of the package it comes from.
    fit_classes : callable, optional
        ``fit_classes(data, task, stop, *, classes, threads, seed) -> Fit``: these classes alone, each against the rest,
        where it can; weights of d x len(classes), and the time estimated for all classes.
    memory : callable, optional
        ``memory(data, task, itemsize) -> int``: an estimate of the bytes it holds besides the data, with numbers of
        ``itemsize`` bytes.
    """

    name: str
    ours: bool
    objectives: tuple[str, ...]
    multilabel: bool
    skip_reason: Callable[[], str | None]
    refuses: Callable[[Task], str | None]
    fit: Callable[..., Fit]
    python: Callable[[], str | None]
    version: str
    fit_classes: Callable[..., Fit] | None = None
    memory: Callable[[Data, Task, int], int] | None = None


def method(name: str) -> Method:
    """The method or peer of that name."""
    ours = name in names("methods")
    if not ours and name not in names("peers"):
        raise Unknown(f"there is no method {name!r}; there are {', '.join(names('methods') + names('peers'))}")
    found = module("methods" if ours else "peers", name)
    objectives = tuple(found.OBJECTIVES)
    own_refusal = getattr(found, "refuses", lambda task: None)

    def refuses(task: Task) -> str | None:
        if task.objective not in objectives:
            return f"does not minimise {task.objective}"
        reason: str | None = own_refusal(task)
        return reason

    return Method(
        name=name,
        ours=ours,
        objectives=objectives,
        multilabel=getattr(found, "MULTILABEL", False),
        skip_reason=found.skip_reason,
        refuses=refuses,
        fit=found.fit,
        python=getattr(found, "python", lambda: None),
        version=_version(found.PACKAGE),
        fit_classes=getattr(found, "fit_classes", None),
        memory=getattr(found, "memory", None),
    )


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package

"""Methods, of ours and of others, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from benchmarks import modules
from benchmarks.data import Data
from benchmarks.modules import Unknown
from benchmarks.task import Fit, Task

__all__ = ["Method", "method", "ours"]


@dataclass(frozen=True)
class Method:
    """A method of ours or a peer.

    Attributes
    ----------
    name : str
    ours : bool
    about : str
        A line for the list.
    objectives : tuple of str
        What it can minimize.
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
    watch : callable, optional
        ``watch(data, task, target, *, threads, seed) -> int | None``: the iterations after which the objective that it
        computes itself is at ``target``, in one fit; None: it ends before.
    """

    name: str
    ours: bool
    about: str
    objectives: tuple[str, ...]
    multilabel: bool
    skip_reason: Callable[[], str | None]
    refuses: Callable[[Task], str | None]
    fit: Callable[..., Fit]
    python: Callable[[], str | None]
    version: str
    fit_classes: Callable[..., Fit] | None = None
    memory: Callable[[Data, Task, int], int] | None = None
    watch: Callable[..., int | None] | None = None


def ours() -> list[str]:
    """The names of the methods of ours."""
    from benchmarks.methods import METHODS

    return list(METHODS)


def method(name: str) -> Method:
    """The method or peer of that name.

    A peer's own environment need not have the library: it is imported for its methods alone.

    Raises
    ------
    Unknown
        If there is none.
    """
    if name in modules.names("peers"):
        return _peer(name)
    from benchmarks.methods import METHODS

    if name not in METHODS:
        raise Unknown(f"there is no method {name!r}; there are {', '.join([*ours(), *modules.names('peers')])}")
    found = METHODS[name]
    return Method(
        name=name,
        ours=True,
        about=found.about,
        objectives=found.objectives,
        multilabel=found.multilabel,
        skip_reason=getattr(found, "skip_reason", _nothing),
        refuses=found.refuses,
        fit=found.fit,
        python=_nothing,
        version=_version("manyclass"),
    )


def _peer(name: str) -> Method:
    found = modules.module("peers", name)
    objectives = tuple(found.OBJECTIVES)
    own_refusal = getattr(found, "refuses", lambda task: None)

    def refuses(task: Task) -> str | None:
        if task.objective not in objectives:
            return f"does not minimize {task.objective}"
        reason: str | None = own_refusal(task)
        return reason

    return Method(
        name=name,
        ours=False,
        about=modules.summary(found),
        objectives=objectives,
        multilabel=getattr(found, "MULTILABEL", False),
        skip_reason=found.skip_reason,
        refuses=refuses,
        fit=found.fit,
        python=getattr(found, "python", _nothing),
        version=_version(found.PACKAGE),
        fit_classes=getattr(found, "fit_classes", None),
        memory=getattr(found, "memory", None),
        watch=getattr(found, "watch", None),
    )


def _nothing() -> None:
    return None


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package

"""Solvers whose copies run on one communicator: it is shared with the object of the user, never copied."""

from __future__ import annotations

from typing import Any, TypeVar

from manyclass.distributed import Communicator, SerialCommunicator

__all__ = ["communicator_of", "on_communicator"]

S = TypeVar("S", bound=Any)


def communicator_of(solver: Any) -> Communicator:
    """The communicator that the parameter ``comm`` of a solver stands for.

    None is one process; "mpi" is a new one of all processes of the job, which the caller closes.
    """
    if solver.comm is None:
        return SerialCommunicator()
    if isinstance(solver.comm, str):
        from manyclass.distributed.mpi import MPICommunicator

        return MPICommunicator()
    comm: Communicator = solver.comm
    return comm


def on_communicator(solver: S, facts: tuple[str, ...] = ("scale",), comm: Communicator | None = None) -> S:
    """A checked copy of a distributed solver with its ``facts``, on a communicator: by default that of the original."""
    solver.check()
    copy: S = type(solver)(**solver.get_params(deep=False))
    comm = getattr(solver, "_comm", None) if comm is None else comm
    copy._comm = communicator_of(solver) if comm is None else comm
    for name in facts:
        setattr(copy, name, getattr(solver, name))
    return copy

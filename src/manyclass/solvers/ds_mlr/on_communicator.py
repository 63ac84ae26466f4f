"""Copies of distributed solvers, which share the communicator with the original."""

from __future__ import annotations

from typing import Any, TypeVar

from manyclass.distributed import Communicator, SerialCommunicator

__all__ = ["communicator_of", "on_communicator"]

S = TypeVar("S", bound=Any)


def communicator_of(solver: Any) -> Communicator:
    """The communicator for the parameter ``comm`` of a solver: None is one process.

    "mpi" is a new communicator of all processes of the MPI job, which the caller must close.
    """
    if solver.comm is None:
        return SerialCommunicator()
    if isinstance(solver.comm, str):
        from manyclass.distributed.mpi import MPICommunicator

        return MPICommunicator()
    comm: Communicator = solver.comm
    return comm


def on_communicator(solver: S, facts: tuple[str, ...] = ("scale",), comm: Communicator | None = None) -> S:
    """A checked copy of a distributed solver, with its attributes ``facts``, on ``comm`` or that of the original."""
    solver.check()
    copy: S = type(solver)(**solver.get_params(deep=False))
    comm = getattr(solver, "_comm", None) if comm is None else comm
    copy._comm = communicator_of(solver) if comm is None else comm
    for name in facts:
        setattr(copy, name, getattr(solver, name))
    return copy

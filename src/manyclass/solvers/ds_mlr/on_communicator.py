"""What the distributed solvers share: their copies, which use the communicator of the original, and their checks."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.problem import Problem
from manyclass.solvers.base import Solver

__all__ = ["DistributedSolver", "communicator_of", "on_communicator"]

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


class DistributedSolver(Solver):
    """A solver for softmax regression with a parameter ``comm``, the processes that run it together."""

    distributed = True
    one_margin = False
    takes_shift = False
    #: Mean of the sample weights of this process where those of all processes have mean 1 (`Problem` makes it 1).
    scale = 1.0
    #: Attributes that copies have too.
    facts: ClassVar[tuple[str, ...]] = ("scale",)
    _comm: Communicator

    def prepare(self, problem: Problem) -> Solver:
        """A checked copy on the same communicator."""
        copy = on_communicator(self, self.facts)
        copy.check_problem(problem)
        return copy

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if not isinstance(problem.loss, MultinomialLoss) or problem.loss.margin:
            raise ValueError(
                f"solver {self.name!r} is for softmax regression, got loss {problem.loss.name!r}: give "
                "loss='multinomial', or choose another solver (solver='auto' chooses for you)"
            )

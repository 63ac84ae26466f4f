"""What the driver asks of a solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from manyclass.objective.history import History, Spent
from manyclass.objective.problem import Array, Certificate, Problem

__all__ = ["Keeping", "Keeps", "Progress", "Solver", "State", "Warm"]

#: Everything a solver must remember between iterations, by name: saved, restored, and resumed to the same bits.
State: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class Progress:
    """One iteration done.

    Attributes
    ----------
    iteration : int
        Iterations so far, those before a resumption counted.
    passes : float
        Passes over the data so far.
    bound : Certificate, optional
        The certificate of ``state``, where the iteration has just computed it, in full precision.
    """

    iteration: int
    passes: float
    bound: Certificate | None = None


class Solver(Protocol):
    """A method of minimising a `Problem`, as a generator.

    A solver never evaluates the objective for show, prints, or looks at the clock: the driver does.
    """

    name: str
    #: What it asks of a loss and of a regulariser, by the names these list in ``provides``.
    needs_loss: frozenset[str]
    needs_regularizer: frozenset[str]
    #: Whether it certifies itself as it goes (``Progress.bound``), so that the driver need not.
    certifies: bool

    def state(self, problem: Problem) -> State:
        """The state before the first iteration."""

    def nbytes(self, problem: Problem) -> dict[str, int]:
        """Bytes of the arrays a fit holds besides the data, by what they are."""

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        """Improve ``state`` in place, for ever; yields after each iteration."""

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        """The duality gap of ``state``. ``final`` asks for the one that holds whatever rounding the iterations left."""

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        """``(W, b)``: d x K and K."""


@runtime_checkable
class Warm(Protocol):
    """A solver with more in its state than the duals or weights reached, and what its final certificate makes of them.

    Without this method a warm start is the old state, and ``certificate(final=True)`` on the new problem.
    """

    def warm(self, problem: Problem, state: State) -> State:
        """A state to begin from, made of what a run on the same targets, loss and shapes has left; in place or not."""


class Keeps(Protocol):
    """What the driver asks of that which keeps a run on disk; see `manyclass.optimize.checkpoint.Keeper`."""

    def restore(self, state: State, history: History) -> Spent:
        """Load what is kept, if there is anything, into ``state`` and ``history``."""

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write, if the last write is long enough ago."""

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write now."""

    def remove(self) -> None:
        """At the end of a finished run."""


@runtime_checkable
class Keeping(Protocol):
    """A solver that keeps its checkpoints in a way of its own: in a folder, say, that several processes write to."""

    def keeper(self, path: str | Path, problem: Problem, seed: int, seconds: float) -> Keeps:
        """As `manyclass.optimize.checkpoint.Keeper`, of the same arguments."""

"""Checkpoints of distributed solvers: a folder that every process writes to, and any number of processes can read."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manyclass.distributed import Communicator, checkpoint
from manyclass.distributed.checkpoint import Piece, Snapshot
from manyclass.objective.history import History, Record, Spent, Validated
from manyclass.runtime.files import IN_USE, Claim
from manyclass.solvers.base import State

if TYPE_CHECKING:
    from manyclass.optimize.validation import Validation

__all__ = ["FolderKeeper", "Kept"]


class Kept(NamedTuple):
    """What a process writes; see `manyclass.distributed.checkpoint.save`."""

    classes: Sequence[Piece] = ()
    rows: Sequence[Piece] = ()
    lists: Mapping[str, Sequence[Piece]] = {}
    scalars: Mapping[str, Any] = {}


class FolderKeeper(ABC):
    """Writes and reads checkpoints in a folder, as `manyclass.optimize.checkpoint.Keeper` does in a file.

    Every process creates one with the same arguments, and all call its methods together.

    Parameters
    ----------
    folder : path
        A folder that all processes can access.
    comm : Communicator
        The processes.
    identity : mapping
        Problem, parameters and seed; a checkpoint with another identity is an error.
    seconds : float
        Minimum time between two writes in seconds, measured by rank 0.
    validation : Validation, optional
        Held-out rows, whose best weights are kept.
    """

    def __init__(
        self,
        folder: str | Path,
        comm: Communicator,
        identity: Mapping[str, Any],
        seconds: float,
        validation: Validation | None,
    ) -> None:
        self.folder = Path(folder)
        self.comm = comm
        self.seconds = seconds
        self._identity = dict(identity)
        self._validation = validation
        self._written = time.monotonic()
        self._claim: Claim | None = None

    @abstractmethod
    def _take(self, snapshot: Snapshot, state: State) -> tuple[Any, Any] | None:
        """Load a checkpoint into ``state``; returns the best weights and intercept on held-out rows, if it has them."""

    @abstractmethod
    def _parts(self, state: State, best: tuple[Any, Any] | None) -> Kept:
        """What this process writes of ``state``, and of the best weights and intercept on held-out rows."""

    def restore(self, state: State, history: History) -> Spent:
        """Load the checkpoint, if any, into ``state`` and ``history``; returns the cost of the fit up to it.

        The number of processes may differ from that which wrote it.

        Raises
        ------
        ValueError
            If the checkpoint is damaged, belongs to another problem, solver or seed, or is in use by another fit.
        """
        if self.comm.rank == 0:
            self._claim = Claim(self.folder)
        taken = self._claim is not None and not self._claim.held
        if self.comm.allreduce(np.int64(taken), "max"):
            raise ValueError(f"checkpoint {self.folder} {IN_USE}")
        snapshot = checkpoint.load(self.comm, self.folder, self._identity)
        if snapshot is None:
            return Spent()
        try:
            best, scalars = self._take(snapshot, state), snapshot.scalars
            if self._validation is not None and best is not None:
                iteration, score = scalars["best"]
                self._validation.resume(int(iteration), float(score), *best)
            if int(state["iteration"]) < 0:
                raise ValueError(f"its iteration is {state['iteration']}")
            history.records[:] = [Record.of(row) for row in scalars["history"]]
            history.validation[:] = [Validated(int(row[0]), *row[1:]) for row in scalars.get("validation", ())]
            history.outcome = str(scalars["outcome"])
            return Spent(*map(float, scalars["spent"]))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"checkpoint {self.folder} is damaged ({error}): remove {self.folder} to start afresh"
            ) from error

    def close(self) -> None:
        """Let other fits use the folder."""
        if self._claim is not None:
            self._claim.close()

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint if the last write was at least ``seconds`` ago."""
        due = np.array([time.monotonic() - self._written >= self.seconds], np.int64)
        if self.comm.broadcast(due)[0]:
            self.write(state, history, spent)

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint."""
        found = None if self._validation is None else self._validation.found_best
        parts = self._parts(state, None if found is None else found[2:])
        scalars: dict[str, Any] = {
            **parts.scalars,
            "history": [record.numbers() for record in history],
            "spent": list(spent),
            "outcome": history.outcome,
        }
        if self._validation is not None:
            scalars["validation"] = history.validation
        if found is not None:
            scalars["best"] = found[:2]
        epoch = int(state["iteration"])
        checkpoint.save(
            self.comm, self.folder, epoch, parts.classes, parts.rows, scalars, self._identity, lists=parts.lists
        )
        self._written = time.monotonic()

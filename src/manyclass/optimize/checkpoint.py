"""Checkpoints: a solver's state and the history of a fit on disk, written atomically, resumed to the same bits."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import fields
from pathlib import Path

import numpy as np

from manyclass.distributed import checkpoint as folder
from manyclass.io.tensors import FileError, Kind, TensorFile, write_arrays
from manyclass.objective.history import History, Record, Spent
from manyclass.objective.problem import Problem
from manyclass.solvers.base import Solver, State

__all__ = ["Keeper", "remove"]

_HISTORY, _SPENT, _STATE = "history", "spent", "state."
_REMEDY = "remove it to start afresh"
_RUN = Kind("manyclass-run", 1, "checkpoint", _REMEDY, _REMEDY, FileError, {"run": str, "info": list, "outcome": str})


class Keeper:
    """Writes and reads the checkpoint of one fit in one file.

    Parameters
    ----------
    path : path
        The file.
    problem, solver, seed
        Those of the fit; a checkpoint of another problem, solver or seed is an error.
    seconds : float
        Minimum time between two writes in seconds.
    """

    def __init__(self, path: str | Path, problem: Problem, solver: Solver, seed: int, seconds: float) -> None:
        self.path = Path(path)
        self.seconds = seconds
        self._identity = json.dumps(
            {
                "solver": solver.name,
                "parameters": {name: str(value) for name, value in sorted(solver.get_params(deep=False).items())},
                "seed": int(seed),
                "loss": f"{type(problem.loss).__name__}{tuple(float(x) for x in problem.loss)}",
                "penalty": f"{type(problem.penalty).__name__}{tuple(float(x) for x in problem.penalty)}",
                "lam": problem.lam,
                "shape": [problem.n_samples, problem.n_features, problem.n_outputs],
                "intercept": problem.intercept,
                "dtype": problem.dtype.name,
                "data": _digest(problem),
            },
            sort_keys=True,
        )
        self._problem, self._solver = problem, solver
        self._written = time.monotonic()

    def restore(self, state: State, history: History) -> Spent:
        """Load the file, if it exists, into ``state`` and ``history``; returns the cost of the fit up to it.

        Raises
        ------
        ValueError
            If the file is not a checkpoint, or belongs to another problem, solver or seed.
        """
        if not self.path.exists():
            return Spent()
        try:
            with TensorFile(self.path, _RUN) as file:
                facts, arrays = file.facts, {name: file.read(name) for name in file.names}
        except (FileError, OSError) as error:
            raise ValueError(f"checkpoint {self.path} cannot be read ({error}): {_REMEDY}") from error
        if facts["run"] != self._identity:
            raise ValueError(
                f"checkpoint {self.path} belongs to another run (found {facts['run']}, expected {self._identity}): "
                f"{_REMEDY}, or pass the same data, parameters and seed"
            )
        history.records[:] = [Record.of(row, info) for row, info in zip(arrays[_HISTORY], facts["info"])]
        history.outcome = facts["outcome"]
        spent = Spent(*map(float, arrays[_SPENT]))
        kept = {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}
        self._solver.unpack(self._problem, state, kept)
        return spent

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint if the last write was at least ``seconds`` ago."""
        if time.monotonic() - self._written >= self.seconds:
            self.write(state, history, spent)

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint."""
        arrays = {f"{_STATE}{name}": array for name, array in self._solver.pack(state).items()}
        numbers = [record.numbers() for record in history]
        arrays[_HISTORY] = np.array(numbers, np.float64).reshape(-1, len(fields(Record)) - 1)
        arrays[_SPENT] = np.array(spent, np.float64)
        facts = {"run": self._identity, "info": [record.info for record in history], "outcome": history.outcome}
        write_arrays(self.path, _RUN, arrays, facts)
        self._written = time.monotonic()


def remove(path: str | Path) -> None:
    """Remove a checkpoint (a file, or the folder of a fit on several processes), after its model has been saved."""
    path = Path(path)
    if path.is_dir():
        folder.remove(path)
    else:
        path.unlink(missing_ok=True)


def _digest(problem: Problem) -> str:
    """A hash that detects other data of the same shape: of targets, sample weights and the norms of the rows."""
    found = hashlib.sha256()
    for array in (*problem.targets, problem.sample_weight, problem.norms):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()

"""A solver's state and the history of the run on disk: renamed into place, resumed to the same bits, removed last."""

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
    """Keeps the state of one run in one file.

    Parameters
    ----------
    path : path
        The file.
    problem, solver, seed
        What the state belongs to; a file of another problem, solver or seed is refused.
    seconds : float
        Least time between two writes.
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
        """Load the file, if there is one, into ``state`` and ``history``; returns what it had taken to get there.

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
                f"{_REMEDY}, or give the same data, parameters and seed"
            )
        history.records[:] = [Record.of(row, info) for row, info in zip(arrays[_HISTORY], facts["info"])]
        history.outcome = facts["outcome"]
        spent = Spent(*map(float, arrays[_SPENT]))
        kept = {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}
        self._solver.unpack(self._problem, state, kept)
        return spent

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write, if the last write is long enough ago."""
        if time.monotonic() - self._written >= self.seconds:
            self.write(state, history, spent)

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write now."""
        arrays = {f"{_STATE}{name}": array for name, array in self._solver.pack(state).items()}
        numbers = [record.numbers() for record in history]
        arrays[_HISTORY] = np.array(numbers, np.float64).reshape(-1, len(fields(Record)) - 1)
        arrays[_SPENT] = np.array(spent, np.float64)
        facts = {"run": self._identity, "info": [record.info for record in history], "outcome": history.outcome}
        write_arrays(self.path, _RUN, arrays, facts)
        self._written = time.monotonic()


def remove(path: str | Path) -> None:
    """Remove a checkpoint, a file or the folder of a run on several processes: the model it has led to is saved."""
    path = Path(path)
    if path.is_dir():
        folder.remove(path)
    else:
        path.unlink(missing_ok=True)


def _digest(problem: Problem) -> str:
    """Enough of the data to notice other data of the same shape: targets and weights in full, the norms of the rows."""
    found = hashlib.sha256()
    for array in (*problem.targets, problem.sample_weight, problem.norms):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()

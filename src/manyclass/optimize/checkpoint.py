"""Checkpoints: a solver's state and the history of a fit on disk, written atomically, resumed to the same bits."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from manyclass.distributed import checkpoint as folder
from manyclass.io.folder import folder_format, read_manifest
from manyclass.io.tensors import FileError, Kind, TensorFile, write_arrays
from manyclass.objective.history import History, Record, Spent, Validated
from manyclass.objective.losses.base import signature
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.validation import Validation
from manyclass.runtime.files import IN_USE, Claim
from manyclass.solvers.base import Solver, State

__all__ = ["Keeper", "describe", "remove", "seed_of"]

_HISTORY, _SPENT, _STATE, _SCORES, _BEST = "history", "spent", "state.", "validation", "best."
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
    validation : Validation, optional
        Held-out rows, whose best weights are kept.
    """

    def __init__(
        self,
        path: str | Path,
        problem: Problem,
        solver: Solver,
        seed: int,
        seconds: float,
        validation: Validation | None = None,
    ) -> None:
        self.path = Path(path)
        self.seconds = seconds
        self._validation = validation
        self._identity = json.dumps(
            {
                "solver": solver.name,
                "parameters": {name: str(value) for name, value in sorted(solver.get_params(deep=False).items())},
                "seed": int(seed),
                "loss": f"{type(problem.loss).__name__}{signature(problem.loss)}",
                "penalty": f"{type(problem.penalty).__name__}{signature(problem.penalty)}",
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
        self._claim: Claim | None = None

    def restore(self, state: State, history: History) -> Spent:
        """Load the file, if it exists, into ``state`` and ``history``; returns the cost of the fit up to it.

        Raises
        ------
        ValueError
            If the file is not a checkpoint, belongs to another problem, solver or seed, or is in use by another fit.
        """
        self._claim = Claim(self.path)
        if not self._claim.held:
            raise ValueError(f"checkpoint {self.path} {IN_USE}")
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
        try:
            return self._unpack(facts, arrays, state, history)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"checkpoint {self.path} is damaged ({error}): {_REMEDY}") from error

    def _unpack(self, facts: dict[str, Any], arrays: dict[str, Any], state: State, history: History) -> Spent:
        history.records[:] = [Record.of(row, info) for row, info in zip(arrays[_HISTORY], facts["info"])]
        history.outcome = facts["outcome"]
        spent = Spent(*map(float, arrays[_SPENT]))
        history.validation[:] = [Validated(int(row[0]), *row[1:]) for row in arrays.get(_SCORES, np.zeros(0)).tolist()]
        if self._validation is not None:
            self._validation.unpack(_under(_BEST, arrays))
        self._solver.unpack(self._problem, state, _under(_STATE, arrays))
        if int(state["iteration"]) < 0:
            raise ValueError(f"its iteration is {state['iteration']}")
        return spent

    def close(self) -> None:
        """Let other fits use the file."""
        if self._claim is not None:
            self._claim.close()

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
        if self._validation is not None:
            arrays[_SCORES] = np.array(history.validation, np.float64).reshape(-1, len(Validated._fields))
            arrays |= {f"{_BEST}{name}": array for name, array in self._validation.pack().items()}
        facts = {"run": self._identity, "info": [record.info for record in history], "outcome": history.outcome}
        write_arrays(self.path, _RUN, arrays, facts)
        self._written = time.monotonic()


def describe(path: str | Path) -> dict[str, Any]:
    """The fit that a checkpoint belongs to, and how far it is, as a dict for JSON.

    Raises
    ------
    ValueError
        If it is not a checkpoint, or is damaged.
    """
    if Path(path).is_dir():
        found = read_manifest(path, folder_format(path) or "", 1, "a checkpoint")
        return {"epoch": found["epoch"], "library_version": found["library_version"], **found["identity"]}
    with TensorFile(path, _RUN) as file:
        epoch, facts = int(file.read(f"{_STATE}iteration")), file.facts
    return {"epoch": epoch, "library_version": facts["library_version"], **json.loads(facts["run"])}


def seed_of(path: str | Path) -> int | None:
    """The seed of the fit that a checkpoint belongs to; None if there is none, or none that can be read."""
    if not (Path(path).is_file() or Path(path).is_dir()):
        return None
    try:
        found = describe(path)
        return int(found["seed"] if "seed" in found else found["random_state"])  # the latter of `OutOfCore`
    except (OSError, LookupError, TypeError, ValueError):
        return None


def remove(path: str | Path) -> None:
    """Remove a checkpoint (a file, or the folder of a fit on several processes), after its model has been saved."""
    path = Path(path)
    if path.is_dir():
        folder.remove(path)
    else:
        path.unlink(missing_ok=True)


def _under(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _digest(problem: Problem) -> str:
    """A hash that detects other data of the same shape: of targets, sample weights, norms of the rows and the shift."""
    found = hashlib.sha256()
    shift = () if problem.shift is None else (problem.shift,)
    for array in (*problem.targets, problem.sample_weight, problem.norms, *shift):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()

"""A solver's state on disk, between iterations: written to a temporary name and renamed, resumed to the same bits."""

from __future__ import annotations

import json
import time
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from manyclass.files import atomic_path
from manyclass.problem import Problem
from manyclass.solvers.base import Solver, State

__all__ = ["Keeper"]


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
                "seed": int(seed),
                "loss": f"{type(problem.loss).__name__}{tuple(float(x) for x in problem.loss)}",
                "regularizer": f"{type(problem.regularizer).__name__}{tuple(float(x) for x in problem.regularizer)}",
                "lam": problem.lam,
                "shape": [problem.n_samples, problem.n_features, problem.n_outputs],
                "intercept": problem.intercept,
                "dtype": problem.dtype.name,
                # Enough of the data to notice other data of the same shape.
                "norms": float(problem.norms.sum(dtype="float64")),
            },
            sort_keys=True,
        )
        self._written = time.monotonic()

    def restore(self, state: State) -> None:
        """Load the file, if there is one, into ``state``.

        Raises
        ------
        ValueError
            If the file is not a checkpoint, or belongs to another problem, solver or seed.
        """
        if not self.path.exists():
            return
        try:
            with safe_open(str(self.path), framework="numpy") as stored:
                identity = (stored.metadata() or {}).get("run")
                arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"checkpoint {self.path} cannot be read ({error}): remove it to start afresh") from error
        if identity != self._identity or arrays.keys() != state.keys():
            raise ValueError(
                f"checkpoint {self.path} belongs to another run (found {identity}, expected {self._identity}): "
                "remove it to start afresh, or give the same data, parameters and seed"
            )
        state.update(arrays)

    def offer(self, state: State) -> None:
        """Write, if the last write is long enough ago."""
        if time.monotonic() - self._written >= self.seconds:
            self.write(state)

    def write(self, state: State) -> None:
        """Write now."""
        with atomic_path(self.path) as temporary:
            save_file(state, str(temporary), metadata={"run": self._identity})
        self._written = time.monotonic()

    def close(self, state: State, *, finished: bool) -> None:
        """At the end of a run: keep an unfinished state, remove the file of a finished one."""
        if finished:
            self.path.unlink(missing_ok=True)
        else:
            self.write(state)

"""Checkpoints of DS-MLR: a folder that every process writes to, read by any number of processes and workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyclass.distributed import Communicator, checkpoint
from manyclass.distributed.checkpoint import Piece
from manyclass.objective.history import History, Record, Spent
from manyclass.solvers.base import State
from manyclass.solvers.ds_mlr.team import Extent

__all__ = ["FolderKeeper"]

#: Of the state: the same on every process.
_SHARED = ("iteration", "passes", "pairs", "gram", "value", "ready", "scored", "begun", "bends")
#: Of the state, by block.
_BLOCKS = ("weights", "gradient", "stack", "curvature")


class FolderKeeper:
    """Keeps the state of one run in a folder, as the driver's `Keeper` does in a file.

    Every process makes one, with the same arguments, and calls the same methods at the same time.

    Parameters
    ----------
    folder : path
        One that all processes see.
    comm : Communicator
        Of the processes.
    extent : Extent
    identity : mapping
        What the state belongs to.
    rescore : callable
        Given a state whose weights have been read: makes its scores and log-sum-exps.
    seconds : float
        Least time between two writes, by the clock of rank 0.
    """

    def __init__(
        self,
        folder: str | Path,
        comm: Communicator,
        extent: Extent,
        identity: Mapping[str, Any],
        rescore: Callable[[State], None],
        seconds: float,
    ) -> None:
        self.folder = Path(folder)
        self.comm = comm
        self.seconds = seconds
        self._extent = extent
        self._identity = dict(identity)
        self._rescore = rescore
        self._written = time.monotonic()

    def restore(self, state: State, history: History) -> Spent:
        """Load the folder's state, if there is one; returns what it had taken to get there.

        The numbers of processes and workers may be others than those that wrote it. With the same ones, and the same
        grid, the run goes on to the same bits (see `DSMLR.keeper`).

        Raises
        ------
        ValueError
            If the state is damaged, or belongs to another problem, solver or seed.
        """
        snapshot = checkpoint.load(self.comm, self.folder, self._identity)
        if snapshot is None:
            return Spent()
        grid, share = self._extent.grid, self._extent.share
        for name in _SHARED:
            state[name] = np.array(snapshot.scalars[name], state[name].dtype)
        for block in self._extent.blocks:
            for name, array in snapshot.classes(*grid.classes(block)).items():
                state[f"{name}.{block}"][...] = array
        names, kept = _rows(state), snapshot.scalars
        # The same on every process: to make scores anew takes all of them.
        if not set(names) <= set(kept["rows"]) or ("lse" in names and kept["blocks"] != grid.n_blocks):
            self._rescore(state)
        else:
            for name, array in snapshot.rows(share.first, share.first + len(state["lse"])).items():
                if name in names:
                    state[name][...] = array
        history.records[:] = [Record.of(row) for row in snapshot.scalars["history"]]
        history.outcome = snapshot.scalars["outcome"]
        return Spent(*map(float, snapshot.scalars["spent"]))

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write, if the last write is long enough ago."""
        due = np.array([time.monotonic() - self._written >= self.seconds], np.int64)
        if self.comm.broadcast(due)[0]:
            self.write(state, history, spent)

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write now."""
        grid, share = self._extent.grid, self._extent.share
        classes = [
            Piece(
                *grid.classes(block),
                {name: state[f"{name}.{block}"] for name in _BLOCKS if f"{name}.{block}" in state},
            )
            for block in self._extent.blocks
        ]
        rows = [Piece(share.first, share.first + len(state["lse"]), {name: state[name] for name in _rows(state)})]
        scalars: dict[str, Any] = {name: state[name].tolist() for name in _SHARED}
        scalars |= {
            "blocks": grid.n_blocks,
            "rows": _rows(state),
            "history": [record.numbers() for record in history],
            "spent": list(spent),
            "outcome": history.outcome,
        }
        checkpoint.save(self.comm, self.folder, int(state["iteration"]), classes, rows, scalars, self._identity)
        self._written = time.monotonic()


def _rows(state: State) -> list[str]:
    """The arrays with a row for each sample that a run goes on with."""
    names = [] if state["begun"] else ["lse"]
    if state["scored"]:
        names += ["total", "scores" if len(state["scores"]) else "own"]
    return names

"""Checkpoints of DS-MLR: a folder that every process writes to, and any number of processes and workers can read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyclass.distributed import Communicator, checkpoint
from manyclass.distributed.checkpoint import Piece
from manyclass.models.partitioned import Columns
from manyclass.objective.history import History, Record, Spent, Validated
from manyclass.objective.problem import Array
from manyclass.solvers.base import State
from manyclass.solvers.ds_mlr.team import Extent

if TYPE_CHECKING:
    from manyclass.optimize.validation import Validation

__all__ = ["FolderKeeper"]

#: Arrays of the state that are equal in every process.
_SHARED = ("iteration", "passes", "pairs", "gram", "value", "ready", "scored", "begun", "bends")
#: Arrays of the state that exist for each block.
_BLOCKS = ("weights", "gradient", "stack", "curvature")
#: Arrays of the best weights on held-out rows, for each block.
_BEST = ("best", "best_intercept")


class FolderKeeper:
    """Writes and reads checkpoints in a folder, as `manyclass.optimize.checkpoint.Keeper` does in a file.

    Every process creates one with the same arguments, and all call its methods together.

    Parameters
    ----------
    folder : path
        A folder that all processes can access.
    comm : Communicator
        The processes.
    extent : Extent
        The partition.
    identity : mapping
        Problem, parameters and seed; a checkpoint with another identity is an error.
    rescore : callable
        Computes scores and log-sum-exps of a state from its weights.
    joined : callable
        Makes of weights and of intercepts by block what the solver's ``weights`` returns.
    seconds : float
        Minimum time between two writes in seconds, measured by rank 0.
    validation : Validation, optional
        Held-out rows, whose best weights are kept.
    """

    def __init__(
        self,
        folder: str | Path,
        comm: Communicator,
        extent: Extent,
        identity: Mapping[str, Any],
        rescore: Callable[[State], None],
        joined: Callable[[dict[int, Array], dict[int, Array]], tuple[Any, Array]],
        seconds: float,
        validation: Validation | None,
    ) -> None:
        self.folder = Path(folder)
        self.comm = comm
        self.seconds = seconds
        self._extent = extent
        self._identity = dict(identity)
        self._rescore, self._joined, self._validation = rescore, joined, validation
        self._written = time.monotonic()

    def restore(self, state: State, history: History) -> Spent:
        """Load the checkpoint, if any, into ``state`` and ``history``; returns the cost of the fit up to it.

        The numbers of processes and workers may differ from those that wrote it, see `DSMLR.keeper`.

        Raises
        ------
        ValueError
            If the checkpoint is damaged, or belongs to another problem, solver or seed.
        """
        snapshot = checkpoint.load(self.comm, self.folder, self._identity)
        if snapshot is None:
            return Spent()
        try:
            return self._take(snapshot, state, history)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"checkpoint {self.folder} is damaged ({error}): remove {self.folder} to start afresh"
            ) from error

    def _take(self, snapshot: checkpoint.Snapshot, state: State, history: History) -> Spent:
        grid, share = self._extent.grid, self._extent.share
        for name in _SHARED:
            state[name] = np.array(snapshot.scalars[name], state[name].dtype)
        best: dict[int, Array] = {}
        intercepts: dict[int, Array] = {}
        for block in self._extent.blocks:
            found = snapshot.classes(*grid.classes(block))
            if _BEST[0] in found:
                best[block], intercepts[block] = (found.pop(name) for name in _BEST)
            for name, array in found.items():
                state[f"{name}.{block}"][...] = array
        if self._validation is not None and "best" in snapshot.scalars:
            iteration, score = snapshot.scalars["best"]
            self._validation.resume(int(iteration), float(score), *self._joined(best, intercepts))
        names, kept = self._rows(state), snapshot.scalars
        # The decision is the same in every process, as computing scores takes all of them.
        if not set(names) <= set(kept["rows"]) or ("lse" in names and kept["blocks"] != grid.n_blocks):
            self._rescore(state)
        else:
            for name, array in snapshot.rows(share.first, share.first + len(state["lse"])).items():
                if name in names:
                    state[name][...] = array
        if int(state["iteration"]) < 0:
            raise ValueError(f"its iteration is {state['iteration']}")
        history.records[:] = [Record.of(row) for row in snapshot.scalars["history"]]
        history.validation[:] = [Validated(int(row[0]), *row[1:]) for row in snapshot.scalars.get("validation", ())]
        history.outcome = str(snapshot.scalars["outcome"])
        return Spent(*map(float, snapshot.scalars["spent"]))

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint if the last write was at least ``seconds`` ago."""
        due = np.array([time.monotonic() - self._written >= self.seconds], np.int64)
        if self.comm.broadcast(due)[0]:
            self.write(state, history, spent)

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint."""
        grid, share = self._extent.grid, self._extent.share
        classes = [
            Piece(
                *grid.classes(block),
                {name: state[f"{name}.{block}"] for name in _BLOCKS if f"{name}.{block}" in state},
            )
            for block in self._extent.blocks
        ]
        scalars: dict[str, Any] = {name: state[name].tolist() for name in _SHARED}
        if self._validation is not None:
            scalars["validation"] = history.validation
            kept = self._validation.found_best
            if kept is not None:
                classes += self._pieces(*kept[2:])
                scalars["best"] = kept[:2]
        rows = [Piece(share.first, share.first + len(state["lse"]), {name: state[name] for name in self._rows(state)})]
        scalars |= {
            "blocks": grid.n_blocks,
            "rows": self._rows(state),
            "history": [record.numbers() for record in history],
            "spent": list(spent),
            "outcome": history.outcome,
        }
        checkpoint.save(self.comm, self.folder, int(state["iteration"]), classes, rows, scalars, self._identity)
        self._written = time.monotonic()

    def _pieces(self, W: Any, intercept: Array) -> list[Piece]:
        """The best weights of this process."""
        found = []
        for lo, hi, block in ((*self._extent.grid.classes(block), block) for block in self._extent.blocks):
            part = W.blocks[block] if isinstance(W, Columns) else W[:, lo:hi]
            found.append(Piece(lo, hi, dict(zip(_BEST, (part, intercept[lo:hi])))))
        return found

    def _rows(self, state: State) -> list[str]:
        """The names of the arrays by row that a resumed run needs."""
        names = []
        if not state["begun"]:
            names.append("lse" if self._extent.grid.by_block else "total")
        if state["scored"]:
            names += ["total", "scores" if len(state["scores"]) else "own"]
        return list(dict.fromkeys(names))

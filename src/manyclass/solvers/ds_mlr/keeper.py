"""Checkpoints of DS-MLR: weights by class and scores by row, for any number of processes and workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyclass.distributed import Communicator
from manyclass.distributed.checkpoint import Piece, Snapshot
from manyclass.models.partitioned import Columns
from manyclass.objective.problem import Array
from manyclass.solvers.base import State
from manyclass.solvers.ds_mlr.team import Extent
from manyclass.solvers.folder import FolderKeeper, Kept

if TYPE_CHECKING:
    from manyclass.optimize.validation import Validation

__all__ = ["BlockKeeper"]

#: Arrays of the state that are equal in every process.
_SHARED = ("iteration", "passes", "pairs", "gram", "value", "ready", "scored", "begun", "bends")
#: Arrays of the state that exist for each block.
_BLOCKS = ("weights", "gradient", "stack", "curvature")
#: Arrays of the best weights on held-out rows, for each block.
_BEST = ("best", "best_intercept")


class BlockKeeper(FolderKeeper):
    """Checkpoints of weights in blocks of classes.

    Parameters
    ----------
    folder, comm
        As for `FolderKeeper`, as are ``identity``, ``seconds`` and ``validation``.
    extent : Extent
        The partition.
    rescore : callable
        Computes scores and log-sum-exps of a state from its weights.
    joined : callable
        Makes of weights and of intercepts by block what the solver's ``weights`` returns.
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
        super().__init__(folder, comm, identity, seconds, validation)
        self._extent = extent
        self._rescore, self._joined = rescore, joined

    def _take(self, snapshot: Snapshot, state: State) -> tuple[Any, Any] | None:
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
        names, kept = self._rows(state), snapshot.scalars
        # The decision is the same in every process, as computing scores takes all of them.
        if not set(names) <= set(kept["rows"]) or ("lse" in names and kept["blocks"] != grid.n_blocks):
            self._rescore(state)
        else:
            for name, array in snapshot.rows(share.first, share.first + len(state["lse"])).items():
                if name in names:
                    state[name][...] = array
        return self._joined(best, intercepts) if "best" in kept else None

    def _parts(self, state: State, best: tuple[Any, Any] | None) -> Kept:
        grid, share = self._extent.grid, self._extent.share
        classes = [
            Piece(
                *grid.classes(block),
                {name: state[f"{name}.{block}"] for name in _BLOCKS if f"{name}.{block}" in state},
            )
            for block in self._extent.blocks
        ]
        if best is not None:
            classes += self._pieces(*best)
        names = self._rows(state)
        rows = [Piece(share.first, share.first + len(state["lse"]), {name: state[name] for name in names})]
        scalars = {name: state[name].tolist() for name in _SHARED}
        return Kept(classes, rows, scalars=scalars | {"blocks": grid.n_blocks, "rows": names})

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

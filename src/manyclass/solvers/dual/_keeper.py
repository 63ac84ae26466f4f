"""Checkpoints of active sets on several processes: lists of rivals by row; the weights are computed from them.

One process writes its weights as well, to go on with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from manyclass.distributed import Communicator
from manyclass.distributed.checkpoint import Piece, Snapshot
from manyclass.solvers.base import State
from manyclass.solvers.folder import FolderKeeper, Kept

if TYPE_CHECKING:
    from manyclass.optimize.validation import Validation

__all__ = ["RivalKeeper"]

#: Arrays of the state that are equal in every process.
_SHARED = ("iteration", "passes", "proposed", "gap", "sigma")
#: The same, of numbers by class.
_BY_CLASS = ("bias", "pull")
#: Names of the lists: the active rivals, and the best weights on held-out rows, which are equal in every process, too.
_RIVALS, _BEST = "rival", "best"
#: Arrays of the weights, by storage, and what steps of a round have in common: of one process.
_IMAGE = ("V", "start", "capacity", "held", "keys", "used", "common")
#: Rows whose counts are read at once.
_ROWS = 1 << 20


class RivalKeeper(FolderKeeper):
    """Checkpoints of sparse dual variables.

    Parameters
    ----------
    folder, comm
        As for `FolderKeeper`, as are ``identity``, ``seconds`` and ``validation``.
    first : int
        Index of the first row of this process among those of all.
    rebuild, check : callable
        Compute the dual image of a state, for which all processes call it together; raise a ValueError if arrays that
        were read are not those of this problem.
    """

    def __init__(
        self,
        folder: str | Path,
        comm: Communicator,
        first: int,
        identity: Mapping[str, Any],
        rebuild: Callable[[State], None],
        check: Callable[[State], None],
        seconds: float,
        validation: Validation | None,
    ) -> None:
        super().__init__(folder, comm, identity, seconds, validation)
        self._first, self._rebuild, self._check = first, rebuild, check

    def _take(self, snapshot: Snapshot, state: State) -> tuple[Any, Any] | None:
        scalars, first, n = snapshot.scalars, self._first, len(state["idle"])
        for name in _SHARED:
            state[name] = np.array(scalars[name], state[name].dtype)
        K = len(state["bias"])
        classes = snapshot.classes(0, K)
        for name in _BY_CLASS:
            state[name][...] = classes[name]
        rows = snapshot.rows(first, first + n)
        before = sum(
            int(snapshot.rows(begin, min(begin + _ROWS, first))["count"].sum()) for begin in range(0, first, _ROWS)
        )
        bounds = np.zeros(n + 1, np.int64)
        np.cumsum(rows["count"], out=bounds[1:])
        state["idle"][...], state["indptr"] = rows["idle"], bounds
        found = snapshot.entries(_RIVALS, before, before + int(bounds[-1]))
        for name in ("rivals", "b"):
            state[name] = np.array(found.get(name, ()), state[name].dtype)
            if len(state[name]) != bounds[-1]:
                raise ValueError(f"it has {len(state[name])} entries of {name!r} for {bounds[-1]}")
        lengths = scalars.get("image", {}) if self.comm.size == 1 else {}
        for name, length in lengths.items():
            array = snapshot.entries(f"image {name}", 0, length)[name]
            if name not in _IMAGE or array.shape[1:] != state[name].shape[1:] or array.dtype != state[name].dtype:
                raise ValueError(f"its {name!r} is none of this problem")
            if array.shape == state[name].shape:
                state[name][...] = array  # in its order
            else:
                state[name] = array
        self._check(state)
        if not lengths:
            self._rebuild(state)
        if _BEST not in scalars:
            return None
        intercept = classes["best_intercept"]
        if _BEST in classes:
            return classes[_BEST], intercept
        entries = snapshot.entries(_BEST, 0, scalars["best_stored"])
        indptr = snapshot.entries(f"{_BEST} features", 0, scalars["best_features"] + 1)["indptr"]
        shape = scalars["best_features"], K
        return sp.csr_matrix((entries["data"], entries["indices"], indptr), shape=shape), intercept

    def _parts(self, state: State, best: tuple[Any, Any] | None) -> Kept:
        counts = np.diff(state["indptr"]).astype(np.int32)
        totals = np.zeros(self.comm.size, np.int64)
        totals[self.comm.rank] = len(state["rivals"])
        begin = int(self.comm.allreduce(totals)[: self.comm.rank].sum())
        rows = [Piece(self._first, self._first + len(counts), {"count": counts, "idle": state["idle"]})]
        rivals = Piece(begin, begin + len(state["rivals"]), {name: state[name] for name in ("rivals", "b")})
        scalars: dict[str, Any] = {name: state[name].tolist() for name in _SHARED}
        classes = {name: state[name] for name in _BY_CLASS}
        lists = {_RIVALS: [rivals]}
        if self.comm.size == 1:
            image = {name: state[name] for name in _IMAGE if name in state}
            scalars["image"] = {name: len(array) for name, array in image.items()}
            lists |= {f"image {name}": [Piece(0, len(array), {name: array})] for name, array in image.items()}
        if best is not None:
            W, classes["best_intercept"] = best
            if not sp.issparse(W):
                classes[_BEST] = W
            else:
                scalars |= {"best_stored": int(W.nnz), "best_features": int(W.shape[0])}
                lists[_BEST] = [Piece(0, W.nnz, {"data": W.data, "indices": W.indices})]
                lists[f"{_BEST} features"] = [Piece(0, len(W.indptr), {"indptr": W.indptr})]
        if self.comm.rank:
            return Kept((), rows, {_RIVALS: lists[_RIVALS]}, scalars)
        return Kept([Piece(0, len(state["bias"]), classes)], rows, lists, scalars)

"""How the active-set solver holds the dual image ``V = X^T (c * a) / (lam n)``: as an array, or as a sparse table."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import active as kernels, table as tables
from manyclass.kernels.predict import make_mixed
from manyclass.kernels.rows import CSRRows, n_stored
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import State

__all__ = ["STORAGES", "DenseImage", "Image", "TableImage", "image_of", "make_image"]

STORAGES = ("auto", "dense", "sparse")

#: Entries a stored value of the data leads to, by which the table's memory is estimated: its class and some rivals.
_ENTRIES = 4
#: Bytes of dense weights up to which "auto" takes them: what a processor keeps near.
_DENSE_BYTES = 1 << 27


class Image(Protocol):
    """What the solver asks of either; all that lasts is in the state."""

    def arrays(self, problem: Problem) -> State:
        """The part of a state that holds the image, zero."""

    def nbytes(self, problem: Problem) -> int:
        """Bytes it will take, estimated for a table."""

    def view(self, state: State) -> Any:
        """What kernels change."""

    def enlarge(self, state: State) -> None:
        """More room, where a kernel has found none."""

    def rebuild(self, problem: Problem, state: State) -> None:
        """The image afresh from the sparse duals of the state."""

    def scored(self, problem: Problem, state: State) -> Any:
        """What `manyclass.kernels.proposals.propose` scores rows with."""

    def sums(self, problem: Problem, state: State) -> tuple[float, float]:
        """g(W) and g*(V)."""

    def weights(self, problem: Problem, state: State) -> Any:
        """W, an array or a CSR matrix of shape (d, K)."""


class DenseImage:
    """A d x K array."""

    def arrays(self, problem: Problem) -> State:
        return {"V": problem.zeros(problem.n_outputs)}

    def nbytes(self, problem: Problem) -> int:
        return int(problem.n_features * problem.n_outputs * problem.dtype.itemsize)

    def view(self, state: State) -> Any:
        return state["V"]

    def enlarge(self, state: State) -> None:
        raise RuntimeError("an array has room for everything")

    def rebuild(self, problem: Problem, state: State) -> None:
        edges = problem.feature_edges(problem.n_threads)
        run(
            lambda at, _: kernels.sparse_dual_image(
                problem.rows,
                _y(problem),
                problem.sample_weight,
                state["indptr"],
                state["rivals"],
                state["b"],
                problem.inv_lam_n,
                state["V"],
                edges[at],
                edges[at + 1],
            ),
            ranges(problem.n_threads, 1),
            problem.n_threads,
        )

    def scored(self, problem: Problem, state: State) -> Any:
        return state["V"]

    def sums(self, problem: Problem, state: State) -> tuple[float, float]:
        return problem.penalty_sums(state["V"])

    def weights(self, problem: Problem, state: State) -> Any:
        return np.ascontiguousarray(problem.primal(state["V"]))


class TableImage:
    """A `WeightTable`: memory in proportion to the weights there are. For sparse rows."""

    def arrays(self, problem: Problem) -> State:
        # Room for what most fits come to: a larger table is a copy, and pages new to the machine.
        slots = max(1 << 10, _ENTRIES * n_stored(problem.rows))
        return tables.make_table(problem.n_features, slots, problem.dtype).arrays()

    def nbytes(self, problem: Problem) -> int:
        entries = min(_ENTRIES * n_stored(problem.rows), problem.n_features * problem.n_outputs)
        # Half of the slots are free, and while the table grows there are two of them.
        return int(16 * problem.n_features + 3 * entries * (4 + problem.dtype.itemsize))

    def view(self, state: State) -> Any:
        return tables.table_of(state)

    def enlarge(self, state: State) -> None:
        old = self.view(state)
        live = int(old.capacity.sum(dtype=np.int64))
        # As much room as there were slots: it lasts, and grows from call to call, whatever one example asks for.
        new = tables.make_table(len(old.start), live + max(old.slots, 1 << 10), old.values.dtype)
        tables.move_table(old, new)
        state.update(new.arrays())

    def rebuild(self, problem: Problem, state: State) -> None:
        table = self.view(state)
        table.capacity[:] = 0
        table.held[:] = 0
        table.keys[: 2 * table.used[0]] = -1
        table.used[0] = 0
        done, n = 0, problem.n_samples
        while done < n:
            done = kernels.table_dual_image(
                problem.rows,
                _y(problem),
                problem.sample_weight,
                state["indptr"],
                state["rivals"],
                state["b"],
                problem.inv_lam_n,
                problem.penalty,
                self.view(state),
                done,
            )
            if done < n:
                self.enlarge(state)

    def scored(self, problem: Problem, state: State) -> Any:
        return make_mixed(self.weights(problem, state))

    def sums(self, problem: Problem, state: State) -> tuple[float, float]:
        g, conjugate = tables.table_sums(self.view(state), problem.penalty)
        return float(g), float(conjugate)

    def weights(self, problem: Problem, state: State) -> Any:
        table, d = self.view(state), problem.n_features
        indptr = np.empty(d + 1, np.int64)
        none = np.zeros(0, np.int32), np.zeros(0, problem.dtype)
        tables.compress(table, problem.penalty, indptr, *none)
        indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], problem.dtype)
        if len(indices):
            tables.compress(table, problem.penalty, indptr, indices, data)
        return sp.csr_matrix((data, indices, indptr), shape=(d, problem.n_outputs), copy=False)


def make_image(storage: str, problem: Problem) -> Image:
    """The image for a problem; "auto" takes a table for sparse rows where an array would be large."""
    if storage == "auto":
        large = DenseImage().nbytes(problem) > _DENSE_BYTES
        storage = "sparse" if large and isinstance(problem.rows, CSRRows) else "dense"
    return TableImage() if storage == "sparse" else DenseImage()


def image_of(state: State) -> Image:
    """The image that a state has."""
    return DenseImage() if "V" in state else TableImage()


def _y(problem: Problem) -> Array:
    assert isinstance(problem.targets, ClassTargets)  # those of a loss with a sparse dual
    return problem.targets.y

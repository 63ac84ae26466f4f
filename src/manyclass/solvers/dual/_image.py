"""Storage of the dual image ``V = X^T (c * a) / (lam n)`` of the active-set solver: an array, or a sparse table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import active as kernels, table as tables
from manyclass.kernels.mixed import make_mixed
from manyclass.kernels.rounds import is_sorted
from manyclass.kernels.rows import CSRRows, n_stored
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import State
from manyclass.solvers.dual._rivals import classes_of

__all__ = [
    "STORAGES",
    "DenseImage",
    "Image",
    "TableImage",
    "image_of",
    "larger_table",
    "make_image",
    "table_matrix",
    "table_nonzeros",
]

STORAGES = ("auto", "dense", "sparse")

#: Estimated table entries per stored value of the data: its class and some rivals.
_ENTRIES = 4
#: Maximum size in bytes of an array with storage "auto": the size of a large cache.
_DENSE_BYTES = 1 << 27
#: Features of a table that one task of a thread goes through.
_FEATURES = 512


class Image(Protocol):
    """Interface of both storages; the arrays themselves are in the state of the solver."""

    def arrays(self, problem: Problem) -> State:
        """The arrays of a zero image, for the state."""

    def nbytes(self, problem: Problem) -> int:
        """Size in bytes, of the weights of the model as well where they are a copy; an estimate for a table."""

    def view(self, state: State) -> Any:
        """The array or table that kernels update."""

    def enlarge(self, problem: Problem, state: State) -> None:
        """Increase the capacity, after a kernel has reported a full table."""

    def reserve(self, problem: Problem, state: State, needed: Callable[[Any], int]) -> None:
        """Make room for as many entries as ``needed`` says of a view, so that threads need not ask."""

    def rebuild(self, problem: Problem, state: State) -> None:
        """Recompute the image from the sparse dual variables of the state."""

    def clear(self, state: State) -> None:
        """Make the image zero."""

    def scale(self, state: State, factor: float) -> None:
        """Multiply the image by a number."""

    def scored(self, problem: Problem, state: State) -> Any:
        """The weights in the form that `manyclass.kernels.proposals.propose` takes."""

    def sums(self, problem: Problem, state: State) -> tuple[float, float]:
        """``(g(W), g*(V))``."""

    def weights(self, problem: Problem, state: State) -> Any:
        """W, an array or a CSR matrix of shape (d, K)."""

    def check(self, problem: Problem, state: State) -> None:
        """Raise a ValueError if arrays that were read are not those of an image of this problem."""


class DenseImage:
    """The image as an array of shape (d, K)."""

    def arrays(self, problem: Problem) -> State:
        return {"V": problem.zeros(problem.n_outputs)}

    def nbytes(self, problem: Problem) -> int:
        copied = not isinstance(problem.penalty, L2) or problem.columns_first
        return (1 + copied) * _array_bytes(problem)

    def view(self, state: State) -> Any:
        return state["V"]

    def enlarge(self, problem: Problem, state: State) -> None:
        raise RuntimeError("unreachable: an array is never full")

    def reserve(self, problem: Problem, state: State, needed: Callable[[Any], int]) -> None:
        pass

    def rebuild(self, problem: Problem, state: State) -> None:
        edges = problem.feature_edges(problem.n_threads)
        run(
            lambda at, _: kernels.sparse_dual_image(
                problem.rows,
                classes_of(problem),
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

    def clear(self, state: State) -> None:
        state["V"][:] = 0

    def scale(self, state: State, factor: float) -> None:
        state["V"] *= state["V"].dtype.type(factor)

    def scored(self, problem: Problem, state: State) -> Any:
        return state["V"]

    def sums(self, problem: Problem, state: State) -> tuple[float, float]:
        return problem.penalty_sums(state["V"])

    def weights(self, problem: Problem, state: State) -> Any:
        return np.ascontiguousarray(problem.primal(state["V"]))

    def check(self, problem: Problem, state: State) -> None:
        pass


class TableImage:
    """The image as a `WeightTable`, with memory in proportion to its nonzero entries. For sparse rows."""

    def arrays(self, problem: Problem) -> State:
        # The final size of most fits: enlarging copies the table.
        slots = max(1 << 10, _ENTRIES * n_stored(problem.rows))
        return tables.make_table(problem.n_features, slots, problem.dtype).arrays()

    def nbytes(self, problem: Problem) -> int:
        entries = min(_ENTRIES * n_stored(problem.rows), problem.n_features * problem.n_outputs)
        # Half of the slots are free, and enlarging holds the old and the new table.
        return int(16 * problem.n_features + 3 * entries * (4 + problem.dtype.itemsize))

    def view(self, state: State) -> Any:
        return tables.table_of(state)

    def enlarge(self, problem: Problem, state: State, least: int = 1 << 10) -> None:
        old = self.view(state)
        live = int(old.capacity.sum(dtype=np.int64))
        # As many free slots as there were slots in all, and twice as many as were free: capacity grows geometrically,
        # so that few copies are made.
        free = max(old.slots, 2 * (old.slots - int(old.used[0])), least)
        state.update(larger_table(old, live + free, problem.n_threads).arrays())

    def reserve(self, problem: Problem, state: State, needed: Callable[[Any], int]) -> None:
        table = self.view(state)
        wanted = needed(table)
        if wanted > table.slots - int(table.used[0]):
            self.enlarge(problem, state, wanted)

    def clear(self, state: State) -> None:
        table = self.view(state)
        table.capacity[:] = 0
        table.held[:] = 0
        table.used[0] = 0

    def rebuild(self, problem: Problem, state: State) -> None:
        dual = (
            problem.rows,
            classes_of(problem),
            problem.sample_weight,
            state["indptr"],
            state["rivals"],
            state["b"],
            problem.inv_lam_n,
            problem.penalty,
        )
        # Steps have made the entries already, so that threads can fill them; those of an intercept's balance are new.
        if self.view(state).used[0] and is_sorted(problem.rows):
            edges = problem.feature_edges(problem.n_threads)
            parts = ranges(problem.n_threads, 1)
            known = run(
                lambda at, _: kernels.known_dual_image(*dual, self.view(state), edges[at], edges[at + 1]),
                parts,
                problem.n_threads,
            )
            if all(known):
                return
        self.clear(state)
        done, n = 0, problem.n_samples
        while done < n:
            done = kernels.table_dual_image(*dual, self.view(state), done)
            if done < n:
                self.enlarge(problem, state)

    def scale(self, state: State, factor: float) -> None:
        held = self.view(state).values[1::2]
        held *= held.dtype.type(factor)

    def scored(self, problem: Problem, state: State) -> Any:
        return make_mixed(self.weights(problem, state), n_threads=problem.n_threads)

    def sums(self, problem: Problem, state: State) -> tuple[float, float]:
        table, parts = self.view(state), ranges(problem.n_features, _FEATURES)
        sums = run(lambda begin, end: tables.table_sums(table, problem.penalty, begin, end), parts, problem.n_threads)
        g, conjugate = np.sum(sums, axis=0)
        return float(g), float(conjugate)

    def weights(self, problem: Problem, state: State) -> Any:
        return table_matrix(self.view(state), problem.penalty, problem.n_outputs, problem.n_threads)

    def check(self, problem: Problem, state: State) -> None:
        start, capacity, held, keys = (state[name] for name in ("start", "capacity", "held", "keys"))
        classes, slots = keys[::2], len(keys) // 2
        inside = (start >= 0) & (capacity >= 0) & (start + capacity <= slots) & (held >= 0) & (held <= capacity)
        inside &= capacity & (capacity - 1) == 0
        known = (classes >= -1) & (classes < problem.n_outputs)
        if len(keys) % 2 or not inside.all() or not known.all() or not 0 <= state["used"][0] <= slots:
            raise ValueError("the table of weights is not one of this problem")


def table_matrix(table: tables.WeightTable, penalty: Any, n_classes: int, n_threads: int = 1) -> sp.csr_matrix[Any]:
    """The primal weights of a table as a CSR matrix of shape (d, n_classes), in canonical format."""
    d, dtype = len(table.start), table.values.dtype
    indptr = np.zeros(d + 1, np.int64)
    parts = ranges(d, _FEATURES)
    run(lambda begin, end: tables.count_weights(table, penalty, indptr[1:], begin, end), parts, n_threads)
    np.cumsum(indptr, out=indptr)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], dtype)
    run(lambda begin, end: tables.compress(table, penalty, indptr, indices, data, begin, end), parts, n_threads)
    matrix = sp.csr_matrix((data, indices, indptr), shape=(d, n_classes), copy=False)
    matrix.has_canonical_format = True
    return matrix


def table_nonzeros(table: tables.WeightTable, penalty: Any, n_threads: int = 1) -> int:
    """Number of primal weights of a table that are not 0."""
    counts = np.empty(len(table.start), np.int64)
    parts = ranges(len(counts), _FEATURES)
    run(lambda begin, end: tables.count_weights(table, penalty, counts, begin, end), parts, n_threads)
    return int(counts.sum())


def larger_table(old: tables.WeightTable, slots: int, n_threads: int = 1) -> tables.WeightTable:
    """A table with the same entries and this number of slots, without those that features have given up."""
    new = tables.make_table(len(old.start), slots, old.values.dtype)
    new.capacity[:], new.held[:] = old.capacity, old.held
    ends = np.cumsum(old.capacity, dtype=np.int64)
    new.start[1:], new.used[:] = ends[:-1], ends[-1:]
    parts = ranges(len(old.start), _FEATURES)
    run(lambda begin, end: tables.move_slots(old, new, begin, end), parts, n_threads)
    return new


def make_image(storage: str, problem: Problem) -> Image:
    """The storage of the image for a problem; "auto" is a table for sparse rows if an array would be large."""
    if storage == "auto":
        large = _array_bytes(problem) > _DENSE_BYTES
        storage = "sparse" if large and isinstance(problem.rows, CSRRows) else "dense"
    return TableImage() if storage == "sparse" else DenseImage()


def _array_bytes(problem: Problem) -> int:
    """Size in bytes of an image as an array."""
    return int(problem.n_features * problem.n_outputs * problem.dtype.itemsize)


def image_of(state: State) -> Image:
    """The storage that a state uses."""
    return DenseImage() if "V" in state else TableImage()

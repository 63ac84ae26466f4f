"""What processes have changed since their weights were equal: rows, and the changes of their dual variables.

A row with m values and changes in k classes changes m k weights; sending it takes m + k numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.distributed import Communicator
from manyclass.kernels import exchange as kernels
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import State, row_matrix
from manyclass.solvers.dual._image import image_of
from manyclass.solvers.dual._rivals import classes_of

__all__ = ["Changes", "add_changes", "changes_of", "exchanged"]


class Changes(NamedTuple):
    """Some rows, an array or a CSR matrix, and what each adds to the dual image: ``x_i`` times a sparse vector.

    ``classes[bounds[r]:bounds[r + 1]]`` are the classes of row r, ``coefs`` the numbers.
    """

    X: Any
    bounds: Array
    classes: Array
    coefs: Array

    def image(self, n_outputs: int) -> Array:
        """The sum over the rows, an array of shape (d, K)."""
        found = sp.csr_matrix((self.coefs, self.classes, self.bounds), shape=(self.X.shape[0], n_outputs))
        return np.ascontiguousarray((found.T @ self.X).T)


def changes_of(problem: Problem, state: State, order: Array, old: Array, scale: float) -> Changes:
    """The rows of ``order`` whose dual variables are not ``old``, with ``scale`` times the changes."""
    entries = int((np.diff(state["indptr"])[order] + 1).sum())
    which, bounds = np.empty(len(order), np.int32), np.empty(len(order) + 1, np.int64)
    classes, coefs = np.empty(entries, np.int32), np.empty(entries, problem.dtype)
    count = kernels.changed_rows(
        order,
        classes_of(problem),
        problem.sample_weight,
        scale,
        state["indptr"],
        state["rivals"],
        state["b"],
        old,
        which,
        bounds,
        classes,
        coefs,
    )
    end = bounds[count]
    return Changes(row_matrix(problem)[which[:count]], bounds[: count + 1], classes[:end], coefs[:end])


def exchanged(comm: Communicator, own: Changes) -> list[Changes]:
    """The changes of all processes, which are of CSR rows, in their order."""
    X, real = own.X, own.coefs.dtype
    sizes = np.zeros((comm.size, 3), np.int64)
    sizes[comm.rank] = X.shape[0], X.nnz, len(own.coefs)
    found = []
    for rank, (rows, stored, entries) in enumerate(comm.allreduce(sizes).tolist()):
        kinds: tuple[tuple[Any, int], ...] = (
            (real, stored),
            (real, entries),
            *((np.int32, size) for size in (stored, entries, rows, rows)),
        )
        if rank == comm.rank:
            parts = (X.data, own.coefs, X.indices, own.classes, np.diff(X.indptr), np.diff(own.bounds))
            packed = np.concatenate(
                [part.astype(kind, copy=False).view(np.uint8) for part, (kind, _) in zip(parts, kinds)]
            )
        else:
            packed = np.empty(sum(np.dtype(kind).itemsize * size for kind, size in kinds), np.uint8)
        packed = comm.broadcast(packed, rank)
        if rank == comm.rank:
            found.append(own)
            continue
        arrays, at = [], 0
        for kind, size in kinds:
            end = at + np.dtype(kind).itemsize * size
            arrays.append(packed[at:end].view(kind))
            at = end
        data, coefs, indices, classes, lengths, counts = arrays
        there = sp.csr_matrix((data, indices, _bounds(lengths)), shape=(rows, X.shape[1]), copy=False)
        found.append(Changes(there, _bounds(counts), classes, coefs))
    return found


def _bounds(lengths: Array) -> Array:
    bounds = np.zeros(len(lengths) + 1, np.int64 if lengths.sum(dtype=np.int64) > 2**31 - 1 else np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def add_changes(
    problem: Problem, state: State, changes: Sequence[Changes], mine: int, sigma: float
) -> tuple[float, float]:
    """Add ``changes`` of CSR rows, less ``sigma`` times those of the process ``mine``, to the dual image of the state.

    Returns the squared norm of their sum, and that of the image of the own ones.
    """
    image, threads = image_of(state), max(1, problem.n_threads)
    columns = sp.vstack([each.X for each in changes], format="csr").tocsc()
    bounds = _bounds(np.concatenate([np.diff(each.bounds) for each in changes]))
    classes, coefs = (np.concatenate([getattr(each, name) for each in changes]) for name in ("classes", "coefs"))
    first = sum(each.X.shape[0] for each in changes[:mine])
    last = first + changes[mine].X.shape[0]
    by_feature = columns.indptr, columns.indices
    image.reserve(problem, state, lambda view: kernels.slots_for_columns(view, *by_feature, bounds, problem.n_outputs))
    view = image.view(state)
    edges = problem.feature_edges(threads)
    parts = run(
        lambda at, _: kernels.add_columns(
            view,
            problem.n_outputs,
            *by_feature,
            columns.data,
            bounds,
            classes,
            coefs,
            first,
            last,
            sigma,
            edges[at],
            edges[at + 1],
        ),
        ranges(threads, 1),
        threads,
    )
    whole, own = np.sum(parts, axis=0).tolist()
    return whole, own

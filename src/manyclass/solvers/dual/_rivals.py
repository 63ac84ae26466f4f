"""The sparse dual variables of the active-set solver: a list of rivals for each sample."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from manyclass.distributed import Communicator
from manyclass.kernels import active as kernels
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import State

__all__ = ["balance", "classes_of", "merge"]


def classes_of(problem: Problem) -> Array:
    """The class of each sample."""
    assert isinstance(problem.targets, ClassTargets)  # losses with a sparse dual have no other targets
    return problem.targets.y


def merge(state: State, found: Array) -> None:
    """Add the rivals ``found`` to the active sets, and remove those whose dual variable is 0."""
    indptr = np.empty_like(state["indptr"])
    none_i, none_b = np.zeros(0, np.int32), np.zeros(0, state["b"].dtype)
    kernels.merge_rivals(state["indptr"], state["rivals"], state["b"], found, indptr, none_i, none_b, False)
    rivals, b = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], state["b"].dtype)
    kernels.merge_rivals(state["indptr"], state["rivals"], state["b"], found, indptr, rivals, b, True)
    state.update(indptr=indptr, rivals=rivals, b=b)


def balance(problem: Problem, state: State, weights: Array, n: int, comm: Communicator) -> None:
    """Change the sparse dual variables to sum_i c_i a_i = 0 with few new entries (as `Problem.balance`).

    The sum is over the ``n`` rows of all processes, which move masses one after the other; ``weights`` are the c_i of
    the rows here.
    """
    y, K = classes_of(problem), problem.n_outputs
    most = problem.n_samples + 4 * K
    excess = np.empty(K)
    rows, classes, masses = np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most)
    kernels.class_excess(y, weights, state["indptr"], state["rivals"], state["b"], excess)
    excess = comm.allreduce(excess)
    # Small changes of many samples first: they reduce the dual objective least.
    for cap in (0.03, 0.3, 1.0, 1.0):
        for rank in range(comm.size):
            if rank == comm.rank:
                duals = state["indptr"], state["rivals"], state["b"]
                moves = kernels.plan_moves(y, weights, *duals, excess, cap, rows, classes, masses)
            excess = comm.broadcast(excess, rank)
        if moves:
            shape = problem.n_samples, K
            held = sp.csr_matrix((state["b"], state["rivals"], state["indptr"]), shape=shape)
            moved = sp.csr_matrix((masses[:moves], (rows[:moves], classes[:moves])), shape=shape)
            total = (held + moved).tocsr()
            state.update(
                indptr=total.indptr.astype(np.int64),
                rivals=total.indices.astype(np.int32),
                b=np.clip(total.data, 0, 1).astype(problem.dtype),
            )
        if not np.any(excess > 1e-9 * n):
            break

"""Dual ascent of several processes, each on rows of its own: active-set Prox-SDCA whose changes are added up.

Every process has the whole dual image V and takes steps on some of its rows as if the changes of the others were
sigma - 1 times its own, so that all changes may then be added (Ma et al. 2015). With P processes sigma = P is always
enough; what the changes Delta_r have needed is

    rho = || sum_r Delta_r ||^2 / sum_r || Delta_r ||^2  <=  P,

because with sigma >= rho the sum of them raises D by what the processes have gained, or more. Rows that share few
features have rho near 1. So sigma is rho of the steps before, and a little more; where that was too little for once, D
may fall, and the next sigma is larger. The certificate does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.distributed import Communicator
from manyclass.distributed.opening import ENGINES
from manyclass.kernels import active as kernels
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.solvers.base import Progress, State, row_matrix
from manyclass.solvers.dual._image import add_matrix, image_of
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.sdca import Epoch
from manyclass.solvers.on_communicator import DistributedSolver

__all__ = ["DataParallelSDCA"]

#: sigma in units of rho of the epoch before.
_MORE = 1.1


class DataParallelSDCA(DistributedSolver, ActiveSetSDCA):
    """Active-set Prox-SDCA for the Crammer-Singer loss, the rows partitioned over several processes.

    Each process has rows of its own, their dual variables, and all weights (a table of those that are not zero, where
    an array would be large). Several times in an epoch the processes add up the changes of their weights; entries that
    have changed are sent. The certificate, of the rows of all processes, is exact. It is for rows that do not fit into
    one machine, or are on several of them: a step on a sparse row changes about as many weights as the row has values,
    times two or three, and every process must make the changes of all. No intercept is fitted, and there is no
    checkpoint on several processes.

    Parameters
    ----------
    comm : Communicator, "mpi", "torch" or "auto", optional
        The processes. None: one process. "mpi": all processes of the MPI job. "torch": all processes of a group of
        `torch.distributed`. "auto": all processes that a launcher has started, connected by one of these, or this one;
        an error if they cannot be connected.
    exchanges : int, default=4
        How often in an epoch changes are added up, >= 1. More of them need fewer epochs and more communication.
    first : int, default=16
        Number of rivals per sample at the start. This and the following parameters are those of `ActiveSetSDCA`.
    more : int, default=16
        Maximum number of rivals that a pass adds per sample.
    epochs : int, default=6
        Epochs between two passes that add rivals.
    slack : float, default=0.5
        A rival is added if its score is at most this much below the largest violation of its sample.
    storage : {"auto", "dense", "sparse"}, default="auto"
        How the weights are stored during the fit.

    Attributes
    ----------
    scale : float
        Mean of the sample weights of this process, where those of all processes have mean 1; set it before a run.

    Raises
    ------
    ValueError
        As `ActiveSetSDCA`, or if the loss is not Crammer-Singer, or with an intercept.

    References
    ----------
    Ma, Smith, Jaggi, Jordan, Richtarik and Takac, "Adding vs. averaging in distributed primal-dual optimization", ICML
    2015. The choice of sigma is ours.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifier
    >>> from manyclass.distributed import run_threads
    >>> from manyclass.solvers import DataParallelSDCA
    >>> X, y = load_digits(return_X_y=True)
    >>> def fit(comm):
    ...     mine = slice(comm.rank, None, comm.size)
    ...     solver = DataParallelSDCA(comm=comm)
    ...     return LinearClassifier("crammer_singer", alpha=0.1, solver=solver).fit(X[mine] / 16, y[mine])
    >>> [bool(model.duality_gap_ <= 1e-3) for model in run_threads(2, fit)]
    [True, True]
    """

    name = "sdca_dp"
    summary = "active-set Prox-SDCA with rows partitioned over processes; Crammer-Singer"
    synonyms: ClassVar[tuple[str, ...]] = ("cocoa", "data_parallel_sdca")
    takes_intercept = False
    search = "exact"
    sampling = "auto"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: rule
            for name, rule in ActiveSetSDCA._parameter_constraints.items()
            if name not in ("search", "sampling")
        },
        "exchanges": [Interval(Integral, 1, None, closed="left")],
        "comm": [Communicator, StrOptions(set(ENGINES)), None],
    }
    _rows: tuple[Problem, int] | None = None

    def __init__(
        self,
        *,
        comm: Communicator | str | None = None,
        exchanges: int = 4,
        first: int = 16,
        more: int = 16,
        epochs: int = 6,
        slack: float = 0.5,
        storage: str = "auto",
    ) -> None:
        self.comm = comm
        self.exchanges = exchanges
        self.first = first
        self.more = more
        self.epochs = epochs
        self.slack = slack
        self.storage = storage

    def _check_loss(self, problem: Problem) -> None:
        """`needs_loss` says it."""

    def state(self, problem: Problem) -> State:
        return {**super().state(problem), "sigma": np.asarray(float(self._comm.size))}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        found = super().nbytes(problem)
        if self._comm.size > 1:
            kind = next(name for name in found if name.startswith("weights"))
            found["changes of the weights, and those of other processes"] = 2 * found[kind]
        return found

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        for progress in super().iterate(problem, state, seed):
            self._comm.heed()
            yield progress

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        if self._comm.size == 1:
            super()._epoch(epoch, state, order, live)
            return
        problem = epoch.problem
        for number in range(self.exchanges):
            sigma, before = float(state["sigma"]), state["b"].copy()
            local = replace(problem, lam=problem.lam / (self._part(problem) * sigma))
            part = order[len(order) * number // self.exchanges : len(order) * (number + 1) // self.exchanges]
            super()._epoch(replace(epoch, problem=local), state, part, live)
            own = self._image(problem, state, state["b"] - before)
            total, alone = self._add_up(own)
            rho = _square(total) / alone if alone > 0 else 1.0
            state["sigma"] = np.asarray(min(max(_MORE * rho, 1.0), float(self._comm.size)))
            # The steps have added sigma times the own change.
            add_matrix(state, total - own.dtype.type(sigma) * own)

    def _image(self, problem: Problem, state: State, b: Array) -> sp.csr_matrix[Any]:
        """The part of the dual image that the rows here have, of sparse dual variables ``b``; (d, K)."""
        n, y = problem.n_samples, problem.targets.y  # type: ignore[union-attr]
        counts = np.diff(state["indptr"])
        row, there = np.repeat(np.arange(n), counts), b != 0
        row, rivals, b = row[there], state["rivals"][there], b[there]
        some = np.unique(row)
        sums = np.bincount(row, weights=b, minlength=n)[some].astype(problem.dtype)
        places = np.concatenate([np.searchsorted(some, row), np.arange(len(some))])
        changes = sp.csr_matrix(
            (np.concatenate([-b, sums]), (places, np.concatenate([rivals, y[some]]))),
            shape=(len(some), problem.n_outputs),
        )
        scale = self._part(problem) * problem.inv_lam_n * np.asarray(problem.sample_weight)[some]
        changes.data *= np.repeat(scale.astype(problem.dtype), np.diff(changes.indptr))
        image = sp.csr_matrix(sp.csr_matrix(row_matrix(problem)[some]).T @ changes)
        image.sort_indices()
        return image.astype(problem.dtype, copy=False)

    def _add_up(self, own: sp.csr_matrix[Any]) -> tuple[sp.csr_matrix[Any], float]:
        """The sum over all processes, in their order, and the sum of the squares of its parts."""
        comm, total, alone = self._comm, None, 0.0
        sizes = np.zeros(comm.size, np.int64)
        sizes[comm.rank] = own.nnz
        for rank, size in enumerate(comm.allreduce(sizes).tolist()):
            mine = rank == comm.rank
            parts = [own.data, own.indices.astype(np.int32), own.indptr.astype(np.int64)]
            if not mine:
                parts = [np.empty(size, own.dtype), np.empty(size, np.int32), np.empty(own.shape[0] + 1, np.int64)]
            sent = sp.csr_matrix(tuple(comm.broadcast(part, rank) for part in parts), shape=own.shape)
            alone += _square(sent)
            total = sent if total is None else total + sent
        assert total is not None
        return sp.csr_matrix(total), alone

    def _measure(self, problem: Problem, state: State, *, final: bool) -> tuple[Certificate, Array]:
        if self._comm.size == 1:
            return super()._measure(problem, state, final=final)
        image, n = image_of(state), self._all_rows(problem)
        if final:
            total, _ = self._add_up(self._image(problem, state, state["b"]))
            image.clear(state)
            add_matrix(state, total)
        losses, rivals = self._propose(problem, state, image.scored(problem, state), self.more)
        conjugates = kernels.sparse_conjugates(
            problem.targets.y,  # type: ignore[union-attr]
            problem.sample_weight,
            problem.loss,
            state["indptr"],
            state["rivals"],
            state["b"],
        )
        losses, conjugates = self._comm.allreduce(self.scale * np.array([losses, conjugates])).tolist()
        g, conjugate = image.sums(problem, state)
        certificate = problem.bounds(
            primal=losses / n + problem.lam * g, dual=-conjugates / n - problem.lam * conjugate
        )
        state["gap"] = np.asarray(certificate.relative_gap)
        return certificate, rivals

    def value(self, problem: Problem, W: Any, intercept: Array) -> float:
        """The objective over the rows of all processes, which call this together."""
        g = problem.penalty_value(W.data[:, None] if sp.issparse(W) else W)
        losses = ActiveSetSDCA.value(self, problem, W, intercept) - problem.lam * g
        return float(self._comm.allreduce(np.asarray(self._part(problem) * losses))) + problem.lam * g

    def _part(self, problem: Problem) -> float:
        """The share of the rows of this process in the weight of all."""
        return self.scale * problem.n_samples / self._all_rows(problem)

    def _all_rows(self, problem: Problem) -> int:
        """The number of rows of all processes."""
        if self._rows is None or self._rows[0] is not problem:
            self._rows = problem, int(self._comm.allreduce(np.int64(problem.n_samples)))
        return self._rows[1]


def _square(matrix: sp.csr_matrix[Any]) -> float:
    """The sum of the squares of the entries, each stored once."""
    return float(np.dot(matrix.data.astype(np.float64), matrix.data))

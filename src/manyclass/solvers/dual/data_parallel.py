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
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.distributed import Communicator
from manyclass.distributed.checkpoint import digest
from manyclass.distributed.opening import ENGINES
from manyclass.kernels.rows import CSRRows, n_stored, read_only
from manyclass.objective.losses.base import signature
from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.dual._changes import Changes, add_changes, changes_of, exchanged
from manyclass.solvers.dual._image import image_of
from manyclass.solvers.dual._keeper import RivalKeeper
from manyclass.solvers.dual._rivals import balance, classes_of
from manyclass.solvers.dual.active import ActiveSetSDCA
from manyclass.solvers.dual.sdca import Epoch, bias_step
from manyclass.solvers.on_communicator import DistributedSolver

if TYPE_CHECKING:
    from manyclass.optimize.validation import Validation

__all__ = ["DataParallelSDCA"]

#: sigma in units of rho of the epoch before.
_MORE = 1.1
#: Maximum number of rows of all processes between two exchanges, whose changes each process holds.
_ROWS = 1 << 20


class DataParallelSDCA(DistributedSolver, ActiveSetSDCA):
    """Active-set Prox-SDCA for the Crammer-Singer loss, the rows partitioned over several processes.

    Each process has rows of its own, their dual variables, and all weights (a table of those that are not zero, where
    an array would be large). Several times in an epoch the processes add up their changes: sparse rows that have made
    a step are sent, with the changes of their dual variables, and of dense rows the changes of the weights. The
    certificate, of the rows of all processes, is exact. It is for rows that do not fit into one machine, or are on
    several of them: a step on a sparse row changes as many weights as the row has values, times some classes, and every
    process must make the changes of all. A checkpoint can be resumed by another number of processes.

    Parameters
    ----------
    comm : Communicator, "mpi", "torch" or "auto", optional
        The processes. None: one process. "mpi": all processes of the MPI job. "torch": all processes of a group of
        `torch.distributed`. "auto": all processes that a launcher has started, connected by one of these, or this one;
        an error if they cannot be connected.
    exchanges : int, default=8
        How often in an epoch changes are added up, >= 1. More of them need fewer epochs, and more waiting.
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
        As `ActiveSetSDCA`, or if the loss is not Crammer-Singer.

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
        exchanges: int = 8,
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
        found, size = super().nbytes(problem), problem.dtype.itemsize
        if self._comm.size == 1:
            return found
        if isinstance(problem.rows, CSRRows):
            # Rows, and changes of eight classes each: as they arrive, one after the other, by features.
            all_rows = self._all_rows(problem)
            share = min(1 / self.exchanges, _ROWS / max(all_rows, 1))
            row = n_stored(problem.rows) / max(problem.n_samples, 1) + 8
            changes = int(3 * share * all_rows * row * (4 + size))
        else:
            changes = 3 * problem.n_features * problem.n_outputs * size
        return {**found, "changes of all processes": changes}

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        for progress in super().iterate(problem, state, seed):
            self._comm.heed()
            yield progress

    def _bias_step(self, problem: Problem) -> float:
        """That of the rows of all processes, in units of this problem's 1 / (lam n)."""
        if self._comm.size == 1 or not problem.intercept:
            return bias_step(problem)
        squares = self.scale * float(np.dot(np.asarray(problem.sample_weight), problem.norms.astype(np.float64)))
        mean = float(self._comm.allreduce(np.array(squares))) / self._all_rows(problem)
        whole = 1 / (problem.lam * self._all_rows(problem))
        return bias_step(problem, mean=mean, inv_lam_n=whole) / whole * float(problem.inv_lam_n)

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        comm, problem = self._comm, epoch.problem
        if comm.size == 1:
            super()._epoch(epoch, state, order, live)
            return
        for part in self._parts(problem, order):
            sigma, old, start = float(state["sigma"]), state["b"].copy(), live.copy()
            super()._epoch(replace(epoch, times=self._part(problem) * sigma), state, part, live)
            whole, alone = self._exchange(problem, state, self._changes(problem, state, part, old), sigma)
            if problem.intercept:
                # The steps have added sigma times the own changes. The intercept is the weight of a constant feature.
                own = (live.astype(np.float64) - start) / sigma
                moved = comm.allreduce(own)
                live[:] = start + moved
                square = epoch.bias_step / float(problem.inv_lam_n)
                whole, alone = whole + float(moved @ moved) / square, alone + float(own @ own) / square
            alone = float(comm.allreduce(np.array(alone)))
            if alone > 0:
                whole = float(comm.broadcast(np.array(whole)))  # equal but for rounding
                state["sigma"] = np.asarray(min(max(_MORE * whole / alone, 1.0), float(comm.size)))

    def _parts(self, problem: Problem, order: Array) -> list[Array]:
        """The rows between two exchanges."""
        return np.array_split(order, max(self.exchanges, -(-self._all_rows(problem) // _ROWS)))

    def _changes(self, problem: Problem, state: State, order: Array, old: Array) -> Changes:
        return changes_of(problem, state, order, old, self._part(problem) * float(problem.inv_lam_n))

    def _exchange(self, problem: Problem, state: State, own: Changes, sigma: float) -> tuple[float, float]:
        """Add the changes of all processes to the dual image, which has sigma times the own ones.

        Returns the squared norm of their sum, and that of the own ones.
        """
        if isinstance(problem.rows, CSRRows):
            return add_changes(problem, state, exchanged(self._comm, own), self._comm.rank, sigma)
        image = own.image(problem.n_outputs)
        total = self._comm.allreduce(image)
        state["V"] += total - image.dtype.type(sigma) * image
        return _square(total), _square(image)

    def _balance(self, problem: Problem, state: State) -> None:
        if self._comm.size == 1:
            super()._balance(problem, state)
        else:
            weights = read_only(np.asarray(problem.sample_weight) * problem.dtype.type(self.scale))
            balance(problem, state, weights, self._all_rows(problem), self._comm)

    def _rebuild(self, problem: Problem, state: State) -> None:
        if self._comm.size == 1:
            super()._rebuild(problem, state)
            return
        image_of(state).clear(state)
        old = np.zeros_like(state["b"])
        for part in self._parts(problem, np.arange(problem.n_samples, dtype=np.int32)):
            self._exchange(problem, state, self._changes(problem, state, part, old), 0.0)

    def _over_all(
        self, problem: Problem, losses: float, conjugates: float, g: float, conjugate: float
    ) -> tuple[float, float, float, float, float]:
        if self._comm.size == 1:
            return super()._over_all(problem, losses, conjugates, g, conjugate)
        losses, conjugates = self._comm.allreduce(self.scale * np.array([losses, conjugates])).tolist()
        # The images of the processes may differ by rounding, their decisions may not.
        g, conjugate = self._comm.broadcast(np.array([g, conjugate])).tolist()
        return self._all_rows(problem), losses, conjugates, g, conjugate

    def keeper(
        self, path: str | Path, problem: Problem, seed: int, seconds: float, validation: Validation | None = None
    ) -> RivalKeeper:
        """The writer of checkpoints, in a folder, from which any number of processes can resume.

        Of several processes the weights are computed anew from the dual variables: a resumed fit gives the same result
        up to rounding, in one process the same bits.
        """
        comm, n, y = self._comm, problem.n_samples, classes_of(problem)
        sizes = np.zeros(comm.size, np.int64)
        sizes[comm.rank] = n
        first = int(comm.allreduce(sizes)[: comm.rank].sum())
        weights = self.scale * np.asarray(problem.sample_weight, np.float64)
        identity = {
            "solver": self.name,
            **{name: getattr(self, name) for name in ("exchanges", "first", "more", "epochs", "slack")},
            "seed": int(seed),
            "loss": f"{type(problem.loss).__name__}{signature(problem.loss)}",
            "penalty": f"{type(problem.penalty).__name__}{signature(problem.penalty)}",
            "lam": f"{problem.lam:.12g}",
            "shape": [self._all_rows(problem), problem.n_features, problem.n_outputs],
            "intercept": problem.intercept,
            "dtype": problem.dtype.name,
            "data": digest(comm, first, y, problem.norms),
            # Rounded: each process scales its sample weights.
            "weights": f"{float(comm.allreduce(weights @ weights)):.6g}",
        }
        if validation is not None and comm.allreduce(np.int64((weights == 0).any()), "max"):
            identity["left out"] = digest(comm, first, (weights == 0).astype(np.int64))
        rebuild, check = partial(self._rebuild, problem), partial(self.check_arrays, problem)
        return RivalKeeper(path, comm, first, identity, rebuild, check, seconds, validation)

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


def _square(image: Array) -> float:
    flat = image.ravel()
    return float(np.dot(flat, flat))

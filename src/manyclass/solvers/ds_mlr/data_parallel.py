"""A baseline: L-BFGS with the rows partitioned and the whole model in every process."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import StrOptions

from manyclass.distributed import Communicator
from manyclass.distributed.opening import ENGINES
from manyclass.kernels import respond, sdca as kernels
from manyclass.objective.problem import Array, Certificate, Problem, balancing
from manyclass.runtime.threads import ranges
from manyclass.solvers.base import State, row_matrix
from manyclass.solvers.ds_mlr.metric import CHUNK, REFRESH
from manyclass.solvers.on_communicator import DistributedSolver
from manyclass.solvers.primal.descent import OPTIMISM
from manyclass.solvers.primal.lbfgs import LBFGS

__all__ = ["DataParallelLBFGS"]


class DataParallelLBFGS(DistributedSolver, LBFGS):
    """Data-parallel L-BFGS for softmax regression: partitioned rows, and an all-reduce of d K numbers per step.

    Parameters
    ----------
    comm : Communicator, "mpi", "torch" or "auto", optional
        The processes. None: one process. "mpi": all processes of the MPI job. "torch": all processes of a group of
        `torch.distributed`. "auto": all processes that a launcher has started, connected by one of these, or this one;
        an error if they cannot be connected.
    history_size : int, default=10
        Number of pairs that are kept, >= 1.
    precondition : {"none", "diagonal"}, default="none"
        The initial inverse Hessian of a step. "none": a multiple of the identity. "diagonal": that of `DSMLR`, from the
        diagonal of the Hessian, computed anew after every 5 pairs: another all-reduce of d K numbers.

    Attributes
    ----------
    scale : float
        Mean of the sample weights of this process, where those of all processes have mean 1; set it before a run.

    Raises
    ------
    ValueError
        As `LBFGS`, or if the problem is not softmax regression with an l2 penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.optimize.loop import minimize
    >>> from manyclass.kernels.rows import make_rows
    >>> from manyclass.kernels.targets import ClassTargets
    >>> from manyclass.objective.losses import MultinomialLoss
    >>> from manyclass.distributed import run_threads
    >>> from manyclass.objective.problem import Problem
    >>> from manyclass.objective.penalties import L2
    >>> from manyclass.solvers.ds_mlr import DataParallelLBFGS
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = X[:, :3].argmax(axis=1).astype(np.int32)
    >>> def fit(comm):
    ...     mine = slice(100 * comm.rank, 100 * (comm.rank + 1))
    ...     rows, targets = make_rows(X[mine]), ClassTargets(y[mine], 3)
    ...     problem = Problem(rows, targets, MultinomialLoss(), L2(), lam=0.01, n_features=5)
    ...     return minimize(problem, DataParallelLBFGS(comm=comm), tol=1e-6).certificate.relative_gap <= 1e-6
    >>> run_threads(2, fit)
    [True, True]
    """

    name = "lbfgs_dp"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LBFGS._parameter_constraints,
        "comm": [Communicator, StrOptions(set(ENGINES)), None],
        "precondition": [StrOptions({"none", "diagonal"})],
    }
    _facts: tuple[Problem, tuple[int, float, float]] | None = None

    def __init__(
        self, *, comm: Communicator | str | None = None, history_size: int = 10, precondition: str = "none"
    ) -> None:
        super().__init__(history_size=history_size)
        self.comm = comm
        self.precondition = precondition

    def state(self, problem: Problem) -> State:
        state = super().state(problem)
        return {**state, "curvature": problem.blank(state["point"].shape)} if self._diagonal else state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        found = super().nbytes(problem)
        if self._diagonal:
            found["preconditioner"] = (problem.n_features + 1) * problem.n_outputs * problem.dtype.itemsize
        return found

    @property
    def _diagonal(self) -> bool:
        return self.precondition == "diagonal"

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return self._parts(problem, state["point"])

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        n = self._whole(problem)[0]
        W, bias = self.weights(problem, state)
        dual, V = state["dual"], state["slope"][:-1]
        losses = problem.respond(W, bias, dual)
        y, c = problem.targets.y, problem.sample_weight  # type: ignore[union-attr]
        if problem.intercept:
            masses = np.empty((2, problem.n_outputs))
            kernels.class_masses(y, c, dual, masses[0], masses[1])
            moves = balancing(*self._comm.allreduce(self.scale * masses))
            if moves is not None:
                kernels.balance_classes(y, c, dual, *moves)
        conjugates = respond.conjugate_rows(problem.targets, c, problem.loss, dual, 0, problem.n_samples)
        losses, conjugates = self._comm.allreduce(self.scale * np.array([losses, conjugates])).tolist()
        self._image_of_all(problem, dual, V)
        return problem.bounds(
            primal=losses / n + problem.lam * problem.penalty_value(W),
            dual=-conjugates / n - problem.lam * problem.penalty_sums(V)[1],
        )

    def _descend(self, problem: Problem, point: Array, state: State, gradient: Array) -> float:
        n, constant, _ = self._whole(problem)
        W, bias = self._parts(problem, point)
        dual, slope = state["dual"], state["slope"]
        losses = self.scale * problem.respond(W, bias, dual)
        self._image_of_all(problem, dual, slope[:-1])
        slope[:-1] *= -problem.lam
        sums = self.scale * kernels.weighted_sums(problem.sample_weight, dual)
        totals = self._comm.allreduce(np.append(sums, losses))
        slope[-1] = -constant / n * totals[:-1] if problem.intercept else 0
        self._add_penalty(problem, point, state, gradient)
        return float(totals[-1]) / n + problem.lam * problem.penalty_value(W)

    def _begin(self, problem: Problem, state: State, direction: Array, turn: Array | None, bend: float) -> None:
        if not self._diagonal:
            super()._begin(problem, state, direction, turn, bend)
            return
        if int(state["pairs"]) % REFRESH["diagonal"] == 0:  # also at the start, and when L-BFGS restarts
            self._curve(problem, state["dual"], state["curvature"])
        direction /= state["curvature"]

    def _curve(self, problem: Problem, dual: Array, out: Array) -> None:
        """The diagonal of the Hessian, for all rows, at the point whose gradients of the losses ``dual`` has."""
        n, constant, _ = self._whole(problem)
        y, rows = problem.targets.y, row_matrix(problem)  # type: ignore[union-attr]
        out[:] = 0
        for begin, end in ranges(problem.n_samples, max(1, CHUNK // max(problem.n_outputs, 1))):
            P = -dual[begin:end]
            P[np.arange(end - begin), y[begin:end]] += 1
            P *= (1 - P) * np.asarray(problem.sample_weight)[begin:end, None]
            X = rows[begin:end]
            squares = X.multiply(X).tocsr() if sp.issparse(X) else np.asarray(X, problem.dtype) ** 2
            out[:-1] += squares.T @ P
            out[-1] += constant**2 * P.sum(axis=0)
        out *= out.dtype.type(self.scale / n)
        if self._comm.size > 1:
            out[:] = self._comm.allreduce(out)
        out += out.dtype.type(problem.lam)

    def _image_of_all(self, problem: Problem, dual: Array, V: Array) -> None:
        """Write the dual image of the dual variables of all processes to V."""
        problem.dual_image(dual, V)
        V *= V.dtype.type(self.scale * problem.n_samples / self._whole(problem)[0])
        if self._comm.size > 1:
            V[:] = self._comm.allreduce(V)

    def _cautious(self, problem: Problem) -> float:
        """As in the base class, but for the rows of all processes, which must take the same step."""
        _, value, norms = self._whole(problem)
        return OPTIMISM / (0.5 * (norms + value**2) + problem.lam)

    def _parts(self, problem: Problem, point: Array) -> tuple[Array, Array]:
        return point[:-1], problem.dtype.type(self._whole(problem)[1]) * point[-1]

    def _whole(self, problem: Problem) -> tuple[int, float, float]:
        """Number of rows, value of the constant feature, and mean squared row norm, of all processes."""
        if self._facts is None or self._facts[0] is not problem:
            c = np.asarray(problem.sample_weight, np.float64) * self.scale
            n, norms, weights = self._comm.allreduce(np.array([len(c), c @ problem.norms, c.sum()])).tolist()
            value = (math.sqrt(norms / weights) or 1.0) if problem.intercept else 0.0
            self._facts = (problem, (int(n), value, norms / weights))
        return self._facts[1]

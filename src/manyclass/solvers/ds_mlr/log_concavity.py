"""A baseline: LC, which bounds the log-partition function so that classes are independent problems."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.distributed import Communicator
from manyclass.distributed.opening import ENGINES
from manyclass.kernels import ds_mlr as kernels
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import PLAIN, Progress, State
from manyclass.solvers.on_communicator import DistributedSolver
from manyclass.solvers.primal.base import BatchSolver, constant

__all__ = ["LogConcavity"]

#: Classes per log-sum-exp; fixed, so that sums do not depend on the number of threads.
_GROUP = 8
_DECREASE = 1e-4
_HALVINGS = 40


class LogConcavity(DistributedSolver, BatchSolver):
    """LC (Gopal & Yang 2013) for softmax regression with an l2 penalty.

    log Z <= a Z - log a - 1 for every a > 0, with equality at a = 1/Z. With fixed a_i the classes are independent
    problems,

        min over w_k  (lam/2) ||w_k||^2 + (1/n) sum_i c_i (a_i exp(w_k . x_i) - [y_i = k] w_k . x_i)

    An iteration takes ``inner`` steps of L-BFGS on each of them, then updates the a_i. The classes are divided among
    processes and threads. Every process has all rows; an iteration all-reduces the weights and 2 n numbers.

    Parameters
    ----------
    comm : Communicator, "mpi", "torch" or "auto", optional
        The processes. None: one process. "mpi": all processes of the MPI job. "torch": all processes of a group of
        `torch.distributed`. "auto": all processes that a launcher has started, connected by one of these, or this one;
        an error if they cannot be connected.
    inner : int, default=10
        Steps of L-BFGS per class and iteration, >= 1.
    history_size : int, default=5
        Number of pairs of L-BFGS, which restarts in each iteration, >= 1.

    References
    ----------
    Gopal and Yang, "Distributed training of large-scale logistic models", ICML 2013, section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import LogConcavity
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=LogConcavity(), alpha=0.1, tol=1e-2).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-2)
    True
    """

    name = "log_concavity"
    summary = "a bound on the log-partition function that makes classes independent (LC), for comparison"
    synonyms = ("lc",)
    partitions_rows = False
    needs_penalty = frozenset({"gradient"})
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "comm": [Communicator, StrOptions(set(ENGINES)), None],
        "inner": [Interval(Integral, 1, None, closed="left")],
        "history_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, *, comm: Communicator | str | None = None, inner: int = 10, history_size: int = 5) -> None:
        self.comm = comm
        self.inner = inner
        self.history_size = history_size

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        parts = problem.norms, problem.targets.y, problem.sample_weight  # type: ignore[union-attr]
        own = np.array([problem.n_samples, *(zlib.crc32(np.asarray(part).tobytes()) for part in parts)], np.int64)
        if self._comm.size > 1 and (self._comm.allreduce(own, "max") != -self._comm.allreduce(-own, "max")).any():
            raise ValueError(
                f"solver {self.name!r} needs all rows in every process, got other rows, labels or weights in one of "
                f"{self._comm.size} than in another: give each of them the same X and y, or choose solver 'ds_mlr'"
            )

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        # The log-sum-exp of the scores of each row.
        return {**state, "total": np.full(problem.n_samples, np.log(problem.n_outputs))}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size, mine = problem.dtype.itemsize, -(-problem.n_outputs // self._comm.size)
        return {
            "weights and gradients": 2 * (problem.n_features + 1) * problem.n_outputs * size,
            "pairs of L-BFGS": (2 * self.history_size + 4) * (problem.n_features + 1) * mine * size,
            "scores": 2 * problem.n_samples * mine * size,
            "gradients of the losses": problem.n_samples * problem.n_outputs * size,
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        K, rank, size = problem.n_outputs, self._comm.rank, self._comm.size
        begin, end = K * rank // size, K * (rank + 1) // size
        # Whole groups of classes per thread: the sums below are over groups, in order, for any number of threads.
        width = _GROUP * max(1, -(-(end - begin) // (_GROUP * problem.n_threads)))
        pieces = [(begin + lo, begin + hi) for lo, hi in ranges(end - begin, width)]
        while True:
            self._comm.heed()
            point = state["point"].copy()
            tops = run(partial(self._classes, problem, state, point), pieces, problem.n_threads)
            # Combine the log-sum-exps of the groups.
            own = np.full(problem.n_samples, -np.inf)
            for top in tops:
                for group in top.T:
                    own = np.logaddexp(own, group)
            highest = self._comm.allreduce(own, "max")
            sums = self._comm.allreduce(np.exp(own - highest))
            others = np.zeros_like(point)
            others[:, begin:end] = point[:, begin:end]
            state["point"] = self._comm.allreduce(others) if size > 1 else others
            state["total"] = highest + np.log(sums)
            yield self._ended(state, self.inner)

    def _classes(self, problem: Problem, state: State, point: Array, lo: int, hi: int) -> Array:
        """Steps on the classes lo <= k < hi, each with its own step size; returns log-sum-exps by group of classes."""
        n, lam, total = problem.n_samples, problem.lam, state["total"]
        y, c, bar = problem.targets.y, problem.sample_weight, problem.dtype.type(constant(problem))  # type: ignore[union-attr]
        W = np.ascontiguousarray(point[:, lo:hi])
        S, T = (np.empty((n, hi - lo), problem.dtype) for _ in range(2))
        kernels.block_scores(problem.rows, 0, n, W, bar, PLAIN, S, 0)

        def gradient() -> Array:
            G = np.zeros_like(W)
            kernels.concave_gradient(problem.rows, S, y, c, total, lo, bar, G)
            G /= n
            G[:-1] += problem.dtype.type(lam) * W[:-1]
            return G

        def along(steps: Array) -> Array:
            values, slopes = np.empty(hi - lo), np.empty(hi - lo)
            kernels.concave_line(S, T, steps, 0, lo, y, c, total, values, slopes)
            moved = W[:-1].astype(np.float64) + steps * D[:-1]
            return np.asarray(values / n + 0.5 * lam * (moved**2).sum(axis=0))

        pairs: list[tuple[Array, Array, Array]] = []
        G = gradient()
        for _ in range(self.inner):
            D = self._directions(G, pairs, problem)
            kernels.block_scores(problem.rows, 0, n, D, bar, PLAIN, T, 0)
            fall = _columns(G, D)
            before = along(np.zeros(hi - lo))
            steps, accepted = np.ones(hi - lo), np.zeros(hi - lo, bool)
            for _ in range(_HALVINGS):
                accepted |= along(steps) <= before + _DECREASE * steps * fall
                if accepted.all():
                    break
                steps = np.where(accepted, steps, 0.5 * steps)
            steps = np.where(accepted, steps, 0.0)
            move = (steps * D).astype(W.dtype)
            W += move
            S += (steps * T).astype(S.dtype)
            new = gradient()
            pairs.append((move, new - G, _columns(move, new - G)))
            del pairs[: -self.history_size]
            G = new
        point[:, lo:hi] = W
        groups = ranges(hi - lo, _GROUP)
        lse = np.empty((n, len(groups)))
        for group, (first, last) in enumerate(groups):
            kernels.block_logsumexp(S, first, last, lse, group)
        return lse

    def _directions(self, G: Array, pairs: list[tuple[Array, Array, Array]], problem: Problem) -> Array:
        """The two-loop recursion for each class; pairs with nonpositive curvature are ignored."""
        D = -G.astype(np.float64)
        shares = []
        for move, turn, bend in reversed(pairs):
            shares.append(np.where(bend > 0, _columns(move, D) / np.where(bend > 0, bend, 1.0), 0.0))
            D -= shares[-1] * turn
        mean = float(np.average(problem.norms, weights=problem.sample_weight))
        first = np.full(G.shape[1], 1.0 / (mean + constant(problem) ** 2 + problem.lam))
        if pairs:
            move, turn, bend = pairs[-1]
            size = _columns(turn, turn)
            first = np.where((bend > 0) & (size > 0), bend / np.where(size > 0, size, 1.0), first)
        D *= first
        for (move, turn, bend), share in zip(pairs, reversed(shares)):
            back = np.where(bend > 0, _columns(turn, D) / np.where(bend > 0, bend, 1.0), 0.0)
            D += (share - back) * move
        return np.ascontiguousarray(D, G.dtype)


def _columns(one: Array, two: Array) -> Array:
    """The inner products of corresponding columns, in float64."""
    return np.asarray(np.einsum("jk,jk->k", one, two, dtype=np.float64))

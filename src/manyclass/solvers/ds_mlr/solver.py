"""DS-MLR as a solver of the fitting loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.distributed import Communicator
from manyclass.distributed.checkpoint import digest
from manyclass.distributed.opening import ENGINES
from manyclass.kernels import ds_mlr as kernels
from manyclass.models.partitioned import Columns
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.memory import available
from manyclass.solvers.base import Progress, State
from manyclass.solvers.ds_mlr.certify import certify
from manyclass.solvers.ds_mlr.deterministic import Blocks, Memory, begin, descend
from manyclass.solvers.ds_mlr.grid import cuts
from manyclass.solvers.ds_mlr.keeper import BlockKeeper
from manyclass.solvers.ds_mlr.metric import (
    REFRESH,
    Diagonal,
    Metric,
    Spectral,
    Spectrum,
    bends,
    curvatures,
    spectrum,
)
from manyclass.solvers.ds_mlr.plan import Job, needs, refuse
from manyclass.solvers.ds_mlr.stochastic import fresh_epoch, literal_epoch, printed_epoch
from manyclass.solvers.ds_mlr.team import Extent, Team
from manyclass.solvers.ds_mlr.views import Scores
from manyclass.solvers.ds_mlr.worker import Worker
from manyclass.solvers.on_communicator import DistributedSolver
from manyclass.solvers.primal.descent import OPTIMISM

if TYPE_CHECKING:
    from manyclass.optimize.validation import Validation

__all__ = ["ALGORITHMS", "DSMLR", "PRECONDITIONERS", "SCHEDULES"]

SCHEDULES = ("ring", "queue", "random")
ALGORITHMS = ("two_phase", "stochastic", "printed", "literal")
PRECONDITIONERS = ("auto", "spectrum", "diagonal", "none")

#: Passes over the data per iteration: one for scores, half a one, without exponentials, for weights or gradient.
_PASSES = 1.5
#: Blocks per worker with a queue, so that a worker need not wait for the next block.
_EACH = 4
#: Number of features below which ``precondition="auto"`` is "spectrum", else "diagonal".
_FEW = 1000
#: Iterations of the first phase, except with the preconditioner "spectrum".
_START = 2


class DSMLR(DistributedSolver):
    """Softmax regression with rows and classes partitioned (Raman et al. 2019) over threads, processes and machines.

    Each worker has some shards of the rows; blocks of classes, with their weights, are sent from worker to worker. In
    the first phase, when a block is at a shard, a stochastic step is taken for each of its rows; the normalizers are
    exact, because each row stores the log-sum-exp of its scores in each block. The second phase is L-BFGS on the
    blocks, deterministic and with fast local convergence. Workers compute the duality gap together.

    Each process runs a solver on the problem of its own rows; its state has the blocks that it owns.

    Parameters
    ----------
    n_workers : int, default=1
        Worker threads per process, >= 1.
    schedule : {"ring", "queue", "random"}, default="ring"
        "ring": blocks are passed on in a fixed order; for the same grid the result does not depend on the number of
        workers. "queue": workers process blocks as they arrive, and in the first phase skip some when too many wait;
        such fits, also resumed ones, are not reproducible. "random": a queue whose blocks go to random workers.
    comm : Communicator, "mpi", "torch" or "auto", optional
        The processes. None: one process. "mpi": all processes of the MPI job. "torch": all processes of a group of
        `torch.distributed`. "auto": all processes that a launcher has started, connected by one of these, or this one;
        an error if they cannot be connected.
    block_classes, n_shards : int, optional
        Maximum number of classes per block, and number of shards of the rows, >= 1. None: see `make_grid`.
    algorithm : {"two_phase", "stochastic", "printed", "literal"}, default="two_phase"
        "two_phase": not the paper's, which stops improving far from the optimum. "stochastic": only the first phase.
        "printed": the paper's algorithms 1 (ring) and 2 (random), which update the normalizers once per iteration, with
        bounded exponents. "literal": these to the letter (b = 1/K at first, steps K times as long); an error where it
        diverges.
    start : int, optional
        Iterations of the first phase with "two_phase", >= 0. None: 0 with preconditioner "spectrum", else 2.
    eta0 : float, default=1.0
        Iteration t of the first phase has step size ``eta0 / (max_i c_i ||x_i||^2 sqrt(t))``; > 0.
    history_size : int, default=10
        Number of pairs of L-BFGS that are kept, >= 1.
    keep_scores : bool, optional
        Whether to keep 2 n K / P scores in each of P workers; recomputing them takes three times the work. None: they
        are kept if they fit in memory.
    precondition : {"auto", "spectrum", "diagonal", "none"}, default="auto"
        The initial inverse Hessian of L-BFGS. "spectrum": the inverse of the second moments of the rows, scaled for
        each class (see `Spectral`); it takes d^2 numbers in every process, and far fewer iterations if features are
        correlated. "diagonal": the inverse diagonal of the Hessian, as many numbers as weights (see `Diagonal`).
        "none": a multiple of the identity. "auto": "spectrum" for fewer than 1000 features, else "diagonal".

    Raises
    ------
    ValueError
        If a parameter is invalid, or the problem is not softmax regression with an l2 penalty.

    References
    ----------
    Raman, Srinivasan, Matsushima, Zhang, Yun and Vishwanathan, "Scaling multinomial logistic regression via hybrid
    parallelism", KDD 2019. Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Math.
    Programming 1989. Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce", NIPS 2014, for its inner products.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import DSMLR
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=DSMLR(n_workers=2), alpha=0.1, tol=1e-3).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-3)
    True
    """

    name = "ds_mlr"
    summary = "softmax regression with rows and classes partitioned over threads, processes and machines"
    synonyms = ("dsmlr", "nomad", "distributed")
    needs_loss = frozenset({"gradient", "conjugate"})
    needs_penalty = frozenset({"gradient"})
    default_max_iter = 300
    facts = ("scale", "slow")
    #: For experiments: see `Worker.slow`; one number per worker.
    slow: Sequence[float] = ()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_workers": [Interval(Integral, 1, None, closed="left")],
        "schedule": [StrOptions(set(SCHEDULES))],
        "comm": [Communicator, StrOptions(set(ENGINES)), None],
        "block_classes": [Interval(Integral, 1, None, closed="left"), None],
        "n_shards": [Interval(Integral, 1, None, closed="left"), None],
        "algorithm": [StrOptions(set(ALGORITHMS))],
        "start": [Interval(Integral, 0, None, closed="left"), None],
        "eta0": [Interval(Real, 0, None, closed="neither")],
        "history_size": [Interval(Integral, 1, None, closed="left")],
        "keep_scores": ["boolean", None],
        "precondition": [StrOptions(set(PRECONDITIONERS))],
    }
    _extent: tuple[Problem, Extent] | None = None
    _team: Team | None = None
    _spectrum: Spectrum | None = None

    def __init__(
        self,
        *,
        n_workers: int = 1,
        schedule: str = "ring",
        comm: Communicator | str | None = None,
        block_classes: int | None = None,
        n_shards: int | None = None,
        algorithm: str = "two_phase",
        start: int | None = None,
        eta0: float = 1.0,
        history_size: int = 10,
        keep_scores: bool | None = None,
        precondition: str = "auto",
    ) -> None:
        self.n_workers = n_workers
        self.schedule = schedule
        self.comm = comm
        self.block_classes = block_classes
        self.n_shards = n_shards
        self.algorithm = algorithm
        self.start = start
        self.eta0 = eta0
        self.history_size = history_size
        self.keep_scores = keep_scores
        self.precondition = precondition

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """Whether the same seed gives the same model: with a queue the timing of the workers decides."""
        return self.schedule == "ring"

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        cuts(
            problem.n_outputs,
            self._comm.size * self.n_workers,
            self.block_classes,
            self.n_shards,
            self.blocks_each(self._comm.size),
        )

    def blocks_each(self, processes: int) -> int:
        """Minimum number of blocks per worker with so many processes."""
        return _EACH if self.schedule != "ring" and self.n_workers * processes > 1 else 1

    # --- state and memory -------------------------------------------------------------------------------------------

    def state(self, problem: Problem) -> State:
        extent = self._known(problem)
        d, dtype, kind = problem.n_features + 1, problem.dtype, self._kind(problem)
        state: State = {
            "iteration": np.zeros((), np.int64),
            "passes": np.zeros(()),
            # Number of pairs, their inner products and the objective, see `Memory`. Flags: "ready": these and the
            # gradient are up to date; "scored": the scores are up to date; "begun": the first phase is over.
            "pairs": np.zeros((), np.int64),
            "gram": np.zeros((2 * self.history_size + 1, 2 * self.history_size + 1)),
            "value": np.zeros(()),
            "ready": np.zeros((), np.int64),
            "scored": np.zeros((), np.int64),
            "begun": np.zeros((), np.int64),
            # For `Spectral`.
            "bends": np.zeros(problem.n_outputs if kind == "spectrum" else 0),
            # Log-sum-exps of the scores, by block (see `Grid.n_sums`) and in total. The scores, or if these are
            # recomputed (see `Made`) the scores of the targets, at the weights and along the last direction.
            "lse": np.zeros((problem.n_samples, extent.grid.n_sums)),
            "total": np.full(problem.n_samples, np.log(problem.n_outputs)),
            "scores": np.zeros((problem.n_samples if self._keeps(problem) else 0, problem.n_outputs), dtype),
            "own": np.zeros((0 if self._keeps(problem) else problem.n_samples, 2)),
        }
        for block in range(extent.grid.n_blocks):
            lo, hi = extent.grid.classes(block)
            if extent.grid.by_block:
                state["lse"][:, block] = np.log(hi - lo)
            if block in extent.blocks:
                state[f"weights.{block}"] = np.zeros((d, hi - lo), dtype)
                if self.algorithm == "two_phase":
                    state[f"gradient.{block}"] = np.zeros((d, hi - lo), dtype)
                    state[f"stack.{block}"] = np.zeros((2 * self.history_size, d, hi - lo), dtype)
                if kind == "diagonal":
                    state[f"curvature.{block}"] = np.zeros((d, hi - lo), dtype)
        return state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        return needs(self, self._job(problem), self._comm.size, self._kind(problem), self._keeps(problem))

    def weight_bytes(self, problem: Problem) -> int:
        extent = self._known(problem)
        widths = [hi - lo for lo, hi in map(extent.grid.classes, extent.blocks)]
        return int(problem.n_features * sum(widths) * problem.dtype.itemsize)

    def require_memory(self, problem: Problem, more: Mapping[str, int]) -> None:
        """Raise a MemoryError, in all processes, if one has less memory than it needs."""
        refuse(self, self._job(problem), self._comm, self._kind(problem), self._keeps(problem), more)

    def refuse_size(self, rows: int, features: int, classes: int, row_bytes: int, itemsize: int) -> None:
        """Raise a MemoryError, before data of this size are read, if they and their fit need too much memory."""
        kind = self._kind_of(features)
        refuse(self, Job(rows, features, classes, row_bytes, itemsize), self._comm, kind, bool(self.keep_scores))

    def process_nbytes(
        self, processes: int, rows: int, features: int, classes: int, row_bytes: int, itemsize: int
    ) -> dict[str, int]:
        """Bytes by purpose that each of so many processes needs, without scores unless ``keep_scores`` is True."""
        job = Job(rows, features, classes, row_bytes, itemsize)
        return needs(self, job, processes, self._kind_of(features), bool(self.keep_scores))

    def _job(self, problem: Problem) -> Job:
        size = self._known(problem).n, problem.n_features, problem.n_outputs
        return Job(*size, 0, problem.dtype.itemsize)

    def _keeps(self, problem: Problem) -> bool:
        if self.keep_scores is not None:
            return self.keep_scores
        if self.algorithm != "two_phase":
            return False
        extent, there = self._known(problem), available()
        size = 2 * problem.n_samples * problem.n_outputs * problem.dtype.itemsize
        fits = np.array([there is None or size < there // (2 * extent.neighbours)], np.int64)
        return bool(-self._comm.allreduce(-fits, "max")[0])

    def _known(self, problem: Problem) -> Extent:
        """The `Extent` of a problem; the processes must call this together."""
        if self._extent is None or self._extent[0] is not problem:
            grid = self.block_classes, self.n_shards, self.blocks_each(self._comm.size)
            extent = Extent(problem, self._comm, self.n_workers, self.scale, *grid)
            self._extent, self._team, self._spectrum = (problem, extent), None, None
        return self._extent[1]

    def _workers(self, problem: Problem, state: State) -> Team:
        extent = self._known(problem)
        if self._team is None:
            self._team = Team(extent, state, self._comm, self.schedule != "ring", self.slow)
        self._team.attach(state)
        return self._team

    # --- iterations -------------------------------------------------------------------------------------------------

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        extent = self._known(problem)
        team = self._workers(problem, state)
        for worker in team.workers:
            worker.seed = seed if self.schedule == "random" else None
        if not state["scored"]:
            self._recall(team, state)
        while True:
            self._comm.heed()
            iteration = int(state["iteration"])
            passes = _PASSES
            first = not state["begun"] and iteration < self._first(problem)
            if self.algorithm != "two_phase" or first:
                eta = self.eta0 / (extent.largest or 1.0) / math.sqrt(iteration + 1.0)
                state["ready"] = state["scored"] = np.zeros((), np.int64)
                self._stochastic(team, state, eta, seed, iteration)
            else:
                if not state["ready"]:
                    passes += self._begin(team, state)
                state["ready"] = state["scored"] = np.zeros((), np.int64)
                self._descend(problem, team, state)
                state["ready"] = state["scored"] = np.ones((), np.int64)
            state["iteration"] = np.asarray(iteration + 1)
            state["passes"] = np.asarray(state["passes"] + passes)
            yield Progress(iteration + 1, float(state["passes"]))

    def _stochastic(self, team: Team, state: State, eta: float, seed: int, iteration: int) -> None:
        """An iteration of the first phase."""
        epoch = {"printed": printed_epoch, "literal": literal_epoch}.get(self.algorithm, fresh_epoch)
        team.run(lambda worker, _: epoch(worker, _weights(worker, state), eta, seed, iteration))

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        team = self._workers(problem, state)
        scored = bool(state["scored"])
        # A certificate must not change the iterations: the first phase continues with the log-sum-exps it had.
        held = "lse" if self._known(problem).grid.by_block else "total"
        kept = None if scored else state[held].copy()

        def evaluate(worker: Worker, scores: Scores) -> Certificate:
            weights = _weights(worker, state)
            if not scored:
                scores.load(weights)
            return certify(worker, scores, weights, self._known(problem).n)

        found = team.run(evaluate)[0]
        if kept is None:
            return found
        if self.algorithm == "two_phase" and (state["begun"] or state["iteration"] >= self._first(problem)):
            state["scored"] = np.ones((), np.int64)  # the second phase can begin with these
            return found
        state[held][:] = kept
        self._recall(team, state)
        return found

    def weights(self, problem: Problem, state: State) -> tuple[Any, Array]:
        """``(W, b)``; with several processes W has `Columns`, of which each has the blocks that it owns."""
        extent = self._known(problem)
        constant = problem.dtype.type(extent.share.constant)
        both = {block: state[f"weights.{block}"] for block in extent.blocks}
        weights = {block: part[:-1] for block, part in both.items()}
        return self._joined(problem, weights, {block: constant * part[-1] for block, part in both.items()})

    def _joined(self, problem: Problem, blocks: dict[int, Array], intercepts: dict[int, Array]) -> tuple[Any, Array]:
        """``(W, b)`` of the blocks of this process."""
        extent = self._known(problem)
        grid, d, K, size = extent.grid, problem.n_features, problem.n_outputs, len(extent.ranks)
        intercept = np.zeros(K, problem.dtype)
        for block, part in intercepts.items():
            intercept[slice(*grid.classes(block))] = part
        if self._comm.size > 1:
            edges = (*(grid.classes(block)[0] for block in range(grid.n_blocks)), K)
            owners = tuple(grid.worker_of(grid.first_shard(block)) // size for block in range(grid.n_blocks))
            return Columns(edges, owners, blocks, (d, K), problem.dtype), self._comm.allreduce(intercept)
        whole = np.empty((d, K), problem.dtype)
        for block, part in blocks.items():
            whole[:, slice(*grid.classes(block))] = part
        return whole, intercept

    @staticmethod
    def _recall(team: Team, state: State) -> None:
        """Compute the total log-sum-exps of the rows from those of the blocks, if these are stored."""
        if team.extent.grid.by_block:
            kernels.logsumexp_rows(state["lse"], state["total"])

    def warm(self, problem: Problem, state: State) -> State:
        """Continue from the weights of another run, without a first phase."""
        state["pairs"] = state["ready"] = state["scored"] = np.zeros((), np.int64)
        state["begun"] = np.ones((), np.int64)
        return state

    def keeper(
        self, path: str | Path, problem: Problem, seed: int, seconds: float, validation: Validation | None = None
    ) -> BlockKeeper:
        """The writer of checkpoints, in a folder, from which any number of processes and workers can resume.

        With the ring, and the same number of processes, grid and ``keep_scores``, a resumed fit gives the same bits.
        Otherwise it gives the same result up to rounding. With the queue fits are not reproducible. Where the fit holds
        out rows of its own, which depend on how they are divided among processes, the number of these must be the same.
        """
        extent = self._known(problem)
        share, comm = extent.share, self._comm
        weights = np.asarray(share.weights, np.float64)
        identity = {
            "solver": self.name,
            "algorithm": self.algorithm,
            "schedule": self.schedule,
            "history_size": self.history_size,
            "precondition": self._kind(problem),
            "seed": int(seed),
            "lam": f"{share.lam:.12g}",
            "shape": [extent.n, problem.n_features, problem.n_outputs],
            "intercept": problem.intercept,
            "dtype": problem.dtype.name,
            "data": digest(comm, share.first, share.y, share.norms),
            # Rounded: each process scales its sample weights, so that the last bits depend on the partition of rows.
            "weights": f"{float(comm.allreduce(weights @ weights)):.6g}",
        }

        if validation is not None and comm.allreduce(np.int64((weights == 0).any()), "max"):
            identity["left out"] = digest(comm, share.first, (weights == 0).astype(np.int64))

        def rescore(state: State) -> None:
            self._workers(problem, state).run(lambda worker, scores: scores.load(_weights(worker, state)))
            state["scored"] = np.ones((), np.int64)

        joined = partial(self._joined, problem)
        return BlockKeeper(path, comm, extent, identity, rescore, joined, seconds, validation)

    # --- the second phase -------------------------------------------------------------------------------------------

    def _begin(self, team: Team, state: State) -> float:
        """Compute scores, gradient and objective at the weights; returns the number of passes over the data."""
        scored = bool(state["scored"])
        n = team.extent.n

        def work(worker: Worker, scores: Scores) -> Memory:
            blocks = _blocks(worker, state)
            if not scored:
                scores.load(blocks.weights)
            return begin(worker, scores, blocks, n, self.history_size)

        _keep(state, team.run(work)[0])
        state["begun"] = np.ones((), np.int64)
        return _PASSES - (1.0 if scored else 0.0)

    def _descend(self, problem: Problem, team: Team, state: State) -> None:
        extent = team.extent
        memory = Memory(state["gram"], int(state["pairs"]), float(state["value"]))
        first = OPTIMISM / (extent.curvature + extent.share.lam)
        metric = self._metric(problem, team, state)
        found = team.run(
            lambda worker, scores: descend(worker, scores, _blocks(worker, state), memory, extent.n, first, metric)
        )
        _keep(state, found[0])

    def _first(self, problem: Problem) -> int:
        """Number of iterations of the first phase."""
        if self.start is None:
            return 0 if self._kind(problem) == "spectrum" else _START
        return int(self.start)

    def _kind(self, problem: Problem) -> str:
        """The preconditioner, with "auto" resolved."""
        return self._kind_of(problem.n_features)

    def _kind_of(self, n_features: int) -> str:
        if self.algorithm != "two_phase":
            return "none"
        if self.precondition == "auto":
            return "spectrum" if n_features < _FEW else "diagonal"
        return self.precondition

    def _metric(self, problem: Problem, team: Team, state: State) -> Metric | None:
        """The preconditioner for the next step; it is updated after every ``REFRESH`` pairs."""
        kind, extent = self._kind(problem), team.extent
        if kind == "none":
            return None
        stale = int(state["pairs"]) % REFRESH[kind] == 0  # also at the start, and when L-BFGS restarts
        if kind == "diagonal":
            held = {block: state[f"curvature.{block}"] for block in extent.blocks}
            if stale:

                def evaluate(worker: Worker, scores: Scores) -> None:
                    pairs = {block: (W, held[block]) for block, W in _weights(worker, state).items()}
                    curvatures(worker, scores, pairs, extent.n)

                team.run(evaluate)
            return Diagonal(held)
        if self._spectrum is None:
            self._spectrum = spectrum(extent.share, self._comm, extent.n, problem.n_features)
        if stale:
            found = team.run(lambda worker, scores: bends(worker, scores, _weights(worker, state), extent.n))
            state["bends"] = found[0]
        return Spectral(self._spectrum, state["bends"], extent.share.lam)


def _weights(worker: Worker, state: State) -> dict[int, Array]:
    return {block: state[f"weights.{block}"] for block in worker.blocks}


def _blocks(worker: Worker, state: State) -> Blocks:
    return Blocks(
        _weights(worker, state),
        {block: state[f"gradient.{block}"] for block in worker.blocks},
        {block: state[f"stack.{block}"] for block in worker.blocks},
    )


def _keep(state: State, memory: Memory) -> None:
    state["gram"] = memory.gram
    state["pairs"] = np.asarray(memory.pairs, np.int64)
    state["value"] = np.asarray(memory.value)

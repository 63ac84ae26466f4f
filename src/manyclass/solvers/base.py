"""Base classes of the solvers: what the fitting loop calls, and what estimators and the documentation read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from manyclass.kernels.rows import CSRRows, n_stored
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.component import Component
from manyclass.objective.history import History, Spent
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges

if TYPE_CHECKING:
    from manyclass.io.store.rows import RowStore
    from manyclass.models.sharded import ShardedModel
    from manyclass.objective.history import FitProgress
    from manyclass.optimize.validation import Validation

__all__ = [
    "PLAIN",
    "STREAM_DECAY",
    "BaseSolver",
    "Keeping",
    "Keeps",
    "Progress",
    "Solver",
    "State",
    "StoreFit",
    "StoreSolver",
    "StoreTask",
    "Stream",
    "Warm",
    "row_matrix",
    "tasks",
]

#: The penalty whose primal map is the identity: a kernel that takes V and a penalty then takes the weights themselves.
PLAIN = L2()
#: Multiply-adds after which a kernel returns to Python, which handles Ctrl-C: about a second.
_WORK = 2e9
#: Minimum number of outputs per thread: a few cache lines, so that threads do not share one.
_COLUMNS = 64

#: Decay of the step sizes in a stream whose alpha is 1 / (rows so far): such a penalty gives no strong convexity to
#: derive step sizes from. Step t is eta_0 (1 + STREAM_DECAY t)^(-1/2), which needs none (Nemirovski, Juditsky, Lan and
#: Shapiro, SIAM J. Optimization 2009). Of 1, 1e-1, 1e-2, 3e-3 and 1e-3, on streams of 1e3 to 2e4 rows with and without
#: noise, 1e-3 was close to the best throughout.
STREAM_DECAY = 1e-3

#: The arrays that determine the next iterations, by name: a run that is resumed from them gives the same bits.
State: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class Progress:
    """What a solver yields after an iteration.

    Attributes
    ----------
    iteration : int
        Number of iterations so far, including those before the run was resumed.
    passes : float
        Number of passes over the data so far.
    bound : Certificate, optional
        The certificate of ``state``, as with ``final=True``, if the iteration has computed it.
    estimate : Certificate, optional
        The certificate up to rounding and the balance of an intercept, if the iteration knows it at no cost: the
        fitting loop then computes the certificate only where the gap of this is at most its tolerance.
    """

    iteration: int
    passes: float
    bound: Certificate | None = None
    estimate: Certificate | None = None


class BaseSolver(Component):
    """Base class of all solvers: `Solver` runs in the fitting loop, `StoreSolver` has a loop of its own.

    An option of a single solver is a parameter of its class.
    """

    #: Maximum number of iterations if ``max_iter`` is None.
    default_max_iter: ClassVar[int] = 100
    #: Whether it computes duality gaps. If not, ``tol`` has no effect and ``max_iter`` iterations are run.
    certified: ClassVar[bool] = True
    #: Whether two classes are fitted as one column of weights, the margin; if not, as two with twice the penalty.
    one_margin: ClassVar[bool] = True
    #: Whether it can fit an unpenalized intercept, and a problem with a ``shift`` (see `Problem`).
    takes_intercept: ClassVar[bool] = True
    takes_shift: ClassVar[bool] = False
    #: Whether it reads the rows through `Problem` alone, which can then standardize their columns without a copy.
    takes_standard: ClassVar[bool] = False
    #: Whether it supports ``partial_fit``, and there new classes after the first call.
    streams: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    #: Whether several processes run one fit together, through a parameter ``comm``.
    distributed: ClassVar[bool] = False
    #: Whether each of these processes has rows of its own; else every one has all rows.
    partitions_rows: ClassVar[bool] = True
    #: Whether the same seed gives the same model.
    reproducible: ClassVar[bool] = True
    #: Parameters that do not change what is computed, only where: models do not record them, and the command line sets
    #: them itself.
    local: ClassVar[tuple[str, ...]] = ("comm",)


class Solver(BaseSolver):
    """Minimizes a `Problem`: an object with parameters for users, and a generator of iterations for the fitting loop.

    A solver does not report, print, or measure time: the fitting loop (`manyclass.optimize.loop`) does. One object
    may be used for several fits: `prepare` returns the copy that a fit runs. If the solver is ``distributed``, each
    process passes the problem of its own rows.
    """

    #: Operations it needs of the loss and of the penalty, named as in their ``provides``; of the loss also
    #: "smooth_gradient" (smoothness > 0) and "separate_outputs" (not joint).
    needs_loss: ClassVar[frozenset[str]]
    needs_penalty: ClassVar[frozenset[str]]
    #: Whether its iterations compute the certificate (``Progress.bound``), so that the loop does not.
    certifies: bool = False
    #: The class that runs in its place on an `ArrayProblem`, with the same parameters; None: it has none.
    on_arrays: ClassVar[type[Solver] | None] = None

    def prepare(self, problem: Problem) -> Solver:
        """The solver that runs on this problem: a checked copy, or a copy of another solver that replaces this one.

        All checks are made here; the other methods make none.

        Raises
        ------
        ValueError
            If a parameter is out of range, or the solver does not support the problem.
        """
        self.check()
        self.check_problem(problem)
        if isinstance(problem, ArrayProblem) and type(self) is not self.on_arrays:
            assert self.on_arrays is not None  # `check_problem`
            return self.on_arrays(**self.get_params(deep=False)).prepare(problem)
        copy: Solver = clone(self)
        return copy

    @contextmanager
    def prepared(self, problem: Problem) -> Iterator[Solver]:
        """Yield the solver that runs on this problem, with what it needs while it runs; see `prepare`."""
        yield self.prepare(problem)

    def readable(self, problem: Problem) -> Problem:
        """The problem as this solver can read it: with a standardized copy of the rows if it reads them itself."""
        return problem if problem.standard is None or self.takes_standard else problem.copied()

    def check_problem(self, problem: Problem) -> None:
        """Raise a ValueError if this solver does not support the problem; called before anything is allocated.

        The base class checks the class attributes above; subclasses add conditions that these cannot express.
        """
        loss, penalty = problem.loss, problem.penalty
        if isinstance(problem, ArrayProblem) and self.on_arrays is None:
            raise ValueError(
                f"solver {self.name!r} needs rows in a NumPy array of float32 or float64: convert them, or choose "
                "'preconditioned_lbfgs' or 'lbfgs'"
            )
        for kind, part, lacks in (
            ("loss", loss, self.needs_loss - _provided(loss)),
            ("penalty", penalty, self.needs_penalty - penalty.provides),
        ):
            for need in sorted(lacks):
                smooth = need == "smooth_gradient" and "gamma" in part._fields
                raise ValueError(
                    f"solver {self.name!r} needs a {kind} with {_noun(need)}, and {part.name!r} has none: choose "
                    f"another solver (solver='auto' chooses for you) or another {kind}"
                    + (", or set gamma > 0" if smooth else "")
                )
        if problem.intercept and not self.takes_intercept:
            raise ValueError(
                f"solver {self.name!r} fits no intercept, got fit_intercept=True: give fit_intercept=False, or 'auto'"
            )
        if problem.standard is not None and self.distributed:
            raise ValueError(
                f"solver {self.name!r} does not support standardize=True, which needs all rows in one process: scale "
                "the columns before, or choose another solver ('auto' chooses for you)"
            )
        if problem.shift is not None and not self.takes_shift:
            raise ValueError(
                f"solver {self.name!r} needs a penalty without shift or prior, got one of shape {problem.shift.shape}: "
                "leave it out, or choose another solver ('sdca', 'lbfgs')"
            )

    @abstractmethod
    def state(self, problem: Problem) -> State:
        """The state before the first iteration."""

    @abstractmethod
    def nbytes(self, problem: Problem) -> dict[str, int]:
        """Size in bytes of the arrays that a fit holds besides the data, by a description of each."""

    def weight_bytes(self, problem: Problem) -> int:
        """Size in bytes of what `weights` returns, in this process, at most."""
        return int(problem.n_features * problem.n_outputs * problem.dtype.itemsize)

    def require_memory(self, problem: Problem, more: Mapping[str, int]) -> None:
        """Raise a MemoryError if there is less memory than `nbytes` and ``more``; called before `state`."""
        own = self.nbytes(problem)
        needs = {**own, **more}
        if problem.standard is not None or problem.origin is not None:  # of a sparse table: not more than it
            needs["weights for the columns as they are"] = min(self.weight_bytes(problem), sum(own.values()))
        narrower = "" if problem.dtype == np.float32 else "dtype=np.float32, "
        require(needs, f"{narrower}fewer features (hashing), or for Crammer-Singer solver='sdca_active'")

    @abstractmethod
    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        """Update ``state`` in place, without end; yields after each iteration."""

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        """The duality gap of ``state``; with ``final``, free of rounding errors that iterations have accumulated."""
        return Certificate(float("nan"), float("nan"))

    def value(self, problem: Problem, W: Any, intercept: Array) -> float:
        """The primal objective at weights that `weights` returned."""
        return problem.value(W, intercept)

    def mean_norm(self, problem: Problem) -> float:
        """The mean squared norm of the rows of this process."""
        return float(np.average(problem.norms, weights=problem.sample_weight))

    def most_between(self, problem: Problem) -> int | None:
        """Most iterations between two duality gaps, where the solver adapts to what they show; None is no limit."""
        return None

    def scales(self, problem: Problem) -> tuple[float, Array]:
        """The mean squared norm of the rows, and the mean square of each feature; over the rows of all processes."""
        return self.mean_norm(problem), problem.feature_squares()

    def report(self, problem: Problem, state: State) -> dict[str, float]:
        """The quantities that a solver without a certificate reports after an iteration, by name, for the history.

        The time this takes is not counted as solver time.
        """
        return {}

    def open_stream(self, problem: Problem, *, vanishing: bool = False) -> Stream:
        """A `Stream` for ``partial_fit``, whose first rows are those of ``problem``; only if ``streams``.

        ``vanishing``: alpha is 1 / (rows so far), see `STREAM_DECAY`. If ``grows``, the stream has a method
        ``start(weights)``, which continues from the weights of a model.
        """
        raise TypeError(f"partial_fit needs a solver that supports it, got solver {self.name!r}: choose 'sgd'")

    def pack(self, state: State) -> dict[str, Array]:
        """The state as a flat dictionary of arrays, for a checkpoint."""
        return state

    def unpack(self, problem: Problem, state: State, arrays: dict[str, Array]) -> None:
        """Load the arrays that `pack` returned into a new state, each in the order of the array it replaces.

        Raises
        ------
        ValueError
            If an array has another shape or type than the one it replaces, which compiled code would not notice.
        """
        for name, array in arrays.items():
            expected = np.asarray(state[name]) if name in state else array
            if (array.shape, array.dtype) != (expected.shape, expected.dtype):
                raise ValueError(
                    f"{name} is {array.dtype} of shape {array.shape}, expected {expected.dtype} of {expected.shape}"
                )
            column_by_column = name in state and np.isfortran(state[name])
            state[name] = np.asfortranarray(array) if column_by_column else array

    @abstractmethod
    def weights(self, problem: Problem, state: State) -> tuple[Any, Array]:
        """``(W, b)``: weights of shape (d, K), an array or a CSR matrix, and intercepts of shape (K,).

        If classes are partitioned over several processes, W is a `manyclass.models.partitioned.Columns`.
        """


class StoreTask(NamedTuple):
    """The arguments of `StoreSolver.fit_store`: rows in a store, an l2 penalty, and the options of the fit.

    Attributes
    ----------
    store : RowStore
        Rows with classes and, optionally, sample weights.
    alpha : float, optional
        Strength of the penalty, > 0; None is 1 / (sum of the sample weights), which the solver computes.
    intercept : bool
        Whether to fit an intercept, without penalty.
    dtype : dtype
        float32 or float64, of the weights.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    parameters : dict
        Parameters of the estimator, recorded in the model.
    checkpoint, tol, max_iter, seed, verbose, validation, callback
        As in `manyclass.optimize.loop.minimize`. All processes score held-out rows and call the callback together,
        after each epoch.
    held_out : ndarray of int64, optional
        Rows of the store, ascending, that the fit leaves out.
    """

    store: RowStore
    alpha: float | None
    intercept: bool
    dtype: np.dtype[Any]
    class_weight: Any
    parameters: dict[str, Any]
    checkpoint: str | Path | None
    tol: float
    max_iter: int | None
    seed: int
    verbose: int
    validation: Validation | None = None
    callback: Callable[[FitProgress], Any] | None = None
    held_out: Array | None = None


class StoreFit(NamedTuple):
    """The result of `StoreSolver.fit_store`."""

    model: ShardedModel
    history: History
    certificate: Certificate
    alpha: float
    n_iter: int
    #: Mean squared norm of the rows.
    mean_norm: float


class StoreSolver(BaseSolver):
    """Fits rows in a store to a model in blocks of classes; no process holds all rows or all weights in memory.

    The fitting loop is not used, because problem and state would not fit in memory: the solver itself measures time,
    computes certificates, writes checkpoints and writes the model. If it is ``distributed``, every process gets the
    whole store.
    """

    one_margin = False
    #: Names of the losses that it supports.
    losses: ClassVar[frozenset[str]]

    @abstractmethod
    def fit_store(self, task: StoreTask) -> StoreFit:
        """Fit the model; ``history.outcome`` is the name of an `Outcome`, in lower case.

        Raises
        ------
        ValueError
            If a parameter or the store is invalid; raised before any work is done.
        MemoryError
            If memory or disk space does not suffice.
        """


class Stream(Protocol):
    """A model that is updated by rows as they arrive, each used once, in order."""

    def take(self, problem: Problem, weights: Array | None) -> None:
        """Update the model by the rows of a problem; ``weights`` are their sample weights, not scaled to mean 1."""

    def weights(self) -> tuple[Any, Array]:
        """``(W, b)``."""


@runtime_checkable
class Warm(Protocol):
    """A solver that converts the state of an earlier run into a warm start.

    Without this method a warm start is the old state after ``certificate(final=True)`` on the new problem.
    """

    def warm(self, problem: Problem, state: State) -> State:
        """The start from the ``state`` of a run with the same targets, loss and shapes; may change it in place."""


class Keeps(Protocol):
    """Writes and reads the checkpoint of a run; see `manyclass.optimize.checkpoint.Keeper`.

    A checkpoint includes ``history.outcome``: the outcome of a finished run, empty if the run may be resumed.
    """

    def restore(self, state: State, history: History) -> Spent:
        """Load the checkpoint, if any, into ``state`` and ``history``; returns the cost of the fit up to it."""

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint if the last write was at least the minimum time ago."""

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write the checkpoint."""

    def close(self) -> None:
        """Called at the end of the fit, whatever ended it."""


@runtime_checkable
class Keeping(Protocol):
    """A solver with its own format of checkpoints, such as a folder that several processes write to."""

    def keeper(
        self, path: str | Path, problem: Problem, seed: int, seconds: float, validation: Validation | None = None
    ) -> Keeps:
        """The writer of checkpoints; arguments as for `manyclass.optimize.checkpoint.Keeper`."""


def row_matrix(problem: Problem) -> Any:
    """The rows of a problem as an array or a CSR matrix that shares their memory."""
    rows = problem.rows
    if isinstance(rows, CSRRows):
        return sp.csr_matrix(tuple(rows), shape=(problem.n_samples, problem.n_features), copy=False)
    return rows.x


def tasks(problem: Problem, n: int, batch: int = 1) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """How stochastic steps on n samples are divided: ranges of samples for a call, ranges of outputs, and threads.

    The outputs of a separable loss are divided among threads. The ranges of samples are multiples of ``batch``.
    """
    threads = 1 if problem.loss.joint else problem.n_threads
    width = max(_COLUMNS, -(-problem.n_outputs // (threads * _COLUMNS)) * _COLUMNS)
    work = 2.0 * n_stored(problem.rows) * min(width, problem.n_outputs)
    size = max(1, int(n * min(1.0, _WORK / max(work, 1.0)) / batch)) * batch
    return ranges(n, size), ranges(problem.n_outputs, width), threads


def _provided(loss: Any) -> frozenset[str]:
    """The operations of a loss, and its properties under the names that solvers use in ``needs_loss``."""
    more = {"smooth_gradient": loss.smoothness > 0, "separate_outputs": not loss.joint}
    return frozenset(loss.provides).union(name for name, there in more.items() if there)


def _noun(need: str) -> str:
    """The name of an operation in an error message."""
    words = need.replace("_", " ")
    return words if words.endswith("s") else f"a {words}"

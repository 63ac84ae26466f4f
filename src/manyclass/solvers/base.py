"""What the fitting loop asks of a solver, and what a solver says of itself to users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from sklearn.base import clone

from manyclass.objective.component import Component
from manyclass.objective.history import History, Spent
from manyclass.objective.problem import Array, Certificate, Problem

if TYPE_CHECKING:
    from manyclass.io.store.rows import RowStore
    from manyclass.models.sharded import ShardedModel

__all__ = [
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
]

#: Where the penalty of a stream is one over the rows so far, it says nothing of how step t is to fall: steps that fell
#: with it would stay as long as the first. They are eta_0 (1 + STREAM_DECAY t)^(-1/2), which needs no strong convexity
#: (Nemirovski, Juditsky, Lan and Shapiro, SIAM J. Optimization 2009). Of 1, 1e-1, 1e-2, 3e-3 and 1e-3 the last was,
#: on streams of 1e3 to 2e4 rows, near the best without noise and with it.
STREAM_DECAY = 1e-3

#: Everything a solver must remember between iterations, by name: saved, restored, and resumed to the same bits.
State: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class Progress:
    """One iteration done.

    Attributes
    ----------
    iteration : int
        Iterations so far, those before a resumption counted.
    passes : float
        Passes over the data so far.
    bound : Certificate, optional
        The certificate of ``state``, where the iteration has just computed it, in full precision.
    """

    iteration: int
    passes: float
    bound: Certificate | None = None


class BaseSolver(Component):
    """What every solver says of itself to users; `Solver` runs in the fitting loop, `StoreSolver` fits by itself.

    What only one solver understands is a parameter of its class.
    """

    #: Iterations where ``max_iter`` is None.
    default_max_iter: ClassVar[int] = 100
    #: Whether a fit ends with a duality gap. If not, ``tol`` has no meaning and every iteration is run.
    certified: ClassVar[bool] = True
    #: Whether two classes are one column of weights, their margin; if not, a column each (of twice the penalty).
    one_margin: ClassVar[bool] = True
    #: Whether it can fit an unpenalized intercept, and minimize with a ``shift`` (see `Problem`).
    takes_intercept: ClassVar[bool] = True
    takes_shift: ClassVar[bool] = False
    #: Whether `partial_fit` can stream with it, and whether classes may be new in later calls.
    streams: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    #: Whether the processes of a job run it together; it then has a parameter ``comm``.
    distributed: ClassVar[bool] = False
    #: Whether the same seed gives the same model.
    reproducible: ClassVar[bool] = True
    #: Parameters that say where a fit runs and writes, not what it computes: no model records them, and the command
    #: line sets them itself.
    local: ClassVar[tuple[str, ...]] = ("comm",)


class Solver(BaseSolver):
    """A method of minimizing a `Problem`: an object with parameters for users, a generator for the fitting loop.

    A solver never evaluates the objective for show, prints, or looks at the clock: the fitting loop
    (`manyclass.optimize.loop`) does. An object may be used for several fits: `prepare` makes the copy that one fit
    runs. If it is ``distributed``, each process has rows of its own.
    """

    #: What it asks of a loss and of a penalty, by the names these list in ``provides``; of a loss also
    #: "smooth_gradient", no kinks, and "separate_outputs", that it is not joint.
    needs_loss: ClassVar[frozenset[str]]
    needs_penalty: ClassVar[frozenset[str]]
    #: Whether it certifies itself as it goes (``Progress.bound``), so that the loop need not.
    certifies: bool = False

    def prepare(self, problem: Problem) -> Solver:
        """The solver that is run on this problem: a checked copy, or another one that this one stands for.

        The one place where a solver refuses: what `prepare` lets pass, the other methods can do.

        Raises
        ------
        ValueError
            If a parameter is out of range, or the problem is not one that the solver takes.
        """
        self.check()
        self.check_problem(problem)
        copy: Solver = clone(self)
        return copy

    def check_problem(self, problem: Problem) -> None:
        """Raise a ValueError, by name, if the problem is not one that this solver takes; nothing is allocated yet.

        By the declarations above. A subclass adds what these cannot say.
        """
        loss, penalty = problem.loss, problem.penalty
        for kind, part, lacks in (
            ("loss", loss, self.needs_loss - _provided(loss)),
            ("penalty", penalty, self.needs_penalty - penalty.provides),
        ):
            for need in sorted(lacks):
                smooth = need == "smooth_gradient" and "gamma" in part._fields
                raise ValueError(
                    f"solver {self.name!r} needs a {kind} with {_noun(need)}, and {part.name!r} has none: choose "
                    f"another solver (solver='auto' chooses for you) or another {kind}"
                    + (", or give this one a gamma > 0" if smooth else "")
                )
        if problem.intercept and not self.takes_intercept:
            raise ValueError(
                f"solver {self.name!r} fits no intercept, got fit_intercept=True: give fit_intercept=False, or 'auto'"
            )
        if problem.shift is not None and not self.takes_shift:
            raise ValueError(
                f"solver {self.name!r} needs a problem without shift, got one of shape {problem.shift.shape}: leave "
                "shift=None, or choose another solver ('sdca', 'lbfgs')"
            )

    @abstractmethod
    def state(self, problem: Problem) -> State:
        """The state before the first iteration."""

    @abstractmethod
    def nbytes(self, problem: Problem) -> dict[str, int]:
        """Bytes of the arrays a fit holds besides the data, by what they are."""

    @abstractmethod
    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        """Improve ``state`` in place, for ever; yields after each iteration."""

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        """The duality gap of ``state``. ``final`` asks for the one that holds whatever rounding the iterations left."""
        return Certificate(float("nan"), float("nan"))

    def report(self, problem: Problem, state: State, seed: int) -> tuple[dict[str, float], str | None]:
        """What a solver without a certificate knows after an iteration, by name; and why the fit ends here, if it does.

        Called off the solver's clock; shown to people, and kept in the history.
        """
        return {}, None

    def open_stream(self, problem: Problem, *, vanishing: bool = False) -> Stream:
        """What learns a stream whose first rows are those of ``problem``; of solvers with ``streams`` alone.

        ``vanishing``: the strength of the penalty is one over the rows so far, and falls (see `STREAM_DECAY`).
        Where classes may be new (``grows``) it has a method ``start(weights)`` to go on from a model.
        """
        raise TypeError(f"solver {self.name!r} learns no streams")

    def pack(self, state: State) -> dict[str, Array]:
        """The state as arrays alone, for a checkpoint."""
        return state

    def unpack(self, problem: Problem, state: State, arrays: dict[str, Array]) -> None:
        """Bring a fresh state to what `pack` has taken apart, each array in the order of the one it replaces."""
        for name, array in arrays.items():
            column_by_column = name in state and np.isfortran(state[name])
            state[name] = np.asfortranarray(array) if column_by_column else array

    @abstractmethod
    def weights(self, problem: Problem, state: State) -> tuple[Any, Array]:
        """``(W, b)``: d x K, an array or a CSR matrix, and K."""


class StoreTask(NamedTuple):
    """What an estimator asks of a `StoreSolver`: its objective, with an l2 penalty, on the rows of a store.

    Attributes
    ----------
    store : RowStore
        With a class for each row, and sample weights if it is weighted.
    alpha : float, optional
        Strength of the penalty; None is 1 / the sum of the sample weights, which the solver finds.
    intercept : bool
        Whether to fit an intercept, without penalty.
    dtype : dtype
        Of the weights.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    parameters : dict
        Of the estimator, for the model to record.
    checkpoint, tol, max_iter, seed, verbose
        As in `manyclass.optimize.loop.minimize`.
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


class StoreFit(NamedTuple):
    """What `StoreSolver.fit_store` returns: the model, and what an estimator tells of its fit."""

    model: ShardedModel
    history: History
    certificate: Certificate
    alpha: float
    n_iter: int


class StoreSolver(BaseSolver):
    """A method of fitting a row store to a model in blocks of classes, where no process holds all rows or all weights.

    There is no `Problem`, and no state that the fitting loop could hold: the solver runs by itself, times and certifies
    the fit, keeps it on disk and writes the model. If it is ``distributed``, every process is given the whole store.
    """

    one_margin = False
    #: Names of the losses it minimizes.
    losses: ClassVar[frozenset[str]]

    @abstractmethod
    def fit_store(self, task: StoreTask) -> StoreFit:
        """Fit; ``history.outcome`` is the name of an `Outcome`, in lower case.

        Raises
        ------
        ValueError
            Before any work, if a parameter or the store is not what it should be.
        MemoryError
            If there is no room, in memory or on the disk.
        """


class Stream(Protocol):
    """What learns a stream of rows, each once, in their order."""

    def take(self, problem: Problem, weights: Array | None) -> None:
        """Learn the rows of a problem; ``weights`` are their sample weights as they are, not scaled."""

    def weights(self) -> tuple[Any, Array]:
        """``(W, b)``."""


@runtime_checkable
class Warm(Protocol):
    """A solver with more in its state than the duals or weights reached, and what its final certificate makes of them.

    Without this method a warm start is the old state, and ``certificate(final=True)`` on the new problem.
    """

    def warm(self, problem: Problem, state: State) -> State:
        """A state to begin from, made of what a run on the same targets, loss and shapes has left; in place or not."""


class Keeps(Protocol):
    """What the fitting loop asks of that which keeps a run on disk; see `manyclass.optimize.checkpoint.Keeper`.

    ``history.outcome`` is kept with the rest: how a finished run has ended, empty of one that may go on.
    """

    def restore(self, state: State, history: History) -> Spent:
        """Load what is kept, if there is anything, into ``state`` and ``history``."""

    def offer(self, state: State, history: History, spent: Spent) -> None:
        """Write, if the last write is long enough ago."""

    def write(self, state: State, history: History, spent: Spent) -> None:
        """Write now."""


@runtime_checkable
class Keeping(Protocol):
    """A solver that keeps its checkpoints in a way of its own: in a folder, say, that several processes write to."""

    def keeper(self, path: str | Path, problem: Problem, seed: int, seconds: float) -> Keeps:
        """As `manyclass.optimize.checkpoint.Keeper`, of the same arguments."""


def _provided(loss: Any) -> frozenset[str]:
    """What a solver may ask of a loss, what follows from its numbers included."""
    more = {"smooth_gradient": loss.smoothness > 0, "separate_outputs": not loss.joint}
    return frozenset(loss.provides).union(name for name, there in more.items() if there)


def _noun(need: str) -> str:
    """What is asked for, as an error says it."""
    words = need.replace("_", " ")
    return words if words.endswith("s") else f"a {words}"

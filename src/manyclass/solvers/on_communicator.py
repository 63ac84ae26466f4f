"""What the distributed solvers share: their copies, which use the communicator of the original, and their checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import numpy as np

from manyclass.distributed import Communicator, SerialCommunicator, opened
from manyclass.kernels.scoring import Scorer
from manyclass.models.partitioned import Columns
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges
from manyclass.solvers.base import Solver, row_matrix

__all__ = ["DistributedSolver", "on_communicator"]

S = TypeVar("S", bound=Any)

#: Number of scores, in float64, that are held at a time.
_TILE = 1 << 20


def on_communicator(solver: S, facts: tuple[str, ...] = ("scale",), comm: Communicator | None = None) -> S:
    """A checked copy of a distributed solver, with its attributes ``facts``, on ``comm`` or that of the original.

    Raises
    ------
    ValueError
        If its ``comm`` is the name of an engine, and not opened.
    """
    solver.check()
    copy: S = type(solver)(**solver.get_params(deep=False))
    comm = getattr(solver, "_comm", solver.comm) if comm is None else comm
    if isinstance(comm, str):
        raise ValueError(
            f"comm must be a Communicator here, got {comm!r}: use the solver in `prepared`, which opens one"
        )
    copy._comm = SerialCommunicator() if comm is None else comm
    for name in facts:
        setattr(copy, name, getattr(solver, name))
    return copy


class DistributedSolver(Solver):
    """A solver with a parameter ``comm``, the processes that run it together; for softmax regression."""

    distributed = True
    one_margin = False
    takes_shift = False
    #: Mean of the sample weights of this process where those of all processes have mean 1 (`Problem` makes it 1).
    scale = 1.0
    #: Attributes that copies have too.
    facts: ClassVar[tuple[str, ...]] = ("scale",)
    comm: Communicator | str | None
    _comm: Communicator

    def prepare(self, problem: Problem) -> Solver:
        """A checked copy on the same communicator."""
        copy = on_communicator(self, self.facts)
        copy.check_problem(problem)
        return copy

    @contextmanager
    def prepared(self, problem: Problem) -> Iterator[Solver]:
        """As `prepare`, on a communicator that is opened if ``comm`` is a name, and closed at the end."""
        self.check()  # before processes meet
        with opened(getattr(self, "_comm", self.comm)) as comm:
            yield on_communicator(self, self.facts, comm).prepare(problem)

    def scales(self, problem: Problem) -> tuple[float, Array]:
        norm, squares = super().scales(problem)
        if self._comm.size == 1 or not self.partitions_rows:
            return norm, squares
        n, weight = problem.n_samples, self.scale * problem.n_samples
        total = self._comm.allreduce(np.array([n, weight, weight * norm, *(n * squares)]))
        return float(total[2] / total[1]), total[3:] / total[0]

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        self._check_loss(problem)

    def _check_loss(self, problem: Problem) -> None:
        if not isinstance(problem.loss, MultinomialLoss) or problem.loss.margin:
            raise ValueError(
                f"solver {self.name!r} is for softmax regression, got loss {problem.loss.name!r}: give "
                "loss='multinomial', or choose another solver (solver='auto' chooses for you)"
            )

    def value(self, problem: Problem, W: Any, intercept: Array) -> float:
        """The objective over the rows of all processes, which call this together."""
        comm = self._comm
        if comm.size == 1 or not self.partitions_rows:
            return super().value(problem, W, intercept)
        X, y, n = row_matrix(problem), problem.targets.y, problem.n_samples  # type: ignore[union-attr]
        sums, own, penalty = np.full(n, -np.inf), np.zeros(n), 0.0
        for lo, hi, block in W.each(comm) if isinstance(W, Columns) else [(0, problem.n_outputs, W)]:
            scorer = Scorer(block, intercept[lo:hi])
            for begin, end in ranges(n, max(1, _TILE // (hi - lo))):
                S = scorer.scores(X[begin:end], problem.n_threads).astype(np.float64)
                top = S.max(axis=1)
                part = top + np.log(np.exp(S - top[:, None]).sum(axis=1))
                sums[begin:end] = np.logaddexp(sums[begin:end], part)
                inside = np.flatnonzero((y[begin:end] >= lo) & (y[begin:end] < hi))
                own[begin + inside] = S[inside, y[begin + inside] - lo]
                comm.progress()
            penalty += problem.penalty_value(block)
        losses = self.scale * float(np.asarray(problem.sample_weight, np.float64) @ (sums - own))
        whole, rows = comm.allreduce(np.array([losses, n])).tolist()
        return float(whole / rows + problem.lam * penalty)

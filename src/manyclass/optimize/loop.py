"""The fitting loop: runs a solver on a problem, times it, certifies, reports, stops, warns, keeps what was reached."""

from __future__ import annotations

import enum
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.jit import compile_clock
from manyclass.objective.history import History, Record, Reporter, Spent
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.optimize.checkpoint import Keeper
from manyclass.runtime.memory import require
from manyclass.solvers.base import Keeping, Keeps, Solver, State

__all__ = ["Outcome", "Result", "minimize"]


class Outcome(enum.Enum):
    """How a run ended."""

    CONVERGED = "the certified gap reached tol"
    MAX_ITER = "max_iter was reached before tol"
    PRECISION = "the certified gap is as small as the arithmetic can tell from zero"
    INTERRUPTED = "interrupted; the state reached so far is kept"
    DIVERGED = "the fit diverged: the objective is not finite"
    PATIENCE = "the held-out rows were not predicted better for some iterations"

    @property
    def finished(self) -> bool:
        """Whether there is nothing to go on to, neither from the state nor from a checkpoint of it."""
        return self in (Outcome.CONVERGED, Outcome.PRECISION, Outcome.PATIENCE)


@dataclass(frozen=True)
class Result:
    """What `minimize` returns.

    Attributes
    ----------
    weights : ndarray or CSR matrix of shape (d, K)
    intercept : ndarray of shape (K,)
    certificate : Certificate
        Of exactly these weights; NaN where the solver gives none.
    history : History
    outcome : Outcome
    n_iter : int
        Iterations run, those before a resumption counted.
    state : dict of arrays
        From which a run with more iterations, or on changed data, can go on.
    solver : Solver
        The one that ran.
    """

    weights: Any
    intercept: Array
    certificate: Certificate
    history: History
    outcome: Outcome
    n_iter: int
    state: State
    solver: Solver


def minimize(
    problem: Problem,
    solver: Solver,
    *,
    tol: float = 1e-3,
    max_iter: int | None = None,
    seed: int = 0,
    state: State | None = None,
    check_every: int | None = None,
    verbose: int = 0,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    warn: bool = True,
) -> Result:
    """Run ``solver`` on ``problem`` until the certified relative gap is at most ``tol``.

    Parameters
    ----------
    problem : Problem
    solver : Solver
        What its `prepare` makes of it is run.
    tol : float, default=1e-3
        Relative duality gap to stop at.
    max_iter : int, optional
        Most iterations, those before a resumption from ``checkpoint`` counted and those that led to ``state`` not; None
        is the solver's ``default_max_iter``.
    seed : int, default=0
        Of all that is random.
    state : dict of arrays, optional
        Where to start (warm start); changed in place.
    check_every : int, optional
        Certify at the multiples of this number of iterations. By default certificates are placed where the trend of
        the gap, which is geometric, says that tol will be met: few, and off the solver's clock.
    verbose : int, default=0
        See `manyclass.objective.history.Reporter`.
    checkpoint : path, optional
        File that keeps state and history, written anew (atomically) at most every ``checkpoint_seconds`` and at the
        end; where it exists and belongs to the same problem, solver and seed, the run goes on from it, to the same
        bits. After Ctrl-C it keeps the state returned, in the midst of an iteration. That of a finished run
        (`Outcome.finished`) says so: from it the same call returns at once. It is not removed here, but by whoever has
        saved the model (`manyclass.optimize.checkpoint.remove`).
    checkpoint_seconds : float, default=60.0
        See above.
    warn : bool, default=True
        Whether an end short of ``tol`` is told by a ConvergenceWarning.

    Returns
    -------
    Result
        After Ctrl-C too: the state reached, certified.

    Raises
    ------
    ValueError
        If the solver does not fit the problem, the checkpoint belongs to another one, or ``max_iter`` or
        ``check_every`` is less than 1.
    MemoryError
        If what the fit needs is more than there is; nothing has been allocated yet.
    """
    for name, value in (("max_iter", max_iter), ("check_every", check_every)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    solver = solver.prepare(problem)
    limit = solver.default_max_iter if max_iter is None else int(max_iter)
    run = _Run(problem, solver, seed, tol, state, check_every)
    keeper = run.keeper(checkpoint, checkpoint_seconds)
    with Reporter(verbose, tol, limit) as run.reporter:
        # Here, in the frame of the loop, so that a fit is few frames deep.
        try:
            steps = solver.iterate(problem, run.state, seed)
            run.plan()
            while run.outcome is Outcome.MAX_ITER and run.iteration - run.begin < limit:
                with run.clock():
                    progress = next(steps)
                run.look(progress.iteration, progress.passes, progress.bound)
                if keeper is not None and run.outcome is Outcome.MAX_ITER:
                    keeper.offer(run.state, run.history, run.spent())
            # Kept before the last certificate of a run that may go on: a longer one would not take it here, and it may
            # move the state by a rounding error. So the longer one comes to the same bits.
            if keeper is not None and run.moved and run.outcome is not Outcome.DIVERGED:
                run.history.outcome = run.outcome.name.lower() if run.outcome.finished else ""
                keeper.write(run.state, run.history, run.spent())
            if run.outcome is Outcome.MAX_ITER:
                run.ended()
        except KeyboardInterrupt:
            run.interrupted()
            if keeper is not None:
                keeper.write(run.state, run.history, run.spent())
    if warn:
        run.warn()
    return run.result()


class _Run:
    """What a run knows of itself: where it is, what it has taken, what is known of its gap, and when to look again."""

    reporter: Reporter

    def __init__(
        self, problem: Problem, solver: Solver, seed: int, tol: float, state: State | None, every: int | None
    ) -> None:
        self.problem, self.solver, self.seed, self.tol, self.every = problem, solver, seed, tol, every
        self.fresh = state is None
        if state is None:
            require(solver.nbytes(problem), "dtype=np.float32, fewer features (hashing), or a solver with sparse duals")
            state = solver.state(problem)
        self.state = state
        self.history = History()
        self.outcome = Outcome.MAX_ITER
        self.iteration = self.first = self.begin = int(state["iteration"])
        self.passes = self.seconds = self.wall = 0.0
        self.begun = self.started = time.perf_counter()
        self.compiled = compile_clock.seconds
        self.final = False

    def keeper(self, path: str | Path | None, seconds: float) -> Keeps | None:
        """What keeps the run on disk, if anything; a run that is kept already is gone on with."""
        if path is None:
            return None
        keeper: Keeps
        if isinstance(self.solver, Keeping):
            keeper = self.solver.keeper(path, self.problem, self.seed, seconds)
        else:
            keeper = Keeper(path, self.problem, self.solver, self.seed, seconds)
        before = keeper.restore(self.state, self.history)
        self.begun = time.perf_counter()
        self.started = self.begun - before.elapsed
        self.seconds, self.passes = before.seconds, before.passes
        self.compiled = compile_clock.seconds
        self.iteration = self.first = int(self.state["iteration"])
        self.outcome, self.history.outcome = self._kept(self.history.outcome), ""
        return keeper

    def _kept(self, name: str) -> Outcome:
        """How the run that is kept has ended, if it is finished and its end is one for this ``tol`` too."""
        if not name:
            return Outcome.MAX_ITER
        if self.solver.certified and self.history.last.relative_gap <= self.tol:
            return Outcome.CONVERGED
        return Outcome.MAX_ITER if name == "converged" else Outcome[name.upper()]

    @property
    def moved(self) -> bool:
        """Whether there have been iterations since the run was begun or resumed."""
        return self.iteration > self.first

    @contextmanager
    def clock(self) -> Iterator[None]:
        """A stopwatch for the solver alone: ``seconds`` leaves out compilation, ``wall`` does not."""
        begun, compiled = time.perf_counter(), compile_clock.seconds
        try:
            yield
        finally:
            spent = time.perf_counter() - begun
            self.wall += spent
            self.seconds += spent - (compile_clock.seconds - compiled)

    def spent(self) -> Spent:
        """What the run has taken so far."""
        return Spent(self.seconds, time.perf_counter() - self.started, self.passes)

    # --- looking at the state ---------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Place the next certificate."""
        self.check, self.near = _next_check(self.history, self.begin, self.tol, self.every, self.fresh)

    def look(self, iteration: int, passes: float, bound: Certificate | None) -> None:
        """After an iteration: certify if it is time to; ``outcome`` is no longer MAX_ITER if the run is at its end."""
        self.iteration, self.passes = iteration, passes
        self.reporter.iterated(iteration)
        if not self.solver.certified:
            self._reported()
            return
        self.final = bound is not None
        if not self.solver.certifies and iteration >= self.check:
            bound, self.final = self._certificate(final=self.near), self.near
            if not self.final and bound.relative_gap <= max(self.tol, bound.resolution):
                bound, self.final = self._certificate(final=True), True
        if bound is not None:
            self._record(bound)
            self.plan()

    def ended(self) -> None:
        """After the last iteration there may be."""
        if self.solver.certified and not self.final:
            self._record(self._certificate(final=True))

    def interrupted(self) -> None:
        """After Ctrl-C, which may have come in the midst of an iteration."""
        self.iteration, self.history.outcome = int(self.state["iteration"]), ""
        if self.solver.certified:
            self._record(self._certificate(final=True))
        self.outcome = Outcome.INTERRUPTED

    def _certificate(self, *, final: bool) -> Certificate:
        return self.solver.certificate(self.problem, self.state, final=final)

    def _reported(self) -> None:
        """The look at a solver without a certificate."""
        info, done = self.solver.report(self.problem, self.state, self.seed)
        self._record(Certificate(float("nan"), float("nan")), info)
        if not all(map(math.isfinite, info.values())):
            self.outcome = Outcome.DIVERGED
        elif done is not None:
            self.outcome = Outcome[done.upper()]

    def _record(self, certificate: Certificate, info: dict[str, float] | None = None) -> None:
        if len(self.history) and self.history.last.iteration == self.iteration:
            self.history.records.pop()
        self.history.records.append(
            Record(
                self.iteration,
                self.passes,
                certificate.primal,
                certificate.dual,
                certificate.gap,
                certificate.relative_gap,
                self.seconds,
                time.perf_counter() - self.started,
                info or {},
            )
        )
        self.reporter.evaluated(self.history.last)
        if info is not None:
            return
        if not math.isfinite(certificate.primal):
            self.outcome = Outcome.DIVERGED
        elif certificate.relative_gap <= self.tol:
            self.outcome = Outcome.CONVERGED
        elif certificate.relative_gap <= certificate.resolution:
            self.outcome = Outcome.PRECISION
        else:
            self.outcome = Outcome.MAX_ITER

    # --- the end ----------------------------------------------------------------------------------------------------

    def warn(self) -> None:
        """Tell an end short of tol."""
        if self.outcome is Outcome.CONVERGED or self.outcome is Outcome.PATIENCE:
            return
        if self.solver.certified:
            _warn(self.problem, self.history, self.outcome, self.tol)
        elif self.outcome is not Outcome.MAX_ITER:
            warnings.warn(f"{self.outcome.value} (after {self.iteration} epochs)", ConvergenceWarning, stacklevel=4)

    def result(self) -> Result:
        """What is returned."""
        history, outcome = self.history, self.outcome
        history.outcome = outcome.name.lower()
        history.compile_seconds = compile_clock.seconds - self.compiled
        history.evaluation_seconds = time.perf_counter() - self.begun - self.wall
        W, intercept = self.solver.weights(self.problem, self.state)
        last = history.last if len(history) else None
        found = Certificate(last.primal, last.dual, self.problem.resolution) if last else Certificate(np.nan, np.nan)
        return Result(W, intercept, found, history, outcome, self.iteration, self.state, self.solver)


def _next_check(history: History, first: int, tol: float, every: int | None, fresh: bool) -> tuple[int, bool]:
    """The iteration to certify next, and whether tol is expected to be met there.

    From the certificates alone, so that a resumed run certifies where it would have. The gap of a linearly convergent
    method falls geometrically: two certificates tell when it will meet tol. Never further ahead than half as far again
    as the run has come, so that a misjudged trend costs little. A fresh start has a relative gap of 1: its dual is 0.
    """
    iteration = history.last.iteration if len(history) else first
    if every is not None:
        return iteration - iteration % every + every, False
    known = [(r.iteration, r.relative_gap) for r in history.records[-2:] if r.relative_gap > 0]
    if fresh and len(known) == 1 and iteration > first:
        known = [(first, 1.0), *known]
    if len(known) < 2 or tol <= 0:
        return iteration + (2 if fresh and not len(history) else 1), False
    (older, wide), (newer, narrow) = known
    fall = math.log(wide / narrow) / (newer - older)
    start = first if fresh else history[0].iteration
    furthest = max(1, len(history) // 2, (iteration - start + (2 if fresh else 1)) // 2)
    if fall <= 0:
        return iteration + furthest, False
    ahead = max(1, math.ceil(math.log(narrow / tol) / fall)) if narrow > tol else 1
    return iteration + min(ahead, furthest), ahead <= furthest


def _warn(problem: Problem, history: History, outcome: Outcome, tol: float) -> None:
    last = history.last
    advice = "raise max_iter or alpha, or accept a larger tol"
    if tol < problem.resolution:
        advice = f"{problem.dtype.name} arithmetic certifies gaps down to {problem.resolution:.1e}: accept a larger tol"
        if problem.dtype == np.float32:
            advice += ", or fit with dtype=np.float64"
    elif outcome is Outcome.INTERRUPTED:
        advice = "fit again with warm_start=True to go on"
    else:
        advice = _bad_scale(problem) or advice
    warnings.warn(
        f"{outcome.value}: after {last.iteration} iterations the certified relative gap is "
        f"{last.relative_gap:.2e}, tol is {tol:g}; {advice}",
        ConvergenceWarning,
        stacklevel=5,
    )


#: Squared norms of rows outside of 1 over this to this, or features so much larger than the others, are badly scaled.
_SCALES = 1e5


def _bad_scale(problem: Problem) -> str | None:
    """What to do about the features, where their scale is what holds the fit up."""
    mean = float(np.average(problem.norms, weights=problem.sample_weight))
    remedy = "scale the features (StandardScaler, or MaxAbsScaler for sparse rows), or raise max_iter"
    if mean and not 1 / _SCALES < mean < _SCALES:
        return f"the squared norms of the rows are about {mean:.1e}: {remedy}"
    squares = problem.feature_squares()
    typical = float(np.median(squares[squares > 0])) if squares.any() else 0.0
    if typical and float(squares.max()) > _SCALES * typical:
        times = (float(squares.max()) / typical) ** 0.5
        return f"feature {int(squares.argmax())} is {times:.0f} times as large as most: {remedy}"
    return None

"""The fitting loop: runs a solver, measures time, computes duality gaps, reports, stops, warns, writes checkpoints."""

from __future__ import annotations

import enum
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.jit import compile_clock
from manyclass.objective.history import FitProgress, History, Record, Reporter, Spent
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.optimize.checkpoint import Keeper
from manyclass.optimize.scale import bad_scale, warn_of_zeros
from manyclass.optimize.validation import Validation
from manyclass.solvers.base import Keeping, Keeps, Progress, Solver, State

__all__ = ["Outcome", "Result", "minimize"]


class Outcome(enum.Enum):
    """Why a fit ended."""

    CONVERGED = "the relative gap reached tol"
    MAX_ITER = "max_iter was reached before tol"
    PRECISION = "the relative gap reached the limit of the floating-point precision before tol"
    INTERRUPTED = "interrupted; the model reached so far is kept"
    DIVERGED = "the fit diverged: the objective is not finite"
    PATIENCE = "the score on held-out rows did not improve for some iterations"
    STOPPED = "the callback ended the fit"

    @property
    def finished(self) -> bool:
        """Whether the fit is complete: resuming it, from the state or a checkpoint, would do nothing."""
        return self in (Outcome.CONVERGED, Outcome.PRECISION, Outcome.PATIENCE)


@dataclass(frozen=True)
class Result:
    """The result of `minimize`.

    Attributes
    ----------
    weights : ndarray or CSR matrix of shape (d, K), or Columns
        Weights; if several processes have some classes each, the columns of this one.
    intercept : ndarray of shape (K,)
        Intercepts.
    certificate : Certificate
        Primal and dual objective for these weights; NaN if the solver computes none.
    history : History
        The evaluations of the fit.
    outcome : Outcome
        Why the fit ended.
    n_iter : int
        Number of iterations, with those before the fit was resumed.
    state : dict of arrays
        The solver's state, for a warm start.
    solver : Solver
        The prepared solver.
    nbytes : int
        Bytes that the fit needed besides the data, as computed before it.
    """

    weights: Any
    intercept: Array
    certificate: Certificate
    history: History
    outcome: Outcome
    n_iter: int
    state: State
    solver: Solver
    nbytes: int


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
    certify: bool = True,
    validation: Validation | None = None,
    callback: Callable[[FitProgress], Any] | None = None,
) -> Result:
    """Run ``solver`` on ``problem`` until the relative duality gap is at most ``tol``.

    Parameters
    ----------
    problem : Problem
        The problem.
    solver : Solver
        The solver; the copy that its `prepare` returns is run.
    tol : float, default=1e-3
        Relative duality gap at which the fit stops, >= 0.
    max_iter : int, optional
        Maximum number of iterations, >= 1, including those before a resumption from ``checkpoint`` but not those that
        led to ``state``; None is the solver's ``default_max_iter``.
    seed : int, default=0
        Seed of all random numbers.
    state : dict of arrays, optional
        Warm start; changed in place.
    check_every : int, optional
        Compute the gap at the multiples of this number of iterations, >= 1. By default it is computed where it is
        expected to reach tol, by the solver's own estimate or by geometric extrapolation, or where the solver adapts
        to it (`Solver.most_between`). This does not count as solver time.
    verbose : int, default=0
        See `manyclass.objective.history.Reporter`.
    checkpoint : path, optional
        File for state and history, written atomically at most every ``checkpoint_seconds`` and at the end. If it exists
        and belongs to the same problem, solver and seed, the fit is resumed from it, with the same result to the last
        bit; from that of a finished fit (`Outcome.finished`) the call returns at once. After Ctrl-C it contains the
        returned state, which may be within an iteration. It is not removed here: the caller removes it
        (`manyclass.optimize.checkpoint.remove`) after saving the model.
    checkpoint_seconds : float, default=60.0
        Minimum time between two checkpoints in seconds.
    warn : bool, default=True
        Whether to issue a ConvergenceWarning if ``tol`` was not reached.
    certify : bool, default=True
        Whether to compute a certificate at the end of a fit that ``max_iter`` or ``callback`` ended. If False, that of
        the result is the last one that was computed, or NaN.
    validation : Validation, optional
        Held-out rows: their score is computed after each iteration. If it ends the fit, or the solver has no
        certificate, the result has the weights with the best score, whose certificate is their objective and the dual
        bound of the last iteration; else the fit and its result are the same, to the last bit, as without.
    callback : callable, optional
        Called with a `FitProgress` after each iteration; if it returns True, the fit ends. What it and ``validation``
        take does not count as solver time.

    Returns
    -------
    Result
        The result; after Ctrl-C, for the state reached.

    Raises
    ------
    ValueError
        If the problem lacks an operation that the solver needs, the checkpoint belongs to another fit, or ``max_iter``
        or ``check_every`` is less than 1.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.
    """
    for name, value in (("max_iter", max_iter), ("check_every", check_every)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    with solver.prepared(problem) as solver:
        limit = solver.default_max_iter if max_iter is None else int(max_iter)
        run = _Run(problem, solver, seed, tol, state, check_every, limit, validation)
        with run.keeper(checkpoint, checkpoint_seconds) as keeper, Reporter(verbose, tol, limit) as run.reporter:
            # Not in a method of `_Run`, to keep the call stack of a fit short.
            try:
                if verbose and solver.certified:
                    run.reporter.say(bad_scale(problem, *run.scales))
                steps = solver.iterate(problem, run.state, seed)
                run.plan()
                while run.outcome is Outcome.MAX_ITER and run.iteration - run.begin < limit:
                    with run.clock():
                        progress = next(steps)
                    run.look(progress)
                    if callback is not None and bool(callback(run.progress())) and run.outcome is Outcome.MAX_ITER:
                        run.outcome = Outcome.STOPPED
                    if keeper is not None and run.outcome is Outcome.MAX_ITER:
                        keeper.offer(run.state, run.history, run.spent())
                if run.outcome is Outcome.PATIENCE:
                    run.ended()
                # Written before the last certificate of an unfinished fit, which a longer fit would not compute here,
                # and which may change the state by rounding: a resumed fit then gives the same bits.
                if keeper is not None and run.moved and run.outcome is not Outcome.DIVERGED:
                    run.history.outcome = run.outcome.name.lower() if run.outcome.finished else ""
                    keeper.write(run.state, run.history, run.spent())
                if certify and run.outcome in (Outcome.MAX_ITER, Outcome.STOPPED):
                    run.ended()
            except KeyboardInterrupt:
                run.interrupted()
                if keeper is not None:
                    keeper.write(run.state, run.history, run.spent())
        if warn:
            run.warn()
        return run.result()


class _Run:
    """The state of a fit: iteration, time, history of the gap, and the iteration of the next evaluation."""

    reporter: Reporter

    def __init__(
        self,
        problem: Problem,
        solver: Solver,
        seed: int,
        tol: float,
        state: State | None,
        every: int | None,
        limit: int,
        validation: Validation | None,
    ) -> None:
        self.problem, self.solver, self.seed, self.tol, self.every = problem, solver, seed, tol, every
        self.limit, self.validation = limit, validation
        self.fresh = state is None
        if state is None:
            solver.require_memory(problem, {} if validation is None else validation.nbytes(problem, solver))
            state = solver.state(problem)
        self.state = state
        self.nbytes = sum(solver.nbytes(problem).values())
        self.history = History()
        self.outcome = Outcome.MAX_ITER
        self.iteration = self.first = self.begin = int(state["iteration"])
        self.passes = self.seconds = self.wall = 0.0
        self.begun = self.started = time.perf_counter()
        self.compiled = compile_clock.seconds
        self.final = False
        self.estimate: Certificate | None = None
        #: For several processes while all are at the same place; for others when it is asked for.
        self.found = solver.scales(problem) if solver.distributed else None

    @property
    def scales(self) -> tuple[float, Array]:
        """See `Solver.scales`."""
        return self.solver.scales(self.problem) if self.found is None else self.found

    @contextmanager
    def keeper(self, path: str | Path | None, seconds: float) -> Iterator[Keeps | None]:
        """Yield the writer of checkpoints, if any; an existing checkpoint is loaded."""
        if path is None:
            yield None
            return
        keeper: Keeps
        if isinstance(self.solver, Keeping):
            keeper = self.solver.keeper(path, self.problem, self.seed, seconds, self.validation)
        else:
            keeper = Keeper(path, self.problem, self.solver, self.seed, seconds, self.validation)
        try:
            before = keeper.restore(self.state, self.history)
            self.begun = time.perf_counter()
            self.started = self.begun - before.elapsed
            self.seconds, self.passes = before.seconds, before.passes
            self.compiled = compile_clock.seconds
            self.iteration = self.first = int(self.state["iteration"])
            self.outcome, self.history.outcome = self._kept(self.history.outcome), ""
            yield keeper
        finally:
            keeper.close()

    def _kept(self, name: str) -> Outcome:
        """The outcome of the fit in a checkpoint if it is finished, also for this ``tol``; else MAX_ITER."""
        if not name:
            return Outcome.MAX_ITER
        if self.solver.certified and self.history.last.relative_gap <= self.tol:
            return Outcome.CONVERGED
        return Outcome.MAX_ITER if name == "converged" else Outcome.__members__.get(name.upper(), Outcome.MAX_ITER)

    @property
    def moved(self) -> bool:
        """Whether there were iterations since the fit was started or resumed."""
        return self.iteration > self.first

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Measure the solver's time: ``seconds`` excludes compilation, ``wall`` includes it."""
        begun, compiled = time.perf_counter(), compile_clock.seconds
        try:
            yield
        finally:
            spent = time.perf_counter() - begun
            self.wall += spent
            self.seconds += spent - (compile_clock.seconds - compiled)

    def spent(self) -> Spent:
        """The cost of the fit so far."""
        return Spent(self.seconds, time.perf_counter() - self.started, self.passes)

    # --- evaluation -------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Choose the iteration of the next evaluation."""
        most = self.solver.most_between(self.problem)
        self.check, self.near = _next_check(self.history, self.begin, self.tol, self.every, self.fresh, most)

    def look(self, progress: Progress) -> None:
        """Call this after an iteration: compute the gap if it is due; sets ``outcome`` if the fit has ended."""
        self.iteration, self.passes = progress.iteration, progress.passes
        self.reporter.iterated(self.iteration)
        if not self.solver.certified:
            self._reported()
        else:
            self._certified(progress.bound, progress.estimate)
        if self.history.score_at(self.iteration) is None:
            self._validate()
        if self.outcome is Outcome.MAX_ITER and self.validation is not None and self.validation.over(self.iteration):
            self.outcome = Outcome.PATIENCE

    def _validate(self) -> None:
        """Score the held-out rows at the present weights, if there are any."""
        if self.validation is None or self.outcome is Outcome.PATIENCE:
            return
        found = self.history.validation
        if found and found[-1].iteration == self.iteration:
            found.pop()
        W, intercept = self._weights()
        found.append(self.validation.look(self.iteration, self.seconds, W, intercept))

    def _certified(self, bound: Certificate | None, estimate: Certificate | None) -> None:
        """Compute and record the certificate if it is due, or record that of the solver."""
        self.final = bound is not None
        due, near = self.iteration >= self.check, self.near
        if estimate is not None and self.every is None:
            # What is not a number is told to the user at once.
            due = due and not estimate.relative_gap > max(self.tol, estimate.resolution)
            near, self.estimate = True, estimate
            if not due:
                self.reporter.estimated(self.iteration, estimate, self.seconds)
        if not self.solver.certifies and due:
            bound, self.final = self._certificate(final=near), near
            if not self.final and bound.relative_gap <= max(self.tol, bound.resolution):
                bound, self.final = self._certificate(final=True), True
        if bound is not None:
            self._record(bound)
            self.plan()

    def ended(self) -> None:
        """Call this after the last iteration of a fit that did not converge."""
        outcome = self.outcome
        if self.solver.certified and not self.final:
            self._record(self._certificate(final=True))
        if self.outcome is not Outcome.DIVERGED and outcome is not Outcome.MAX_ITER:
            self.outcome = outcome

    def progress(self) -> FitProgress:
        """What the callback is told after an iteration."""
        last: Record | Certificate | None = self.history.last if len(self.history) else None
        if self.estimate is not None and (last is None or self.history.last.iteration < self.iteration):
            last = self.estimate
        score = self.history.score_at(self.iteration)
        return FitProgress(
            iteration=self.iteration,
            max_iter=self.begin + self.limit,
            objective=math.nan if last is None else last.primal,
            relative_gap=math.nan if last is None else last.relative_gap,
            seconds=self.seconds,
            validation=math.nan if score is None else score,
            finished=self.outcome is not Outcome.MAX_ITER or self.iteration - self.begin >= self.limit,
            weights=self._weights,
        )

    def _weights(self) -> tuple[Any, Array]:
        """The present weights and intercept, for the rows as they are."""
        return self.problem.model(*self.problem.raw(*self.solver.weights(self.problem, self.state)))

    def interrupted(self) -> None:
        """Call this after Ctrl-C, which may have interrupted an iteration."""
        self.iteration, self.history.outcome = int(self.state["iteration"]), ""
        if self.solver.certified:
            self._record(self._certificate(final=True))
        self.outcome = Outcome.INTERRUPTED

    def _certificate(self, *, final: bool) -> Certificate:
        return self.solver.certificate(self.problem, self.state, final=final)

    def _reported(self) -> None:
        """Record what a solver without a certificate reports."""
        info = self.solver.report(self.problem, self.state)
        self._record(Certificate(float("nan"), float("nan")), info)
        if not all(map(math.isfinite, info.values())):
            self.outcome = Outcome.DIVERGED

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
        self._validate()  # after the certificate, which may change the intercept
        self.reporter.evaluated(self.history.last, self.history.score_at(self.iteration))
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
        """Issue a ConvergenceWarning if ``tol`` was not reached, a UserWarning if the model cannot be of any use."""
        if self.outcome is Outcome.CONVERGED:
            # Without a pass over the rows, which the features need.
            mean = self.solver.mean_norm(self.problem) if self.found is None else self.found[0]
            warn_of_zeros(mean, self.problem.lam)
        if self.outcome in (Outcome.CONVERGED, Outcome.PATIENCE, Outcome.STOPPED):
            return
        if self.solver.certified:
            _warn(self.problem, self.history, self.outcome, self.tol, self.scales)
        elif self.outcome is not Outcome.MAX_ITER:
            warnings.warn(f"{self.outcome.value} (after {self.iteration} epochs)", ConvergenceWarning, stacklevel=4)

    def result(self) -> Result:
        """The result of the fit."""
        history, outcome = self.history, self.outcome
        history.outcome = outcome.name.lower()
        history.compile_seconds = compile_clock.seconds - self.compiled
        history.evaluation_seconds = time.perf_counter() - self.begun - self.wall
        last = history.last if len(history) else None
        found = self.problem.bounds(last.primal, last.dual) if last else Certificate(np.nan, np.nan)
        best = None
        if self.validation is not None:
            best = self.validation.kept(ended=outcome is Outcome.PATIENCE, certified=self.solver.certified)
        if best is not None:
            W, intercept = best
            if self.solver.certified:
                at = self.problem.of_model(W, intercept)
                found = self.problem.bounds(self.solver.value(self.problem, *at), found.dual)
        else:
            W, intercept = self._weights()
        return Result(W, intercept, found, history, outcome, self.iteration, self.state, self.solver, self.nbytes)


def _next_check(
    history: History, first: int, tol: float, every: int | None, fresh: bool, most: int | None
) -> tuple[int, bool]:
    """The iteration of the next evaluation, and whether the gap is expected to reach tol there.

    It depends on the recorded gaps only, so that a resumed fit evaluates at the same iterations. The gap of a linearly
    convergent method decreases geometrically: two gaps predict when it reaches tol. The step is at most half of the
    iterations so far, so that a wrong prediction costs little, and at most ``most``. A new fit has a relative gap of
    1, because its dual is 0.
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
    furthest = furthest if most is None else min(furthest, most)
    if fall <= 0:
        return iteration + furthest, False
    ahead = max(1, math.ceil(math.log(narrow / tol) / fall)) if narrow > tol else 1
    return iteration + min(ahead, furthest), ahead <= furthest


def _warn(problem: Problem, history: History, outcome: Outcome, tol: float, scales: tuple[float, Array]) -> None:
    last = history.last
    advice = "raise max_iter, alpha or tol"
    resolution = problem.bounds(last.primal, last.dual).resolution
    if tol < resolution:
        advice = f"{problem.dtype.name} arithmetic certifies gaps down to {resolution:.1e}: raise tol"
        if problem.dtype == np.float32:
            advice += ", or fit with dtype=np.float64"
    elif outcome is Outcome.INTERRUPTED:
        advice = "fit again with warm_start=True to continue"
    else:
        scale = bad_scale(problem, *scales)
        advice = f"{scale}, or raise max_iter" if scale else advice
    warnings.warn(
        f"{outcome.value}: after {last.iteration} iterations the certified relative gap is "
        f"{last.relative_gap:.2e}, tol is {tol:g}; {advice}",
        ConvergenceWarning,
        stacklevel=5,
    )

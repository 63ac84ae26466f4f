"""The driver: runs a solver on a problem, times it, certifies, stops, warns, keeps what was reached."""

from __future__ import annotations

import enum
import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.jit import compile_clock
from manyclass.objective.history import History, Record, Reporter, Spent
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.optimize.checkpoint import Keeper
from manyclass.runtime.memory import require
from manyclass.solvers.base import Keeping, Keeps, Solver, State

__all__ = ["Outcome", "Result", "minimise", "require_fit"]


class Outcome(enum.Enum):
    """How a run ended."""

    CONVERGED = "the certified gap reached tol"
    MAX_ITER = "max_iter was reached before tol"
    PRECISION = "the certified gap is as small as the arithmetic can tell from zero"
    INTERRUPTED = "interrupted; the state reached so far is kept"
    DIVERGED = "the objective is no longer a finite number"


@dataclass(frozen=True)
class Result:
    """What `minimise` returns.

    Attributes
    ----------
    weights : ndarray of shape (d, K)
    intercept : ndarray of shape (K,)
    certificate : Certificate
        Of exactly these weights.
    history : History
    outcome : Outcome
    n_iter : int
        Iterations run, those before a resumption counted.
    state : dict of arrays
        From which a run with more iterations, or on changed data, can go on.
    """

    weights: Array
    intercept: Array
    certificate: Certificate
    history: History
    outcome: Outcome
    n_iter: int
    state: State


def require_fit(problem: Problem, solver: Solver) -> None:
    """Refuse, by name, a solver that asks for something its loss or regulariser does not have."""
    for kind, part, needs in (
        ("loss", problem.loss, solver.needs_loss),
        ("regularizer", problem.regularizer, solver.needs_regularizer),
    ):
        for need in sorted(needs - part.provides):
            raise ValueError(
                f"solver {solver.name!r} needs a {kind} with a {need}; {type(part).__name__} has none: "
                f"choose another solver or another {kind}"
            )


def minimise(
    problem: Problem,
    solver: Solver,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
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
    tol : float
        Relative duality gap to stop at.
    max_iter : int
        Most iterations.
    seed : int
        Of all that is random.
    state : dict of arrays, optional
        Where to start (warm start); changed in place.
    check_every : int, optional
        Certify at the multiples of this number of iterations. By default certificates are placed where the trend of
        the gap, which is geometric, says that tol will be met: few, and off the solver's clock.
    verbose : int
        See `manyclass.objective.history.Reporter`.
    checkpoint : path, optional
        File that keeps state and history, written anew (atomically) at most every ``checkpoint_seconds`` and when
        ``max_iter`` is reached; where it exists and belongs to the same problem, solver and seed, the run goes on from
        it, to the same bits. After Ctrl-C it keeps the state returned, in the midst of an iteration. Removed at the end
        of a run that met ``tol``.
    checkpoint_seconds : float
        See above.
    warn : bool
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
    require_fit(problem, solver)
    fresh = state is None
    if state is None:
        require(solver.nbytes(problem), "dtype=np.float32, fewer features (hashing), or a solver with sparse duals")
        state = solver.state(problem)
    history = History()
    begin = int(state["iteration"])  # a resumed run certifies as if it had never ended
    keeper: Keeps | None = None
    before = Spent()
    if checkpoint is not None:
        if isinstance(solver, Keeping):
            keeper = solver.keeper(checkpoint, problem, seed, checkpoint_seconds)
        else:
            keeper = Keeper(checkpoint, problem, solver, seed, checkpoint_seconds)
        before = keeper.restore(state, history)
    begun = time.perf_counter()
    started = begun - before.elapsed
    compiled = compile_clock.seconds
    clock = _Clock(before.seconds)
    outcome = Outcome.MAX_ITER
    iteration = first = int(state["iteration"])
    passes = before.passes
    with Reporter(verbose, tol, max_iter) as reporter:

        def spent() -> Spent:
            return Spent(clock.seconds, time.perf_counter() - started, passes)

        def record(certificate: Certificate) -> Outcome:
            if len(history) and history.last.iteration == iteration:
                history.records.pop()
            history.records.append(
                Record(
                    iteration,
                    passes,
                    certificate.primal,
                    certificate.dual,
                    certificate.gap,
                    certificate.relative_gap,
                    clock.seconds,
                    time.perf_counter() - started,
                )
            )
            reporter.evaluated(history.last)
            if not math.isfinite(certificate.primal):
                return Outcome.DIVERGED
            if certificate.relative_gap <= tol:
                return Outcome.CONVERGED
            return Outcome.PRECISION if certificate.relative_gap <= certificate.resolution else Outcome.MAX_ITER

        try:
            steps = solver.iterate(problem, state, seed)
            check, near = _next_check(history, begin, tol, check_every, fresh)
            final = False
            while iteration - first < max_iter:
                with clock:
                    progress = next(steps)
                iteration, passes = progress.iteration, progress.passes
                reporter.iterated(iteration)
                certificate = progress.bound
                final = certificate is not None
                if not solver.certifies and iteration >= check:
                    certificate, final = solver.certificate(problem, state, final=near), near
                    if not final and certificate.relative_gap <= max(tol, certificate.resolution):
                        certificate, final = solver.certificate(problem, state, final=True), True
                if certificate is not None:
                    outcome = record(certificate)
                    if outcome is not Outcome.MAX_ITER:
                        break
                    check, near = _next_check(history, begin, tol, check_every, fresh)
                if keeper is not None:
                    keeper.offer(state, history, spent())
            else:
                # Kept before the last certificate, which a longer run would not take here and which may move the state
                # by a rounding error: so the run can go on to the same bits.
                if keeper is not None:
                    keeper.write(state, history, spent())
                if not final:
                    outcome = record(solver.certificate(problem, state, final=True))
        except KeyboardInterrupt:
            iteration = int(state["iteration"])
            record(solver.certificate(problem, state, final=True))
            outcome = Outcome.INTERRUPTED
            if keeper is not None:
                keeper.write(state, history, spent())
    history.outcome = outcome.name.lower()
    history.compile_seconds = compile_clock.seconds - compiled
    history.evaluation_seconds = time.perf_counter() - begun - clock.wall
    if outcome is Outcome.CONVERGED:
        if keeper is not None:
            keeper.remove()
    elif warn:
        _warn(problem, history, outcome, tol)
    W, intercept = solver.weights(problem, state)
    last_record = history.last
    return Result(
        weights=W,
        intercept=intercept,
        certificate=Certificate(last_record.primal, last_record.dual, problem.resolution),
        history=history,
        outcome=outcome,
        n_iter=iteration,
        state=state,
    )


class _Clock:
    """A stopwatch for the solver alone: ``seconds`` leaves out compilation, ``wall`` does not."""

    def __init__(self, before: float) -> None:
        self.seconds = before
        self.wall = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()
        self._compiled = compile_clock.seconds

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self._begun
        self.wall += spent
        self.seconds += spent - (compile_clock.seconds - self._compiled)


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
    warnings.warn(
        f"{outcome.value}: after {last.iteration} iterations the certified relative gap is "
        f"{last.relative_gap:.2e}, tol is {tol:g}; {advice}",
        ConvergenceWarning,
        stacklevel=4,
    )

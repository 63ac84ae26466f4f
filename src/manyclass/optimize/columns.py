"""Fits many independent outputs one range of columns after the other.

A separable loss gives K independent problems with the same X. With thousands of outputs the dual variables alone are
n x K numbers, and a row of W exceeds the cache. Ranges of columns are therefore fitted one after the other, or in
parallel on threads, each to the same relative gap, and only W is kept. The gaps of the ranges add up to that of the
whole problem.

One-vs-rest with many classes has a good warm start: for most rows and features one class among thousands has no effect,
so that the problem whose labels are all negative is solved once, and each column starts from its dual variables.
"""

from __future__ import annotations

import copy
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from manyclass.kernels.jit import compile_clock
from manyclass.kernels.targets import RealTargets, SignTargets, SoftTargets, Targets, soft_matrix
from manyclass.objective.history import FitProgress, History, Record, Reporter
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.loop import Outcome, Result, minimize
from manyclass.optimize.validation import Validation
from manyclass.runtime.backends import chosen, spread
from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Solver, State, row_matrix
from manyclass.solvers.dual.sdca import SDCA

__all__ = ["WIDTH", "Columns", "minimize_columns"]

#: Number of columns of a range: a row of W is four cache lines in float32, and W fits in the caches with tens of
#: thousands of features.
WIDTH = 64


def minimize_columns(
    problem: Problem,
    solver: Solver,
    *,
    tol: float = 1e-3,
    max_iter: int | None = None,
    seed: int = 0,
    verbose: int = 0,
    width: int = WIDTH,
    validation: Validation | None = None,
    callback: Callable[[FitProgress], Any] | None = None,
) -> Result:
    """Run a solver on ranges of the outputs of a separable problem until each has a relative gap of at most ``tol``.

    Parameters
    ----------
    problem : Problem
        A problem with a separable loss. Each of its ``n_threads`` fits whole ranges; they do not change the result.
        A backend that `joblib.parallel_config` has chosen (Dask, Ray, processes) takes the place of the threads.
    solver : Solver
        The solver, which is prepared for each range (`Solver.prepare`).
    tol, max_iter, seed, verbose
        See `manyclass.optimize.loop.minimize`; ``max_iter`` applies to each range.
    width : int, default=64
        Number of columns of a range.
    validation : Validation, optional
        Held-out rows, scored after the last range: it cannot end the fit.
    callback : callable, optional
        Called with a `FitProgress` after each range, whose iterations are the finished ranges, in the thread that
        fitted it. If it returns True the fit ends as after Ctrl-C.

    Returns
    -------
    Result
        ``n_iter`` is the largest of all ranges. The history has a record for each range, with the objective of all
        ranges finished by then. The state is empty: dual variables are not kept. After Ctrl-C the finished ranges are
        kept, the others have zero weights, and the certificate is that of this model.

    Raises
    ------
    ValueError
        If the loss is joint.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.
    """
    if problem.loss.joint:
        raise ValueError(f"loss must be separable, got {problem.loss.name!r}: use minimize")
    pieces = ranges(problem.n_outputs, width)
    columns = Columns(problem)
    first = replace(problem, targets=columns.targets(*pieces[0]), n_threads=1)
    at_once = min(problem.n_threads, len(pieces))
    itemsize = problem.dtype.itemsize
    needs = {
        "weights": problem.n_features * problem.n_outputs * itemsize,
        f"{at_once} ranges of {width} outputs": at_once * sum(solver.prepare(first).nbytes(first).values()),
    }
    require(needs, "dtype=np.float32, or fewer features (hashing)")
    W = np.zeros((problem.n_features, problem.n_outputs), problem.dtype)
    intercept = np.zeros(problem.n_outputs, problem.dtype)
    begun, compiled = time.perf_counter(), compile_clock.seconds
    history = History()
    with Reporter(verbose, tol, len(pieces), counted=True) as reporter:
        tally = _Tally(problem, begun, history, reporter, callback, len(pieces), lambda: (W, intercept))

        def take(lo: int, hi: int, found: Result) -> None:
            if found.outcome is Outcome.INTERRUPTED:
                raise KeyboardInterrupt
            W[:, lo:hi] = found.weights
            intercept[lo:hi] = found.intercept
            if tally.add(lo, found):
                raise _Stopped

        def given(lo: int, hi: int) -> tuple[Any, ...]:
            return problem.rows, blank, columns.targets(lo, hi), start, solver, tol, max_iter, seed

        try:
            start = _Start(first, solver.prepare(first), tol, max_iter, seed)
            blank = _blank(problem)
            if chosen():
                for piece, found in zip(pieces, spread(_fit, (given(*piece) for piece in pieces))):
                    take(*piece, found)
            else:
                run(lambda lo, hi: take(lo, hi, _fit(*given(lo, hi))), pieces, problem.n_threads)
        except (KeyboardInterrupt, _Stopped) as ended:
            tally.outcome = Outcome.STOPPED if isinstance(ended, _Stopped) else Outcome.INTERRUPTED
            # The dual of an unfinished range is at least 0, its value for dual variables 0.
            tally.record(primal=problem.value(*problem.of_model(W, intercept)))
    history.outcome = tally.outcome.name.lower()
    history.compile_seconds = compile_clock.seconds - compiled
    history.evaluation_seconds = max(time.perf_counter() - begun - history.last.seconds, 0.0)
    last = history.last
    if validation is not None:
        history.validation.append(validation.look(last.iteration, last.seconds, W, intercept))
    if tally.outcome not in (Outcome.CONVERGED, Outcome.STOPPED):
        warnings.warn(
            f"{tally.outcome.value}: {tally.done} of {len(pieces)} ranges of outputs were fitted, {tally.short} of "
            f"them without reaching tol={tol:g}; the certified relative gap is {last.relative_gap:.2e}: raise "
            "max_iter, alpha or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Result(
        weights=W,
        intercept=intercept,
        certificate=problem.bounds(last.primal, last.dual),
        history=history,
        outcome=tally.outcome,
        n_iter=tally.n_iter,
        state={},
        solver=solver.prepare(first),
        nbytes=sum(needs.values()),
    )


def _blank(problem: Problem) -> Problem:
    """The problem without rows and targets, which are large, and which other processes are given by themselves."""
    found = copy.copy(problem)
    for name in ("rows", "targets"):
        object.__setattr__(found, name, None)
    return found


def _fit(
    rows: Any,
    blank: Problem,
    targets: Targets,
    start: _Start,
    solver: Solver,
    tol: float,
    max_iter: int | None,
    seed: int,
) -> Result:
    """The fit of one range, without the state: what a process is given and what it returns."""
    part = replace(blank, rows=rows, targets=targets, n_threads=1)
    state = start.state(part, solver.prepare(part))
    found = minimize(part, solver, tol=tol, max_iter=max_iter, seed=seed, state=state, warn=False)
    return replace(found, state={})


class Columns:
    """The targets of a range of outputs."""

    def __init__(self, problem: Problem) -> None:
        self._targets = problem.targets
        if isinstance(self._targets, SignTargets):
            ones = np.ones(len(self._targets.indices), np.int8)
            shape = problem.n_samples, problem.n_outputs
            self._by_column = sp.csr_matrix((ones, self._targets.indices, self._targets.indptr), shape=shape).tocsc()
        elif isinstance(self._targets, SoftTargets):
            self._by_column = soft_matrix(self._targets).tocsc()

    def targets(self, lo: int, hi: int) -> Targets:
        if isinstance(self._targets, SignTargets):
            part = self._by_column[:, lo:hi].tocsr()
            return SignTargets(part.indptr.astype(np.int64), part.indices.astype(np.int32), hi - lo)
        if isinstance(self._targets, SoftTargets):
            part = self._by_column[:, lo:hi].tocsr()
            return SoftTargets(part.data, part.indptr.astype(np.int64), part.indices.astype(np.int32), hi - lo)
        assert isinstance(self._targets, RealTargets)
        return RealTargets(np.ascontiguousarray(self._targets.y[:, lo:hi]), hi - lo)


class _Start:
    """The warm start of a range: the dual variables of the problem whose labels are all negative."""

    def __init__(self, first: Problem, solver: Solver, tol: float, max_iter: int | None, seed: int) -> None:
        self.dual: Array | None = None
        # With an intercept the all-negative problem has a trivial solution, or none.
        if not isinstance(first.targets, SignTargets) or first.intercept or type(solver) is not SDCA:
            return
        nothing = SignTargets(np.zeros(first.n_samples + 1, np.int64), np.zeros(0, np.int32), 1)
        alone = replace(first, targets=nothing)
        found = minimize(alone, SDCA(), tol=0.1 * tol, max_iter=max_iter, seed=seed, warn=False)
        if found.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        self.dual = np.ascontiguousarray(found.state["dual"][:, 0])
        self.V = np.ascontiguousarray(found.state["V"][:, 0])

    def state(self, part: Problem, solver: Solver) -> State | None:
        if self.dual is None:
            return None
        state = solver.state(part)
        state["dual"][:] = self.dual[:, None]
        V = state["V"]
        V[:, : part.n_outputs] = self.V[:, None]
        signs = part.targets
        assert isinstance(signs, SignTargets)
        # The dual variable of a negative row is infeasible for a positive one, which starts at zero.
        rows = np.repeat(np.arange(part.n_samples), np.diff(signs.indptr))
        state["dual"][rows, signs.indices] = 0
        taken = np.asarray(part.sample_weight)[rows] * self.dual[rows] * part.dtype.type(part.inv_lam_n)
        member = sp.csr_matrix((taken, (np.arange(len(rows)), signs.indices)), shape=(len(rows), part.n_outputs))
        if len(rows):
            change = (sp.csr_matrix(row_matrix(part)[rows]).T @ member).tocoo()
            V[change.row, change.col] -= change.data.astype(part.dtype)
        return state


class _Stopped(Exception):
    """The callback ended the fit."""


#: Outcomes of a range from good to bad: the outcome of the fit is the worst one.
_BAD = (Outcome.CONVERGED, Outcome.PRECISION, Outcome.MAX_ITER, Outcome.DIVERGED)


class _Tally:
    """The sums over the finished ranges. Threads add results in any order; sums are computed in a fixed order."""

    def __init__(
        self,
        problem: Problem,
        begun: float,
        history: History,
        reporter: Reporter,
        callback: Callable[[FitProgress], Any] | None,
        ranges: int,
        weights: Callable[[], tuple[Array, Array]],
    ) -> None:
        self._problem, self._begun, self._history, self._reporter = problem, begun, history, reporter
        self._callback, self._ranges, self._weights = callback, ranges, weights
        self._lock = threading.Lock()
        self._parts: dict[int, Result] = {}
        self.outcome = Outcome.CONVERGED

    @property
    def done(self) -> int:
        return len(self._parts)

    @property
    def short(self) -> int:
        return sum(part.outcome is not Outcome.CONVERGED for part in self._parts.values())

    @property
    def n_iter(self) -> int:
        return max((part.n_iter for part in self._parts.values()), default=0)

    def add(self, lo: int, found: Result) -> bool:
        """Add a finished range; whether the callback ends the fit before the last one."""
        with self._lock:
            # Dual variables and weights have been copied, or are not needed any more.
            empty = np.zeros((0, 0))
            self._parts[lo] = replace(found, weights=empty, intercept=empty, state={})
            self.outcome = max(self.outcome, found.outcome, key=_BAD.index)
            self.record()
            if self._callback is None:
                return False
            last = self._history.last
            finished = self.done == self._ranges
            told = FitProgress(
                iteration=last.iteration,
                max_iter=self._ranges,
                objective=last.primal,
                relative_gap=last.relative_gap,
                seconds=last.seconds,
                validation=float("nan"),
                finished=finished,
                weights=self._weights,
            )
            return bool(self._callback(told)) and not finished

    def record(self, primal: float | None = None) -> None:
        """Add a record of the finished ranges only; or, with ``primal``, of the model whose other weights are zero."""
        parts = [self._parts[lo] for lo in sorted(self._parts)]
        if primal is None:
            primal = sum(part.certificate.primal for part in parts)
        found = self._problem.bounds(primal, sum(part.certificate.dual for part in parts))
        record = Record(
            len(parts),
            sum(part.history.last.passes for part in parts) / max(len(parts), 1),
            found.primal,
            found.dual,
            found.gap,
            found.relative_gap,
            sum(part.history.last.seconds for part in parts) / min(self._problem.n_threads, max(len(parts), 1)),
            time.perf_counter() - self._begun,
        )
        self._history.records.append(record)
        self._reporter.evaluated(record)

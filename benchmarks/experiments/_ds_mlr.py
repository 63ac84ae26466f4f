"""What the experiments on DS-MLR share: problems with a certified optimum, runs that are looked at on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.problem import make_problem
from benchmarks.scores import quality
from benchmarks.task import Task

__all__ = ["ALPHAS", "LEVELS", "Case", "Curve", "entries", "make_case", "ranks", "trace"]

#: Data set -> alpha. All n-grams of panlex_swadesh make a W of 3 GB, of which L-BFGS would hold more than 20.
ALPHAS = {"clef": 1e-4, "news20": 1e-5, "panlex_swadesh/110-frequent": 1e-5, "icd10cm/3": 1e-5}
#: Relative errors of the objective that are waited for.
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4)

#: The optimum is certified to this relative gap: an error of the last level is ten times as large.
_CERTIFIED = 1e-5
#: A run is looked at when it has taken this much longer than at the last look.
_GROWTH = 1.12


@dataclass
class Case:
    """A problem of softmax regression with an intercept, its optimum, and rows to judge on."""

    data: Data
    problem: Any
    alpha: float
    optimum: float = 0.0
    least: float = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        return {**self.data.facts, "alpha": self.alpha, "optimum": self.optimum, "lower_bound": self.least}

    def error(self, objective: float) -> float:
        """Relative to the optimum."""
        return objective / self.optimum - 1.0


@dataclass
class Curve:
    """A run: seconds of the solver, passes, relative error of the objective and test F1 at each look."""

    seconds: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    error: list[float] = field(default_factory=list)
    micro_f1: list[float] = field(default_factory=list)
    macro_f1: list[float] = field(default_factory=list)
    ranks: dict[str, Any] = field(default_factory=dict)

    def when(self, level: float, what: str = "seconds") -> float | None:
        """The first time that the error is at most ``level``."""
        return next((float(x) for x, e in zip(getattr(self, what), self.error) if e <= level), None)


def make_case(data: Data, alpha: float, *, threads: int = 1, certified: float = _CERTIFIED, dtype: Any = None) -> Case:
    """The problem, solved by accelerated SDCA to a certified gap."""
    from manyclass.optimize.loop import minimize
    from manyclass.solvers import SDCA, AcceleratedSDCA
    from manyclass.solvers.dual.condition import is_ill_conditioned

    task = Task("multinomial", alpha=alpha, intercept=True)
    problem = make_problem(data.X, data.y, task, n_classes=data.n_classes, threads=threads, dtype=dtype)
    solver = AcceleratedSDCA() if is_ill_conditioned(problem) else SDCA()
    best = minimize(problem, solver, tol=certified, max_iter=3000, warn=False).certificate
    return Case(data, problem, alpha, best.primal, best.dual)


def entries(workers: int, comm: Any = None) -> dict[str, Callable[[], Any]]:
    """Name -> what makes the solver; ``workers`` are threads."""
    from manyclass.solvers import DSMLR
    from manyclass.solvers.ds_mlr import DataParallelLBFGS, LogConcavity

    return {
        "ds_mlr": lambda: DSMLR(n_workers=workers, comm=comm),
        "ds_mlr_queue": lambda: DSMLR(n_workers=workers, comm=comm, schedule="queue"),
        "ds_mlr_stochastic": lambda: DSMLR(n_workers=workers, comm=comm, algorithm="stochastic"),
        "ds_mlr_printed": lambda: DSMLR(n_workers=workers, comm=comm, algorithm="printed"),
        "lbfgs": lambda: DataParallelLBFGS(comm=comm),
        "lc": lambda: LogConcavity(comm=comm),
    }


def trace(
    case: Case,
    solver: Any,
    *,
    budget: float,
    seed: int = 0,
    most: int = 5000,
    to: float = LEVELS[-1],
    judge: bool = True,
    growth: float = _GROWTH,
) -> Curve:
    """Run for ``budget`` seconds of the solver, or until the error is at most ``to``; looks are not timed."""

    solver = solver.prepare(case.problem)
    state = solver.state(case.problem)
    steps = solver.iterate(case.problem, state, seed)
    curve, spent, looked = Curve(), 0.0, 0.0
    for _ in range(most):
        # No stopwatch: it collects garbage first, which takes longer than an iteration on few rows.
        begun = time.perf_counter()
        progress = next(steps)
        spent += time.perf_counter() - begun
        early = progress.iteration == 5
        if spent < growth * looked and spent < budget and not early:
            continue
        looked = spent
        objective = solver.certificate(case.problem, state, final=False).primal
        curve.seconds.append(spent)
        curve.passes.append(progress.passes)
        curve.iterations.append(progress.iteration)
        curve.error.append(case.error(objective))
        if judge:
            W, b = solver.weights(case.problem, state)
            found = quality(case.data.y_test, _best(case.data, W, b))
            curve.micro_f1.append(found["micro_f1"])
            curve.macro_f1.append(found["macro_f1"])
            if early:
                curve.ranks["after 5 iterations"] = ranks(case.data, W, b)
        if curve.error[-1] <= to or spent >= budget or not np.isfinite(curve.error[-1]):
            break
    if judge:
        W, b = solver.weights(case.problem, state)
        curve.ranks["at the end"] = ranks(case.data, W, b)
    return curve


def ranks(data: Data, W: Any, b: Any) -> Any:
    """Fraction of test rows whose label is among the first k, for k = 1 ... K."""
    found = np.zeros(W.shape[1] + 1, np.int64)
    for begin, S in _scores(data, W, b):
        y = data.y_test[begin : begin + len(S)]
        known = np.flatnonzero(y >= 0)
        own = S[known, y[known]]
        found += np.bincount((S[known] > own[:, None]).sum(axis=1), minlength=len(found))
    return np.cumsum(found)[:-1] / len(data.y_test)


def _best(data: Data, W: Any, b: Any) -> Any:
    return np.concatenate([S.argmax(axis=1) for _, S in _scores(data, W, b)])


def _scores(data: Data, W: Any, b: Any) -> Any:
    rows = max(1, int(3e7) // W.shape[1])
    for begin in range(0, data.X_test.shape[0], rows):
        yield begin, np.asarray(data.X_test[begin : begin + rows] @ W) + b

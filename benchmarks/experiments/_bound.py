"""What the experiments on bound majorization share: the paper's objective, runs watched from outside, solvers by name.

The paper maximizes  sum_i log p(y_i | x_i) - (lambda/2) ||theta||^2  with a constant feature among the others, so that
theta has K (d + 1) numbers, all of them penalized. Here that is a `Problem` with the loss `MultinomialLoss`, a column
of ones, no intercept, and lam = lambda / n: the same objective over -n. ``--alpha`` of these experiments is lambda.

Every point of a curve is judged by NumPy, off the clock. The clock is the processor time of this process within the
solver's own iterations, compilation left out. Passes are as the solver counts them: a reading of the rows for scores
together with the gradient (or the curvature) that they lead to. Newton here forms no matrix: each of its products with
the Hessian is a pass; ``iterations`` tells its steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Data
from benchmarks.measure import quiet
from benchmarks.problem import make_problem
from benchmarks.task import Task

__all__ = [
    "BOUND",
    "Case",
    "Curve",
    "Entry",
    "batch_entries",
    "bound",
    "chosen",
    "named",
    "optimum",
    "pooled",
    "sgd",
    "trace",
    "warm",
]

#: A run is at the optimum where its relative error is at most this.
_DONE = 1e-10


@dataclass(frozen=True)
class Entry:
    """A solver under a name; ``family`` is that of the method that ``--only`` knows."""

    name: str
    family: str
    make: Callable[[], Any]
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A problem of the paper's form, and rows to judge on."""

    name: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any
    K: int
    lam: float

    @property
    def facts(self) -> dict[str, Any]:
        n, d = self.X.shape
        return {"data": self.name, "n": n, "d": d, "K": self.K, "parameters": d * self.K, "lam": self.lam}

    @property
    def problem(self) -> Any:
        return make_problem(self.X, self.y, Task("multinomial", alpha=self.lam / len(self.y)), n_classes=self.K)

    def judge(self, W: Any) -> tuple[float, float, float]:
        """The training objective (the mean), the mean log-likelihood of the test rows, the error there."""
        W = np.asarray(W, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            objective = -_likelihood(self.X @ W, self.y)[0] + 0.5 * self.lam / len(self.y) * float(np.vdot(W, W))
            return objective, *_likelihood(self.X_test @ W, self.y_test)

    def start(self, seed: int) -> Any:
        """A point near the origin."""
        return 1e-3 * np.random.default_rng([7, seed]).normal(size=(self.X.shape[1], self.K))

    def few(self) -> Case:
        """A few rows, to compile on."""
        kept = slice(0, 40)
        return Case(self.name, self.X[kept], self.y[kept], self.X_test[kept], self.y_test[kept], self.K, self.lam)


def _likelihood(S: Any, y: Any) -> tuple[float, float]:
    """The mean log-likelihood, and the error."""
    if not np.isfinite(S).all():
        return -math.inf, math.nan
    top = S.max(axis=1)
    own = S[np.arange(len(y)), y]
    likelihood = own - top - np.log(np.exp(S - top[:, None]).sum(axis=1))
    return float(likelihood.mean()), float(np.mean(S.argmax(axis=1) != y))


def pooled(data: Data, lam: float, *, test: float = 0.1, seed: int = 0, sparse: bool = False) -> Case:
    """All rows of a data set with a column of ones; a random share of them to judge on (0: on the rows themselves).

    ``sparse``: dense rows become CSR, which every solver reads by the same compiled loops.
    """
    y = np.concatenate([data.y, data.y_test])
    known = y >= 0  # a quick run may have lost a class
    if sp.issparse(data.X):
        X = sp.vstack([data.X, data.X_test]).tocsr()[known]
        X = sp.hstack([X, np.ones((X.shape[0], 1))], format="csr", dtype=np.float64)
    else:
        X = np.vstack([data.X, data.X_test])[known]
        X = np.hstack([X, np.ones((len(X), 1))]).astype(np.float64)
        X = sp.csr_matrix(X) if sparse else X
    y = y[known]
    K = int(y.max()) + 1
    if not test:
        return Case(data.name, X, y, X, y, K, lam)
    order = np.random.default_rng([11, seed]).permutation(len(y))
    held = np.sort(order[: max(1, int(test * len(y)))])
    kept = np.sort(order[len(held) :])
    return Case(data.name, X[kept], y[kept], X[held], y[held], K, lam)


@dataclass
class Curve:
    """A run: at its start and after each iteration, where it was."""

    passes: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    likelihood: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)

    def add(self, passes: float, cpu: float, judged: tuple[float, float, float]) -> None:
        for column, value in zip((self.passes, self.cpu), (passes, cpu)):
            column.append(value)
        for column, value in zip((self.objective, self.likelihood, self.error), judged):
            column.append(value)

    @property
    def iterations(self) -> int:
        return len(self.passes) - 1

    @property
    def monotone(self) -> bool:
        """Whether the training objective never rose."""
        return all(b <= a + 1e-12 * abs(a) for a, b in zip(self.objective, self.objective[1:]))

    def settles(self, good: Callable[[Curve, int], bool]) -> int | None:
        """The first point from which on all are good."""
        at = None
        for index in reversed(range(len(self.passes))):
            if not good(self, index):
                break
            at = index
        return at

    def at(self, places: Any, column: str, along: str = "passes") -> Any:
        """A column at places of another, the last known value each."""
        index = np.searchsorted(np.asarray(getattr(self, along)), np.asarray(places) + 1e-12, side="right") - 1
        return np.asarray(getattr(self, column))[np.maximum(index, 0)]


def trace(
    case: Case,
    solver: Any,
    *,
    most: float,
    start: Any = None,
    seed: int = 0,
    best: float = -math.inf,
    seconds: float = math.inf,
    every: bool = True,
) -> Curve:
    """Run a solver for ``most`` passes, or until it is at the objective ``best`` or the time is up.

    ``every``: judge each iteration; else the start and the end alone.
    """
    from manyclass.kernels.jit import compile_clock

    problem, curve, cpu = case.problem, Curve(), 0.0
    solver = solver.prepare(problem)
    state = solver.state(problem)
    if start is not None:
        _place(state, start)
    curve.add(0.0, 0.0, case.judge(solver.weights(problem, state)[0]))
    steps, passes = solver.iterate(problem, state, seed), 0.0
    with quiet():
        while passes < most and cpu < seconds:
            compiled, begun = compile_clock.seconds, time.process_time()
            progress = next(steps)
            cpu += time.process_time() - begun - (compile_clock.seconds - compiled)
            if progress.passes <= passes:
                break  # it stands still
            passes = progress.passes
            if every or passes >= most:
                curve.add(passes, cpu, case.judge(solver.weights(problem, state)[0]))
                if not curve.objective[-1] > best + _DONE * abs(best) or not math.isfinite(curve.objective[-1]):
                    break
    if curve.passes[-1] < passes:
        curve.add(passes, cpu, case.judge(solver.weights(problem, state)[0]))
    return curve


def _place(state: dict[str, Any], W: Any) -> None:
    if "point" in state:
        state["point"][:-1] = W
    else:  # of SGD, which is not averaged here
        state["W"][:] = W


def warm(case: Case, entries: Sequence[Entry]) -> None:
    """Compile, or load from the cache, what the solvers need."""
    few = case.few()
    for entry in entries:
        trace(few, entry.make(), most=3)


def optimum(case: Case) -> tuple[float, float, float]:
    """What `Case.judge` says of the optimum: by Newton; where that is not certified to 1e-9, by L-BFGS from there."""
    from manyclass.optimize.loop import minimize
    from manyclass.solvers import LBFGS, Newton

    with quiet():
        found = minimize(case.problem, Newton(), tol=1e-12, max_iter=100, warn=False)
        judged = [case.judge(found.weights)]
        if not found.certificate.relative_gap <= 1e-9:
            solver = LBFGS()
            state = solver.state(case.problem)
            state["point"][:-1] = found.weights
            judged.append(case.judge(minimize(case.problem, solver, tol=1e-9, max_iter=3000, state=state).weights))
    return min(judged)


def bound(**options: Any) -> Callable[[], Any]:
    """Makes a `BoundMajorization`, of full rank unless told otherwise."""

    def make() -> Any:
        from manyclass.solvers import BoundMajorization

        return BoundMajorization(**{"rank": "full", **options})

    return make


def named(name: str) -> Callable[[], Any]:
    """Makes a solver of that name with its defaults."""

    def make() -> Any:
        from manyclass import solvers

        return getattr(solvers, name)()

    return make


def BOUND(rank: int | None = None, **options: Any) -> Entry:
    """Our default, of full or of low rank."""
    if rank is not None:
        options["rank"] = rank
    return Entry("bound" if rank is None else f"bound, rank {rank}", "bound", bound(**options))


def batch_entries(rank: int | None = None, *, one_by_one: bool = False) -> list[Entry]:
    """The schedules of the bound and the batch methods; ``one_by_one``: also the printed one with m = 1."""
    found = [BOUND(rank)]
    if rank is None:
        found += [
            Entry("bound, literal", "bound", bound(schedule="literal")),
            Entry("bound, restart", "bound", bound(schedule="restart")),
            Entry("batch bound", "bbm", bound(stochastic=False)),
        ]
    if one_by_one:
        made = bound(schedule="literal", batch_size=1, **({} if rank is None else {"rank": rank}))
        found.append(Entry("bound, literal, m = 1", "bound", made, {"batch_size": 1}))
    return [
        *found,
        Entry("L-BFGS", "lbfgs", named("LBFGS")),
        Entry("Newton", "newton", named("Newton")),
        Entry("conjugate gradients", "cg", named("ConjugateGradient")),
        Entry("steepest descent", "gd", named("GradientDescent")),
    ]


def sgd(name: str, gain: str, eta0: float, tau: float, batch_size: int) -> Entry:
    """SGD with one of the gains of the paper; ``name`` is "sgd" or "asgd" (adaptive gain: not averaged)."""

    def make() -> Any:
        from manyclass.solvers import SGD

        return SGD(gain=gain, eta0=eta0, tau=tau, batch_size=batch_size)

    about = {"gain": gain, "eta0": eta0, "tau": tau, "batch_size": batch_size}
    return Entry("SGD" if name == "sgd" else "ASGD", name, make, about)


def chosen(entries: Sequence[Entry], only: Sequence[str] | None) -> list[Entry]:
    """Those that ``--only`` asks for."""
    return [entry for entry in entries if only is None or entry.family in only]

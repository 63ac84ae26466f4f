"""``manyclass bench``: this machine, ours against scikit-learn's L-BFGS to the same objective value."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from manyclass.cli._common import CommandError, Screen, check_output, seconds, write_csv

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = ""
HELP = "a small benchmark of this machine against scikit-learn"
DESCRIPTION = """\
On generated sparse data, multinomial regression by manyclass to a certified relative gap of 1e-3, and by scikit-learn's
LogisticRegression(solver="lbfgs") with the fewest iterations that reach the same objective value. One thread each,
float64, runs alternate, medians are shown; the time to compile (once per installation) is apart."""
EPILOG = """\
examples:
  manyclass bench
  manyclass bench --repeat 5 --out bench.csv

This is a quick look. The benchmarks proper, on real data and against more peers, are in the folder benchmarks/ of the
repository:  python -m benchmarks --help
"""

_TOL = 1e-3
_MOST = 1280  # iterations granted to L-BFGS


class _Problem(NamedTuple):
    rows: int
    features: int
    classes: int
    alpha: float

    def __str__(self) -> str:
        return f"{self.rows:,} x {self.features:,}, {self.classes:,} classes, alpha {self.alpha:g}"


_PROBLEMS = (_Problem(4000, 5000, 20, 1e-4), _Problem(4000, 5000, 100, 1e-4), _Problem(4000, 5000, 100, 1e-5))
_QUICK = (_Problem(500, 300, 5, 1e-3),)


class _Fit(NamedTuple):
    seconds: float
    objective: float


class _Result(NamedTuple):
    problem: _Problem
    ours: list[_Fit]
    lbfgs: list[_Fit]
    iterations: int
    compile_seconds: float

    @property
    def reached(self) -> bool:
        """Whether L-BFGS came as low as we did, within the iterations granted."""
        return self.lbfgs[0].objective <= self.ours[0].objective


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--out", metavar="FILE.csv", help="write every run to this file")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one tiny problem, to see that it works")


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Measure and compare."""
    check_output("--out", args.out)
    if args.repeat < 1:
        raise CommandError(f"--repeat must be at least 1, got {args.repeat}")
    import sklearn.linear_model  # noqa: F401  (a limit holds for the libraries that are loaded, so all of them first)
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    results = []
    with threadpool_limits(1):
        for problem in _QUICK if args.quick else _PROBLEMS:
            screen.say(f"{problem} ...")
            results.append(_compare(problem, args.repeat))
    _table(results, screen)
    if args.out:
        write_csv(
            args.out, ["rows", "features", "classes", "alpha", "method", "run", "seconds", "objective"], _rows(results)
        )
        screen.say(f"wrote {args.out}")
    screen.say("the benchmarks proper are in the folder benchmarks/ of the repository: python -m benchmarks --help")
    return 0


def _compare(problem: _Problem, repeat: int) -> _Result:
    import numpy as np

    from manyclass.datasets import make_many_classes
    from manyclass.kernels.jit import compile_clock

    X, y = make_many_classes(problem.rows, problem.features, problem.classes, random_state=0, dtype=np.float64)
    compiled = compile_clock.seconds
    target = _ours(problem, X, y).objective  # compiles what is not yet on disk
    compiled = compile_clock.seconds - compiled
    iterations = _iterations(problem, X, y, target)
    ours, lbfgs = [], []
    for _ in range(repeat):
        ours.append(_ours(problem, X, y))
        lbfgs.append(_lbfgs(problem, X, y, iterations))
    return _Result(problem, ours, lbfgs, iterations, compiled)


def _ours(problem: _Problem, X: Any, y: Any) -> _Fit:
    from manyclass import LinearClassifier

    estimator = LinearClassifier("multinomial", alpha=problem.alpha, tol=_TOL, random_state=0)
    started = time.perf_counter()
    estimator.fit(X, y)
    spent = time.perf_counter() - started
    if estimator.history_.outcome == "interrupted":
        raise KeyboardInterrupt
    return _Fit(spent, _objective(X, y, estimator.coef_, estimator.intercept_, problem.alpha))


def _lbfgs(problem: _Problem, X: Any, y: Any, iterations: int) -> _Fit:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    estimator = LogisticRegression(
        C=1.0 / (problem.alpha * problem.rows), solver="lbfgs", tol=1e-12, max_iter=iterations
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is stopped on purpose
        started = time.perf_counter()
        estimator.fit(X, y)
        spent = time.perf_counter() - started
    return _Fit(spent, _objective(X, y, estimator.coef_, estimator.intercept_, problem.alpha))


def _objective(X: Any, y: Any, coef: Any, intercept: Any, alpha: float) -> float:
    """The objective both minimize, computed here alike for both. Classes are 0 .. K-1, all of them in ``y``."""
    import numpy as np
    from scipy.special import logsumexp

    scores = X @ coef.T + intercept
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
    return float(losses.mean() + 0.5 * alpha * np.square(coef).sum())


def _iterations(problem: _Problem, X: Any, y: Any, target: float) -> int:
    """The fewest iterations with which L-BFGS, whose objective never rises, comes down to ``target``."""
    high = 10
    while high < _MOST and _lbfgs(problem, X, y, high).objective > target:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _lbfgs(problem, X, y, middle).objective <= target else (middle, high)
    return high


def _table(results: list[_Result], screen: Screen) -> None:
    from importlib.metadata import version
    from statistics import median

    columns = ["generated data", "objective", "manyclass s", "lbfgs s", "lbfgs iterations", "ratio", "compile s"]
    rows = []
    for result in results:
        ours, lbfgs = (median(fit.seconds for fit in fits) for fits in (result.ours, result.lbfgs))
        more = "" if result.reached else "> "
        rows.append(
            [
                str(result.problem),
                f"{result.ours[0].objective:.5f}",
                f"{ours:.3f}",
                f"{lbfgs:.3f}",
                f"{more}{result.iterations}",
                f"{more}{lbfgs / ours:.1f}",
                seconds(result.compile_seconds),
            ]
        )
    versions = f"scikit-learn {version('scikit-learn')}, SciPy {version('scipy')}"
    screen.table(f"seconds to the same objective value, medians ({versions})", columns, rows)


def _rows(results: list[_Result]) -> Iterator[list[Any]]:
    for result in results:
        for method, fits in (("manyclass", result.ours), ("lbfgs", result.lbfgs)):
            for number, fit in enumerate(fits, start=1):
                yield [*result.problem, method, number, fit.seconds, fit.objective]

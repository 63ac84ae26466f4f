"""Softmax regression to a certified gap of 1e-3, against the best of scikit-learn's lbfgs, newton-cg and saga.

The protocol is that of `benchmarks.contest`: a peer's knob is its number of iterations, each peer is tried on float32
and on float64 data, ours has float32. 20 Newsgroups, without an intercept and, at alpha 1e-5, with one; and two
thousand languages by the character n-grams of their words.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.contest import Contest, report
from benchmarks.data import Data
from benchmarks.search import Iterations
from benchmarks.task import Task

TOLS = (1e-3,)
DTYPES = ("float32", "float64")
ALPHAS = {"news20": (1e-4, 1e-5, 1e-6)}
#: Where the case with an intercept stands, unless --intercept says otherwise.
WITH_INTERCEPT = ("news20", 1e-5)


def run(bench: Bench) -> None:
    chosen = bench.methods("auto", "sklearn_lbfgs", "sklearn_newton_cg", "sklearn_saga")
    for source in bench.datasets("news20", "panlex_swadesh"):
        data = source.read()
        for task in _tasks(bench, source.name, data):
            willing = bench.willing(chosen, task)
            ours, peers = ([m for m in willing if m.ours is who] for who in (True, False))
            Contest(bench, source, data, task, Iterations, DTYPES).run(ours, peers, TOLS)
    report(bench)


def _tasks(bench: Bench, name: str, data: Data) -> list[Task]:
    asked = bench.options.intercept
    tasks = []
    for alpha in bench.alphas(*ALPHAS.get(name, (1e-5,))):
        both = asked == "both" or (asked is None and (name, alpha) == WITH_INTERCEPT)
        tasks += [
            Task("multinomial", alpha=alpha, intercept=intercept)
            for intercept in ((False, True) if both else (asked == "yes",))
        ]
    return tasks

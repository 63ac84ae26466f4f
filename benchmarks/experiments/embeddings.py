"""Softmax on dense embeddings to a certified gap of 1e-3, against scikit-learn's lbfgs, newton-cg, newton-cholesky.

The protocol is that of `benchmarks.contest`: a peer's knob is its number of iterations, its objective is judged off the
clock. Generated embeddings (`benchmarks.datasets.embeddings`), MNIST; float32, no intercept, alpha 1e-4, 1e-6 and 1/n.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.contest import Contest, report
from benchmarks.search import Iterations
from benchmarks.task import Task

TOLS = (1e-3,)


def run(bench: Bench) -> None:
    chosen = bench.methods("auto", "sklearn_lbfgs", "sklearn_newton_cg", "sklearn_newton_cholesky")
    for source in bench.datasets("mnist", "embeddings/100", "embeddings/1000"):
        data = source.read()
        for alpha in bench.alphas(1e-4, 1e-6, 1.0 / data.n):
            task = Task("multinomial", alpha=alpha, intercept=bench.options.intercept == "yes")
            willing = bench.willing(chosen, task)
            ours, peers = ([m for m in willing if m.ours is who] for who in (True, False))
            Contest(bench, source, data, task, Iterations, ("float32",)).run(ours, peers, TOLS)
    report(bench)

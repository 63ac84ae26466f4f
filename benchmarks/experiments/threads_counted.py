"""What limits the threads that share the steps of active sets: work counted, not timed.

After ten epochs, for the rounds of the next: the weights that each of p threads looks up, for its features and for
the rivals and the class of each row of the round. All wait for the one with the most: p threads shorten scores and
updates by at most the sum of all lookups divided by the sum of these. The dual steps of a round's rows are divided
evenly. ``norms``: the mean of v_i in units of that of ||x_i||^2; ``common``: the part of v_i - ||x_i||^2 that the steps
had in common (`manyclass.kernels.rounds`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.data import Data
from benchmarks.problem import make_problem
from benchmarks.task import Task

THREADS = (1, 2, 4, 8)
EPOCHS = 10


def run(bench: Bench) -> None:
    for source in bench.datasets("icd10cm/3", "icd10cm/4", "bible_verses/chapter", "generated/many"):
        data = source.read()
        for alpha in bench.alphas(1e-5):
            _count(bench, data, alpha)
    rows = [row for row in bench.rows if row["status"] == "measured"]
    columns = ("data", "alpha", "threads", "lookups of a round", "times as fast at most", "common")
    cells = [[row[name] for name in ("data", "alpha", "n_jobs", "lookups", "limit", "common")] for row in rows]
    bench.table("Scores and updates on threads, by the lookups of the busiest", columns, cells)


def _count(bench: Bench, data: Data, alpha: float) -> None:
    from manyclass.solvers import ActiveSetSDCA

    problem = make_problem(
        data.X, data.y, Task("crammer_singer", alpha=alpha, gamma=0.1), threads=bench.options.threads
    )
    solver: Any = ActiveSetSDCA(sampling="rounds").prepare(problem)
    state = solver.state(problem)
    for _ in zip(range(EPOCHS), solver.iterate(problem, state, 0)):
        pass
    rounds, order = solver._rounds(problem), solver._due(problem, state, 0, EPOCHS)
    shards = len(rounds.edges) + 1
    row = np.repeat(np.arange(problem.n_samples), np.diff(problem.rows.indptr))
    place = row * shards + np.searchsorted(rounds.edges, problem.rows.indices, side="right")
    stored = np.bincount(place, minlength=problem.n_samples * shards).reshape(-1, shards)
    lookups = (stored * (np.diff(state["indptr"])[:, None] + 1))[order]
    lookups = np.add.reduceat(lookups, np.arange(0, len(order), rounds.size), axis=0)
    for threads in THREADS:
        first = np.arange(threads) * shards // threads
        busiest = np.add.reduceat(lookups, first, axis=1).max(axis=1)
        bench.record(
            **data.facts,
            alpha=alpha,
            n_jobs=threads,
            rounds=len(lookups),
            lookups=float(lookups.sum() / len(lookups)),
            limit=float(lookups.sum() / busiest.sum()),
            norms=float(rounds.norms.sum(dtype=np.float64) / problem.norms.sum(dtype=np.float64)),
            common=float(state["common"][0] / state["common"][1]),
        )

"""Crammer-Singer with the rows partitioned over processes: time to a certified gap on one, two and more of them.

Processes are those of ``mpiexec`` (mpi4py and an MPI are needed; without them the rows are recorded as skipped), of one
thread each. Each reads the prepared data and fits its share of the rows, drawn by a permutation that is the same for
all. The time is that of ``fit`` on the slowest of them, after a fit of a few rows that compiles. Beside them stands the
solver of one process, `ActiveSetSDCA` with its defaults, on one thread.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.bench import Bench, DataFile
from benchmarks.children import ChildFailed
from benchmarks.data import read, shrink
from benchmarks.measure import Stopwatch, quiet, spread_text

ENTRIES = ("sdca_active", "sdca_dp")
TOL = 1e-3
DATA = ("generated/tall", "icd10cm/3", "icd10cm/4", "news20")
_ALPHA = 1e-5
#: Rows of the fit that compiles.
_FEW = 200


def run(bench: Bench) -> None:
    reason = processes.missing()
    if reason:
        bench.skip(reason)
        return
    several = max(2, bench.options.threads)
    for source in bench.datasets(*DATA):
        for alpha in bench.alphas(_ALPHA):
            sizes = [("sdca_active", 1), *(("sdca_dp", size) for size in sorted({1, 2, several}))]
            for method, size in sizes:
                if method in (bench.options.only or ENTRIES):
                    _measure(bench, source, alpha, method, size)
    _report(bench)


def _measure(bench: Bench, source: DataFile, alpha: float, method: str, size: int) -> None:
    about = {"data": source.name, "method": method, "processes": size, "alpha": alpha, "tol": TOL}
    bench.say(f"{source.name} alpha {alpha:g}: {method} on {size} ...")
    task = {**source.arguments(), "alpha": alpha, "method": method, "runs": bench.options.runs}
    try:
        found = processes.run(__name__, size, task, 60 + 2 * bench.options.budget * bench.options.runs)
    except ChildFailed as failure:
        bench.fail(str(failure), **about)
        return
    for row in found:
        bench.record(**{**row, **about})


def _process() -> None:
    """What each process does."""
    from manyclass import ActiveSetSDCA, DataParallelSDCA, LinearClassifier
    from manyclass.distributed.mpi import MPICommunicator

    task = processes.task()
    comm = MPICommunicator()
    data = read(Path(task["path"]), task["name"], quick=task["quick"]).cast("float32")
    mine = np.sort(np.array_split(np.random.default_rng(0).permutation(data.n), comm.size)[comm.rank])
    X, y, few = data.X[mine], data.y[mine], shrink(data, _FEW)

    def make(seed: int, alone: bool) -> Any:
        parallel = task["method"] == "sdca_dp"
        solver = DataParallelSDCA(comm=None if alone else comm) if parallel else ActiveSetSDCA()
        given = {"alpha": task["alpha"], "fit_intercept": False, "tol": TOL, "max_iter": 1000}
        return LinearClassifier("crammer_singer", solver=solver, random_state=seed, **given)

    for number in range(task["runs"]):
        with quiet():
            make(0, alone=True).fit(few.X, few.y)
            model = make(number, alone=False)
            before = comm.traffic.collective_bytes
            comm.barrier()
            with Stopwatch() as watch:
                model.fit(X, y)
        slowest = float(comm.allreduce(np.array([watch.seconds]), "max")[0])
        if comm.rank == 0:
            facts = {
                **data.facts,
                "run": number,
                "seconds": slowest,
                "iterations": int(model.n_iter_),
                "certified_relative_gap": float(model.duality_gap_),
                "objective": float(model.objective_),
                "accuracy": float(model.score(data.X_test, data.y_test)),
                "bytes_sent": int(comm.traffic.collective_bytes - before),
            }
            processes.tell(facts)
    comm.close()


def _report(bench: Bench) -> None:
    cases: dict[tuple[str, float], dict[tuple[str, int], list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            ways = cases.setdefault((row["data"], row["alpha"]), {})
            ways.setdefault((row["method"], row["processes"]), []).append(row)
    lines = []
    for (data, alpha), ways in cases.items():
        alone = ways.get(("sdca_dp", 1))
        for (method, size), rows in ways.items():
            seconds = [row["seconds"] for row in rows]
            lines.append(
                [
                    data,
                    alpha,
                    method,
                    size,
                    spread_text(seconds),
                    None if alone is None else median(row["seconds"] for row in alone) / median(seconds),
                    median(row["iterations"] for row in rows),
                    max(row["certified_relative_gap"] for row in rows),
                    median(row["accuracy"] for row in rows),
                    median(row["bytes_sent"] for row in rows) / 2**20,
                ]
            )
    columns = ("data", "alpha", "method", "processes", "fit s", "times faster", "epochs", "worst gap", "accuracy")
    bench.table(f"Crammer-Singer to a certified gap of {TOL:g}", (*columns, "MiB sent by rank 0"), lines)


if __name__ == "__main__":
    _process()

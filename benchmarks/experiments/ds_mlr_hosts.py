"""DS-MLR with as many classes as in the paper, on processes of several hosts, with a limit on the memory of each.

Rows are generated with the classes of the paper's data sets (12 294 of LSHTC1, 105 034 of ODP, 33 225 of Reddit) and
fewer rows and features, written as a row store, of which each process reads its shards. The hosts are network
namespaces of one machine, joined by TCP: they share its cores, so that only one and two processes show a speed-up.
Where no namespaces can be made the processes are those of mpiexec on one host.

``reddit``: the address space of each process is limited (RLIMIT_AS), and rows and model, with the vectors that L-BFGS
keeps, are about three times as much: too few processes refuse the job before they read the rows.

Each row of kind "rank" has the peak of a process, and the bytes that it sent in a ring beside 4 K D numbers an
iteration: certificates, the first phase, and every fifth iteration the Hessian's diagonal, come on top.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.bench import Bench
from benchmarks.children import ChildFailed
from benchmarks.hosts import Hosts, missing
from benchmarks.measure import peak_memory, quiet
from benchmarks.problem import make_problem
from benchmarks.task import Task

TOL = 1e-3
GIB = 1 << 30


@dataclass(frozen=True)
class Shape:
    """A generated problem, and who fits it: ``ways`` on each of ``sizes`` processes."""

    label: str
    rows: int
    features: int
    classes: int
    words: int
    pairs: int
    sizes: tuple[int, ...]
    ways: tuple[str, ...]
    alpha: float = 1e-4
    limit: int = 0
    iterations: int = 60


SHAPES = {
    "lshtc1": Shape("lshtc1", 15_000, 4_000, 12_294, 20, 5, (1, 2, 4), ("ring", "queue"), 5e-5),
    "reddit": Shape("reddit, limited", 33_225, 4_000, 33_225, 10, 5, (1, 4, 6), ("ring",), limit=3 * GIB),
    "peers": Shape(
        "lshtc1, peers",
        15_000,
        4_000,
        12_294,
        20,
        5,
        (2,),
        ("ring_slowed", "queue_slowed", "lbfgs", "lbfgs_diagonal", "lc"),
        5e-5,
    ),
    "odp": Shape("odp", 105_034, 1_200, 105_034, 4, 3, (4,), ("ring",)),
}
QUICK = {
    "lshtc1": Shape("lshtc1", 400, 300, 120, 10, 3, (1, 2), ("ring", "queue")),
    "peers": Shape("lshtc1, peers", 400, 300, 120, 10, 3, (2,), ("queue_slowed", "lbfgs", "lbfgs_diagonal", "lc")),
    "reddit": Shape("reddit, limited", 3_000, 4_000, 3_000, 10, 20, (1,), ("ring",), limit=2 * GIB),
}
ENTRIES = tuple(SHAPES)


def run(bench: Bench) -> None:
    reason = processes.missing()
    if reason:
        bench.skip(reason)
        return
    shapes = QUICK if bench.options.quick else SHAPES
    for name, shape in shapes.items():
        if name not in (bench.options.only or ENTRIES):
            continue
        with tempfile.TemporaryDirectory() as folder:
            bench.say(f"{shape.label}: generating ...")
            path = _write(Path(folder), shape)
            for size in shape.sizes:
                for way in shape.ways:
                    _measure(bench, shape, path, size, way)
    _report(bench)


def _write(folder: Path, shape: Shape) -> str:
    from manyclass.datasets import make_many_classes
    from manyclass.io import write_npz
    from manyclass.io.conversion import convert

    X, y = make_many_classes(shape.rows, shape.features, shape.classes, nnz_per_row=shape.words, random_state=0)
    y[: shape.classes] = np.arange(shape.classes)[: shape.rows]  # each class, as far as there are rows
    write_npz(folder / "rows.npz", X, y)
    convert(folder / "rows.npz", folder / "rows.store", shard_rows=max(1, shape.rows // 24))
    return str(folder / "rows.store")


def _measure(bench: Bench, shape: Shape, path: str, size: int, way: str) -> None:
    about = {
        "data": shape.label,
        "n": shape.rows,
        "d": shape.features,
        "K": shape.classes,
        "alpha": shape.alpha,
        "method": way,
        "processes": size,
        "limit": shape.limit,
        "tol": TOL,
    }
    for number in range(bench.options.runs):
        bench.say(f"{shape.label}: {way} on {size} ...")
        task = {**asdict(shape), "path": path, "way": way, "seed": number, "budget": bench.options.budget}
        try:
            if size > 1 and missing() is None:
                with Hosts(size) as hosts:
                    found, where = processes.run(__name__, size, task, _patience(bench), hosts), size
            else:
                found, where = processes.run(__name__, size, task, _patience(bench)), 1
        except ChildFailed as failure:
            bench.fail(str(failure), **about, run=number)
            continue
        for row in found:
            bench.record(**about, run=number, hosts=where, **row)


def _patience(bench: Bench) -> float:
    return 120 + 3 * bench.options.budget


def _process() -> None:
    """What each process does."""
    import resource

    from manyclass.distributed.mpi import MPICommunicator

    task = processes.task()
    comm = MPICommunicator()
    if task["limit"]:
        resource.setrlimit(resource.RLIMIT_AS, (task["limit"], task["limit"]))
    try:
        begun = time.perf_counter()
        history = _fit(task, comm)
        seconds = time.perf_counter() - begun
    except MemoryError as refused:
        if comm.rank == 0:
            processes.tell({"kind": "fit", "refused": str(refused)})
        comm.close()
        return
    traffic = comm.traffic
    mine = [peak_memory(), traffic.bytes, traffic.collective_bytes, traffic.messages]
    ranks = np.zeros((comm.size, len(mine)))
    ranks[comm.rank] = mine
    ranks = comm.allreduce(ranks)
    if comm.rank == 0:
        # The direction and the gradient go around with the weights, as scores are not kept.
        numbers = 4 * task["features"] * task["classes"] * 4 * history.last.iteration
        for rank, (peak, sent, collective, messages) in enumerate(ranks.tolist()):
            processes.tell(
                {
                    "kind": "rank",
                    "rank": rank,
                    "memory_peak": peak,
                    "bytes_sent": sent,
                    "bytes_by_formula": numbers if comm.size > 1 else 0,
                    "collective_bytes": collective,
                    "messages": messages,
                    "iterations": int(history.last.iteration),
                }
            )
        for record in history:
            processes.tell(
                {
                    "kind": "look",
                    "iterations": record.iteration,
                    "solver_seconds": record.seconds,
                    "objective": record.primal,
                    "certified_relative_gap": record.relative_gap,
                }
            )
        last = history.last
        processes.tell(
            {
                "kind": "fit",
                "seconds": seconds,
                "solver_seconds": last.seconds,
                "iterations": int(history.last.iteration),
                "objective": last.primal,
                "certified_relative_gap": last.relative_gap,
                "planned": _planned(task, comm.size),
            }
        )
    comm.close()


def _fit(task: dict[str, Any], comm: Any) -> Any:
    """Read the rows and fit them; the history of the fit."""
    from manyclass import LinearClassifier
    from manyclass.io import read
    from manyclass.optimize.loop import minimize

    data, solver = read(task["path"], comm=None if task["way"] == "lc" else comm), _solver(task, comm)
    if task["way"].startswith("lbfgs"):  # for experiments: no estimator has it
        asked = Task("multinomial", alpha=task["alpha"], intercept=True)
        problem = make_problem(data.X, np.asarray(data.y, np.int64), asked, n_classes=task["classes"])
        return minimize(problem, solver.prepare(problem), tol=TOL, max_iter=task["iterations"], warn=False).history
    given = {"alpha": task["alpha"], "tol": TOL, "max_iter": task["iterations"], "random_state": task["seed"]}
    model = LinearClassifier(solver=solver, dtype="float32", fit_intercept=True, **given)
    with quiet():
        model.fit(data.X, data.y, callback=lambda progress: progress.seconds > task["budget"])
    return model.history_


def _solver(task: dict[str, Any], comm: Any) -> Any:
    from manyclass import DSMLR
    from manyclass.solvers import LogConcavity
    from manyclass.solvers.ds_mlr import DataParallelLBFGS

    way = task["way"]
    if way == "lc":
        return LogConcavity(comm=comm)
    if way.startswith("lbfgs"):
        precondition = "diagonal" if way == "lbfgs_diagonal" else "none"
        return DataParallelLBFGS(comm=comm, history_size=task["pairs"], precondition=precondition)
    solver = DSMLR(comm=comm, schedule=way.partition("_")[0], history_size=task["pairs"], keep_scores=False)
    solver.slow = (1.0,) if way.endswith("slowed") else ()
    return solver


def _planned(task: dict[str, Any], size: int) -> int:
    """Bytes of a process by the plan of DS-MLR, with its rows."""
    from manyclass.solvers.ds_mlr.plan import Job, needs

    if task["way"] == "lc" or task["way"].startswith("lbfgs"):
        return 0
    stored = task["rows"] * task["words"] * 8
    job = Job(task["rows"], task["features"], task["classes"], stored, 4)
    kind = "spectrum" if task["features"] < 1000 else "diagonal"
    return sum(needs(_solver(task, None), job, size, kind, False).values())


def _report(bench: Bench) -> None:
    fits = [row for row in bench.rows if row.get("kind") == "fit"]
    lines = []
    for row in fits:
        if row.get("refused"):
            lines.append([row["data"], row["method"], row["processes"], "refused", None, None, None, None])
            continue
        same = [r for r in bench.rows if r.get("kind") == "rank" and _key(r) == _key(row)]
        peak = max(r["memory_peak"] for r in same)
        lines.append(
            [
                row["data"],
                row["method"],
                row["processes"],
                row["solver_seconds"],
                row["iterations"],
                row["certified_relative_gap"],
                peak / 2**20,
                row["planned"] / 2**20,
            ]
        )
    columns = ("data", "method", "processes", "solver s", "iterations", "gap", "MiB of the largest", "MiB planned")
    bench.table(f"DS-MLR to a certified gap of {TOL:g}", columns, lines)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("data", "method", "processes", "run"))


if __name__ == "__main__":
    _process()

"""Crammer-Singer (gamma = 0) to certified gaps, against LIBLINEAR's solver 4 at equal objective; and within 4 GiB.

The protocol is that of `benchmarks.contest`; LIBLINEAR has no limit of iterations: its tolerance is turned. Ours is
`sdca_active` where classes are many, else `sdca`.

Ten thousand classes: a fit of each in a process of its own whose private writable memory is held below --memory
(RLIMIT_DATA), beside the bytes that the peer's sources allocate. Where these fit into the machine the peer is tried
without the limit as well, and stopped at the budget.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.catalog import Method
from benchmarks.contest import MEMORY, Contest, report
from benchmarks.data import Data
from benchmarks.machine import memory_bytes
from benchmarks.search import Tolerances
from benchmarks.task import Stop, Task

TOLS = (1e-2, 1e-3)
#: Classes from which on active sets are worth their keep.
MANY = 200
#: The data set that is fitted within limited memory instead.
LIMITED = "icd10cm"


def run(bench: Bench) -> None:
    chosen = bench.methods("sdca", "sdca_active", "liblinear")
    for source in bench.datasets("news20", "icd10cm/3", LIMITED):
        data = source.read()
        if data.n_classes == 2:
            bench.skip("of two classes LIBLINEAR keeps two columns: another penalty", data=source.name)
            continue
        for alpha in bench.alphas(1e-4, 1e-5, 1e-6):
            task = Task("crammer_singer", alpha=alpha)
            willing = bench.willing(chosen, task)
            ours, peers = _ours(bench, willing, data), [m for m in willing if not m.ours]
            if source.name == LIMITED:
                _limited(bench, source, data, task, ours, peers)
            else:
                Contest(bench, source, data, task, Tolerances).run(ours, peers, TOLS)
    report(bench)
    _report_memory(bench)


def _ours(bench: Bench, methods: list[Method], data: Data) -> list[Method]:
    """Those named with --only, else the one for that many classes."""
    ours = [method for method in methods if method.ours]
    if bench.options.only:
        return ours
    wanted = "sdca_active" if data.n_classes >= MANY else "sdca"
    return [method for method in ours if method.name == wanted]


def _limited(bench: Bench, source: DataFile, data: Data, task: Task, ours: list[Method], peers: list[Method]) -> None:
    limit = int(bench.options.memory * 2**30)
    for method in ours:
        for number in range(bench.options.runs):
            for tol in TOLS:
                _alone(bench, source, task, method, Stop(tol, 10_000), limit, {"run": number})
    for peer in peers:
        needed = peer.memory(data, task, 8) if peer.memory is not None else None
        about = {"run": 0, "estimated_bytes": needed}
        _alone(bench, source, task, peer, Stop(), limit, about)
        if needed is None or needed <= MEMORY * memory_bytes():
            _alone(bench, source, task, peer, Stop(), None, about)
        else:
            reason = f"without a limit: needs an estimated {needed / 2**30:.1f} GiB of {memory_bytes() / 2**30:.1f}"
            bench.skip(reason, data=source.name, method=peer.name, alpha=task.alpha, **about)


def _alone(
    bench: Bench, source: DataFile, task: Task, method: Method, stop: Stop, limit: int | None, about: dict[str, Any]
) -> None:
    """One fit in a process of its own; what became of it is a row."""
    what = {
        "data": source.name,
        "method": method.name,
        "objective_name": task.objective,
        "alpha": task.alpha,
        "asked_tol": stop.tol,
        "limit_bytes": limit,
        **about,
    }
    bench.say(f"{source.name} alpha {task.alpha:g} {method.name}{'' if limit is None else ' within the limit'} ...")
    arguments = {
        "source": source.arguments(),
        "method": method.name,
        "task": asdict(task),
        "stop": asdict(stop),
        "threads": bench.options.threads,
        "seed": about["run"],
        "budget": None if method.ours else bench.options.budget,
        "memory": limit,
    }
    try:
        bench.record(**{**what, **children.call("benchmarks.fitting:fit_and_judge", arguments)})
    except children.TimedOut:
        bench.fail(f"stopped at the budget of {bench.options.budget:g} s", **what)
    except children.ChildFailed as failure:
        bench.fail(str(failure), **what)


def _report_memory(bench: Bench) -> None:
    lines = []
    for row in bench.rows:
        if "limit_bytes" not in row:
            continue
        measured = row["status"] == "measured"
        sizes = (row.get(name) for name in ("limit_bytes", "estimated_bytes", "memory_peak"))
        gib = [None if size is None else size / 2**30 for size in sizes]
        lines.append(
            [
                f"{row['data']} {row['alpha']:g}",
                f"{row['method']} {'' if row['asked_tol'] is None else format(row['asked_tol'], 'g')}",
                *gib,
                *((row["seconds"], row["objective"], row["accuracy"]) if measured else (None, None, None)),
                row.get("certified_relative_gap"),
                "" if measured else row["reason"],
            ]
        )
    if lines:
        memory = ("limit GiB", "estimate GiB", "peak GiB")
        columns = ("case", "method", *memory, "fit s", "objective", "accuracy", "gap", "")
        bench.table("Within limited memory; peak: of the whole process, data and libraries in it", columns, lines)

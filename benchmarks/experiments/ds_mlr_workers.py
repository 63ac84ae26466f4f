"""DS-MLR on one worker and on two: threads and processes, ring and queue, a worker slowed by half; and a cost model.

Time to the same error of the objective. Processes are those of ``mpiexec`` (mpi4py and an MPI are needed; without them
the rows are recorded as skipped); each reads the prepared data and takes its rows. The grid is the same for any number
of workers. A slowed worker sleeps as long as each of its visits has taken.

The cost model has four numbers, measured here by one worker alone and by two threads that pass blocks: seconds a stored
value and class of a round of scores and gradient, seconds a number of vectors and scores, bytes a second and seconds a
message of a hop. From these a simulation of the ring, visit by visit, says what P workers would take; it stands beside
the measurement for P = 1, 2 (and ``--threads``), and is carried on to 64 workers, for this data set and for Reddit's
sizes (211 532 359 x 1 348 182, 33 225 classes, 0.0036 % stored), with the memory of a worker.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import processes
from benchmarks.bench import Bench, DataFile
from benchmarks.children import ChildFailed
from benchmarks.experiments import _ds_mlr
from benchmarks.experiments._ds_mlr import ALPHAS, Case
from benchmarks.measure import quiet, threads_limited
from benchmarks.problem import make_problem
from benchmarks.task import Task

LEVEL = 1e-3
#: Blocks of classes, the same for any number of workers.
_BLOCKS = 12
_ITERATIONS = 8
_WORKERS = (1, 2, 4, 8, 16, 32, 64)
#: Pairs that L-BFGS keeps.
_MEMORY = 10
#: Features from which on it begins with the Hessian's diagonal, and the iterations after which that is made anew.
_FEW, _REFRESH = 1000, 5


class Shape(NamedTuple):
    """Sizes of a problem: rows, features, classes, stored values a row, bytes a number."""

    n: float
    d: float
    K: float
    stored: float
    size: int = 4


REDDIT = Shape(211_532_359, 1_348_182, 33_225, 0.000036 * 1_348_182)


class Costs(NamedTuple):
    """Seconds: of a stored value and class in scores and gradient, of a score in line searches, of a number of a vector
    in the recursion, of a message, of a byte sent."""

    work: float
    score: float
    vector: float
    message: float
    byte: float


def run(bench: Bench) -> None:
    several = max(2, bench.options.threads)
    lines: list[list[Any]] = []
    simulated: dict[str, list[tuple[int, float]]] = {}
    measured: dict[str, dict[int, float]] = {}
    for source in bench.datasets("icd10cm/3"):
        data = source.read()
        for alpha in bench.alphas(ALPHAS.get(source.name, 1e-5)):
            with threads_limited(1), quiet():
                case = _ds_mlr.make_case(data, alpha, threads=bench.options.threads)
                found = _measure(bench, source, case, several)
                costs = _costs(case)
            lines += [[source.name, *key, *values] for key, values in found.items()]
            shape = Shape(data.n, data.X.shape[1] + 1, data.n_classes, case_stored(case), case.problem.dtype.itemsize)
            label = source.name
            simulated[label] = _predict(bench, label, shape, costs, case)
            measured[label] = {key[1]: values[2] for key, values in found.items() if key[0] == "threads, ring"}
            simulated["Reddit"] = _predict(bench, "Reddit", REDDIT, costs, case)
    columns = ("data", "workers are", "P", f"s to {LEVEL:g}", "error", "s an iteration")
    bench.table("Time to the same error", columns, lines)
    if simulated:
        _draw(bench, simulated, measured)


def case_stored(case: Case) -> float:
    """Stored values of a row."""
    return case.data.facts["nnz"] / case.data.n + 1


# --- measurement ----------------------------------------------------------------------------------------------------


def _measure(bench: Bench, source: DataFile, case: Case, several: int) -> dict[tuple[str, int], tuple[Any, ...]]:
    from manyclass.solvers import DSMLR

    width = -(-case.data.n_classes // min(_BLOCKS, case.data.n_classes))
    runs = [("threads, ring", 1, "ring", ()), ("threads, ring", several, "ring", ())]
    runs += [("threads, queue", several, "queue", ())]
    runs += [(f"threads, {way}, one slowed", several, way, (1.0,)) for way in ("ring", "queue")]
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    for name, size, way, slow in runs:

        def make(size: int = size, way: str = way, slow: tuple[float, ...] = slow) -> Any:
            solver = DSMLR(n_workers=size, schedule=way, block_classes=width)
            solver.slow = slow
            return solver

        _ds_mlr.trace(case, make(), budget=1e9, most=4, judge=False)
        curves = [
            _ds_mlr.trace(case, make(), budget=bench.options.budget, seed=number, to=LEVEL, judge=False)
            for number in range(bench.options.runs)
        ]
        found[name, size] = _record(bench, case, name, size, curves)
    for way in ("ring", "queue"):
        for size in (1, several):
            curves = _processes(bench, source, case, size, way, width)
            if curves:
                found[f"processes, {way}", size] = _record(bench, case, f"processes, {way}", size, curves)
    return found


def _record(bench: Bench, case: Case, name: str, size: int, curves: list[Any]) -> tuple[Any, ...]:
    times = [curve.when(LEVEL) for curve in curves]
    known = [t for t in times if t is not None]
    seconds = float(np.median(known)) if len(known) == len(times) else None
    each = float(np.median([curve.seconds[-1] / curve.iterations[-1] for curve in curves]))
    for number, curve in enumerate(curves):
        bench.record(
            **case.facts,
            method=name,
            workers=size,
            kind="measured",
            run=number,
            seconds_to_level=curve.when(LEVEL),
            error=curve.error[-1],
            iterations=curve.iterations[-1],
            seconds_an_iteration=curve.seconds[-1] / curve.iterations[-1],
        )
    return seconds, curves[-1].error[-1], each


def _processes(bench: Bench, source: DataFile, case: Case, size: int, way: str, width: int) -> list[Any]:
    """The same by processes: this file is their program."""
    about = {"method": f"processes, {way}", "workers": size, "data": source.name}
    reason = processes.missing()
    if reason:
        bench.skip(reason, **about)
        return []
    task = {
        **source.arguments(),
        "alpha": case.alpha,
        "optimum": case.optimum,
        "way": way,
        "width": width,
        "budget": bench.options.budget,
        "runs": bench.options.runs,
    }
    try:
        found = processes.run(__name__, size, task, 60 + 4 * bench.options.budget * bench.options.runs)
    except ChildFailed as failure:
        bench.fail(str(failure), **about)
        return []
    return [_ds_mlr.Curve(**row) for row in found]


def _process() -> None:
    """What each process does."""
    from benchmarks.data import read
    from manyclass.distributed.mpi import MPICommunicator
    from manyclass.solvers import DSMLR
    from manyclass.solvers.ds_mlr import make_grid

    task = processes.task()
    comm = MPICommunicator()
    data = read(Path(task["path"]), task["name"], quick=task["quick"])
    grid = make_grid(data.n, data.n_classes, comm.size, block_classes=task["width"])
    begin, end = grid.rows_of(comm.rank)
    softmax = Task("multinomial", alpha=task["alpha"], intercept=True)
    problem = make_problem(data.X[begin:end], data.y[begin:end], softmax, n_classes=data.n_classes)
    case = Case(data, problem, task["alpha"], task["optimum"])
    for number in range(-1, task["runs"]):
        solver = DSMLR(comm=comm, schedule=task["way"], block_classes=task["width"])
        curve = _together(case, solver, comm, task["budget"], max(number, 0), 4 if number < 0 else 5000)
        if comm.rank == 0 and number >= 0:
            processes.tell(curve.__dict__)
    comm.close()


def _together(case: Case, solver: Any, comm: Any, budget: float, seed: int, most: int) -> Any:
    """`_ds_mlr.trace` by several processes, which look at the same time: the slowest one's clock counts."""

    curve, spent, looked = _ds_mlr.Curve(), 0.0, 0.0
    solver = solver.prepare(case.problem)
    state = solver.state(case.problem)
    steps = solver.iterate(case.problem, state, seed)
    for _ in range(most):
        comm.barrier()
        begun = time.perf_counter()
        progress = next(steps)
        spent += float(comm.allreduce(np.array([time.perf_counter() - begun]), "max")[0])
        if spent < 1.12 * looked and spent < budget:
            continue
        looked = spent
        curve.seconds.append(spent)
        curve.passes.append(progress.passes)
        curve.iterations.append(progress.iteration)
        curve.error.append(case.error(solver.certificate(case.problem, state, final=False).primal))
        if curve.error[-1] <= LEVEL or spent >= budget:
            break
    return curve


# --- the cost model -------------------------------------------------------------------------------------------------


def _costs(case: Case) -> Costs:
    """The numbers of the model: kernels timed alone, messages between two threads."""
    from manyclass.distributed import run_threads
    from manyclass.kernels import ds_mlr as kernels
    from manyclass.objective.penalties import L2

    problem = case.problem
    rows = min(problem.n_samples, 20_000)
    width = -(-problem.n_outputs // min(_BLOCKS, problem.n_outputs))  # narrow blocks cost more a class
    real = problem.dtype
    W, S = np.zeros((problem.n_features + 1, width), real), np.zeros((rows, width), real)
    zeros, nothing = np.zeros(rows), np.zeros(problem.n_outputs)

    def both() -> None:
        kernels.block_scores(problem.rows, 0, rows, W, real.type(1), L2(), S, 0)
        y, c = problem.targets.y, problem.sample_weight
        kernels.block_gradient(problem.rows, 0, rows, S, 0, y, c, zeros, nothing, zeros, nothing, 0, real.type(1), W)

    stack, vector, out = np.zeros((2 * _MEMORY, W.size), real), np.zeros(W.size, real), np.zeros((3, 2 * _MEMORY + 3))

    def recursion() -> None:
        kernels.block_dots(stack, vector, vector, vector, out)
        kernels.combine(stack, vector, np.ones(2 * _MEMORY + 1), W.reshape(-1))

    def line() -> None:
        kernels.line_sums(S, S, 0.5, 0, np.zeros(rows, np.int32), problem.sample_weight, np.zeros(2))
        kernels.line_sums(S, S, 1.0, 0, np.zeros(rows, np.int32), problem.sample_weight, np.zeros(2))
        kernels.block_logsumexp(S, 0, width, zeros[:, None], 0)

    def there_and_back(size: int) -> float:
        def exchange(comm: Any) -> float:
            block, times = np.zeros(size), []
            for _ in range(200):
                begun = time.perf_counter()
                if comm.rank == 0:
                    comm.post([0], block, 1)
                    block = comm.receive().buffer
                else:
                    message = comm.receive()
                    comm.post([0], np.array(message.buffer), 0)  # a copy, as on its way to another machine
                times.append(time.perf_counter() - begun)
            return float(np.median(times)) / 2

        return run_threads(2, exchange)[0]

    small, large = there_and_back(1), there_and_back(1 << 20)
    work = rows * case_stored(case) * width
    return Costs(
        work=_timed(both) / work,
        score=_timed(line) / S.size,
        vector=_timed(recursion) / W.size,
        message=small,
        byte=max(large - small, 0.0) / (8 << 20),
    )


def _timed(what: Any, times: int = 5) -> float:
    what()
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        what()
        found.append(time.perf_counter() - begun)
    return float(np.median(found))


def simulate(shape: Shape, costs: Costs, workers: int) -> float:
    """Seconds of an iteration of L-BFGS on a ring of so many workers, each visit and hop in its turn.

    Each visit of a block begins when the worker is free and the block has arrived. Blocks leave one after the other.
    """
    blocks = max(_BLOCKS, workers)
    visit = 0.5 * costs.work * shape.n / workers * shape.stored * shape.K / blocks
    hop = costs.message + costs.byte * shape.size * shape.d * shape.K / blocks
    free = np.zeros(workers)
    at = [block * workers // blocks for block in range(blocks)]
    arrived = np.zeros(blocks)
    for _ in range(workers):
        for block in range(blocks):
            worker = at[block]
            free[worker] = max(free[worker], arrived[block]) + visit
            arrived[block] = free[worker] + (hop if workers > 1 else 0.0)
            at[block] = (worker - 1) % workers
    # Scores of the direction, the gradient, and every so often the Hessian's diagonal.
    rounds = 2 + (1 / _REFRESH if shape.d >= _FEW else 0)
    seconds = rounds * float(max(free.max(), arrived.max()))
    local = costs.score * shape.n / workers * shape.K + costs.vector * shape.d * shape.K / workers
    collectives = 6 * 2 * costs.message * np.log2(max(workers, 2)) if workers > 1 else 0.0
    return seconds + local + collectives


def memory(shape: Shape, workers: int) -> dict[str, float]:
    """Bytes of a worker, by what they are for, without scores that are kept."""
    blocks = max(_BLOCKS, workers)
    return {
        "rows": shape.n / workers * shape.stored * (shape.size + 4),
        "weights": shape.d * shape.K / workers * shape.size,
        "gradient, direction, pairs": (2 * _MEMORY + 4 + (shape.d >= _FEW)) * shape.d * shape.K / workers * shape.size,
        "visiting blocks": 2 * 2 * shape.d * shape.K / blocks * shape.size,
        "log-sum-exps": 8 * shape.n / workers * (blocks + 2),
    }


def _predict(bench: Bench, label: str, shape: Shape, costs: Costs, case: Case) -> list[tuple[int, float]]:
    found, lines = [], []
    for workers in _WORKERS:
        seconds = simulate(shape, costs, workers)
        parts = memory(shape, workers)
        found.append((workers, seconds))
        speed_up = found[0][1] / seconds
        lines.append([workers, seconds, speed_up, *(value / 2**30 for value in parts.values())])
        bench.record(
            **{**case.facts, "data": label, "n": shape.n, "d": shape.d, "K": shape.K},
            method="simulated ring",
            workers=workers,
            kind="simulated",
            seconds_an_iteration=seconds,
            speed_up=speed_up,
            **{f"gib_{name.split(',')[0].replace(' ', '_')}": value / 2**30 for name, value in parts.items()},
        )
    about = ", ".join(f"{name} {value:.3g}" for name, value in costs._asdict().items())
    columns = ("P", "s an iteration", "speed-up", *(f"GiB {name}" for name in memory(shape, 1)))
    bench.table(f"{label}, simulated ({about})", columns, lines)
    return found


def _draw(bench: Bench, simulated: dict[str, Any], measured: dict[str, dict[int, float]]) -> None:
    with bench.figure(len(simulated)) as axes:
        for ax, (label, points) in zip(axes, simulated.items()):
            workers = [size for size, _ in points]
            ax.loglog(workers, [points[0][1] / seconds for _, seconds in points], label="simulated", base=2)
            ax.loglog(workers, workers, color="0.7", linewidth=0.8, label="linear", base=2)
            known = measured.get(label, {})
            if 1 in known:
                sizes = sorted(known)
                ax.plot(sizes, [known[1] / known[size] for size in sizes], "o", label="measured, threads")
            ax.set(title=label, xlabel="workers", ylabel="speed-up of an iteration")
            ax.legend(fontsize=7)


if __name__ == "__main__":
    _process()

"""The memory of a process of a DS-MLR fit: planned, measured, refused with the number of processes that would fit."""

from __future__ import annotations

import re
import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass import DSMLR, LinearClassifier
from manyclass.distributed import run_threads
from manyclass.io import Dataset, read, write
from manyclass.io.store import write_store
from manyclass.io.survey import survey
from manyclass.solvers.ds_mlr.plan import Job, needs
from test_cli_support import make
from test_communicators import launch

N, D, K = 960, 40, 48
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, D)), RNG.integers(0, K, N)


def arrays_of(thing, name="", seen=None):
    """All arrays that an object leads to, by the names on the way."""
    seen = {} if seen is None else seen
    if id(thing) in seen or isinstance(thing, (str, bytes, type, threading.Thread)) or callable(thing):
        return
    seen[id(thing)] = thing
    if isinstance(thing, np.ndarray):
        yield name, thing
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from arrays_of(value, f"{name}.{key}", seen)
    elif isinstance(thing, (list, tuple, set)):
        for number, value in enumerate(thing):
            yield from arrays_of(value, f"{name}[{number}]", seen)
    elif type(thing).__module__.startswith(("manyclass.solvers", "manyclass.models", "manyclass.est", "manyclass.obj")):
        yield from arrays_of(vars(thing), name, seen)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("size", [2, 4])
def test_no_process_has_an_array_of_all_rows_and_classes_or_features(size, kept, monkeypatch):
    """Walks what the estimator, the solver, its workers and the model hold after a fit."""
    solvers = {}
    inner = DSMLR.weights

    def weights(solver, problem, state):
        solvers[solver._comm.rank] = solver, problem, state
        return inner(solver, problem, state)

    monkeypatch.setattr(DSMLR, "weights", weights)

    def fit(comm):
        rows = slice(N * comm.rank // size, N * (comm.rank + 1) // size)
        solver = DSMLR(comm=comm, keep_scores=kept, history_size=3)
        model = LinearClassifier(solver=solver, alpha=1e-2, tol=0.3, random_state=0).fit(X[rows].copy(), Y[rows])
        return model, dict(arrays_of([model, *solvers[comm.rank]]))

    for _, found in run_threads(size, fit, timeout=100):
        assert len(found) > 20
        for name, array in found.items():
            if not array.size:
                continue
            assert N not in array.shape, name
            if K in array.shape and array.ndim > 1:
                assert array.shape[0] <= N // size, name  # the scores of its rows
                assert kept, name
            if D + 1 in array.shape or D in array.shape:
                most = max(D + 1, K // size + 1, N // size)
                assert max(array.shape) <= most or array.shape[0] <= 6, name
        held = sum(array.nbytes for name, array in found.items() if array.base is None)
        job = Job(N, D, K, 0, 8)
        assert held < sum(needs(DSMLR(keep_scores=kept, history_size=3), job, size, "spectrum", kept).values())


@pytest.mark.parametrize(("kept", "kind"), [(True, "spectrum"), (False, "diagonal"), (False, "none")])
def test_the_plan_holds_through_the_fit_and_the_save(kept, kind, tmp_path):
    """Of all processes together, here threads; measured by the allocations of NumPy."""
    n, d, K, size = 1200, 300, 120, 3
    rows = RNG.normal(size=(n, d))
    y = RNG.integers(0, K, n)
    solver = {"keep_scores": kept, "precondition": kind, "history_size": 3, "start": 1, "block_classes": 10}
    peaks = []

    def fit(comm):
        mine = slice(n * comm.rank // size, n * (comm.rank + 1) // size)
        part, labels = rows[mine].copy(), y[mine].copy()
        comm.barrier()
        if comm.rank == 0 and peaks:
            tracemalloc.start()
        comm.barrier()
        model = LinearClassifier(solver=DSMLR(comm=comm, **solver), alpha=1e-3, tol=0.2, random_state=0)
        model.fit(part, labels)
        model.save(tmp_path / f"m{len(peaks)}")
        comm.barrier()
        if comm.rank == 0:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        comm.barrier()

    # The first time kernels are compiled, and sometimes one that only another order of the threads needs the second.
    for _ in range(3):
        run_threads(size, fit, timeout=200)
    planned = size * sum(needs(DSMLR(**solver), Job(n, d, K, 0, 8), size, kind, kept).values())
    assert 0.3 * planned < min(peaks[1:]) < planned + 1e6


def test_what_does_not_fit_is_refused_on_all_with_the_number_of_processes_that_would(monkeypatch):
    X, y = RNG.normal(size=(60, 5000)), np.arange(60) % 30
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 24_000_000)

    def fit(comm):
        try:
            LinearClassifier(solver=DSMLR(comm=comm), alpha=1e-2).fit(
                X[comm.rank :: comm.size], y[comm.rank :: comm.size]
            )
        except MemoryError as error:
            return str(error)
        return ""

    said = run_threads(2, fit, timeout=60)
    assert said[0] == said[1]
    found = re.search(
        r"besides the data in each of 2 processes \(.*11\.4 MiB are available to each; .*: (\d+) proc", said[0]
    )
    assert found, said[0]
    enough, job = int(found[1]), Job(60, 5000, 30, 0, 8)
    solver = DSMLR()
    assert sum(needs(solver, job, enough, "diagonal", False).values()) <= 12_000_000
    assert sum(needs(solver, job, enough - 1, "diagonal", False).values()) > 12_000_000


def test_memory_of_a_process_falls_with_their_number():
    job = Job(10**7, 10**5, 10**5, 8 * 10**9, 4)
    totals = [sum(needs(DSMLR(), job, size, "diagonal", False).values()) for size in (1, 4, 16, 64, 256)]
    assert all(later < 0.35 * before for before, later in zip(totals, totals[1:]))


@pytest.mark.parametrize("name", ["a.store", "a.npz", "a.npy", "a.svm", "a.xmc", "a.svm.gz", "a.csv"])
def test_a_file_tells_its_size_before_it_is_read(name, tmp_path):
    path = tmp_path / name
    rows = sp.random(300, 50, 0.3, "csr", random_state=0, dtype=np.float32)
    y = np.arange(300) % 7
    if name == "a.store":
        write_store(path, rows, y)
    elif name == "a.csv":
        path.write_text("text,label\nred,1\nblue,2\n")
        assert survey(path) is None
        return
    elif name == "a.xmc":
        indicator = sp.csr_matrix((np.ones(300, np.int8), y, np.arange(301)), shape=(300, 7))
        write(path, Dataset(rows, indicator, np.arange(7)))
    else:
        write(path, Dataset(rows.toarray() if name == "a.npy" else rows, y))
    found, data = survey(path), read(path)
    assert found.rows == data.n_samples == 300
    assert found.features in (0, 50)
    assert found.classes in (0, 7)
    assert found.values == (15000 if name == "a.npy" else rows.nnz)


def test_the_command_refuses_before_it_reads(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from manyclass.cli.main import main\n"
        "import manyclass.runtime.memory as memory\n"
        "memory.available = lambda: 60_000\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path = make("svm", tmp_path)
    done = launch(2, str(program), "fit", str(path), "-o", str(tmp_path / "m"), "--solver", "ds_mlr")
    assert done.returncode != 0
    assert re.search(r"has about \d+ rows and was not read: this fit needs .* with its rows in each of 2", done.stderr)
    assert "read " not in done.stderr.replace("was not read", "")

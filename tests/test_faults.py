"""A rank is killed, fails, freezes or is cut off: the job ends in time, says who and where, and can be resumed.

Each host is a network namespace: the ranks speak over real TCP. The longer ones of these tests wait for silence to be
noticed; they run where the environment has MANYCLASS_FAULTS=1.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.experiments.faults import begin, do
from benchmarks.hosts import Hosts, missing

from test_communicators import launch

ROOT = Path(__file__).parents[1]
MPIEXEC = Path(sys.executable).with_name("mpiexec")

#: Seconds within which a job must end. A suspended rank of torch is ended by its monitor process, not by a launcher.
LIMIT = {"mpi": 15.0, "torch": 30.0}

long = pytest.mark.skipif(os.environ.get("MANYCLASS_FAULTS") != "1", reason="takes long: set MANYCLASS_FAULTS=1")

ALL = ("kill", "error", "freeze", "cut")
FAULTS = [
    *(pytest.param("mpi", fault, marks=long if fault in ("freeze", "cut") else ()) for fault in ALL),
    *(pytest.param("torch", fault, marks=() if fault == "kill" else long) for fault in ALL),
]


@pytest.fixture
def hosts(engine):
    pytest.importorskip({"mpi": "mpi4py", "torch": "torch"}[engine])
    why = missing()
    if why is None and engine == "mpi" and not MPIEXEC.exists():
        why = "no mpiexec of MPICH beside this Python"
    if why:
        pytest.skip(why)
    with Hosts(3) as made:
        yield made
        left = made.processes()
    assert not left


def await_epoch(job, epoch):
    """Read what rank 0 says until it is this far; a job that ends earlier is shown."""
    for line in job.stdout:
        if line == f"epoch {epoch}\n":
            return
    raise AssertionError(job.stderr.read())


def require_end(job, hosts, begun, limit):
    """The job, and all that belongs to it, is gone in time; returns what it said."""
    _, said = job.communicate(timeout=60)
    ended = time.monotonic() - begun
    assert job.returncode != 0
    assert ended < limit, said
    while hosts.processes() and time.monotonic() - begun < limit:
        time.sleep(0.1)
    assert not hosts.processes()
    return [line for line in said.split("\n") if line.startswith("manyclass: error: ")]


def require_named(fault, said, hosts):
    """Rank, host, epoch and step."""
    at = r"epoch \d+, step \d+\)"
    him, anyone = rf"rank 1 of 3 on {hosts.name(2)} \({at}", rf"rank \d of 3 on {hosts.prefix}\d \({at}"
    expected = {
        "kill": rf"manyclass: error: {him}, process \d+, was killed;",
        "error": rf"manyclass: error: {him} gave up: ArithmeticError: a bug",
        "full": rf"manyclass: error: {him} gave up: cannot write .*",
        **dict.fromkeys(
            ("freeze", "cut"),
            rf"manyclass: error: {anyone}: .*rank 1 on {hosts.name(2)} \(last seen at {at} has sent no heartbeat",
        ),
    }
    assert any(re.match(expected[fault], line) for line in said), said


@pytest.mark.parametrize(("engine", "fault"), FAULTS)
def test_a_fault_ends_the_job_and_is_named(engine, fault, hosts):
    job = begin(engine, hosts, [str(ROOT / "tests" / "fault_ring.py"), fault, engine])
    await_epoch(job, 9 if fault == "error" else 5)
    # Each host passes a block on three times an epoch, over its interface.
    for i in hosts.numbers():
        assert hosts.bytes_sent(i) >= 5 * 3 * 20_000 * 8
    shared = [path for rank in hosts.ranks().values() for path in shared_files(rank)]
    begun = time.monotonic()
    do(fault, hosts)
    require_named(fault, require_end(job, hosts, begun, LIMIT[engine]), hosts)
    assert not [path for path in shared if Path(path).exists()]


def shared_files(pid):
    """What a process maps of /dev/shm."""
    return re.findall(r"/dev/shm/\S+$", Path(f"/proc/{pid}/maps").read_text(), re.M)


@long
@pytest.mark.parametrize("engine", ["mpi", "torch"])
@pytest.mark.parametrize("fault", ["kill", "full", "freeze", "cut"])
def test_a_fit_that_a_fault_ended_is_resumed_to_the_same_optimum(engine, fault, hosts, tmp_path):
    n, d, k = 8_000, 50, 30
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "rows.labels.npy", (X @ rng.normal(size=(d, k)) + 2 * rng.gumbel(size=(n, k))).argmax(axis=1))

    def command(output, *more):
        fit = ["-m", "manyclass", "fit", str(tmp_path / "rows.npy"), "-o", str(tmp_path / output)]
        return [*fit, "--solver", "ds_mlr", "--alpha", "1e-3", "--dtype", "float64", "--tol", "1e-6", *more]

    kept = tmp_path / "state"
    resumable = command("model", "--checkpoint", str(kept), "--checkpoint-seconds", "0", "--resume")
    job = begin(engine, hosts, resumable)
    manifest, epoch = kept / "manifest.json", 0
    while epoch < 6:
        time.sleep(0.05)
        assert job.poll() is None, job.communicate()
        epoch = json.loads(manifest.read_text())["epoch"] if manifest.exists() else 0
    model = (d + 1) * k * 8
    for i in hosts.numbers():
        assert hosts.bytes_sent(i) >= 6 * model / 3
    begun = time.monotonic()
    do(fault, hosts)
    require_named(fault, require_end(job, hosts, begun, LIMIT[engine]), hosts)
    assert not (tmp_path / "model").exists()

    # The same command, on another number of processes.
    ended = json.loads(manifest.read_text())["epoch"]
    resumed = launch(2, *resumable)
    assert resumed.returncode == 0, resumed.stderr
    assert not kept.exists()
    epochs = [int(found) for found in re.findall(r"^ +(\d+) +\d\.\d+ ", resumed.stderr, re.M)]
    assert epochs[-1] > ended >= 6
    whole = subprocess.run([sys.executable, *command("whole")], capture_output=True, text=True, timeout=300, check=True)
    objectives = [
        float(re.search(r"^objective +(\S+)$", text, re.M).group(1)) for text in (resumed.stdout, whole.stdout)
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=2e-6)

"""What a fit of three processes on three hosts does when one of them fails, with the defaults of the command line.

``manyclass fit --solver ds_mlr`` on hosts that are network namespaces (`benchmarks.hosts`), by MPI and by
`torch.distributed`. Once it has written checkpoints, something happens to rank 1, or to all ranks. Measured are the
seconds until no process is left, the exit status and the first error or warning; and, after the same command on two
processes without hosts, the difference of its objective to that of a fit that nothing happened to, relative to it.
Faults of the start (`STARTS`) are measured from the start.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.bench import Bench
from benchmarks.hosts import Hosts, missing

__all__ = ["ENTRIES", "begin", "do", "run"]

ENTRIES = ("mpi", "torch")
#: What happens to rank 1, on host 2, during a fit; and what is told to all ranks.
FAULTS = ("kill", "freeze", "stuck", "cut", "full")
SIGNALS = {"ctrl-c": signal.SIGINT, "terminated": signal.SIGTERM}
#: What is wrong with rank 1 from the start.
STARTS = ("missing file", "other alpha", "other version")
SECOND = "second job"
QUICK = ("kill", "other alpha")

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
}
_SIZE, _EPOCHS, _PATIENCE = 3, 6, 180.0


def run(bench: Bench) -> None:
    reason = missing() or processes.missing()
    if reason:
        bench.skip(reason)
        return
    names = QUICK if bench.options.quick else (*FAULTS, *SIGNALS, *STARTS, SECOND)
    with tempfile.TemporaryDirectory() as folder:
        objective = _prepare(Path(folder))
        for engine in bench.options.only or (ENTRIES[:1] if bench.options.quick else ENTRIES):
            for number, name in product(range(bench.options.runs), names):
                bench.say(f"{engine}: {name} ...")
                with tempfile.TemporaryDirectory(dir=folder) as own, Hosts(_SIZE) as hosts:
                    found = _measure(engine, name, hosts, Path(folder), Path(own))
                resumed = found.pop("objective", None)
                if resumed is not None:
                    found["resumed_difference"] = abs(resumed - objective) / objective
                bench.record(method=engine, fault=name, run=number, processes=_SIZE, hosts=_SIZE, **found)
    columns = ("engine", "fault", "seconds", "status", "resumed: difference", "message")
    shown = ("method", "fault", "seconds", "exit_status", "resumed_difference", "message")
    bench.table("Until no process is left", columns, [[row.get(name) for name in shown] for row in bench.rows])


def begin(engine: str, hosts: Hosts, arguments: list[str]) -> subprocess.Popen[str]:
    """Start a program of Python, one rank on each host."""
    if engine == "torch":
        return hosts.start(arguments, ENVIRONMENT)
    words = ["-n", str(hosts.count), sys.executable, "-m", "mpi4py", *arguments]
    return hosts.launch(str(processes.program()), words, ENVIRONMENT)


def do(fault: str, hosts: Hosts) -> None:
    """To rank 1, on host 2."""
    victim = hosts.ranks()[1]
    if fault == "kill":
        os.kill(victim, signal.SIGKILL)
    elif fault == "freeze":
        os.kill(victim, signal.SIGSTOP)
    elif fault == "stuck":  # see `_rank`: the interpreter runs on, and so do the threads that send heartbeats
        os.kill(victim, signal.SIGUSR1)
    elif fault == "cut":
        hosts.cut(2)
    elif fault == "full":  # as a disk that is: what it writes next fails
        resource.prlimit(victim, resource.RLIMIT_FSIZE, (100, 100))


def _prepare(folder: Path) -> float:
    """Write the rows, fit them in one process, and return the objective."""
    n, d, K = 8_000, 50, 30
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    np.save(folder / "rows.npy", X)
    labels = (X @ rng.normal(size=(d, K)) + 2 * rng.gumbel(size=(n, K))).argmax(axis=1)
    np.save(folder / "rows.labels.npy", labels)
    alone = _start(sys.executable, "-m", "manyclass", *_fit(folder, folder / "whole.model"))
    return _objective(alone.communicate(timeout=_PATIENCE)[0])


def _start(*command: str) -> subprocess.Popen[str]:
    """Without hosts."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=pipe, stderr=pipe, text=True)


def _fit(folder: Path, output: Path, *more: str) -> list[str]:
    fit = ["fit", str(folder / "rows.npy"), "-o", str(output), "--solver", "ds_mlr"]
    return [*fit, "--alpha", "1e-3", "--dtype", "float64", "--tol", "1e-6", *more]


def _objective(text: str) -> float:
    found = re.search(r"^objective +(\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found.group(1))


def _measure(engine: str, name: str, hosts: Hosts, folder: Path, own: Path) -> dict[str, Any]:
    kept = own / "state"
    resumable = _fit(folder, own / "it.model", "--checkpoint", str(kept), "--checkpoint-seconds", "0", "--resume")
    if name == SECOND:  # with the same checkpoint as a first one that goes on
        resumable += ["--alpha", "1e-9", "--tol", "1e-15", "--max-iter", "100000"]
    words = ["-m", "benchmarks.experiments.faults", name.replace(" ", "-")]
    begun = time.monotonic()
    job = begin(engine, hosts, [*words, *resumable])
    if name not in STARTS:
        _await_checkpoint(job, kept / "manifest.json")
        begun = time.monotonic()
        if name == SECOND:
            first, job = job, _start(sys.executable, "-m", "manyclass", *resumable)
        elif name in SIGNALS:
            for pid in hosts.ranks().values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, SIGNALS[name])
        else:
            do(name, hosts)
    try:
        _, said = job.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return {"seconds": _PATIENCE, "message": "has not ended"}
    while name != SECOND and hosts.processes() and time.monotonic() - begun < _PATIENCE:
        time.sleep(0.1)
    seconds, status = time.monotonic() - begun, job.returncode
    if name == SECOND:
        assert first.poll() is None  # it goes on
    told = [line.removeprefix("manyclass: ") for line in said.split("\n") if line.startswith("manyclass: ")]
    told = [line for line in told if line.startswith("error: ")] or told or [said.strip().split("\n")[-1]]
    message = told[0].removeprefix("error: ").removeprefix("warning: ")
    for text, stands in ((str(own), "FOLDER"), (str(folder), "FOLDER"), (hosts.prefix, "host")):
        message = message.replace(text, stands)
    found: dict[str, Any] = {"seconds": seconds, "exit_status": status, "message": message}
    if name in (*FAULTS, *SIGNALS):
        found["epoch"] = json.loads((kept / "manifest.json").read_text())["epoch"]
        found["model_written"] = (own / "it.model").exists()
        resumable[resumable.index("-o") + 1] = str(own / "resumed.model")
        words = ["-n", "2", sys.executable, "-m", "mpi4py", "-m", "manyclass", *resumable]
        again = _start(str(processes.program()), *words)
        found["objective"] = _objective(again.communicate(timeout=_PATIENCE)[0])
    return found


def _await_checkpoint(job: subprocess.Popen[str], manifest: Path) -> None:
    epoch, until = 0, time.monotonic() + _PATIENCE
    while epoch < _EPOCHS:
        time.sleep(0.02)
        if job.poll() is not None or time.monotonic() > until:
            job.kill()
            raise RuntimeError(f"the fit ended before its epoch {_EPOCHS}: {job.communicate()}")
        epoch = json.loads(manifest.read_text())["epoch"] if manifest.exists() else 0


def _rank() -> None:
    """What each process runs: the command line, on rank 1 with what is wrong from the start."""
    from manyclass.cli.main import main
    from manyclass.distributed import agreement
    from manyclass.runtime.launchers import launched

    fault, words = sys.argv[1], sys.argv[2:]
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(1e6))
    if launched()[0] == 1:
        if fault == "missing-file":
            words[1] += ".nowhere"
        elif fault == "other-alpha":
            words[words.index("--alpha") + 1] = "2e-3"
        elif fault == "other-version":
            agreement.__version__ = "0.0.1"
    sys.exit(main(words))


if __name__ == "__main__":
    _rank()

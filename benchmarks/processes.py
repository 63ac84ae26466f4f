"""An experiment's module as the program of several processes, started by mpiexec: rank 0 writes rows as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.children import ChildFailed
from benchmarks.hosts import Hosts

__all__ = ["missing", "program", "run", "task", "tell"]

#: Where the processes find what they are to do.
_TASK = "MANYCLASS_BENCHMARK_TASK"


def program() -> str | None:
    """The path of mpiexec, if there is one."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def missing() -> str | None:
    """Why no processes can be started here."""
    there = find_spec("mpi4py") and program()
    return None if there else "needs mpi4py and mpiexec: python -m pip install 'manyclass[mpi]'"


def run(
    module: str, size: int, task: Mapping[str, Any], timeout: float, hosts: Hosts | None = None
) -> list[dict[str, Any]]:
    """``python -m module`` in ``size`` processes of one thread, on ``hosts`` in turn; the rows that rank 0 tells.

    Raises
    ------
    ChildFailed
        If they fail, or tell nothing.
    """
    words = ["-n", str(size), sys.executable, "-m", "mpi4py", "-m", module]
    given = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", _TASK: json.dumps(dict(task))}
    if hosts is None:
        started = subprocess.Popen(
            [str(program()), *words],
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    else:
        started = hosts.launch(str(program()), words, given)
    with started:
        try:
            out, problems = started.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            started.kill()
            raise ChildFailed(f"no end after {timeout:g} s") from None
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if started.returncode or not lines:
        raise ChildFailed(problems.strip().splitlines()[-1] if problems.strip() else "no result")
    return [json.loads(line) for line in lines]


def task() -> dict[str, Any]:
    """In a process: what `run` was given."""
    found: dict[str, Any] = json.loads(os.environ[_TASK])
    return found


def tell(row: Mapping[str, Any]) -> None:
    """Of rank 0: a row for the process that started these."""
    sys.stdout.write(json.dumps(dict(row)) + "\n")
    sys.stdout.flush()

"""Starts the processes of a job with what launchers of PyTorch say in the environment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

__all__ = ["described", "start"]


def described(size: int) -> list[dict[str, str]]:
    """The environments of so many processes on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [{**place, "RANK": str(rank), "WORLD_SIZE": str(size)} for rank in range(size)]


def start(size: int, *arguments: str, timeout: float = 100) -> list[subprocess.CompletedProcess[str]]:
    """Run a program of Python on so many processes; what became of each."""

    def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, described(size)))

"""Benchmarks as tests run them: on shrunken data; and what their children are told to do."""

from __future__ import annotations

import csv
import time
from pathlib import Path

__all__ = ["run", "too_slow"]


def run(out: Path, *arguments: str) -> list[dict[str, str]]:
    """The rows of an experiment; what it draws is a PNG file."""
    from benchmarks.cli import main

    assert main(["run", *arguments, "--quick", "--runs", "1", "--out", str(out)]) == 0
    for figure in out.glob("*.png"):
        assert figure.read_bytes().startswith(b"\x89PNG")
    with next(out.glob("*.csv")).open(newline="") as handle:
        return list(csv.DictReader(handle))


def too_slow() -> None:
    """In a child: more than it has time for."""
    from benchmarks.measure import time_limit

    with time_limit(0.05):
        time.sleep(60)

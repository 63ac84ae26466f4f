"""Benchmarks as tests run them: on shrunken data."""

from __future__ import annotations

import csv
from pathlib import Path

__all__ = ["run"]


def run(out: Path, *arguments: str) -> list[dict[str, str]]:
    """The rows of an experiment; what it draws is a PNG file."""
    from benchmarks.cli import main

    assert main(["run", *arguments, "--quick", "--runs", "1", "--out", str(out)]) == 0
    for figure in out.glob("*.png"):
        assert figure.read_bytes().startswith(b"\x89PNG")
    with next(out.glob("*.csv")).open(newline="") as handle:
        return list(csv.DictReader(handle))

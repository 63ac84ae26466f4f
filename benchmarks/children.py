"""Functions called in processes of their own: for peak memory, empty caches, and peers with their own environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["ChildFailed", "call"]

_ROOT = Path(__file__).resolve().parents[1]


class ChildFailed(RuntimeError):
    """The last line that the child process wrote before it ended badly."""


def call(function: str, arguments: Mapping[str, Any], *, python: str | None = None) -> Any:
    """``module:name(**arguments)`` in a new process; what it returns must be plain enough for JSON.

    Raises
    ------
    ChildFailed
        If the process ended with an error; out of memory, for example.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked.json"), Path(folder, "answered.json")
        asked.write_text(json.dumps({"function": function, "arguments": dict(arguments)}))
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [python or sys.executable, "-m", "benchmarks.children", str(asked), str(answered)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not answered.exists():
            lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
            how = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
            raise ChildFailed(lines[-1].strip() if lines and done.returncode > 0 else how)
        return json.loads(answered.read_text())


def _main(asked: str, answered: str) -> None:
    spec = json.loads(Path(asked).read_text())
    module, _, name = spec["function"].partition(":")
    result = getattr(import_module(module), name)(**spec["arguments"])
    Path(answered).write_text(json.dumps(result))


if __name__ == "__main__":
    _main(*sys.argv[1:])

"""Functions called in processes of their own: for peak memory, empty caches, fits that may have to be stopped, and
peers with their own environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["ChildFailed", "TimedOut", "Worker", "call", "remembered"]

_ROOT = Path(__file__).resolve().parents[1]


class ChildFailed(RuntimeError):
    """The last line that the child process wrote before it ended badly."""


class TimedOut(ChildFailed):
    """The child was ended by its own alarm: `benchmarks.measure.time_limit`."""


def call(function: str, arguments: Mapping[str, Any], *, python: str | None = None) -> Any:
    """``module:name(**arguments)`` in a new process; what it returns must be plain enough for JSON.

    Raises
    ------
    ChildFailed
        If the process ended with an error; out of memory, for example. `TimedOut` if its time was up.
    """
    with Worker(python=python) as worker:
        return worker.call(function, arguments)


class _Answers:
    """What children have answered, in a file of lines: the n-th call with the same arguments gets the n-th answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, int], Any] = {}
        self._asked: Counter[str] = Counter()
        written: Counter[str] = Counter()
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        # What follows the last end of a line was being written when the run was stopped.
        for line in text[: text.rfind("\n") + 1].splitlines():
            entry = json.loads(line)
            self._known[entry["call"], written[entry["call"]]] = entry
            written[entry["call"]] += 1
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def find(self, call: str) -> dict[str, Any] | None:
        """The answer to this call, if it is there; counts the call."""
        self._asked[call] += 1
        return self._known.get((call, self._asked[call] - 1))

    def keep(self, call: str, **answer: Any) -> None:
        with self._path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"call": call, **answer}) + "\n")


_answers: _Answers | None = None


@contextmanager
def remembered(path: Path) -> Iterator[None]:
    """In the block, calls whose answers (or failures) are in the file are not made again; others are added to it."""
    global _answers
    _answers = _Answers(path)
    try:
        yield
    finally:
        _answers = None


class Worker:
    """A process that calls one function after the other and keeps what it has loaded; a new one if it was lost.

    ``with Worker() as worker: worker.call("module:name", {...})``, as `call`.
    """

    def __init__(self, *, python: str | None = None) -> None:
        self._python = python or sys.executable
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._process is not None:
            self._process.kill()  # nobody waits for what it is doing any more
        self.close()

    def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        if _answers is None:
            return self._call(function, arguments)
        key = json.dumps([self._python, function, arguments], sort_keys=True)
        known = _answers.find(key)
        if known is None:
            try:
                known = {"answer": self._call(function, arguments)}
            except ChildFailed as failure:
                known = {"failure": str(failure), "timed_out": isinstance(failure, TimedOut)}
            _answers.keep(key, **known)
        if "failure" in known:
            raise (TimedOut if known["timed_out"] else ChildFailed)(known["failure"])
        return known["answer"]

    def _call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"function": function, "arguments": dict(arguments)}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:  # it could not even start: the reason is in its errors
            pass
        answer = process.stdout.readline()
        if not answer:
            raise self._lost(process)
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.communicate()  # the end of its input is the end of its work
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _begin(self) -> subprocess.Popen[str]:
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._errors = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            [self._python, "-m", "benchmarks.children"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self._process

    def _lost(self, process: subprocess.Popen[str]) -> ChildFailed:
        process.communicate()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        self._process = None
        self.close()
        code = process.returncode
        if code == -getattr(signal, "SIGALRM", 0):
            return TimedOut("its time was up")
        said = lines[-1] if lines else ""
        if code < 0:
            return ChildFailed(f"ended by {signal.Signals(-code).name}{': ' if said else ''}{said}")
        return ChildFailed(said or f"exit code {code}")


def _main() -> None:
    # What a library writes to standard output must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
    for line in sys.stdin:
        spec = json.loads(line)
        module, _, name = spec["function"].partition(":")
        # An error ends the process: the last line of what it then writes is what the parent tells.
        result = getattr(import_module(module), name)(**spec["arguments"])
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    _main()

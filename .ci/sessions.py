"""CI: the two commands of README.md as they stand there, then the sessions below.

``.ci/run`` runs all of them, ``.ci/run lint types`` those that are named. Each has a clone of the repository, a virtual
environment and a cache of compiled kernels of its own, all new. A session that fails or takes too long does not end the
others. At the end: a table of the seconds each took, with the line in which pytest counts its tests. The exit status is
1 if anything failed. Only the standard library is needed, and Python 3.10 or later.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from readme_commands import commands

# --- what runs, and for how long -------------------------------------------------------------------------------------

#: Minutes for everything: it should end within an hour on two quiet cores. What has not ended by then is ended and
#: counts as failed; other work on the machine may take a part of them.
MINUTES = 84

#: Sessions that run at the same time, each on one core.
LANES = 2

#: What README.md promises on two quiet cores: seconds from the end of the installation to the end of each of its
#: commands. CI fails beyond `GRACE` times that, for a machine that others use as well.
README_SECONDS = (60, 600)
GRACE = 1.5

#: The commands of README.md and the rest of the tests run on the Python that runs this file, a part on each of the
#: others, on the oldest with the oldest dependencies.
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
OLDEST = PYTHONS[0]
THIS_PYTHON = "{}.{}".format(*sys.version_info)

PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")

#: The first case of one test in eight, without the tests of the benchmarks: these are tools of this repository that no
#: user installs, and run with the rest. One process: the other lane has the other core.
PART = (*PYTEST, "-n0", "--level", "brief", "-m", "not benchmarks")
#: What those kernels do that take indices from their input: rows, scores, tables, working sets, readers, indexes.
KERNELS = ("rows", "scoring", "table", "coordinate", "data_svmlight", "search_laws")
#: Of the tests: those that skip where the engine is not installed.
ENGINES = ("torch", "dask", "ray")
#: numpydoc's checks of the public interface.
DOCSTRINGS = (*PYTEST, "-n0", "--full", "tests/test_docstrings.py", "-k", "public")


@dataclass
class Session:
    """Commands in a new virtual environment. All of them run, also if one fails."""

    name: str
    about: str
    python: str
    minutes: float
    steps: Sequence[Sequence[str]]
    install: Sequence[str]
    wanted: Sequence[str] = ()  # packages for further tests: where one cannot be installed, its tests are skipped
    environment: dict[str, str] = field(default_factory=dict)
    alone: bool = False  # its tests run in parallel, so no other session runs at the same time


#: In the order in which they begin: the longest first.
SESSIONS = [
    Session(
        "rest",
        "of what README.md's `pytest` leaves out: the first case of each test and one in three of the others, without "
        "slow benchmarks (every night `nox -s full`: all); as root on Linux, with frozen and cut ranks",
        THIS_PYTHON,
        50,
        [
            [
                *(*PYTEST, "-n", str(LANES), "--dist", "loadfile", "--level", "rest", "--durations=20"),
                *("-m", "not (benchmarks and slow)"),
            ]
        ],
        [".[test]", "array-api-strict>=2.3"],
        # The benchmarks are compared with the first, which is compiled; the others read and run what is written.
        ["liblinear-official", "pyarrow", "onnx", "onnxruntime", "skl2onnx"],
        {"MANYCLASS_FAULTS": "1"},
        alone=True,
    ),
    Session(
        "oldest",
        "one test in eight, but for the benchmarks, with the oldest dependencies (every night `nox -s oldest`: all)",
        OLDEST,
        20,
        [PART],
        [".[test]", "--constraint", "constraints-oldest.txt"],
    ),
    *(
        Session(f"tests-{version}", "one test in eight, but for the benchmarks", version, 20, [PART], [".[test]"])
        for version in PYTHONS
        if version not in (OLDEST, THIS_PYTHON)
    ),
    Session(
        "arrays",
        "arrays of array-api-strict and PyTorch",
        THIS_PYTHON,
        10,
        [[*PYTEST, "-n0", "--full", "-k", "arrays_of_other_libraries or array_api or arrays.md"]],
        [".[test]", "array-api-strict>=2.3"],
        ["torch==2.13.0+cpu"],  # the build for processors alone: the others are of several gigabytes
        {"SCIPY_ARRAY_API": "1"},  # without it, scikit-learn skips its checks of estimators with array-api-strict
    ),
    Session(
        "engines",
        "distributed fits on PyTorch, Dask and Ray",
        THIS_PYTHON,
        15,
        [[*PYTEST, "-n0", "--full", *(f"tests/test_{name}.py" for name in ENGINES)]],
        [".[test]"],
        ["torch==2.13.0+cpu", "dask[distributed]>=2024.8", "ray>=2.40", "pyarrow"],
    ),
    Session(
        "bounds",
        "one test in eight of six kernels, compiled with checks of every index (`nox -s bounds`: more, and uncompiled)",
        THIS_PYTHON,
        10,
        [[*PART, *(f"tests/test_{name}.py" for name in KERNELS)]],
        [".[test]"],
        environment={"NUMBA_BOUNDSCHECK": "1"},
    ),
    Session(
        "checks",
        "lint, types, imports",
        THIS_PYTHON,
        10,
        [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["lint-imports"], DOCSTRINGS],
        [".[test,lint]"],
    ),
]

# --- how ----------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[1]
BEGUN = time.monotonic()

#: As a newcomer has it, without what would change which packages are found or where kernels are kept.
ENVIRONMENT = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
for _name in ("PYTHONPATH", "PYTHONHOME", "NUMBA_CACHE_DIR", "PYTEST_ADDOPTS", "VIRTUAL_ENV"):
    ENVIRONMENT.pop(_name, None)


class Failed(Exception):
    """Why a session failed."""


@dataclass
class Outcome:
    """What became of a session."""

    name: str
    python: str
    result: str = "failed"
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all its processes, the installation included
    minutes: float = 0.0
    counts: str = ""  # pytest's own
    log: Path = Path(os.devnull)


def say(text: str) -> None:
    """A line, with the minutes since the beginning."""
    elapsed = int(time.monotonic() - BEGUN)
    print(f"[{elapsed // 60:2d}:{elapsed % 60:02d}] {text}", flush=True)


class Machine:
    """The folder of this run, and the processes in it that have not ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = threading.Lock()

    def call(
        self, command: Sequence[str], outcome: Outcome, until: float, folder: Path, environment: dict[str, str]
    ) -> int:
        """Run a command, its output at the end of the log; what runs longer is ended with all that it started."""
        with outcome.log.open("ab") as output, self._lock:
            if self._ended:
                raise Failed("CI was interrupted")
            output.write(f"$ {' '.join(command)}\n".encode())
            output.flush()
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            while time.monotonic() < until:
                ended, status, used = os.wait4(process.pid, os.WNOHANG)
                if ended:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    outcome.cpu_seconds += used.ru_utime + used.ru_stime
                    return process.returncode
                time.sleep(0.1)
            raise Failed("no time left")
        finally:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """A process and its group, politely and then not."""
        with self._lock:
            self._running.discard(process)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        process.wait()

    def end(self) -> None:
        """Every process; none can begin after it."""
        with self._lock:
            self._ended = True
            running = list(self._running)
        for process in running:
            self._end(process)


def interpreter(version: str) -> str:
    """The path of a Python of this version that runs.

    What PATH calls python3.x may be a script that chooses among versions and refuses this one: it is asked, and pyenv,
    where there is one, for its own.
    """
    if version == THIS_PYTHON:
        return sys.executable
    name = f"python{version}"
    found = [os.path.join(folder, name) for folder in os.get_exec_path()]
    candidates: list[tuple[str, dict[str, str]]] = [(path, {}) for path in found if os.access(path, os.X_OK)]
    if shutil.which("pyenv"):
        listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True).stdout.split()
        candidates += [(name, {"PYENV_VERSION": entry}) for entry in listed if entry.startswith(f"{version}.")]
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
    for command, variables in candidates:
        asked = subprocess.run([command, "-c", code], env={**ENVIRONMENT, **variables}, capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.startswith(f"{version} "):
            return asked.stdout.split(maxsplit=1)[1].strip()
    raise Failed(f"no {name} on this machine: neither on PATH nor from pyenv")


def prepare(machine: Machine, outcome: Outcome, until: float) -> tuple[Path, dict[str, str]]:
    """A clone of what is committed, and the environment of a shell in which a new virtual environment is active."""
    folder = machine.folder / outcome.name
    for command in (
        ["git", "clone", "--quiet", str(ROOT), str(folder / "manyclass")],
        [interpreter(outcome.python), "-m", "venv", str(folder / "venv")],
    ):
        if machine.call(command, outcome, until, machine.folder, ENVIRONMENT):
            raise Failed(f"{command[0]} failed")
    venv = folder / "venv"
    path = f"{venv / 'bin'}{os.pathsep}{ENVIRONMENT['PATH']}"
    return folder / "manyclass", {**ENVIRONMENT, "PATH": path, "VIRTUAL_ENV": str(venv)}


def run_readme(machine: Machine, number: int, line: str) -> Outcome:
    """One command of README.md, as it stands there, with all cores to itself."""
    outcome = Outcome(f"readme-{number + 1}", THIS_PYTHON, minutes=README_SECONDS[number] / 60)
    outcome.log = machine.folder / f"{outcome.name}.log"
    until = min(BEGUN + 60 * MINUTES, time.monotonic() + 600 + 2 * README_SECONDS[number])
    say(f"{outcome.name} begins: {line}")
    begun = time.monotonic()
    try:
        folder, environment = prepare(machine, outcome, until)
        status = machine.call(["bash", "-c", line], outcome, until, folder, environment)
        ended = time.time()
        if status:
            raise Failed(f"exit status {status}")
        # The last file that pip writes.
        (record,) = Path(environment["VIRTUAL_ENV"]).glob("lib/python*/site-packages/manyclass-*.dist-info/RECORD")
        outcome.seconds = ended - record.stat().st_mtime
        if outcome.seconds > GRACE * README_SECONDS[number]:
            raise Failed(f"{outcome.seconds:.0f} s after the installation; README promises {README_SECONDS[number]}")
        outcome.result = "passed"
    except Failed as why:
        outcome.result = f"FAILED: {why}"
        outcome.seconds = outcome.seconds or time.monotonic() - begun
    finish(outcome)
    return outcome


def run_session(machine: Machine, session: Session) -> Outcome:
    """One session."""
    outcome = Outcome(session.name, session.python, minutes=session.minutes)
    outcome.log = machine.folder / f"{session.name}.log"
    begun = time.monotonic()
    until = min(BEGUN + 60 * MINUTES, begun + 60 * session.minutes)
    say(f"{session.name} begins: {session.about}")
    missing = []
    try:
        folder, environment = prepare(machine, outcome, until)
        environment.update(session.environment)
        pip = ["python", "-m", "pip", "install", "-qq"]
        if machine.call([*pip, *session.install], outcome, until, folder, environment):
            raise Failed("the installation failed")
        for package in session.wanted:
            # Not a reason to fail, and not a reason to wait long.
            try:
                if machine.call([*pip, package], outcome, min(until, time.monotonic() + 300), folder, environment):
                    missing.append(package)
            except Failed:
                missing.append(package)
        failed = [
            f"`{' '.join(step)}`: exit status {status}"
            for step in [["python", "-m", "pip", "check"], *session.steps]
            if (status := machine.call(step, outcome, until, folder, environment))
        ]
        if failed:
            raise Failed("; ".join(failed))
        outcome.result = "passed"
    except Failed as why:
        outcome.result = f"FAILED: {why}"
    if missing:
        outcome.result += f" (without {' '.join(missing)}: could not be installed)"
    outcome.seconds = time.monotonic() - begun
    finish(outcome)
    return outcome


def finish(outcome: Outcome) -> None:
    """Say how a session ended, and show the end of its output."""
    text = outcome.log.read_text(encoding="utf-8", errors="replace") if outcome.log.exists() else ""
    counts = re.findall(r"^=*\s*(\d+ (?:passed|failed|skipped|error)[^\n]*? in [\d.]+s[^\n=]*)", text, re.MULTILINE)
    outcome.counts = counts[-1].strip() if counts else ""
    shown = text.splitlines()[-(12 if outcome.result.startswith("passed") else 300) :]
    with _PRINTING:
        say(f"{outcome.name}: {outcome.result}, {outcome.seconds:.0f} s")
        print("\n".join(f"    {line}" for line in shown), flush=True)


_PRINTING = threading.Lock()


def run_lanes(machine: Machine, sessions: Sequence[Session]) -> list[Outcome]:
    """Sessions in their order, `LANES` at a time."""
    waiting: Queue[Session] = Queue()
    for session in sessions:
        waiting.put(session)
    outcomes: list[Outcome] = []

    def lane() -> None:
        while True:
            try:
                session = waiting.get_nowait()
            except Empty:
                return
            try:
                outcomes.append(run_session(machine, session))
            except Exception as error:  # a fault of this file: the other sessions are wanted all the same
                outcomes.append(Outcome(session.name, session.python, f"FAILED: {error!r}"))

    lanes = [threading.Thread(target=lane, daemon=True) for _ in range(LANES)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    return sorted(outcomes, key=lambda outcome: [session.name for session in sessions].index(outcome.name))


def table(outcomes: Sequence[Outcome]) -> str:
    """Session, Python, seconds (of README.md's commands: after the installation), limit, result and counts."""
    lines = [f"{'session':<12}{'Python':<8}{'seconds':>8}{'limit':>8}{'CPU':>8}  result"]
    for outcome in outcomes:
        times = f"{outcome.seconds:>8.0f}{60 * outcome.minutes:>8.0f}{outcome.cpu_seconds:>8.0f}"
        lines.append(f"{outcome.name:<12}{outcome.python:<8}{times}  {outcome.result}")
        if outcome.counts:
            lines.append(f"{'':<46}{outcome.counts}")
    return "\n".join(lines)


def main(names: Sequence[str]) -> int:
    """Everything, or what is named."""
    known = ["readme", *(session.name for session in SESSIONS)]
    unknown = set(names) - set(known)
    if unknown:
        print(f"no session {', '.join(sorted(unknown))}: there are {', '.join(known)}", file=sys.stderr)
        return 2
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    if changed:
        say("what is not committed is not tested:\n" + changed.rstrip())
    outcomes: list[Outcome] = []
    machine = Machine(Path(tempfile.mkdtemp(prefix="manyclass-ci-")))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if not names or "readme" in names:
            lines = commands((ROOT / "README.md").read_text(encoding="utf-8"))
            outcomes += [run_readme(machine, number, line) for number, line in enumerate(lines)]
        sessions = [session for session in SESSIONS if not names or session.name in names]
        outcomes += [run_session(machine, session) for session in sessions if session.alone]
        outcomes += run_lanes(machine, [session for session in sessions if not session.alone])
    finally:
        machine.end()
        shutil.rmtree(machine.folder, ignore_errors=True)
    failed = [outcome.name for outcome in outcomes if outcome.result.startswith("FAILED")]
    print(f"\n{table(outcomes)}\n")
    say(f"failed: {', '.join(failed)}" if failed else "everything passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

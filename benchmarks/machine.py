"""What a timing depends on: processor, cores, memory, versions, revision, date. No names of hosts, users or folders."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["facts", "memory_bytes"]

_PACKAGES = ("manyclass", "numpy", "scipy", "scikit-learn", "numba")


def facts() -> dict[str, str | int]:
    """The columns that every row of a result carries."""
    return {
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_gib": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": " ".join(f"{name}={_version(name)}" for name in _PACKAGES),
        "blas": _blas(),
        "revision": _revision(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine()


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def memory_bytes() -> float:
    """What the machine has; without bound where the system does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _memory() -> int | str:
    size = memory_bytes()
    return round(size / 2**30) if size < float("inf") else ""


def _blas() -> str:
    from threadpoolctl import threadpool_info

    found = {
        f"{i['internal_api']} {i['version']} {i.get('architecture', '')}".strip()
        for i in threadpool_info()
        if i["user_api"] == "blas"
    }
    return "; ".join(sorted(found))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


def _revision() -> str:
    """The commit, with a + where files that count have been changed since."""
    commit = _output("git", "rev-parse", "--short=12", "HEAD")
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", "../src", "*.py")
    return commit + ("+" if commit and changed else "")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

"""Clocks, threads, memory."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

__all__ = [
    "Stopwatch",
    "memory_limit",
    "peak_memory",
    "quiet",
    "reset_peak_memory",
    "resident_memory",
    "spread",
    "spread_text",
    "threads_limited",
    "time_limit",
]


class Stopwatch:
    """``with Stopwatch() as watch: ...``; then ``watch.seconds``, and of the processor, all threads together,
    ``watch.cpu_seconds``. Garbage is collected before, not meanwhile."""

    seconds = 0.0
    cpu_seconds = 0.0

    def __enter__(self) -> Stopwatch:
        gc.collect()
        gc.disable()
        self._begun, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self.cpu_seconds = time.process_time() - self._cpu
        gc.enable()


@contextmanager
def threads_limited(threads: int) -> Iterator[None]:
    """BLAS and OpenMP on this many threads, where threadpoolctl is there to tell them."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=threads):
        yield


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """End THIS process, by its alarm, when the block takes longer: compiled code cannot be stopped otherwise.

    For child processes: `benchmarks.children` tells it as `TimedOut`. Without effect where there are no alarms
    (Windows).
    """
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


@contextmanager
def memory_limit(limit: int | None) -> Iterator[None]:
    """Hold the private writable memory of this process below ``limit`` bytes in the block (RLIMIT_DATA; Linux).

    Address space, which RLIMIT_AS counts, would count libraries and what is merely reserved as well.
    """
    if limit is None:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings off: runs are cut short on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def resident_memory() -> int | None:
    """Bytes this process holds in memory now, where the system tells."""
    return _status("VmRSS")


def reset_peak_memory() -> bool:
    """Make the peak start anew from what is held now; whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int | None:
    """Most bytes this process has held in memory, or None where the system does not tell.

    On Linux from VmHWM: getrusage's ru_maxrss of a child process begins at the PARENT's peak there.
    """
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int | None:
    try:
        lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, least, most."""
    return median(values), min(values), max(values)


def spread_text(values: list[float]) -> str:
    """``median [least, most]`` to three figures; the value alone where there is one."""
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return "{:.3g} [{:.3g}, {:.3g}]".format(*spread(values))

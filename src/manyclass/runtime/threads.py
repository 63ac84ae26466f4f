"""Parallelism within a process: Python threads that call ``nogil`` kernels, or the BLAS, on ranges."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import starmap
from typing import Any, TypeVar

__all__ = ["blas_threads", "cores", "ranges", "resolve_n_jobs", "run", "single_blas", "together"]

T = TypeVar("T")


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``: None means 1, -1 all cores this process may use, -2 all but one.

    At most 8, or 2 per core where that is more: others would only cost time.
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or n_jobs == 0:
        raise ValueError(f"n_jobs must be a non-zero integer or None, got {n_jobs!r}")
    return min(int(n_jobs), max(8, 2 * cores())) if n_jobs > 0 else max(1, cores() + 1 + int(n_jobs))


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


@cache
def _blas() -> Any:
    """The BLAS libraries of NumPy and SciPy, each of which has its own threads."""
    import scipy.linalg  # noqa: F401  (those that are loaded are found)
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    """The number of threads that the BLAS would use outside of `single_blas`."""
    with _Limit.lock:
        if _Limit.normal is not None:
            return _Limit.normal
        return max((int(library.num_threads) for library in _blas().lib_controllers), default=1)


class _Limit:
    """The thread that has limited the BLAS, how often it has done so, and what is to be restored."""

    lock = threading.RLock()
    owner: int | None = None
    depth = 0
    normal: int | None = None
    limiter: Any = None


@contextmanager
def single_blas() -> Iterator[None]:
    """Limit the BLAS of this process to the calling thread: for code that calls it from threads of its own, or often.

    After a product the threads of OpenBLAS wait for the next one at full speed, some 20 ms; those of NumPy's and
    SciPy's libraries, and ours, would take the cores from each other (MNIST, 70 iterations of `PreconditionedLBFGS` on
    2 cores: 13 s, and 8 s with one thread).

    The first thread to come limits, and frees when it leaves; others within have no part in it, as threadpoolctl lets
    one thread alone set the numbers. All it changes is time.
    """
    me = threading.get_ident()
    with _Limit.lock:
        if _Limit.owner is None:
            _Limit.normal = blas_threads()
            _Limit.limiter = _blas().limit(limits=1)
            _Limit.owner = me
        mine = _Limit.owner == me
        _Limit.depth += mine
    try:
        yield
    finally:
        if mine:
            with _Limit.lock:
                _Limit.depth -= 1
                if not _Limit.depth:
                    _Limit.limiter.restore_original_limits()
                    _Limit.normal = _Limit.limiter = _Limit.owner = None


def ranges(n: int, size: int) -> list[tuple[int, int]]:
    """Divide ``[0, n)`` into ranges of length ``size``; sums by range then do not depend on the number of threads."""
    return [(begin, min(begin + size, n)) for begin in range(0, n, size)]


def run(task: Callable[[int, int], T], pieces: Sequence[tuple[int, int]], n_threads: int) -> list[T]:
    """Return ``[task(begin, end) for each piece]``, computed on up to ``n_threads`` threads with the caller's.

    After an interrupt or an error, tasks in progress are finished first, so that no thread writes to arrays afterwards.
    """
    if n_threads <= 1 or len(pieces) <= 1:
        return list(starmap(task, pieces))
    results: list[Any] = [None] * len(pieces)
    lock = threading.Lock()
    left = iter(range(len(pieces)))
    failures: list[BaseException] = []

    def work() -> None:
        while True:
            with lock:
                at = None if failures else next(left, None)
            if at is None:
                return
            try:
                results[at] = task(*pieces[at])
            except BaseException as error:  # raised by the caller's thread, below
                failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(n_threads, len(pieces)) - 1)]
    try:
        for thread in threads:
            thread.start()
        work()
    except BaseException as error:
        failures.append(error)
    _join(threads, failures)
    if failures:
        raise failures[0]
    return results


def together(task: Callable[[int], None], n_threads: int, give_up: Callable[[], None]) -> None:
    """Call ``task(0) ... task(n_threads - 1)`` at the same time; each may wait for the others.

    No task starts before all threads have. If one fails, ``give_up()`` is called: the others must then stop waiting.
    Its error, or Ctrl-C, is raised after all have ended.
    """
    failures: list[BaseException] = []
    ready = threading.Barrier(n_threads)

    def work(me: int) -> None:
        try:
            ready.wait()
            task(me)
        except BaseException as error:  # raised by the caller's thread, below
            fail(error)

    def fail(error: BaseException) -> None:
        failures.append(error)
        ready.abort()
        give_up()

    threads = [threading.Thread(target=work, args=(me,), daemon=True) for me in range(1, n_threads)]
    try:
        for thread in threads:
            thread.start()
        work(0)
    except BaseException as error:
        fail(error)
    _join(threads, failures)
    if failures:
        raise failures[0]


def _join(threads: Sequence[threading.Thread], failures: list[BaseException]) -> None:
    """Wait for the threads that have been started, whatever interrupts the waiting."""
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt as error:
                failures.append(error)

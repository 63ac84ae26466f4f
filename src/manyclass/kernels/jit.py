"""The one way to compile a kernel: ``@jit``.

Numba keeps machine code on disk, but decides whether it is stale by looking only at the file of the cached
function. A kernel here is assembled from overloads that live in other files (a loss, a penalty, a row view): after an
edit of one of those, Numba alone would go on running the old machine code. ``jit`` therefore stamps each cache entry
with a hash of every source file that its kernel may be assembled from (the folders kernels, objective/losses,
objective/penalties, and its own). Nothing global is touched: other packages keep Numba's own rule.

Compilation is announced (once a process, as a log record of this module) and timed, so that nobody takes it for
training time.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.extending import overload

__all__ = ["CompileClock", "compile_clock", "implements", "inline", "is_a", "jit", "source_stamp"]

logger = logging.getLogger(__name__)

#: The licence given to LLVM: reorder, contract, ignore the sign of zero. NaN and infinity keep their meaning,
#: because input checks and safeguarded steps rely on them.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": FASTMATH, "error_model": "numpy"}

F = TypeVar("F", bound=Callable[..., Any])


@cache
def source_stamp(folder: Path) -> str:
    """A hash of all sources that a kernel defined in ``folder`` may be assembled from: its freshness mark."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for part in sorted({root / "kernels", root / "objective" / "losses", root / "objective" / "penalties", folder}):
        for path in sorted(part.glob("*.py")):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class CompileClock:
    """Seconds this process has spent compiling (not loading) kernels, and how many it compiled."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.kernels = 0
        self._open: dict[tuple[int, int], float] = {}
        self._announced = False

    def started(self, key: int, name: str) -> None:
        if not self._announced:
            self._announced = True
            logger.warning(
                "compiling kernels (%s, ...) for this machine: a few seconds, once; they are kept on disk", name
            )
        self._open[threading.get_ident(), key] = time.perf_counter()

    def ended(self, key: int) -> None:
        begun = self._open.pop((threading.get_ident(), key), None)
        if begun is None:
            return
        self.kernels += 1
        # A kernel compiled while another is open is part of that one's time.
        if not any(thread == threading.get_ident() for thread, _ in self._open):
            self.seconds += time.perf_counter() - begun


compile_clock = CompileClock()


class _CacheFile(IndexDataCacheFile):
    """Numba's files of one cached function, read with suspicion, and written by several processes at the same time.

    A file that a full disk or a killed process has cut short counts as missing, so that the kernel is compiled anew.
    The stamp stands before the part that is unpickled: entries of other sources, which may name modules that are gone,
    are not looked into.

    Numba numbers the data files in the order in which they are saved, and writes the index first: of two processes
    that save two signatures at once, both take the same number, and the index of one can end beside the machine code
    of the other. Here a data file is named after its signature and written before the index: the worst that can happen
    is that an entry is missing from the index, and is compiled again.
    """

    def __init__(self, cache_path: str, filename_base: str, source_stamp: str) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._version = f"{self._version} {source_stamp}"

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(self._dump(key)).digest()
        name = self._data_name(int.from_bytes(digest[:8], "big"))
        self._save_data(name, data)
        overloads = self._load_index()
        overloads[key] = name
        self._save_index(overloads)

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())
        except Exception:
            return {}

    def _load_data(self, name: str) -> Any:
        try:
            return super()._load_data(name)
        except Exception as error:
            raise OSError(f"{name} is damaged") from error  # Numba takes it for a missing file


class _PackageCache(FunctionCache):
    """Numba's on-disk cache of one function, stamped with the sources its kernel may be assembled from."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_file = _CacheFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=source_stamp(Path(py_func.__code__.co_filename).parent),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            compile_clock.started(id(self), self._py_func.__name__)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        compile_clock.ended(id(self))
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk: the machine code is in memory all the same
            _warn_not_kept(str(error))


class _NoCache(NullCache):
    """No cache, but the clock runs."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        compile_clock.started(id(self), "a kernel")

    def save_overload(self, sig: Any, data: Any) -> None:
        compile_clock.ended(id(self))


@cache
def _warn_not_kept(why: str) -> None:
    """Once for each reason."""
    logger.warning("compiled kernels cannot be kept on disk (%s): set NUMBA_CACHE_DIR to a folder for them", why)


def jit(func: F) -> F:
    """Compile ``func`` in nopython mode, without the GIL, cached on disk.

    Where no folder for the cache can be written, the function is compiled anew in each process.
    """
    dispatcher = numba.njit(**_OPTIONS)(func)
    try:
        dispatcher._cache = _PackageCache(func)
    except RuntimeError:
        dispatcher._cache = _NoCache()
        _warn_not_kept("no folder can be written")
    return dispatcher  # type: ignore[no-any-return]


def inline(func: F) -> F:
    """Compile a small helper that vanishes into the kernels that call it; it needs no cache of its own."""
    return numba.njit(forceinline=True, **_OPTIONS)(func)  # type: ignore[no-any-return]


def implements(
    stub: Callable[..., Any], *, forceinline: bool = False, fastmath: set[str] = FASTMATH
) -> Callable[[F], F]:
    """Attach compiled behaviour to ``stub``: the decorated function looks at the argument TYPES and returns the
    implementation for them, or None to leave them to another (``numba.extending.overload``). ``forceinline`` for
    what must vanish into a loop before it can become vector code; ``fastmath`` for what needs its sums in order."""
    options: Any = {**_OPTIONS, "forceinline": forceinline, "fastmath": fastmath}
    return overload(stub, jit_options=options, strict=False)


def is_a(numba_type: Any, cls: type) -> bool:
    """Whether a Numba type is that of the NamedTuple class ``cls``."""
    return getattr(numba_type, "instance_class", None) is cls

"""Compilation of kernels: `jit`, `inline` and `implements`.

Numba keeps machine code on disk, but decides whether it is stale by looking only at the file of the cached
function. A kernel here is assembled from overloads in other files (a loss, a penalty, a row view): after an edit of one
of those, Numba alone would keep running the old machine code. ``jit`` therefore stores with each cache entry a hash of
every source file that its kernel may be assembled from (the folders kernels, objective/losses, objective/penalties, and
its own). No global setting of Numba changes: other packages keep Numba's own rule.

Compilation is announced (once per process, as a log record of this module) and timed, so that it can be told from
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

from manyclass.runtime.files import exposed

__all__ = ["CompileClock", "compile_clock", "implements", "inline", "is_a", "jit", "source_stamp"]

logger = logging.getLogger(__name__)

#: LLVM's fast-math flags: reorder and contract operations, ignore the sign of zero. Not "nnan" and "ninf": input checks
#: and safeguarded steps rely on NaN and infinity.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": FASTMATH, "error_model": "numpy"}

F = TypeVar("F", bound=Callable[..., Any])


@cache
def source_stamp(folder: Path) -> str:
    """A hash of all sources that a kernel defined in ``folder`` may be assembled from."""
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
        # The time of a kernel compiled while another one is being compiled is part of that one's.
        if not any(thread == threading.get_ident() for thread, _ in self._open):
            self.seconds += time.perf_counter() - begun


compile_clock = CompileClock()


class _CacheFile(IndexDataCacheFile):
    """Numba's cache files of one function, safe against truncated files and against several writing processes.

    A file that was truncated by a full disk or a killed process counts as missing, so that the kernel is compiled
    again. The stamp precedes the part that is unpickled: entries of other sources, which may refer to modules that no
    longer exist, are not unpickled.

    Numba numbers the data files in the order in which they are saved, and writes the index first: two processes that
    save two signatures at once take the same number, and the index of one can then point to the machine code of the
    other. Here a data file is named after its signature and written before the index: at worst an entry is missing from
    the index, and is compiled again.

    The files are pickles, which can run any code: one that another user can change counts as missing, too.
    """

    def __init__(self, cache_path: str, filename_base: str, source_stamp: str, code: Path) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._code = code
        self._version = f"{self._version} {source_stamp}"

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(self._dump(key)).digest()
        name = self._data_name(int.from_bytes(digest[:8], "big"))
        self._save_data(name, data)
        overloads = self._load_index()
        overloads[key] = name
        self._save_index(overloads)

    def _load_index(self) -> dict[Any, str]:
        if exposed(Path(self._index_path), self._code):
            return {}
        try:
            return dict(super()._load_index())
        except Exception:
            return {}

    def _load_data(self, name: str) -> Any:
        why = exposed(Path(self._data_path(name)), self._code)
        if why:
            raise OSError(why)
        try:
            return super()._load_data(name)
        except Exception as error:
            raise OSError(f"{name} is damaged") from error  # Numba treats an OSError as a missing file


class _Exposed(RuntimeError):
    """Another user can write to the folder of the cache."""


class _PackageCache(FunctionCache):
    """Numba's on-disk cache of one function, stamped with the sources its kernel may be assembled from."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        code = Path(py_func.__code__.co_filename).parent
        why = exposed(Path(self._cache_path), code)
        if why:
            raise _Exposed(why)
        self._cache_file = _CacheFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=source_stamp(code),
            code=code,
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
        except OSError as error:  # a full disk: the machine code in memory can be used nevertheless
            _warn_not_kept(str(error))


class _NoCache(NullCache):
    """No cache on disk; compilation is timed."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        compile_clock.started(id(self), "a kernel")

    def save_overload(self, sig: Any, data: Any) -> None:
        compile_clock.ended(id(self))


@cache
def _warn_not_kept(why: str) -> None:
    """Warn, once for each reason."""
    logger.warning(
        "compiled kernels cannot be kept on disk (%s) and are compiled again in each process: set the environment "
        "variable NUMBA_CACHE_DIR to a folder that you alone can write to",
        why,
    )


def jit(func: F) -> F:
    """Compile ``func`` in nopython mode, without the GIL, cached on disk.

    If no folder for the cache is writable, or another user can write to it, the function is compiled in each process.
    """
    dispatcher = numba.njit(**_OPTIONS)(func)
    try:
        dispatcher._cache = _PackageCache(func)
    except RuntimeError as error:
        dispatcher._cache = _NoCache()
        _warn_not_kept(str(error) if isinstance(error, _Exposed) else "no folder can be written")
    return dispatcher  # type: ignore[no-any-return]


def inline(func: F) -> F:
    """Compile a small helper that is always inlined into the kernels that call it; it needs no cache of its own."""
    return numba.njit(forceinline=True, **_OPTIONS)(func)  # type: ignore[no-any-return]


def implements(stub: Callable[..., Any], *, fastmath: set[str] = FASTMATH) -> Callable[[F], F]:
    """Attach a compiled implementation to ``stub`` (``numba.extending.overload``).

    The decorated function receives the argument TYPES and returns the implementation for them, or None if another one
    implements them. It is always inlined: otherwise LLVM optimizes it twice, alone and as a part of the kernel, and the
    process that compiles a kernel runs the one, a process that loads it from the cache the other, with other last bits.
    ``fastmath`` restricts the flags of what needs its operations in order.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return _interpreted(stub)
    options: Any = {**_OPTIONS, "forceinline": True, "fastmath": fastmath}
    return overload(stub, jit_options=options, strict=False)


#: Without compilation: the decorated functions of `implements`, by the name of their stub.
_CHOICES: dict[str, list[Callable[..., Any]]] = {}


def _interpreted(stub: Callable[..., Any]) -> Callable[[F], F]:
    """`implements` under NUMBA_DISABLE_JIT=1, for debuggers and tests: calls of ``stub`` run as Python code."""
    key = f"{stub.__module__}.{stub.__name__}"
    lines = "def stub(*args):\n from manyclass.kernels.jit import interpret\n return interpret({!r}, args)"

    def attach(choose: F) -> F:
        if key not in _CHOICES:
            space: dict[str, Any] = {}
            exec(lines.format(key), space)
            stub.__code__ = space["stub"].__code__  # other modules have imported the stub itself
        _CHOICES.setdefault(key, []).append(choose)
        return choose

    return attach


def interpret(key: str, args: tuple[Any, ...]) -> Any:
    """Call the implementation of the stub with this name for the types of ``args``."""
    types = [numba.typeof(value) for value in args]
    found = next(filter(None, (choose(*types) for choose in _CHOICES[key])), None)
    if found is None:
        raise TypeError(f"{key} has no implementation for {types}")
    return found(*args)


def is_a(numba_type: Any, cls: type) -> bool:
    """Whether a Numba type is that of the NamedTuple class ``cls``."""
    return getattr(numba_type, "instance_class", None) is cls

"""Independent tasks on the backend that a user has chosen with `joblib.parallel_config`: Dask, Ray, processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

__all__ = ["chosen", "spread"]

T = TypeVar("T")

#: Tasks for each worker between two looks at the results: fewer are given out unevenly, more are seen late.
_EACH = 4


def chosen() -> bool:
    """Whether a backend other than threads of this process has been chosen."""
    joblib: Any = sys.modules.get("joblib.parallel")
    if joblib is None:  # nobody has imported it
        return False
    backend, _ = joblib.get_active_backend(prefer="threads")
    return not isinstance(backend, joblib.ThreadingBackend | joblib.SequentialBackend)


def spread(task: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Yield ``task(*given)`` for each of the arguments, in their order, from the workers of the chosen backend.

    Arguments are made while others are worked on, a few for each worker at a time.
    """
    from joblib import Parallel, delayed, effective_n_jobs

    with Parallel(n_jobs=None) as parallel:
        left = iter(arguments)
        while some := list(islice(left, _EACH * max(1, effective_n_jobs(None)))):
            yield from parallel(delayed(task)(*given) for given in some)

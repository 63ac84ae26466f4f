"""Threads of one kernel that wait for each other, and that take parts of one array."""

from __future__ import annotations

import sys
from typing import Any

from numba import types
from numba.extending import intrinsic

from manyclass.kernels.jit import inline

__all__ = ["APART", "GIVEN_UP", "meet", "take"]

#: A thread looks this often whether the others have arrived, then lets others run in between.
_PATIENCE = 2000
#: Ints between two counters of arrivals, so that each has its own cache lines.
APART = 16

#: What all counters are set to if a thread fails.
GIVEN_UP = 2**63 - 1

#: Lets other threads of the machine run.
_yield = types.ExternalFunction("SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32())


def _store(context: Any, counters: Any, at: Any, value: Any) -> Any:
    """Store ``counters[at] = value`` after everything that this thread wrote before."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = target.make_array(signature.args[0])(target, builder, args[0])
        builder.store_atomic(args[2], builder.gep(array.data, [args[1]]), "release", 8)
        return target.get_dummy_value()

    return types.void(counters, types.intp, types.int64), generate


def _load(context: Any, counters: Any, at: Any) -> Any:
    """Load ``counters[at]`` before everything that this thread reads afterwards."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = target.make_array(signature.args[0])(target, builder, args[0])
        return builder.load_atomic(builder.gep(array.data, [args[1]]), "acquire", 8)

    return types.int64(counters, types.intp), generate


_publish: Any = intrinsic(_store)
_observe: Any = intrinsic(_load)


@inline
def meet(arrived, me, threads, number):
    """Wait until all threads have come to meeting ``number``. False if one will not come: then end here."""
    if threads == 1:
        return True
    _publish(arrived, me * APART, number)
    for other in range(threads):
        looks = 0
        seen = _observe(arrived, other * APART)
        while seen < number:
            looks += 1
            if looks > _PATIENCE:
                _yield()
            seen = _observe(arrived, other * APART)
        if seen == GIVEN_UP:
            return False
    return True


def _add(context: Any, counters: Any, at: Any, value: Any) -> Any:
    """Add ``value`` to ``counters[at]`` in one operation; returns what was there before."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = target.make_array(signature.args[0])(target, builder, args[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [args[1]]), args[2], "monotonic")

    return types.int64(counters, types.intp, types.int64), generate


#: What another thread has taken is never given twice.
take: Any = intrinsic(_add)

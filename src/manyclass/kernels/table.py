"""A sparse d x K array that kernels read and write entry by entry: a small hash table for each feature.

With active sets, few pairs of a feature and a class ever have a weight. The table of a feature is a range of slots, a
power of two, in arrays that all features share; class k is stored in slot k modulo the number of slots, or the next
free one (open addressing). Consecutive classes are therefore close in memory, and the table of a feature with weights
in most classes works as a plain array. A table that is nearly full moves to the end of the shared arrays, with twice
the slots. When these arrays are full, a kernel returns to Python, which allocates larger ones: `has_room` tests this in
advance.

The functions below also accept dense arrays, so that a solver's kernel is written once for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import types

from manyclass.kernels.jit import implements, inline, is_a, jit
from manyclass.kernels.meeting import take
from manyclass.kernels.operations import conjugate_term, primal, value_term
from manyclass.kernels.products import add_sparse_outer, add_sparse_scores
from manyclass.kernels.rows import CSRRows, row_span

__all__ = [
    "FULLEST",
    "WeightTable",
    "add_at",
    "add_run",
    "add_to_image",
    "clear_row",
    "compress",
    "count_weights",
    "has_room",
    "image_scores",
    "make_table",
    "move_slots",
    "slots_for",
    "slots_free",
    "slots_needed",
    "soft",
    "soften",
    "table_of",
    "table_sums",
    "weight_at",
]

# mypy: disable-error-code="no-untyped-def"

#: Slots of the smallest table.
_LEAST = 4
#: Part of the slots that may be in use. A search for a class without a weight, of which a new rival has many, takes 8.5
#: looks at classes that are spread evenly if this is 0.75, 3.6 here (Knuth, The Art of Computer Programming, 6.4).
FULLEST = 0.6


class WeightTable(NamedTuple):
    """A sparse d x K array.

    Attributes
    ----------
    start : int64 (d,)
        First slot of each feature.
    capacity : int32 (d,)
        Number of slots of each feature, 0 or a power of two.
    held : int32 (d,)
        Number of slots in use.
    keys, values : (2 * slots,)
        The same memory as integers and as floats: slot t has its class (or -1) at 2 t and its value at 2 t + 1, so that
        a lookup reads one cache line. Slots from ``used`` on have any content.
    used : int64 (1,)
        Number of slots assigned to features.
    """

    start: np.ndarray[Any, Any]
    capacity: np.ndarray[Any, Any]
    held: np.ndarray[Any, Any]
    keys: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    used: np.ndarray[Any, Any]

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.keys) // 2

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays by name; `table_of` is the inverse."""
        return {name: array for name, array in self._asdict().items() if name != "values"}


def make_table(n_features: int, slots: int, dtype: Any) -> WeightTable:
    """An empty table with this number of slots, of float32 or float64 values."""
    dtype = np.dtype(dtype)
    return table_of(
        {
            "start": np.zeros(n_features, np.int64),
            "capacity": np.zeros(n_features, np.int32),
            "held": np.zeros(n_features, np.int32),
            # Zeros take no memory before they are written to: the table of a feature is made empty where it begins.
            "keys": np.zeros(2 * slots, f"i{dtype.itemsize}"),
            "used": np.zeros(1, np.int64),
        }
    )


def table_of(arrays: Mapping[str, Any]) -> WeightTable:
    """The table with these arrays."""
    keys = arrays["keys"]
    own = {name: arrays[name] for name in WeightTable._fields if name != "values"}
    return WeightTable(**own, values=keys.view(f"f{keys.itemsize}"))


def image_scores(
    V: Any, rows: Any, i: Any, begin: Any, end: Any, classes: Any, m: Any, reg: Any, s: Any, slots: Any
) -> Any:
    """``s[a] += sum_j x_ij primal(reg, V[j, classes[a]])`` for a < m; ``slots`` receives the slots of these entries.

    x_i from ``begin`` to ``end`` (`manyclass.kernels.rows.row_span`). Other threads may change other features.
    """
    raise TypeError("compiled: call it from a kernel")


def add_to_image(V: Any, rows: Any, i: Any, begin: Any, end: Any, coef: Any, classes: Any, m: Any, slots: Any) -> Any:
    """``V[j, classes[a]] += x_ij coef[a]`` for a < m, with the ``slots`` that `image_scores` filled.

    The table may have been changed since. Other threads may change other features.
    """
    raise TypeError("compiled: call it from a kernel")


def slots_needed(V: Any, rows: Any, begin: Any, end: Any, m: Any) -> Any:
    """How many free slots are certainly enough for `add_to_image` of m classes."""
    raise TypeError("compiled: call it from a kernel")


def slots_for(V: Any, j: Any, count: Any, n_outputs: Any) -> Any:
    """How many free slots are certainly enough for ``count`` calls of `add_at` for the feature j."""
    raise TypeError("compiled: call it from a kernel")


def slots_free(V: Any) -> Any:
    """How many slots no feature has."""
    raise TypeError("compiled: call it from a kernel")


@inline
def has_room(V, rows, i, m):
    """Whether there are certainly enough free slots for `add_to_image` of m classes."""
    begin, end = row_span(rows, i)
    return slots_needed(V, rows, begin, end, m) <= slots_free(V)


def weight_at(V: Any, j: Any, k: Any) -> Any:
    """``V[j, k]``."""
    raise TypeError("compiled: call it from a kernel")


def add_at(V: Any, j: Any, k: Any, delta: Any) -> Any:
    """``V[j, k] += delta``, after `has_room` returned true; returns the increase of the squared entry."""
    raise TypeError("compiled: call it from a kernel")


def soften(V: Any, j: Any, tau: Any, keys: Any, values: Any) -> Any:
    """Soft-threshold row j by ``tau``; a table with many zero entries is rebuilt without them.

    ``keys`` and ``values`` are scratch, an entry per column of V.
    """
    raise TypeError("compiled: call it from a kernel")


@inline
def _find(table, base, mask, k):
    """The slot of class k in the table that starts at slot ``base``, or -1."""
    slot = np.int64(k) & mask
    while True:
        key = table.keys[2 * (base + slot)]
        if key == k:
            return base + slot
        if key < 0:
            return np.int64(-1)
        slot = (slot + 1) & mask


@inline
def _search(table, j, k):
    """The slot of class k for feature j, or -1."""
    capacity = np.int64(table.capacity[j])
    return _find(table, table.start[j], capacity - 1, k) if capacity > 0 else np.int64(-1)


@inline
def clear_row(table, j):
    """Set the entries of a feature to zero, which keep their slots."""
    for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
        table.values[2 * slot + 1] = 0


@inline
def add_run(table, j, x, first, count, s):
    """``s[c] += x V[j, first + c]`` for c < count, in one scan.

    The slots of consecutive classes are consecutive; a class whose slot was taken is stored before the next free slot.
    """
    base = table.start[j]
    capacity = np.int64(table.capacity[j])
    for a in range(capacity):
        slot = base + ((first + a) & (capacity - 1))
        c = np.int64(table.keys[2 * slot]) - first
        if c >= 0:
            if c < count:
                s[c] += x * table.values[2 * slot + 1]
        elif a >= count - 1 and c < -first:
            break


@inline
def _place(table, j, k):
    """A slot for class k, which must not be in the feature's table; the table must have a free slot."""
    base = table.start[j]
    mask = np.int64(table.capacity[j]) - 1
    slot = np.int64(k) & mask
    while table.keys[2 * (base + slot)] >= 0:
        slot = (slot + 1) & mask
    table.keys[2 * (base + slot)] = k
    table.values[2 * (base + slot) + 1] = 0
    table.held[j] += 1
    return base + slot


@jit
def _grow(table, j):
    """Move the table of a feature to the end of the shared arrays, with twice the slots."""
    old, base = np.int64(table.capacity[j]), table.start[j]
    new = max(np.int64(_LEAST), 2 * old)
    table.start[j] = take(table.used, 0, new)
    table.capacity[j] = new
    table.held[j] = 0
    for slot in range(table.start[j], table.start[j] + new):
        table.keys[2 * slot] = -1
    for slot in range(base, base + old):
        if table.keys[2 * slot] >= 0:
            table.values[2 * _place(table, j, table.keys[2 * slot]) + 1] = table.values[2 * slot + 1]


@inline
def _full(table, j):
    """Whether one more entry would be too many. A free slot ends an unsuccessful search."""
    return np.int64(table.held[j]) + 1 > FULLEST * np.int64(table.capacity[j])


@inline
def _growth(table, j, wanted):
    """How many slots are taken while the table of a feature grows to so many entries."""
    needed, capacity = np.int64(0), np.int64(table.capacity[j])
    while wanted > FULLEST * capacity:
        capacity = max(np.int64(_LEAST), 2 * capacity)
        needed += capacity
    return needed


@implements(image_scores)
def _image_scores(
    V: Any, rows: Any, i: Any, begin: Any, end: Any, classes: Any, m: Any, reg: Any, s: Any, slots: Any
) -> Any:
    if isinstance(V, types.Array):
        return lambda V, rows, i, begin, end, classes, m, reg, s, slots: add_sparse_scores(
            rows, i, begin, end, V, classes, m, reg, s
        )
    if is_a(V, WeightTable) and is_a(rows, CSRRows):

        def table(V, rows, i, begin, end, classes, m, reg, s, slots):
            at = 0
            for t in range(begin, end):
                x = s.dtype.type(rows.data[t])
                j = rows.indices[t]
                base, mask = V.start[j], np.int64(V.capacity[j]) - 1
                for a in range(m):
                    slot = _find(V, base, mask, classes[a]) if mask >= 0 else np.int64(-1)
                    slots[at + a] = slot
                    if slot >= 0:
                        s[a] += x * primal(reg, V.values[2 * slot + 1])
                at += m

        return table
    return None


@implements(add_to_image)
def _add_to_image(V: Any, rows: Any, i: Any, begin: Any, end: Any, coef: Any, classes: Any, m: Any, slots: Any) -> Any:
    if isinstance(V, types.Array):
        return lambda V, rows, i, begin, end, coef, classes, m, slots: add_sparse_outer(
            rows, i, begin, end, coef, classes, m, V
        )
    if is_a(V, WeightTable) and is_a(rows, CSRRows):

        def table(V, rows, i, begin, end, coef, classes, m, slots):
            at = 0
            for t in range(begin, end):
                x = coef.dtype.type(rows.data[t])
                j = rows.indices[t]
                base = V.start[j]
                for a in range(m):
                    if coef[a] != 0:
                        slot = slots[at + a]
                        if slot < base:  # none so far, or the feature's table has moved, which is always forward
                            slot = _search(V, j, classes[a])
                            if slot < 0:
                                if _full(V, j):
                                    _grow(V, j)
                                    base = V.start[j]
                                slot = _place(V, j, classes[a])
                        V.values[2 * slot + 1] += x * coef[a]
                at += m

        return table
    return None


@implements(slots_needed)
def _slots_needed(V: Any, rows: Any, begin: Any, end: Any, m: Any) -> Any:
    if isinstance(V, types.Array):
        return lambda V, rows, begin, end, m: np.int64(0)
    if is_a(V, WeightTable) and is_a(rows, CSRRows):

        def table(V, rows, begin, end, m):
            needed = np.int64(0)
            for t in range(begin, end):
                j = rows.indices[t]
                needed += _growth(V, j, np.int64(V.held[j]) + m)
            return needed

        return table
    return None


@implements(slots_for)
def _slots_for(V: Any, j: Any, count: Any, n_outputs: Any) -> Any:
    if isinstance(V, types.Array):
        return lambda V, j, count, n_outputs: np.int64(0)
    if is_a(V, WeightTable):
        return lambda V, j, count, n_outputs: _growth(V, j, min(np.int64(V.held[j]) + count, np.int64(n_outputs)))
    return None


@implements(slots_free)
def _slots_free(V: Any) -> Any:
    if isinstance(V, types.Array):
        return lambda V: np.int64(0)
    if is_a(V, WeightTable):
        return lambda V: np.int64(V.keys.shape[0] // 2 - V.used[0])
    return None


@implements(weight_at)
def _weight_at(V: Any, j: Any, k: Any) -> Any:
    if isinstance(V, types.Array):
        return lambda V, j, k: V[j, k]
    if is_a(V, WeightTable):

        def table(V, j, k):
            slot = _search(V, j, k)
            return V.values[2 * slot + 1] if slot >= 0 else V.values.dtype.type(0)

        return table
    return None


@implements(add_at)
def _add_at(V: Any, j: Any, k: Any, delta: Any) -> Any:
    if isinstance(V, types.Array):

        def dense(V, j, k, delta):
            old = V[j, k]
            new = old + V.dtype.type(delta)
            V[j, k] = new
            return np.float64(new) * np.float64(new) - np.float64(old) * np.float64(old)

        return dense
    if is_a(V, WeightTable):

        def table(V, j, k, delta):
            slot = _search(V, j, k)
            if slot < 0:
                if _full(V, j):
                    _grow(V, j)
                slot = _place(V, j, k)
            old = V.values[2 * slot + 1]
            new = old + V.values.dtype.type(delta)
            V.values[2 * slot + 1] = new
            return np.float64(new) * np.float64(new) - np.float64(old) * np.float64(old)

        return table
    return None


@inline
def soft(v, tau):
    zero = tau - tau
    return max(v - tau, zero) + min(v + tau, zero)


@implements(soften)
def _soften(V: Any, j: Any, tau: Any, keys: Any, values: Any) -> Any:
    if isinstance(V, types.Array):

        def dense(V, j, tau, keys, values):
            for k in range(V.shape[1]):
                V[j, k] = soft(V[j, k], V.dtype.type(tau))

        return dense
    if is_a(V, WeightTable):

        def table(V, j, tau, keys, values):
            base = V.start[j]
            capacity = np.int64(V.capacity[j])
            left = 0
            for slot in range(base, base + capacity):
                if V.keys[2 * slot] >= 0:
                    v = soft(V.values[2 * slot + 1], V.values.dtype.type(tau))
                    V.values[2 * slot + 1] = v
                    if v != 0:
                        keys[left] = V.keys[2 * slot]
                        values[left] = v
                        left += 1
            # Reading a row means reading all of its slots: rebuild if less than 3/4 of the entries are not zero.
            if 4 * left < 3 * np.int64(V.held[j]):
                for slot in range(base, base + capacity):
                    V.keys[2 * slot] = -1
                while capacity > _LEAST and 4 * left < capacity:
                    capacity //= 2
                V.capacity[j] = capacity
                V.held[j] = 0
                for a in range(left):
                    V.values[2 * _place(V, j, keys[a]) + 1] = values[a]

        return table
    return None


@jit
def move_slots(old, new, begin, end):
    """Copy the slots of the features begin .. end - 1 to where the new table has them."""
    for j in range(begin, end):
        source, target = 2 * old.start[j], 2 * new.start[j]
        for a in range(2 * np.int64(old.capacity[j])):
            new.keys[target + a] = old.keys[source + a]


@jit
def count_weights(table, reg, counts, begin, end):
    """The numbers of non-zero weights ``primal(reg, V)`` of the features begin .. end - 1."""
    for j in range(begin, end):
        count = 0
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            if table.keys[2 * slot] >= 0 and primal(reg, table.values[2 * slot + 1]) != 0:
                count += 1
        counts[j] = count


@jit
def compress(table, reg, indptr, indices, data, begin, end):
    """These weights as compressed sparse rows, one row per feature, with ascending classes."""
    for j in range(begin, end):
        first = last = np.int64(indptr[j])
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            if table.keys[2 * slot] >= 0:
                w = primal(reg, table.values[2 * slot + 1])
                if w != 0:
                    indices[last] = table.keys[2 * slot]
                    data[last] = w
                    last += 1
        _sort(indices, data, first, last)


@inline
def _sort(indices, data, first, last):
    # Shell's method, with Tokuda's gaps: slots are nearly in order where a feature has weights in most classes.
    gap = 1
    while 9 * gap < 4 * (last - first):
        gap = (9 * gap) // 4 + 1
    while gap > 0:
        for at in range(first + gap, last):
            k, w, place = indices[at], data[at], at
            while place >= first + gap and indices[place - gap] > k:
                indices[place], data[place] = indices[place - gap], data[place - gap]
                place -= gap
            indices[place], data[place] = k, w
        gap = (4 * gap) // 9 if gap > 1 else 0


@jit
def table_sums(table, reg, begin, end):
    """g(W) and g*(V) in float64, over the features begin .. end - 1."""
    g = conjugate = 0.0
    for j in range(begin, end):
        for slot in range(table.start[j], table.start[j] + np.int64(table.capacity[j])):
            if table.keys[2 * slot] >= 0:
                v = table.values[2 * slot + 1]
                g += value_term(reg, primal(reg, v))
                conjugate += conjugate_term(reg, v)
    return g, conjugate

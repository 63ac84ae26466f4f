"""Products of a sparse row and the weights of up to `MOST` outputs, as explicit SIMD vectors.

LLVM cannot know that two arrays of Numba do not overlap, and a loop over a few outputs is too short for the vectors it
would choose: for each stored value it tests for overlaps, then runs a remainder loop. Here up to 32 sums at a time stay
in registers while the values of the row pass by: an epoch of softmax regression on 20 Newsgroups took 33 to 36 ms with
such loops and takes 19 ms. The terms of an output are added in the order of the row, one at a time, whatever range of
outputs is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["MOST", "add_row", "add_to_row", "suits"]

#: More outputs take the loops that LLVM vectorizes, which read the indices of the row once, not once for 32 outputs.
MOST = 128
#: Numbers of a vector, then of those of the remaining outputs, with the numbers of vectors that are kept in registers.
_WIDTHS = ((8, (4, 3, 2, 1)), (4, (1,)), (2, (1,)), (1, (1,)))
#: Products may be fused with sums, but the order of sums remains.
_FLAGS = ("contract", "nsz")

_INDEX = ir.IntType(64)


def suits(indices: Any, data: Any, V: Any, s: Any) -> bool:
    """Whether arrays of these types can be read by their addresses alone: no strides, V and s of one type."""
    return all(array.layout == "C" for array in (indices, data, V, s)) and V.dtype == s.dtype


def _number(value: int) -> Any:
    return ir.Constant(_INDEX, value)


class _Row:
    """The IR of a loop over the stored values of a row: `add_row` and `add_to_row` differ in what it does with them."""

    def __init__(self, target: Any, builder: Any, signature: Any, args: Any) -> None:
        names = ("indices", "data", "begin", "end", "V", "lo", "s", "m")
        kinds, values = dict(zip(names, signature.args, strict=True)), dict(zip(names, args, strict=True))
        self.builder = builder
        arrays = {k: target.make_array(kinds[k])(target, builder, values[k]) for k in ("indices", "data", "V", "s")}
        self.indices, self.data, self.V, self.s = (arrays[k].data for k in ("indices", "data", "V", "s"))
        self.begin, self.lo, self.m = values["begin"], values["lo"], values["m"]
        self.stored = builder.sub(values["end"], self.begin)
        self.real = target.get_value_type(kinds["V"].dtype)
        self.columns = cgutils.unpack_tuple(builder, arrays["V"].shape, 2)[1]
        self.align = target.get_abi_sizeof(self.real)

    def blocks(self, make: Callable[[Any, int, int], None]) -> None:
        """Call ``make(first output, numbers of a vector, vectors)`` for blocks of all outputs."""
        builder = self.builder
        at = cgutils.alloca_once_value(builder, _number(0))
        for lanes, counts in _WIDTHS:
            for count in counts:  # the largest block as often as it fits, then one of a smaller size
                wide = _number(lanes * count)
                cond, body, after = (builder.append_basic_block(name) for name in ("cond", "body", "after"))
                builder.branch(cond)
                builder.position_at_end(cond)
                left = builder.sub(self.m, builder.load(at))
                builder.cbranch(builder.icmp_signed(">=", left, wide), body, after)
                builder.position_at_end(body)
                first = builder.load(at)
                make(first, lanes, count)
                builder.store(builder.add(first, wide), at)
                builder.branch(cond)
                builder.position_at_end(after)

    def vectors(self, pointer: Any, lanes: int, count: int) -> list[Any]:
        """Pointers to vectors that lie one after the other."""
        kind = ir.VectorType(self.real, lanes).as_pointer()
        places = [self.builder.gep(pointer, [_number(lanes * k)]) for k in range(count)]
        return [self.builder.bitcast(place, kind) for place in places]

    def values(self, first: Any, lanes: int, count: int, use: Callable[[Any, list[Any]], None]) -> None:
        """Call ``use(x in all places of a vector, pointers to the weights of its feature)`` for each stored value."""
        builder = self.builder
        kind = ir.VectorType(self.real, lanes)
        nothing = ir.Constant(kind, ir.Undefined)
        with cgutils.for_range(builder, self.stored) as loop:
            t = builder.add(self.begin, loop.index)
            j, x = builder.load(builder.gep(self.indices, [t])), builder.load(builder.gep(self.data, [t]))
            if j.type != _INDEX:
                j = builder.sext(j, _INDEX)
            if x.type != self.real:
                x = (builder.fptrunc if isinstance(x.type, ir.DoubleType) else builder.fpext)(x, self.real)
            x = builder.insert_element(nothing, x, ir.Constant(ir.IntType(32), 0))
            x = builder.shuffle_vector(x, nothing, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))
            place = builder.add(builder.mul(j, self.columns), builder.add(self.lo, first))
            use(x, self.vectors(builder.gep(self.V, [place]), lanes, count))

    def load(self, pointer: Any) -> Any:
        loaded = self.builder.load(pointer)
        loaded.align = self.align
        return loaded

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, pointer).align = self.align

    def plus(self, a: Any, x: Any, b: Any) -> Any:
        """a + x b."""
        return self.builder.fadd(a, self.builder.fmul(x, b, flags=_FLAGS), flags=_FLAGS)


def _add_row(context: Any, indices: Any, data: Any, begin: Any, end: Any, V: Any, lo: Any, s: Any, m: Any) -> Any:
    """``s[k] += sum_t data[t] V[indices[t], lo + k]`` for k < m and begin <= t < end."""

    if not suits(indices, data, V, s):
        return None

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Row(target, builder, signature, args)

        def block(first: Any, lanes: int, count: int) -> None:
            places = row.vectors(builder.gep(row.s, [first]), lanes, count)
            sums = [cgutils.alloca_once_value(builder, row.load(place)) for place in places]

            def add(x: Any, weights: list[Any]) -> None:
                for total, w in zip(sums, weights, strict=True):
                    builder.store(row.plus(builder.load(total), x, row.load(w)), total)

            row.values(first, lanes, count, add)
            for total, place in zip(sums, places, strict=True):
                row.store(builder.load(total), place)

        row.blocks(block)
        return target.get_dummy_value()

    return types.void(indices, data, types.intp, types.intp, V, types.intp, s, types.intp), generate


def _add_to_row(context: Any, indices: Any, data: Any, begin: Any, end: Any, V: Any, lo: Any, s: Any, m: Any) -> Any:
    """``V[indices[t], lo + k] += data[t] s[k]`` for k < m and begin <= t < end."""

    if not suits(indices, data, V, s):
        return None

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Row(target, builder, signature, args)

        def block(first: Any, lanes: int, count: int) -> None:
            moves = [row.load(place) for place in row.vectors(builder.gep(row.s, [first]), lanes, count)]

            def add(x: Any, weights: list[Any]) -> None:
                for move, w in zip(moves, weights, strict=True):
                    row.store(row.plus(row.load(w), x, move), w)

            row.values(first, lanes, count, add)

        row.blocks(block)
        return target.get_dummy_value()

    return types.void(indices, data, types.intp, types.intp, V, types.intp, s, types.intp), generate


#: ``add_row(indices, data, begin, end, V, lo, s, m)``: s[k] += sum_t data[t] V[indices[t], lo + k], k < m, begin <= t <
#: end. V, s in C order and of one type.
add_row: Any = intrinsic(_add_row)
#: ``add_to_row(indices, data, begin, end, V, lo, s, m)``: V[indices[t], lo + k] += data[t] s[k].
add_to_row: Any = intrinsic(_add_to_row)

"""Compiled conversion of decimal text to the nearest float64.

A decimal number is w * 10^q with an integer w. Two methods find the nearest double without big integers:

* Clinger (PLDI 1990): for w <= 2^53 and |q| <= 22 both factors are exact doubles, and IEEE 754 rounds their product or
  quotient correctly.
* Lemire, "Number parsing at a gigabyte per second" (Software: Practice and Experience 51, 2021, algorithm 1):
  for w < 2^64 the product with the leading 128 bits of 5^q decides the rounding, except in a few detected cases.

The other numbers (more than 19 digits, results that are not normal, those few cases) are left to Python's ``float``,
which is exact and slow.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["MALFORMED", "NUMBER", "UNDECIDED", "exact", "number"]

#: Without the fast-math flags of the other kernels, which would break exact rounding.
exact = numba.njit(nogil=True, error_model="numpy")

# States that `number` returns.
NUMBER = 0
MALFORMED = 1
UNDECIDED = 2

SMALLEST_POWER = -342
LARGEST_POWER = 308


def _powers_of_five() -> npt.NDArray[np.uint64]:
    """The leading 128 bits (high word, low word) of 5^q, for each power q that gives a finite double.

    5^q is scaled by a power of two into [2^127, 2^128): rounded down for q >= 0; for q < 0 the reciprocal,
    rounded up where the division can be exact for some w (q >= -27), as section 5 of the paper asks.
    """
    table = np.empty((LARGEST_POWER - SMALLEST_POWER + 1, 2), dtype=np.uint64)
    for row, q in enumerate(range(SMALLEST_POWER, LARGEST_POWER + 1)):
        if q >= 0:
            bits = (5**q).bit_length()
            leading = 5**q << (128 - bits) if bits <= 128 else 5**q >> (bits - 128)
        else:
            divisor = 5**-q
            leading = (1 << (127 + divisor.bit_length())) // divisor + (q >= -27)
        table[row] = leading >> 64, leading & (2**64 - 1)
    return table


_FIVE = _powers_of_five()
_TEN = np.array([10.0**k for k in range(23)])

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_U3 = np.uint64(3)
_U10 = np.uint64(10)
_U32 = np.uint64(32)
_U63 = np.uint64(63)
_LOW32 = np.uint64(0xFFFFFFFF)
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_EXACT_INTEGERS = np.uint64(1 << 53)


@exact
def _high_word(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of the product of two 64-bit words."""
    a_low, a_high = a & _LOW32, a >> _U32
    b_low, b_high = b & _LOW32, b >> _U32
    low = a_low * b_low
    cross = a_high * b_low + (low >> _U32)
    other = a_low * b_high + (cross & _LOW32)
    return a_high * b_high + (cross >> _U32) + (other >> _U32)


@exact
def _leading_zeros(word: np.uint64) -> np.uint64:
    """The number of leading zero bits of a non-zero word."""
    count = _U0
    for step in (np.uint64(32), np.uint64(16), np.uint64(8), np.uint64(4), _U2, _U1):
        if word >> (np.uint64(64) - step) == _U0:
            word = word << step
            count += step
    return count


@exact
def _lemire(w: np.uint64, q: int) -> tuple[bool, float]:
    """w * 10^q for w in [1, 2^64): ``(decided, value)``."""
    if q < SMALLEST_POWER or q > LARGEST_POWER:
        return False, 0.0
    zeros = _leading_zeros(w)
    w = w << zeros
    five_high, five_low = _FIVE[q - SMALLEST_POWER, 0], _FIVE[q - SMALLEST_POWER, 1]
    high, low = _high_word(w, five_high), w * five_high
    # 55 bits decide: 53 of the result, one for rounding, one because the product may lead with a zero bit.
    # Only when the 9 below are all ones can the truncated part of the product carry into them.
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        carry = _high_word(w, five_low)
        low = low + carry
        if low < carry:
            high = high + _U1
    if low == _ONES and (q < -27 or q > 55):
        return False, 0.0
    top = high >> _U63
    shift = top + np.uint64(9)
    mantissa = high >> shift
    # (217706 q) >> 16 is floor(q log2 10) over the whole range of powers.
    power = ((217706 * q) >> 16) + 63 + int(top) - int(zeros)
    if power < -1021 or power > 1022:
        return False, 0.0
    # Halfway between two doubles: possible only for these powers, and seen as a product without lower bits.
    if low <= _U1 and q >= -4 and q <= 23 and mantissa & _U3 == _U1 and (mantissa << shift) == high:
        mantissa = mantissa - _U1
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    # Rounding up may carry to 2^53, for which the product below is still exact.
    return True, math.ldexp(np.float64(mantissa), power - 52)


@exact
def _nearest(w: np.uint64, q: int) -> tuple[bool, float]:
    """The double nearest to w * 10^q: ``(decided, value)``."""
    if w <= _EXACT_INTEGERS and q >= -22 and q <= 22:
        if q < 0:
            return True, np.float64(w) / _TEN[-q]
        return True, np.float64(w) * _TEN[q]
    if w == _U0:
        return True, 0.0
    return _lemire(w, q)


@exact
def number(text: npt.NDArray[np.uint8], at: int) -> tuple[int, float, int, bool]:
    """Parse the longest prefix ``[+-] digits [. digits] [e [+-] digits]`` of ``text[at:]``.

    Return ``(state, value, end, integral)``. ``value`` is valid if ``state`` is ``NUMBER``; the value of an
    ``UNDECIDED`` number is left to Python's float. ``end`` is the first byte not read; ``integral`` says that there is
    neither a point nor an exponent.

    ``text`` must end in a byte that no number contains, since no bounds are checked.
    """
    negative = False
    if text[at] == 45:  # minus
        negative = True
        at += 1
    elif text[at] == 43:  # plus
        at += 1
    begin = at
    w = _U0
    digit = text[at] - 48
    while digit >= 0 and digit <= 9:
        w = w * _U10 + np.uint64(digit)
        at += 1
        digit = text[at] - 48
    digits = at - begin
    q = 0
    integral = True
    if text[at] == 46:  # point
        integral = False
        at += 1
        behind = at
        digit = text[at] - 48
        while digit >= 0 and digit <= 9:
            w = w * _U10 + np.uint64(digit)
            at += 1
            digit = text[at] - 48
        q = behind - at
        digits -= q
    if digits == 0:
        return MALFORMED, 0.0, at, False
    if digits > 19:
        # Leading zeros do not count: 0.000123456789012345678 is still exact in w.
        for place in range(begin, at):
            if text[place] != 48 and text[place] != 46:
                break
            digits -= text[place] == 48
    if text[at] | 32 == 101:  # e or E
        integral = False
        at += 1
        down = text[at] == 45
        if down or text[at] == 43:
            at += 1
        exponent = 0
        behind = at
        digit = text[at] - 48
        while digit >= 0 and digit <= 9:
            if exponent < 100000:
                exponent = 10 * exponent + digit
            at += 1
            digit = text[at] - 48
        if at == behind:
            return MALFORMED, 0.0, at, False
        q += -exponent if down else exponent
    if digits > 19:
        return UNDECIDED, 0.0, at, integral
    decided, value = _nearest(w, q)
    if not decided:
        return UNDECIDED, 0.0, at, integral
    return NUMBER, -value if negative else value, at, integral

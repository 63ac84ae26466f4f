"""The kernel's numbers are Python's numbers, to the last bit."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from manyclass.io._decimal import MALFORMED, NUMBER, UNDECIDED, number

digits = st.text("0123456789", min_size=1, max_size=30)


def parse(text: str) -> tuple[int, float, int, bool]:
    state, value, end, integral = number(np.frombuffer(text.encode() + b"\n", dtype=np.uint8), 0)
    return state, value, end, integral


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def check(text: str) -> int:
    state, value, end, integral = parse(text)
    assert state != MALFORMED
    assert end == len(text)
    assert integral == text.lstrip("+-").isdecimal()
    if state == NUMBER:
        assert bits(value) == bits(float(text))
    return state


@given(
    st.sampled_from(["", "+", "-"]),
    digits,
    st.none() | digits,
    st.none() | st.integers(-400, 400),
    st.sampled_from("eE"),
)
def test_any_spelling_is_read_as_python_reads_it(sign, whole, part, exponent, e):
    text = sign + whole + ("" if part is None else f".{part}") + ("" if exponent is None else f"{e}{exponent:+d}")
    check(text)


@given(st.integers(0, 2**64 - 1))
def test_the_shortest_text_of_every_normal_double_is_decided(pattern):
    (value,) = struct.unpack("<d", struct.pack("<Q", pattern))
    if not np.isfinite(value):
        return
    state = check(repr(value))
    if 1e-300 < abs(value) < 1e300:
        assert state == NUMBER


@given(st.integers(2**53, 2**54), st.integers(-63, 9))
def test_halfway_between_two_doubles_goes_to_the_even_one(mantissa, exponent):
    # An odd mantissa of 54 bits lies halfway; with few digits it takes the short ways of the parser.
    value = (2 * (mantissa // 2) + 1) * 2 ** max(exponent, 0)
    text = str(value) if exponent >= 0 else str(value * 5**-exponent) + f"e{exponent}"
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-0",
        "+0.0",
        ".5",
        "5.",
        "1e22",
        "1e23",
        "-1e-22",
        "9007199254740993",
        "9223372036854775808",
        "8.5e-5",
        "1.7976931348623157e307",
        "0.000000000000000000001234567890123456789",
        "0e99999999999",
    ],
)
def test_examples_are_decided(text):
    assert check(text) == NUMBER


@pytest.mark.parametrize(
    "text",
    ["5e-324", "2.2250738585072011e-308", "1e999", "1e-999", "1.7976931348623157e308", "18446744073709551615"],
)
def test_what_the_kernel_cannot_tell_is_left_to_python(text):
    assert check(text) == UNDECIDED


@pytest.mark.parametrize("text", ["", "+", "-", ".", "e5", "1e", "1e+", "nan", "inf", "-.e1", "--1", "x"])
def test_what_is_no_number_is_malformed(text):
    assert parse(text)[0] == MALFORMED


@pytest.mark.parametrize(("text", "read"), [("1_0", 1), ("0x1", 1), ("1:2", 1), ("1.5.2", 3), ("1e5e", 3), ("1 2", 1)])
def test_reading_stops_at_the_first_byte_that_does_not_belong(text, read):
    assert parse(text)[2] == read

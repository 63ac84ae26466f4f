"""The compiled parser of lines ``label[,label...] index:value ...``.

The kernel scans a block of whole lines once, writes the numbers into scratch arrays and stops at the first invalid
token. It reports byte offsets; Python code computes line numbers and messages from them, and only for errors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..kernels.jit import inline, jit
from ._decimal import MALFORMED, NUMBER, UNDECIDED, number

__all__ = ["Counts", "Rules", "Scratch", "parse_lines"]

# Errors (Counts.error).
FINE = 0
NOT_A_PAIR = 1
NEGATIVE_INDEX = 2
HUGE_INDEX = 3
BAD_VALUE = 4
BELOW_FIRST = 5
BEYOND_LAST = 6
TOO_LARGE = 7
NO_LABEL = 8
EMPTY_LABEL = 9

# Kinds of labels (Scratch.label_kind).
INTEGER = 0
REAL = 1
OTHER = 2  # a name; a code such as 0042; a number with too many digits for an int64 or for the kernel

#: Above any index of 18 digits.
NO_BOUND = np.iinfo(np.int64).max

_NEWLINE, _HASH, _COMMA, _COLON, _MINUS, _PLUS, _ZERO = 10, 35, 44, 58, 45, 43, 48


class Rules(NamedTuple):
    """Which lines the kernel accepts."""

    lowest: int  # smallest index allowed
    highest: int  # largest index allowed
    drop: bool  # leave features above `highest` out; else they are an error
    limit: float  # smallest magnitude that is infinite in the type of the values
    blank_rows: bool  # an empty line is a row (XMC); else it is skipped


class Scratch(NamedTuple):
    """Arrays for the content of a block, large enough for any block of the given length."""

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    undecided: npt.NDArray[np.int32]  # positions in `values` to be parsed by Python's float
    undecided_at: npt.NDArray[np.int32]  # offsets of their texts
    row_features: npt.NDArray[np.int32]
    row_labels: npt.NDArray[np.int32]
    unsorted_rows: npt.NDArray[np.int32]
    label_start: npt.NDArray[np.int32]
    label_stop: npt.NDArray[np.int32]
    label_kind: npt.NDArray[np.int8]
    label_integer: npt.NDArray[np.int64]
    label_real: npt.NDArray[np.float64]

    @classmethod
    def for_block(cls, length: int) -> Scratch:
        """Allocate arrays for a block of ``length`` bytes."""
        # A feature takes four bytes at least ("1:1 "), a label two ("1,"), a row one (an empty line).
        features, labels, rows = length // 4 + 1, length // 2 + 1, length + 1
        return cls(
            indices=np.empty(features, dtype=np.int64),
            values=np.empty(features),
            undecided=np.empty(features, dtype=np.int32),
            undecided_at=np.empty(features, dtype=np.int32),
            row_features=np.empty(rows, dtype=np.int32),
            row_labels=np.empty(rows, dtype=np.int32),
            unsorted_rows=np.empty(features, dtype=np.int32),
            label_start=np.empty(labels, dtype=np.int32),
            label_stop=np.empty(labels, dtype=np.int32),
            label_kind=np.empty(labels, dtype=np.int8),
            label_integer=np.empty(labels, dtype=np.int64),
            label_real=np.empty(labels),
        )


class Counts(NamedTuple):
    """How many entries of the scratch arrays a block has filled, and facts about it."""

    error: int
    at: int  # offset of the invalid token
    lines: int
    rows: int
    features: int
    labels: int
    undecided: int
    unsorted_rows: int
    smallest: int  # smallest and largest index kept (NO_BOUND and -1: none)
    largest: int
    dropped: int
    queries: int  # qid tokens


@inline
def _is_blank(byte: int) -> bool:
    return byte == 32 or (byte >= 9 and byte <= 13 and byte != _NEWLINE)


@inline
def _ends_token(byte: int) -> bool:
    return (byte <= 32 and (byte == _NEWLINE or _is_blank(byte))) or byte == _HASH


@inline
def _read_label(text: npt.NDArray[np.uint8], start: int, stop: int, scratch: Scratch, place: int) -> None:
    """Store the label ``text[start:stop]`` at position ``place``."""
    scratch.label_start[place] = start
    scratch.label_stop[place] = stop
    state, real, end, integral = number(text, start)
    kind = OTHER
    if state == NUMBER and end == stop:
        if not integral:
            kind = REAL
        else:
            signed = text[start] == _MINUS or text[start] == _PLUS
            first = start + 1 if signed else start
            if stop - first == 1 or (stop - first <= 18 and text[first] != _ZERO):
                kind = INTEGER
                integer = 0
                for place_of_digit in range(first, stop):
                    integer = 10 * integer + (text[place_of_digit] - _ZERO)
                scratch.label_integer[place] = -integer if text[start] == _MINUS else integer
    scratch.label_kind[place] = kind
    scratch.label_real[place] = real


@inline
def _why_no_pair(text: npt.NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the error of a token without a valid index: it starts at ``at``, its digits end before ``stop``."""
    if text[at] == _MINUS:
        return NEGATIVE_INDEX
    if stop > at and text[stop] == _COLON:
        return HUGE_INDEX
    return NOT_A_PAIR


@jit
def parse_lines(text: npt.NDArray[np.uint8], rules: Rules, scratch: Scratch) -> tuple[int, ...]:
    """Parse the lines of ``text`` (uint8, ending in a newline) into ``scratch``; return the fields of `Counts`."""
    indices, values = scratch.indices, scratch.values
    lowest, highest, limit = rules.lowest, rules.highest, rules.limit
    lines = rows = features = labels = undecided = unsorted_rows = dropped = queries = 0
    smallest, largest = NO_BOUND, -1
    error = FINE
    at = 0
    while at < text.size and error == FINE:
        line = at
        while _is_blank(text[at]):
            at += 1
        if text[at] == _NEWLINE or text[at] == _HASH:
            while text[at] != _NEWLINE:
                at += 1
            at += 1
            lines += 1
            if rules.blank_rows:
                scratch.row_features[rows] = 0
                scratch.row_labels[rows] = 0
                rows += 1
            continue

        # The labels are the first token, unless the line begins with a blank and that token is a feature.
        row_labels = labels
        stop = at
        while not _ends_token(text[stop]) and text[stop] != _COLON:
            stop += 1
        if text[stop] == _COLON:
            if at == line:
                error = NO_LABEL
                break
        else:
            while True:
                start = at
                while not _ends_token(text[at]) and text[at] != _COMMA:
                    at += 1
                if at == start:
                    error = EMPTY_LABEL
                    break
                _read_label(text, start, at, scratch, labels)
                labels += 1
                if text[at] != _COMMA:
                    break
                at += 1
            if error != FINE:
                break

        row_features = features
        previous = -1
        ascending = True
        while True:
            while _is_blank(text[at]):
                at += 1
            token = at
            index = 0
            digit = text[at] - _ZERO
            while digit >= 0 and digit <= 9:
                index = 10 * index + digit
                at += 1
                digit = text[at] - _ZERO
            if at == token and (text[at] == _NEWLINE or text[at] == _HASH):
                break
            if text[at] != _COLON or at == token or at - token > 18:
                # "qid:". The block ends in a newline, at which the comparison stops: no bound is exceeded.
                if text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == _COLON:
                    queries += 1
                    while not _ends_token(text[at]):
                        at += 1
                    continue
                error = _why_no_pair(text, token, at)
                at = token
                break
            at += 1
            state, value, stop, _ = number(text, at)
            if state == MALFORMED or not _ends_token(text[stop]):
                error = BAD_VALUE
            elif index < lowest:
                error = BELOW_FIRST
            elif index > highest and not rules.drop:
                error = BEYOND_LAST
            elif state == NUMBER and not abs(value) < limit:
                error = TOO_LARGE
            if error != FINE:
                at = token
                break
            if index > highest:
                dropped += 1
            else:
                if state == UNDECIDED:
                    scratch.undecided[undecided] = features
                    scratch.undecided_at[undecided] = at
                    undecided += 1
                indices[features] = index
                values[features] = value
                features += 1
                ascending = ascending and index > previous
                previous = index
                smallest = min(smallest, index)
                largest = max(largest, index)
            at = stop
        if error != FINE:
            break
        if not ascending:
            scratch.unsorted_rows[unsorted_rows] = rows
            unsorted_rows += 1
        scratch.row_features[rows] = features - row_features
        scratch.row_labels[rows] = labels - row_labels
        rows += 1
        while text[at] != _NEWLINE:
            at += 1
        at += 1
        lines += 1
    return (
        error, at, lines, rows, features, labels, undecided, unsorted_rows, smallest, largest, dropped, queries,
    )  # fmt: skip

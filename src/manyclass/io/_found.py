"""What the kernel found in a block of lines, and the sentences for what is wrong with it."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from . import _parse
from ._parse import Counts, Rules, Scratch
from .errors import DataFormatError
from .streams import Block, StrPath

__all__ = ["Found"]

_TOKEN = re.compile(rb"[^\s#]*")
_DATA_LINE = re.compile(rb"^[ \t\r\v\f]*[^\s#]", re.MULTILINE)


class Found(NamedTuple):
    """What the kernel found in a block."""

    path: StrPath
    block: Block
    first_line: int  # the number, from 1, of the first line of the block
    rules: Rules
    counts: Counts
    scratch: Scratch

    def line_at(self, offset: int) -> int:
        """The number of the line that holds a byte."""
        return self.first_line + self.block.data.count(b"\n", 0, offset)

    def line_of(self, row: int) -> int:
        """The number of the line that holds a row."""
        if self.rules.blank_rows:
            return self.first_line + row
        for place, match in enumerate(_DATA_LINE.finditer(self.block.data)):
            if place == row:
                return self.line_at(match.start())
        raise IndexError(f"row {row} is not in this block")

    def text(self, offset: int) -> bytes:
        """The token that starts at an offset."""
        match = _TOKEN.match(self.block.data, offset)
        return b"" if match is None else match.group()

    def fail(self, what: str, line: int) -> NoReturn:
        """Refuse the file."""
        raise DataFormatError(self.path, what, line)

    def check(self) -> None:
        """Raise the error that the kernel stopped at, if it did."""
        error, at = self.counts.error, self.counts.at
        if error == _parse.FINE:
            return
        token = self.text(at)[:40].decode("utf-8", "replace")
        expected = "expected INDEX:VALUE such as 7:0.25"
        rules = self.rules
        if error == _parse.NOT_A_PAIR:
            what = f"{token!r} is not a feature; {expected}"
        elif error == _parse.NEGATIVE_INDEX:
            what = f"the feature index in {token!r} is negative; {expected}"
        elif error == _parse.HUGE_INDEX:
            what = f"the feature index in {token!r} has more than 18 digits; {expected}"
        elif error == _parse.BAD_VALUE:
            what = f"the value in {token!r} is not a finite number; {expected}"
        elif error == _parse.BELOW_FIRST:
            what = f"the feature index in {token!r} is below {rules.lowest}, the first index of this file"
        elif error == _parse.BEYOND_LAST:
            what = f"the feature index in {token!r} is beyond {rules.highest}, the last index allowed"
        elif error == _parse.TOO_LARGE:
            advice = "" if rules.limit == float("inf") else " as float32: read the file as float64"
            what = f"the value in {token!r} is infinite{advice}"
        elif error == _parse.NO_LABEL:
            what = f"the line begins with the feature {token!r}; expected a label before it, or a blank for none"
        else:
            what = "a label is empty; expected LABEL or LABEL,LABEL,... without blanks"
        self.fail(what, self.line_at(at))

"""From blocks of ``labels index:value ...`` lines to a CSR matrix and targets: what svmlight and XMC share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from . import _parse
from ._growing import GrowingArray
from ._parse import Counts, Rules, Scratch
from .errors import DataFormatError
from .labels import Targets, Task, TextLabels, number_targets, real_label, real_targets
from .streams import Block, StrPath

__all__ = ["Found", "LabelSink", "NumberLabels", "RealLabels", "Scan", "TextualLabels", "overflow", "scan"]

_INT32_MAX = np.iinfo(np.int32).max
_TOKEN = re.compile(rb"[^\s#]*")
_DATA_LINE = re.compile(rb"^[ \t\r\v\f]*[^\s#]", re.MULTILINE)


def overflow(dtype: np.dtype[Any]) -> float:
    """The smallest double that becomes infinite in ``dtype``."""
    info = np.finfo(dtype)
    if info.bits == 64:
        return float("inf")
    largest = float(info.max)
    return largest + (largest - float(np.nextafter(info.max, dtype.type(0)))) / 2


class Found(NamedTuple):
    """What the kernel found in a block."""

    path: StrPath
    block: Block
    rules: Rules
    counts: Counts
    scratch: Scratch

    def line_at(self, offset: int) -> int:
        """The number of the line that holds a byte."""
        return self.block.first_line + self.block.data.count(b"\n", 0, offset)

    def line_of(self, row: int) -> int:
        """The number of the line that holds a row."""
        if self.rules.blank_rows:
            return self.block.first_line + row
        for place, match in enumerate(_DATA_LINE.finditer(self.block.data)):
            if place == row:
                return self.line_at(match.start())
        raise IndexError(f"row {row} is not in this block")

    def token(self, offset: int) -> str:
        """The token that starts at an offset, cut to what fits in a sentence."""
        match = _TOKEN.match(self.block.data, offset, offset + 40)
        return "" if match is None else match.group().decode("utf-8", "replace")

    def fail(self, what: str, line: int) -> NoReturn:
        raise DataFormatError(self.path, what, line)

    def labels(self) -> list[bytes]:
        """The texts of the labels."""
        scratch, n = self.scratch, self.counts.labels
        data = self.block.data
        return [data[i:j] for i, j in zip(scratch.label_start[:n].tolist(), scratch.label_stop[:n].tolist())]

    def label_counts(self) -> npt.NDArray[np.int32]:
        return self.scratch.row_labels[: self.counts.rows]

    def check(self) -> None:
        """Raise the error that the kernel stopped at, if it did."""
        error, at = self.counts.error, self.counts.at
        if error == _parse.FINE:
            return
        token = self.token(at)
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
            what = (
                f"the feature index in {token!r} is beyond {rules.highest}, the last index for "
                f"{rules.highest - rules.lowest + 1} features"
            )
        elif error == _parse.TOO_LARGE:
            what = f"the value in {token!r} is too large for its type ({rules.limit:.3g} and above is infinite)"
        elif error == _parse.NO_LABEL:
            what = f"the line begins with the feature {token!r}; expected a label before it, or a blank for none"
        else:
            what = "a label is empty; expected LABEL or LABEL,LABEL,... without blanks"
        self.fail(what, self.line_at(at))


class LabelSink(Protocol):
    """Collects the labels of a file, block by block."""

    def add(self, found: Found) -> bool:
        """Take the labels of a block; False if the file has to be read again, with another sink."""

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets | None:
        """The targets, from the number of labels of each row; None to read again."""


def _check_counts(found: Found, per_row: int, task: Task) -> None:
    wrong = np.flatnonzero(found.label_counts() != per_row)
    if wrong.size:
        row = int(wrong[0])
        has = int(found.label_counts()[row])
        what = f"{has} labels, where the rows before have {per_row}: task={task!r} needs the same in each row"
        found.fail(what, found.line_of(row))


class NumberLabels:
    """Labels that are numbers: integers as long as they are, doubles as soon as one is not."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._values = GrowingArray(np.int64)
        self._largest = 0

    def add(self, found: Found) -> bool:
        n = found.counts.labels
        kinds = found.scratch.label_kind[:n]
        worst = kinds.max(initial=_parse.INTEGER)
        if worst == _parse.OTHER:
            return False
        integers = found.scratch.label_integer[:n]
        if worst == _parse.REAL and self._values.dtype.kind == "i":
            self._values = self._values.astype(np.float64)
        if self._values.dtype.kind == "i":
            self._values.extend(integers, found.block.fraction)
        else:
            self._values.extend(found.scratch.label_real[:n], found.block.fraction)
        return True

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets | None:
        return number_targets(self._values.finish(), counts, self._task)

"""Where the labels of a file of lines go, block by block."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from ._found import Found
from ._growing import GrowingArray
from ._parse import INTEGER, OTHER, REAL
from .labels import Targets, Task, TextLabels, number_targets, real_label, real_targets
from .streams import StrPath

__all__ = ["LabelSink", "NumberLabels", "RealLabels", "TextsNeeded", "TextualLabels"]


class TextsNeeded(Exception):
    """It turned out that labels taken for numbers are names: the file has to be read again, with their texts."""


class LabelSink(Protocol):
    """Collects the labels of a file."""

    def add(self, found: Found) -> None:
        """Take the labels of a block."""

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        """The targets, from the number of labels of each row."""


class NumberLabels:
    """Labels that are numbers: integers as long as they are, doubles as soon as one is not."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._values = GrowingArray(np.int64)
        self._largest = 0

    def add(self, found: Found) -> None:
        n = found.counts.labels
        kinds = found.scratch.label_kind[:n]
        integers = found.scratch.label_integer[:n]
        worst = kinds.max(initial=INTEGER)
        if worst == OTHER:
            raise TextsNeeded
        magnitudes = np.abs(integers)
        self._largest = max(self._largest, int(magnitudes.max(initial=0, where=kinds == INTEGER)))
        if worst == REAL and self._values.dtype.kind == "i":
            self._values = self._values.astype(np.float64)
        if self._values.dtype.kind == "i":
            self._values.extend(integers, found.block.fraction)
        elif self._largest <= 2**53:
            self._values.extend(found.scratch.label_real[:n], found.block.fraction)
        else:
            raise TextsNeeded  # a double would take two such classes for one

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        targets = number_targets(self._values.finish(), counts, self._task)
        if targets is None:
            raise TextsNeeded
        return targets


class RealLabels:
    """The targets of a regression."""

    def __init__(self) -> None:
        self._values = GrowingArray(np.float64)

    def add(self, found: Found) -> None:
        n = found.counts.labels
        values = found.scratch.label_real[:n]
        for place in np.flatnonzero(found.scratch.label_kind[:n] == OTHER).tolist():
            start, stop = found.scratch.label_start[place], found.scratch.label_stop[place]
            text = found.block.data[start:stop].decode("utf-8", "replace")
            values[place] = real_label(found.path, text, found.line_at(int(start)))
        self._values.extend(values, found.block.fraction)

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        return real_targets(self._values.finish(), counts)


class TextualLabels:
    """Labels that are names."""

    def __init__(self, path: StrPath, task: Task) -> None:
        self._path = path
        self._task = task
        self._texts = TextLabels()
        self._codes = GrowingArray(np.int32)
        self._suspect_lines: list[int] = []

    def add(self, found: Found) -> None:
        starts = found.scratch.label_start[: found.counts.labels].tolist()
        stops = found.scratch.label_stop[: found.counts.labels].tolist()
        data = found.block.data
        codes = []
        for start, stop in zip(starts, stops):
            try:
                codes.append(self._texts[data[start:stop].decode()])
            except UnicodeDecodeError as error:
                found.fail(f"the label is not UTF-8 text ({error.reason})", found.line_at(start))
            if len(self._texts.suspects) > len(self._suspect_lines):
                self._suspect_lines.append(found.line_at(start))
        self._codes.extend(np.array(codes, dtype=np.int32), found.block.fraction)

    def targets(self, counts: npt.NDArray[np.int32]) -> Targets:
        return self._texts.targets(self._path, self._codes.finish(), counts, self._task, self._suspect_lines)

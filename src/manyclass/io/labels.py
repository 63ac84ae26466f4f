"""From what a file says of a row's labels to the targets of a learner."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from .errors import DataFormatError
from .streams import StrPath, open_bytes

__all__ = [
    "TASKS",
    "LabelColumn",
    "Targets",
    "Task",
    "TextLabels",
    "indicator",
    "number_targets",
    "read_label_lines",
    "real_label",
    "real_targets",
]

Task: TypeAlias = Literal["auto", "classification", "multilabel", "regression"]
TASKS: tuple[str, ...] = get_args(Task)

#: Up to here a double holds every integer.
_EXACT = 2.0**53

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})\Z")
_CODE = re.compile(r"[+-]?(?:0[0-9]+|[0-9]{19,})\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)\Z", re.IGNORECASE)


class Targets(NamedTuple):
    """The targets of a file: `y` as in `Dataset`, and the names of its columns if it is an indicator."""

    y: Any  # ndarray, csr_matrix or None
    names: npt.NDArray[Any] | None = None


def indicator(columns: npt.NDArray[Any], counts: npt.NDArray[Any], n_columns: int) -> csr_matrix:
    """The 0/1 matrix (int8, CSR) whose row i holds the next ``counts[i]`` of ``columns``; repeats count once."""
    indptr = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    ones = np.ones(columns.size, dtype=np.int8)
    matrix = csr_matrix((ones, columns, indptr), shape=(counts.size, n_columns))
    # A label may be repeated more often than an int8 can count: the sum is not what is wanted, only that it
    # is there.
    matrix.sum_duplicates()
    matrix.data = np.ones(matrix.nnz, dtype=np.int8)
    return matrix


def _is_multilabel(counts: npt.NDArray[Any], task: Task) -> bool:
    return task == "multilabel" or (task == "auto" and bool(np.any(counts != 1)))


def _whole(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64] | None:
    """The values as integers, if that is what they are."""
    if np.all(np.abs(values) <= _EXACT) and np.all(values == np.rint(values)):
        return values.astype(np.int64)
    return None


def real_targets(values: npt.NDArray[np.float64], counts: npt.NDArray[Any]) -> Targets:
    """Targets of a regression, from as many values in each row as in the first (the caller saw to it)."""
    if not values.size:
        return Targets(None)
    return Targets(values if counts[0] == 1 else values.reshape(counts.size, -1))


def number_targets(values: npt.NDArray[Any], counts: npt.NDArray[Any], task: Task) -> Targets | None:
    """Classes (or the targets of a regression, if the task is open) from labels that are all numbers.

    Parameters
    ----------
    values : ndarray of int64 or float64
        The labels of all rows, one after the other.
    counts : ndarray of int
        How many labels each row has.
    task : str
        Not ``"regression"``. For ``"classification"`` each row has one label: the caller saw to it.

    Returns
    -------
    Targets or None
        None if it is the text of the labels that counts.
    """
    if not values.size:
        return Targets(None)
    multilabel = _is_multilabel(counts, task)
    if values.dtype.kind == "f":
        whole = _whole(values)
        if whole is None:
            # 401.9 is a target in one file and a diagnosis in another. Only the former fits a single label.
            return Targets(values) if task == "auto" and not multilabel else None
        values = whole
    if not multilabel:
        return Targets(values)
    names, columns = np.unique(values, return_inverse=True)
    return Targets(indicator(columns, counts, names.size), names)


class TextLabels(dict[str, int]):
    """Numbers distinct labels in the order in which they appear, and remembers those that may be accidents.

    ``labels[text]`` is the number of a label, a new one if it was not seen before. "nan" may be a word, but
    among numbers it is a missing value: `suspects` are the numbers of such labels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.suspects: list[int] = []

    def __missing__(self, text: str) -> int:
        number = len(self)
        self[text] = number
        if _NOT_FINITE.match(text):
            self.suspects.append(number)
        return number

    def _numbers(self, *, real: bool) -> npt.NDArray[Any] | None:
        """What the labels are as numbers (int64; float64 if `real` allows), None if they are names."""
        texts = list(self)
        if all(_INTEGER.match(text) for text in texts):
            return np.array([int(text) for text in texts], dtype=np.int64)
        # Two codes that look different, such as 01 and 1, stay different; so do integers beyond a double.
        if any(_CODE.match(text) or not _NUMBER.match(text) for text in texts):
            return None
        if any(_INTEGER.match(text) and abs(int(text)) > _EXACT for text in texts):
            return None
        values = np.array([float(text) for text in texts])
        whole = _whole(values)
        return values if whole is None and real and np.all(np.isfinite(values)) else whole

    def targets(
        self,
        path: StrPath,
        codes: npt.NDArray[Any],
        counts: npt.NDArray[Any],
        task: Task,
        suspect_lines: Sequence[int],
    ) -> Targets:
        """Targets from the numbers given to the labels of all rows, one after the other (not for regression)."""
        if not codes.size:
            return Targets(None)
        for suspect, line in zip(self.suspects, suspect_lines):
            others = [text for text, number in self.items() if number not in self.suspects]
            if others and all(_NUMBER.match(text) for text in others):
                text = next(text for text, number in self.items() if number == suspect)
                raise DataFormatError(path, f"the label {text!r} is no finite number, as the others are", line)
        multilabel = _is_multilabel(counts, task)
        names = self._numbers(real=task == "auto" and not multilabel)
        if names is None:
            names = np.array(list(self))
        if not multilabel:
            return Targets(names[codes])
        names, column = np.unique(names, return_inverse=True)
        return Targets(indicator(column[codes], counts, names.size), names)


def real_label(path: StrPath, text: str, line: int) -> float:
    """The finite number that a label of a regression is."""
    value = float(text) if _NUMBER.match(text) else float("nan")
    if not np.isfinite(value):
        raise DataFormatError(path, f"the label {text!r} is no finite number, as a regression needs it", line)
    return value


class LabelColumn:
    """Labels that come as texts, row by row (a table's column, a file of labels)."""

    def __init__(self, path: StrPath, task: Task, separator: str | None = None) -> None:
        self._path = path
        self._task = task
        self._separator = separator
        self._texts = TextLabels()
        self._codes = array("i")
        self._counts = array("i")
        self._reals = array("d")
        self._lines: list[int] = []

    def add(self, text: str, line: int) -> None:
        """The label (or, with a separator, labels) of the next row."""
        parts = [text.strip()] if self._separator is None else text.split(self._separator)
        labels = [part for part in map(str.strip, parts) if part]
        if not labels and self._separator is None:
            raise DataFormatError(self._path, "the label is empty", line)
        self._counts.append(len(labels))
        if self._task == "regression":
            if len(labels) != self._counts[0]:
                what = f"{len(labels)} targets, where the rows before have {self._counts[0]}"
                raise DataFormatError(self._path, what, line)
            self._reals.extend(real_label(self._path, label, line) for label in labels)
            return
        for label in labels:
            self._codes.append(self._texts[label])
            if len(self._texts.suspects) > len(self._lines):
                self._lines.append(line)

    def targets(self) -> Targets:
        """The targets of all rows."""
        counts = np.array(self._counts, dtype=np.int64)
        if self._task == "regression":
            return real_targets(np.array(self._reals, dtype=np.float64), counts)
        task: Task = "multilabel" if self._separator is not None else self._task
        codes = np.array(self._codes, dtype=np.int32)
        return self._texts.targets(self._path, codes, counts, task, self._lines)


def read_label_lines(path: StrPath, task: Task = "auto", separator: str | None = None) -> Targets:
    """Labels from a text file with the label (or labels) of one row on each line."""
    column = LabelColumn(path, task, separator)
    with open_bytes(path) as source:
        for number, line in enumerate(source.lines(), start=1):
            try:
                column.add(line.decode("utf-8-sig" if number == 1 else "utf-8"), number)
            except UnicodeDecodeError as error:
                raise DataFormatError(path, f"not UTF-8 text ({error.reason})", number) from error
    return column.targets()

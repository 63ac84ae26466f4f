"""Converts the labels of a file to targets: classes, an indicator matrix or numbers."""

from __future__ import annotations

import numbers
import re
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from manyclass.runtime.memory import available

from ._csr import row_pointers
from ._together import Together, any_of, check_rows, row_range
from .errors import DataFormatError, counted
from .streams import StrPath, open_bytes

__all__ = [
    "TASKS",
    "LabelColumn",
    "Targets",
    "Task",
    "TextLabels",
    "check_width",
    "checked_dtype",
    "indicator",
    "number_targets",
    "read_label_lines",
    "real_label",
    "real_targets",
]

Task: TypeAlias = Literal["auto", "classification", "multilabel", "regression"]
TASKS: tuple[str, ...] = get_args(Task)

#: The names of labels take memory: a damaged file must not ask for more than there is.
_MOST_LABELS = 10**9

#: Up to this magnitude every integer is a double.
_EXACT = 2.0**53

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})\Z")
CODE = re.compile(r"[+-]?(?:0[0-9]+|[0-9]{19,})\Z")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)\Z", re.IGNORECASE)


class Targets(NamedTuple):
    """The targets of a file: `y` as in `Dataset`, and the names of its columns if it is an indicator matrix."""

    y: Any  # ndarray, csr_matrix or None
    names: npt.NDArray[Any] | None = None


def checked_dtype(dtype: npt.DTypeLike, n_features: object, extra_features: str, task: str) -> np.dtype[Any]:
    """Check the four parameters that readers share, and return ``dtype``; a ValueError names the invalid one."""
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype is {dtype!r}; expected float32 or float64")
    if n_features is not None and (not isinstance(n_features, numbers.Integral) or n_features < 0):
        raise ValueError(f"n_features is {n_features!r}; expected an integer of at least 0, or None")
    if extra_features not in ("error", "ignore"):
        raise ValueError(f"extra_features is {extra_features!r}; expected 'error' or 'ignore'")
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; expected one of {', '.join(map(repr, TASKS))}")
    return kind


def check_width(path: StrPath, labels: int, line: int | None = None) -> None:
    """Raise a DataFormatError for more columns of labels than can be numbered; a short file may announce any number."""
    there = available()
    most = _MOST_LABELS if there is None else min(_MOST_LABELS, there // 8)
    if labels > most:
        raise DataFormatError(
            path, f"it announces {labels} labels; expected at most {most}, of which the names fit in memory", line
        )


def indicator(columns: npt.NDArray[Any], counts: npt.NDArray[Any], n_columns: int) -> csr_matrix:
    """Return the 0/1 matrix (int8, CSR) whose row i has the next ``counts[i]`` of ``columns``; repeats count once."""
    ones = np.ones(columns.size, dtype=np.int8)
    matrix = csr_matrix((ones, columns, row_pointers(counts)), shape=(counts.size, n_columns))
    # Set afterwards, because the sum of many repeats overflows an int8.
    matrix.sum_duplicates()
    matrix.data = np.ones(matrix.nnz, dtype=np.int8)
    return matrix


def _is_multilabel(counts: npt.NDArray[Any], task: Task) -> bool:
    return task == "multilabel" or (task == "auto" and bool(np.any(counts != 1)))


def _whole(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64] | None:
    """Return the values as integers if all of them are integers; else None."""
    if np.all(np.abs(values) <= _EXACT) and np.all(values == np.rint(values)):
        return values.astype(np.int64)
    return None


def real_targets(values: npt.NDArray[np.float64], counts: npt.NDArray[Any]) -> Targets:
    """Return the targets of a regression; the caller has checked that all rows have as many values as the first."""
    if not values.size:
        return Targets(None)
    return Targets(values if counts[0] == 1 else values.reshape(counts.size, -1))


def number_targets(values: npt.NDArray[Any], counts: npt.NDArray[Any], task: Task) -> Targets | None:
    """Return classes, or with task "auto" perhaps the targets of a regression, from labels that are all numbers.

    Parameters
    ----------
    values : ndarray of int64 or float64
        The labels of all rows, concatenated.
    counts : ndarray of int
        The number of labels of each row; for "classification" the caller has checked that they are 1.
    task : {"auto", "classification", "multilabel"}
        The kind of targets.

    Returns
    -------
    Targets or None
        None if the labels must be read as texts.
    """
    if not values.size:
        return Targets(None)
    multilabel = _is_multilabel(counts, task)
    if values.dtype.kind == "f":
        whole = _whole(values)
        if whole is None:
            # 401.9 is a number to predict in one file and a code of a diagnosis in another.
            return Targets(values) if task == "auto" and not multilabel else None
        values = whole
    if not multilabel:
        return Targets(values)
    names, columns = np.unique(values, return_inverse=True)
    return Targets(indicator(columns, counts, names.size), names)


class TextLabels(dict[str, int]):
    """Collects labels that are names; the distinct ones are numbered in order of appearance.

    "nan" may be a name, but among numbers it is a missing value: the lines of such labels are kept for the message.
    """

    def __init__(self, path: StrPath, task: Task, comm: Together | None = None) -> None:
        super().__init__()
        self._path = path
        self._comm = comm
        self._task = task
        self._codes = array("i")
        self._suspects: list[str] = []
        self._lines: list[int] = []  # of the suspects

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        if _NOT_FINITE.match(text):
            self._suspects.append(text)
        return number

    def extend(self, texts: Sequence[str], line_of: Callable[[int], int]) -> None:
        """Add labels; ``line_of`` maps an index into ``texts`` to a line number."""
        self._codes.extend([self[text] for text in texts])
        self._lines += [line_of(texts.index(text)) for text in self._suspects[len(self._lines) :]]

    def _numbers(self, *, real: bool) -> npt.NDArray[Any] | None:
        """Return the labels as numbers (int64, or float64 if ``real``); None if they are names."""
        texts = list(self)
        if all(_INTEGER.match(text) for text in texts):
            return np.array([int(text) for text in texts], dtype=np.int64)
        # Different codes such as 01 and 1 stay different, and so do integers that are the same double.
        if any(CODE.match(text) or not NUMBER.match(text) for text in texts):
            return None
        if any(_INTEGER.match(text) and abs(int(text)) > _EXACT for text in texts):
            return None
        values = np.array([float(text) for text in texts])
        whole = _whole(values)
        return values if whole is None and real and np.all(np.isfinite(values)) else whole

    def targets(self, counts: npt.NDArray[Any]) -> Targets:
        """Return the targets, given the number of labels of each row; not for regression."""
        if not self._codes:
            any_of(self._comm, False)
            return Targets(None)
        others = self.keys() - set(self._suspects)
        if self._suspects and others and all(map(NUMBER.match, others)):
            what = f"the label {self._suspects[0]!r} is not finite; expected a finite number, as the other labels are"
            raise DataFormatError(self._path, what, self._lines[0])
        multilabel = _is_multilabel(counts, self._task)
        names = self._numbers(real=self._task == "auto" and not multilabel)
        if any_of(self._comm, names is None) or names is None:  # they are names in some process
            names = np.array(list(self))
        codes = np.asarray(self._codes)
        if not multilabel:
            return Targets(names[codes])
        names, column = np.unique(names, return_inverse=True)
        return Targets(indicator(column[codes], counts, names.size), names)


def real_label(path: StrPath, text: str, line: int) -> float:
    """Return a label of a regression as a finite number."""
    value = float(text) if NUMBER.match(text) else float("nan")
    if not np.isfinite(value):
        raise DataFormatError(
            path, f"the label {text!r} is not a finite number; expected one, as task='regression' needs", line
        )
    return value


class LabelColumn:
    """Collects labels that come as texts, row by row: a column of a table, a text file of labels."""

    def __init__(self, path: StrPath, task: Task, separator: str | None = None, comm: Together | None = None) -> None:
        self._path = path
        self._task: Task = task if separator is None or task == "regression" else "multilabel"
        self._separator = separator
        self._texts = TextLabels(path, self._task, comm)
        self._counts = array("i")
        self._reals = array("d")

    def add(self, text: str, line: int) -> None:
        """Add the label, or with a separator the labels, of the next row."""
        parts = [text.strip()] if self._separator is None else text.split(self._separator)
        labels = [part for part in map(str.strip, parts) if part]
        if not labels and self._separator is None:
            raise DataFormatError(self._path, "the label is empty; expected one label for each row", line)
        self._counts.append(len(labels))
        if self._task != "regression":
            self._texts.extend(labels, lambda place: line)
        elif len(labels) == self._counts[0]:
            self._reals.extend(real_label(self._path, label, line) for label in labels)
        else:
            what = f"{counted(len(labels), 'target')}; expected {self._counts[0]}, as in the rows before"
            raise DataFormatError(self._path, what, line)

    def targets(self) -> Targets:
        """Return the targets of all rows."""
        counts = np.array(self._counts, dtype=np.int64)
        if self._task == "regression":
            return real_targets(np.array(self._reals, dtype=np.float64), counts)
        return self._texts.targets(counts)


def read_label_lines(
    path: StrPath,
    task: Task = "auto",
    separator: str | None = None,
    rows: int | None = None,
    comm: Together | None = None,
) -> Targets:
    """Read labels from a text file that has the label (or labels) of one row on each line.

    With ``comm``, those of the next ``rows`` rows of each process.
    """
    column = LabelColumn(path, task, separator, comm)
    number = 0
    begin, end = (0, np.inf) if comm is None else row_range(comm, rows or 0)
    with open_bytes(path) as source:
        for number, line in enumerate(source.text_lines(), start=1):
            if begin < number <= end:
                column.add(line, number)
    if comm is not None:
        check_rows(path, number, comm, rows or 0)
    return column.targets()

"""Columns of a table while they are read: numbers, categories and texts."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .labels import CODE, NUMBER

__all__ = [
    "MISSING",
    "UNKNOWN",
    "BadValue",
    "Categories",
    "Column",
    "Numbers",
    "Texts",
    "date_sentence",
    "is_date",
    "kind_of",
]

#: Codes of a value that is missing, and of one that is no category of the fit.
MISSING, UNKNOWN = -1, -2

_NAN = float("nan")

#: A date, or a date and a time, with or without fraction and offset; also day, month and year, or month, day and year.
_DAY, _MONTH = "(0?[1-9]|[12][0-9]|3[01])", "(0?[1-9]|1[0-2])"
_DATE = re.compile(
    r"([0-9]{4}(?P<mark>[-/.])(0[1-9]|1[0-2])(?P=mark)(0[1-9]|[12][0-9]|3[01])"
    rf"|({_DAY}[/.]{_MONTH}|{_MONTH}[/.]{_DAY})[/.][0-9]{{4}})"
    r"([T ][0-2]?[0-9]:[0-5][0-9](:[0-6][0-9]([.,][0-9]+)?)?( ?(Z|[AP]M|[+-][0-2][0-9](:?[0-5][0-9])?))?)?\Z"
)

#: What stands for a number in a file of texts.
_WORDS = {**dict.fromkeys(("", "na", "n/a", "nan", "null", "none"), _NAN), "true": 1.0, "false": 0.0}


class BadValue(ValueError):
    """A value that its column cannot have: its index among those that were added, and what is wrong."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(index, what)
        self.index, self.what = index, what


def _number(value: Any) -> float | None:
    """A finite number, or NaN for a missing value; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        if not NUMBER.match(text):
            return _WORDS.get(text.casefold())
        value = text
    elif value is None:
        return _NAN
    elif not isinstance(value, Real | Decimal | np.bool_):
        return None
    try:
        found = float(value)
    except (OverflowError, ValueError):
        return None
    return None if math.isinf(found) else found


def kind_of(values: Iterable[Any], typed: bool) -> Literal["number", "category", "date"] | None:
    """The kind of a column, from some of its values; None if all are missing.

    Without types, as in CSV, a column has numbers if all of its values look like numbers; codes such as 007 do not.
    """
    numbers = [(value, _number(value)) for value in values]
    present = [(value, number) for value, number in numbers if number is None or not math.isnan(number)]
    if not present:
        return None
    if all(is_date(value) for value, _ in present):
        return "date"
    if typed:
        return "number" if all(isinstance(value, Real | Decimal | np.bool_) for value, _ in present) else "category"
    codes = any(number is None or CODE.match(value.strip()) for value, number in present)
    return "category" if codes else "number"


def is_date(value: Any) -> bool:
    """Whether a value is a date or a point in time, or a text with one."""
    return isinstance(value, date | np.datetime64) or (isinstance(value, str) and bool(_DATE.match(value.strip())))


def date_sentence(name: str, values: Iterable[Any]) -> str:
    """What to say of a column with dates, of which some values are given."""
    first = str(next(filter(is_date, values)))
    return (
        f"column {name!r} has dates, such as {first!r}; expected numbers or categories: write what matters of them "
        "into columns of their own, such as year, month and weekday (categories) or the days since a date (numbers), "
        f"and leave it out with ignore_columns={name!r}"
    )


def _category(value: Any) -> str | None:
    """The name of a category, empty if it is missing; None for what is no category. 12.0 is 12."""
    if isinstance(value, str):
        text = value.strip()
        return text[:-2] if text.endswith(".0") and text[:-2].lstrip("-").isdecimal() else text
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, Real | Decimal | np.bool_) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


class Numbers:
    """A column of numbers; NaN is a missing value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values = array("d")

    def extend(self, values: Sequence[Any]) -> None:
        """Add values."""
        found = [_number(value) for value in values]
        if None in found:
            index = found.index(None)
            if is_date(values[index]):
                raise BadValue(index, date_sentence(self.name, values[index:]))
            raise BadValue(
                index,
                f"{_shown(values[index])} in column {self.name!r} is not a finite number, as expected there: correct "
                f"it, or fit with category_columns={self.name!r} if the column has categories",
            )
        self._values.extend(found)  # type: ignore[arg-type]

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The numbers of all rows."""
        return np.frombuffer(self._values, np.float64) if self._values else np.zeros(0)


class Categories:
    """A column of categories; ``known`` are those of a fit, and None lets every new value be one."""

    def __init__(self, name: str, known: Iterable[str] | None = None) -> None:
        self.name = name
        self._fixed = known is not None
        self._codes = {category: code for code, category in enumerate(known or ())}
        self._found: dict[str, int] = {}  # of texts as they stand in the table
        self._values = array("q")

    def _code(self, value: Any) -> int:
        category = _category(value)
        if category is None:
            raise TypeError
        if not category:
            return MISSING
        return self._codes.get(category, UNKNOWN) if self._fixed else self._codes.setdefault(category, len(self._codes))

    def extend(self, values: Sequence[Any]) -> None:
        """Add values."""
        found, codes = self._found, self._values
        for index, value in enumerate(values):
            code = found.get(value) if isinstance(value, str) else None
            if code is None:
                try:
                    code = self._code(value)
                except (TypeError, ValueError):
                    if is_date(value):
                        raise BadValue(index, date_sentence(self.name, [value])) from None
                    raise BadValue(
                        index,
                        f"column {self.name!r} has {_shown(value)} ({type(value).__name__}); expected the name or the "
                        f"number of a category: convert the column, or leave it out with ignore_columns={self.name!r}",
                    ) from None
                if isinstance(value, str):
                    found[value] = code
            codes.append(code)

    @property
    def values(self) -> npt.NDArray[np.int64]:
        """The codes of all rows, which count the categories in the order of `names`."""
        codes = np.frombuffer(self._values, np.int64) if self._values else np.zeros(0, np.int64)
        if self._fixed or not self._codes:
            return codes
        place = np.empty(len(self._codes), np.int64)
        place[[self._codes[name] for name in self.names]] = np.arange(len(self._codes))
        return np.where(codes < 0, codes, place[codes])

    @property
    def names(self) -> list[str]:
        """The categories: ascending, or in the order of ``known``."""
        return list(self._codes) if self._fixed else sorted(self._codes)


class Texts:
    """A column of texts; a missing one is empty."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[str] = []

    def extend(self, values: Sequence[Any]) -> None:
        """Add values."""
        for index, value in enumerate(values):
            if isinstance(value, str):
                self.values.append(value)
            elif value is None or (isinstance(value, float) and math.isnan(value)):
                self.values.append("")
            elif isinstance(value, Real | Decimal):
                self.values.append(str(value))
            else:
                raise BadValue(
                    index,
                    f"column {self.name!r} has {_shown(value)} ({type(value).__name__}); expected texts: check "
                    "text_column",
                )


Column: TypeAlias = Numbers | Categories | Texts

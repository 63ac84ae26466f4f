"""Data frames, mappings of columns and lists of rows as named columns of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .typed import arrow_values

__all__ = ["named_columns"]


def named_columns(X: Any) -> dict[str, Callable[[], Any]] | None:
    """The columns of a data frame (pandas, polars, pyarrow), of a dict of columns or of a list of dicts, by name.

    The value of a name is a function that returns the values, with None or NaN for what is missing, and texts for
    columns that are declared as categories. The result is None for an object of another kind.

    Raises
    ------
    ValueError
        If two columns have the same name, or the columns of a dict different lengths.

    Examples
    --------
    >>> {name: values() for name, values in named_columns([{"age": 3}, {"age": 4, "color": "red"}]).items()}
    {'age': [3, 4], 'color': [None, 'red']}
    """
    if isinstance(X, Mapping):
        if len({len(column) for column in X.values()}) > 1:
            lengths = ", ".join(f"{name!r} {len(column)}" for name, column in X.items())
            raise ValueError(f"X has columns of different lengths: {lengths}; expected one value for each row")
        return _distinct([(name, partial(_values, column)) for name, column in X.items()])
    if isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X):
        names = dict.fromkeys(name for row in X for name in row)
        return _distinct([(name, partial(_members, X, name)) for name in names])
    if hasattr(X, "column_names") and hasattr(X, "schema"):  # pyarrow
        return _distinct([(name, partial(arrow_values, column)) for name, column in zip(X.column_names, X.columns)])
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return None
    if isinstance(X.dtypes, list):  # polars
        return _distinct([(name, X[name].to_list) for name in X.columns])
    return _distinct([(name, partial(_values, X.iloc[:, place])) for place, name in enumerate(X.columns)])


def _distinct(columns: list[tuple[Any, Callable[[], Any]]]) -> dict[str, Callable[[], Any]]:
    found = {str(name): values for name, values in columns}
    if len(found) < len(columns):
        names = [str(name) for name, _ in columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has {names.count(twice)} columns {twice!r}; expected different names: rename one")
    return found


def _values(column: Any) -> list[Any]:
    """The values of a list, an array or a Series."""
    if not hasattr(column, "isna"):
        return list(column.tolist() if hasattr(column, "tolist") else column)
    values, missing = column.tolist(), column.isna().tolist()
    declared = str(column.dtype) == "category"
    return [None if gone else str(value) if declared else value for value, gone in zip(values, missing)]


def _members(rows: Sequence[Mapping[Any, Any]], name: Any) -> list[Any]:
    return [row.get(name) for row in rows]

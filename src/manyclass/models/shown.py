"""What is shown of a row: its text, its columns, or its largest features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.io._frames import named_columns
from manyclass.models.base import Array
from manyclass.models.parts import kind_of_rows

__all__ = ["named_values", "shown_rows"]

#: Names and values of a row that are shown, and the features up to which a dense row without names is.
_VALUES, _UNNAMED = 12, 64


def named_values(values: Mapping[str, Any]) -> str:
    """Return the names and values of a row as a text, without those that are missing.

    Examples
    --------
    >>> named_values({"age": 31.0, "city": "Rome", "income": None})
    'age: 31, city: Rome'
    """
    there = {name: value for name, value in values.items() if not (value is None or value != value or value == "")}
    first = list(there.items())[:_VALUES]
    parts = [f"{name}: {value:g}" if isinstance(value, float) else f"{name}: {value}" for name, value in first]
    return ", ".join(parts) + ", ..." * (len(there) > _VALUES)


def shown_rows(given: Any, X: Any, numbers: Sequence[int], names: Array | None) -> list[str]:
    """Return a text for each of some rows.

    Parameters
    ----------
    given : texts, data frame, dict of columns, list of dicts, or None
        What the features were made of; None where rows of features were given.
    X : array or CSR matrix of shape (n, n_features)
        Their features.
    numbers : sequence of int
        The numbers of the rows.
    names : ndarray of str of shape (n_features,), or None
        The names of the features.

    Returns
    -------
    list of str
        The text of a row; or its columns; or its features that are largest, of a dense row without names only where
        they are few.

    Examples
    --------
    >>> X = np.array([[0.0, 2.0, 0.5]])
    >>> shown_rows(None, X, [0], np.array(["card", "rent", "late"])), shown_rows({"age": [3, 4]}, X, [1], None)
    (['rent: 2, late: 0.5'], ['age: 4'])
    """
    kind = "" if given is None else kind_of_rows(given)
    if kind == "texts":
        return [str(text) for text in np.asarray(given, object)[list(numbers)]]
    columns = named_columns(given) if kind else None
    if columns is not None:
        values = {name: column() for name, column in columns.items()}
        return [named_values({name: column[i] for name, column in values.items()}) for i in numbers]
    if names is None and not sp.issparse(X) and X.shape[1] > _UNNAMED:
        return [""] * len(numbers)
    return [_largest(X[i], names) for i in numbers]


def _largest(row: Any, names: Array | None) -> str:
    if sp.issparse(row):
        row = row.tocsr()
        places, values = row.indices, row.data
    else:
        values = np.asarray(row).ravel()
        places = np.arange(values.size)
    first = np.argsort(-np.abs(values), kind="stable")[: _VALUES + 1]
    first = first[values[first] != 0]
    return named_values({str(places[k] if names is None else names[places[k]]): float(values[k]) for k in first})

"""Data frames (pandas, polars, pyarrow) as input: what scikit-learn converts without a clear word is told here."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_frame", "plain_labels"]


def check_frame(X: Any, name: str = "X") -> None:
    """Raise a ValueError that names the columns of a data frame that are categories, texts or dates, or lack values;
    arrays pass."""
    wrong = {column: kind for column, kind in _kinds(X).items() if kind is not None}
    if not wrong:
        _check_missing(X, name)
        return
    listed = ", ".join(f"{column!r} ({kind})" for column, kind in list(wrong.items())[:5])
    raise ValueError(
        f"{name} has columns that are not numbers: {listed}{', ...' * (len(wrong) > 5)}: encode them first "
        "(manyclass.TableEncoder; sklearn.preprocessing.OneHotEncoder, manyclass.TextVectorizer), or leave them out"
    )


def _check_missing(X: Any, name: str) -> None:
    """Raise a ValueError that names the columns of a frame of pandas with missing values."""
    if not (hasattr(X, "isna") and hasattr(X, "columns")):
        return
    missing = X.isna().to_numpy().sum(axis=0)
    if missing.any():
        found = [f"{column!r} ({count})" for column, count in zip(X.columns, missing) if count]
        listed = ", ".join(found[:5]) + ", ..." * (len(found) > 5)
        raise ValueError(
            f"{name} contains NaN, missing values, in the columns {listed}: put manyclass.TableEncoder before, which "
            "takes the mean and adds a column that says so, or sklearn.impute.SimpleImputer, or leave these rows out"
        )


def _kinds(X: Any) -> dict[Any, str | None]:
    """Column -> its type if that is none of numbers, else None; empty for what is no data frame."""
    if hasattr(X, "column_names") and hasattr(X, "schema"):  # pyarrow
        numbers = ("int", "uint", "float", "double", "halffloat", "bool", "decimal")
        types = [str(field.type) for field in X.schema]
        return {column: None if kind.startswith(numbers) else kind for column, kind in zip(X.column_names, types)}
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return {}
    if isinstance(X.dtypes, list):  # polars
        return {
            column: None if kind.is_numeric() or str(kind) in ("Boolean", "Null") else str(kind)
            for column, kind in zip(X.columns, X.dtypes)
        }
    return {column: _kind(X.iloc[:, place], kind) for place, (column, kind) in enumerate(X.dtypes.items())}


def _kind(column: Any, dtype: Any) -> str | None:
    """The type of a column of pandas if that is none of numbers."""
    if str(dtype) == "category" or getattr(dtype, "kind", "O") not in "biufO":
        return str(dtype)
    if getattr(dtype, "kind", "O") != "O":
        return None
    try:  # numbers as objects, which scikit-learn converts
        np.asarray(column.dropna(), np.float64)
    except (TypeError, ValueError):
        return str(dtype)
    return None


def plain_labels(y: Any, name: str = "y") -> Any:
    """y; integers and booleans of a nullable type as those of NumPy: scikit-learn converts them to floats.

    Raises
    ------
    ValueError
        If a value is missing: in a pandas or polars Series, in an array of objects, or among the texts of a list, where
        NumPy would make it the text "nan" or "None".
    """
    series = hasattr(y, "to_numpy") and hasattr(y, "dtype") and not isinstance(y, np.ndarray)
    if series:
        missing = y.isna().sum() if hasattr(y, "isna") else y.null_count() if hasattr(y, "null_count") else 0
    else:
        missing = _missing_objects(y)
    if missing:
        raise ValueError(f"{name} has {int(missing)} missing values: leave these rows out")
    nullable = series and not isinstance(y.dtype, np.dtype) and getattr(y.dtype, "kind", "") in ("i", "u", "b")
    return y.to_numpy(dtype={"i": "int64", "u": "uint64", "b": "bool"}[y.dtype.kind]) if nullable else y


def _missing_objects(y: Any) -> int:
    """How many labels of an array of objects, or of a list with None or texts, are None, NaN, NaT or pandas.NA."""
    objects = isinstance(y, np.ndarray) and y.dtype == object
    texts = isinstance(y, (list, tuple)) and any(label is None or isinstance(label, str) for label in y)
    return sum(map(_is_missing, y.ravel() if objects else y)) if objects or texts else 0


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)  # NaN, NaT
    except TypeError:  # pandas.NA, which is neither
        return True
    except ValueError:  # an array, which is no label
        return False

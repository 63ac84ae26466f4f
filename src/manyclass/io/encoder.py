"""Converts tables of numbers, categories and texts to features; the fitted state is parameters and arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from ._columns import MISSING, BadValue, Categories, Column, Numbers, Texts, date_sentence, kind_of
from ._csr import beside, one_of
from ._frames import named_columns
from ._layout import listed
from ._packed import packed, unpacked
from ._table_rows import TableRows
from .text import TextVectorizer

__all__ = ["TableEncoder", "restore_vectorizer"]

Array: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = str | Sequence[str] | None

#: Names of columns that number the rows.
_ROW_NAMES = ("id", "idx", "index", "")

#: Values that tell the kind of a column; the most categories where more than half of the rows have one of their own.
_SAMPLE, _FEW = 100, 50


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Convert the columns of a table to features: numbers, categories and texts, side by side.

    A number is standardized with the mean and the standard deviation of the fit; a missing one is the mean, and where
    the fit had missing ones, a feature of its own is 1. Each category is a feature that is 1 in its rows; a missing
    category has its own if the fit had missing ones, and a category that the fit did not have has none. Texts are
    converted as by `TextVectorizer`. Columns are found by name: their order does not matter, and others are ignored.

    Parameters
    ----------
    number_columns : "auto", str, list of str or None, default="auto"
        Names of the columns of numbers. ``"auto"``: those columns not named here whose first 100 values are numbers or
        booleans; None: no column.
    category_columns : "auto", str, list of str or None, default="auto"
        Names of the columns of categories, which are texts or numbers. ``"auto"``: the columns not named here that have
        no numbers. One with a different value in most rows, as names and texts have, is an error.
    text_column : str, list of str or None, default=None
        Names of the columns of texts, each with a vocabulary of its own.
    ignore_columns : str, list of str or None, default=None
        Names of the columns that ``"auto"`` leaves out, besides ``id``, ``idx`` and ``index``.
    vectorizer : TextVectorizer, default=None
        How texts are converted; it is not changed. None: ``TextVectorizer()``.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the features.

    Attributes
    ----------
    number_columns_, category_columns_, text_columns_ : list of str
        The names of the columns of each kind, in the order of their features.
    mean_, scale_ : ndarray of float64
        Mean and standard deviation of each column of numbers.
    categories_ : list of list of str
        The categories of each column, ascending.
    vectorizers_ : list of TextVectorizer
        The fitted vectorizer of each column of texts.
    missing_ : list of str
        The columns of numbers and categories with missing values in the fit.
    feature_names_in_ : ndarray of str
        The names of all these columns.
    n_features_in_ : int
        Their number.

    Raises
    ------
    ValueError
        If a parameter is invalid, or a value does not fit its column; raised by `fit` and `transform`.

    Examples
    --------
    >>> rows = [{"age": 31, "color": "red"}, {"age": 45, "color": "blue"}, {"age": None, "color": "red"}]
    >>> encoder = TableEncoder()
    >>> encoder.fit_transform(rows).toarray()
    array([[-1.,  0.,  0.,  1.],
           [ 1.,  0.,  1.,  0.],
           [ 0.,  1.,  0.,  1.]], dtype=float32)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age missing', 'color=blue', 'color=red']
    """

    def __init__(
        self,
        number_columns: Columns = "auto",
        category_columns: Columns = "auto",
        *,
        text_column: Columns = None,
        ignore_columns: Columns = None,
        vectorizer: TextVectorizer | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        self.number_columns = number_columns
        self.category_columns = category_columns
        self.text_column = text_column
        self.ignore_columns = ignore_columns
        self.vectorizer = vectorizer
        self.dtype = dtype

    # --- which columns ----------------------------------------------------------------------------------------------

    def _given(self) -> dict[str, list[str] | Literal["auto"]]:
        """The columns of each parameter; a ValueError if a parameter is invalid."""
        found: dict[str, list[str] | Literal["auto"]] = {}
        owner: dict[str, str] = {}
        for name in ("number_columns", "category_columns", "text_column", "ignore_columns"):
            given = getattr(self, name)
            if given == "auto" and name in ("number_columns", "category_columns"):
                found[name] = "auto"
                continue
            columns = [given] if isinstance(given, str) else [] if given is None else list(given)
            if not all(isinstance(column, str) for column in columns):
                raise ValueError(f"{name} is {given!r}; expected names of columns, 'auto' or None")
            for column in columns:
                if column in owner:
                    raise ValueError(f"column {column!r} is named in {owner[column]} and in {name}: name it once")
                owner[column] = name
            found[name] = columns
        if self.vectorizer is not None and not isinstance(self.vectorizer, TextVectorizer):
            raise ValueError(f"vectorizer is {self.vectorizer!r}; expected a TextVectorizer or None")
        if np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype!r}")
        return found

    def _choose(self, names: Sequence[str], some: Callable[[str], Sequence[Any]], typed: bool) -> None:
        """Choose the columns of each kind, given some values of each."""
        given = self._given()
        for argument, columns in given.items():
            absent = [column for column in columns if column not in names] if columns != "auto" else []
            if absent:
                raise ValueError(f"{argument} has {listed(absent)}; expected names of columns ({listed(names)})")
        kinds: dict[str, list[str]] = {
            "number": [] if given["number_columns"] == "auto" else [*given["number_columns"]],
            "category": [] if given["category_columns"] == "auto" else [*given["category_columns"]],
        }
        taken = {column for columns in given.values() if columns != "auto" for column in columns}
        free = [name for name in names if name not in taken and name.strip().casefold() not in _ROW_NAMES]
        self._automatic = []
        for name in free if "auto" in given.values() else ():
            kind = kind_of(some(name), typed)
            if kind is None:
                raise ValueError(
                    f"column {name!r} has no value in the first {_SAMPLE} rows, which tell numbers from categories: "
                    "name it in number_columns=, category_columns= or ignore_columns="
                )
            if kind == "date" and given["category_columns"] == "auto":
                raise ValueError(date_sentence(name, some(name)))
            if given.get(f"{kind}_columns") == "auto":
                kinds[kind].append(name)
                self._automatic.append(name)
        self.number_columns_, self.category_columns_, self.text_columns_ = *kinds.values(), [*given["text_column"]]
        if not self.columns:
            raise ValueError(
                f"no column gives features (columns: {listed(names)}): name some in number_columns=, category_columns= "
                "or text_column="
            )

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are read: of numbers, of categories, of texts."""
        return [*self.number_columns_, *self.category_columns_, *self.text_columns_]

    # --- fit --------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn means, standard deviations, categories and vocabularies.

        Parameters
        ----------
        X : data frame, dict of columns or list of dicts
            The table: of pandas, polars or pyarrow; or a list of values for each name, or a dict for each row.
        y : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        TableEncoder
            The fitted encoder itself.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn means, standard deviations, categories and vocabularies, and return the features of the same rows.

        Parameters
        ----------
        X : data frame, dict of columns or list of dicts
            The table.
        y : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        csr_matrix or ndarray of shape (n_rows, n_columns)
            The features, of type ``dtype``: an array if all columns have numbers.
        """
        return self._read(X, fit=True)

    def transform(self, X: Any) -> Any:
        """Return the features of a table.

        Parameters
        ----------
        X : data frame, dict of columns or list of dicts
            The table, with at least the columns of the fit.

        Returns
        -------
        csr_matrix or ndarray of shape (n_rows, n_columns)
            The features, of type ``dtype``: an array if all columns have numbers.

        Raises
        ------
        NotFittedError
            If the encoder is not fitted; a ValueError.
        """
        check_is_fitted(self)
        return self._read(X, fit=False)

    def _read(self, X: Any, *, fit: bool) -> Any:
        table = named_columns(X)
        if table is None:
            raise ValueError(
                f"X is a {type(X).__name__}; expected a data frame (pandas, polars, pyarrow), a dict of columns or a "
                "list of dicts, whose columns have names"
            )
        values: dict[str, Sequence[Any]] = {}

        def of(name: str) -> Sequence[Any]:
            if name not in values:
                values[name] = table[name]()
            return values[name]

        names = list(table)
        some = (lambda name: list(islice((value for value in of(name) if value is not None), _SAMPLE))) if fit else None
        rows = TableRows(self, names, some, typed=True)
        try:
            for place, column in zip(rows.places, rows.columns):
                column.extend(of(names[place]))
            return rows.features()
        except BadValue as error:
            raise ValueError(f"X, row {error.index}: {error.what}") from None

    def _learn(self, columns: Sequence[Column]) -> None:
        """Learn from all rows; `_encode` learns from the texts."""
        self.missing_, self.categories_, means, scales, many = [], [], [], [], {}
        for column in columns:
            if isinstance(column, Numbers):
                values = column.values
                there = values[~np.isnan(values)]
                if not there.size:
                    raise ValueError(f"column {column.name!r} has no number: leave it out of number_columns")
                with np.errstate(over="ignore", invalid="ignore"):
                    scaler = StandardScaler().fit(there[:, None])
                if not np.isfinite([scaler.mean_[0], scaler.scale_[0]]).all():
                    raise ValueError(f"column {column.name!r} has numbers too large to standardize: divide them")
                means.append(scaler.mean_[0])
                scales.append(scaler.scale_[0])
                holes = there.size < values.size
            elif isinstance(column, Categories):
                codes, names = column.values, column.names
                if column.name in self._automatic and len(names) > max(_FEW, np.count_nonzero(codes >= 0) / 2):
                    many[column.name] = len(names)
                if not names:
                    raise ValueError(f"column {column.name!r} has no category: leave it out of category_columns")
                self.categories_.append(names)
                holes = bool((codes == MISSING).any())
            else:
                continue
            if holes:
                self.missing_.append(column.name)
        if many:
            shown = ", ".join(f"{name!r} ({number})" for name, number in many.items())
            raise ValueError(
                f"columns with another value in most rows, as names, codes of rows and texts: {shown}; expected "
                "categories that rows share: leave them out with ignore_columns=, name one that has texts in "
                "text_column=, or name them in category_columns="
            )
        self.mean_, self.scale_ = np.array(means, np.float64), np.array(scales, np.float64)

    def _named(self) -> None:
        """Set the attributes that scikit-learn expects."""
        self.feature_names_in_ = np.array(self.columns, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)

    # --- features ---------------------------------------------------------------------------------------------------

    def _encode(self, columns: Sequence[Column], fit: bool) -> Any:
        texts = [column.values for column in columns if isinstance(column, Texts)]
        if fit:
            blank = TextVectorizer(dtype=self.dtype) if self.vectorizer is None else self.vectorizer
            self.vectorizers_: list[TextVectorizer] = [clone(blank) for _ in texts]
        pairs = zip(self.vectorizers_, texts)
        terms = [one.fit_transform(values) if fit else one.transform(values) for one, values in pairs]
        dtype = np.dtype(self.dtype)
        numbers = [column for column in columns if isinstance(column, Numbers)]
        parts: list[Any] = []
        if numbers:
            holes = sum(column.name in self.missing_ for column in numbers)
            parts = [np.empty((numbers[0].values.size, len(numbers) + holes), dtype)]
            made = (part for place, column in enumerate(numbers) for part in self._standardized(column, place))
            for place, part in enumerate(made):
                parts[0][:, place] = part
            if len(numbers) == len(columns):
                return parts[0]
        categories = [column for column in columns if isinstance(column, Categories)]
        for names, column in zip(self.categories_, categories):
            codes = column.values
            if column.name in self.missing_:
                codes = np.where(codes == MISSING, len(names), codes)
            parts.append(one_of(codes, len(names) + (column.name in self.missing_), dtype))
        return beside([*parts, *terms], dtype)

    def _standardized(self, column: Numbers, place: int) -> list[Array]:
        """The standardized values, and where they are missing if the fit had missing ones."""
        values = column.values
        with np.errstate(over="ignore"):
            found = ((values - self.mean_[place]) / self.scale_[place]).astype(self.dtype)
        large = np.flatnonzero(np.isinf(found))
        if large.size:
            raise BadValue(int(large[0]), f"{values[large[0]]} in column {column.name!r} is too large: divide it")
        holes = np.isnan(found)
        found[holes] = 0
        return [found, holes] if column.name in self.missing_ else [found]

    @property
    def n_columns(self) -> int:
        """The number of features; 0 before a fit."""
        if not self.__sklearn_is_fitted__():
            return 0
        own = len(self.number_columns_) + sum(map(len, self.categories_)) + len(self.missing_)
        return own + sum(int(vectorizer.n_columns) for vectorizer in self.vectorizers_)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the name of each feature.

        Parameters
        ----------
        input_features : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        ndarray of str of shape (n_columns,)
            ``age`` for a number, ``color=red`` for a category, ``color missing`` for a missing value, ``title:card``
            for a term of a text (``title:17`` for a column of the hashing vectorizer).
        """
        check_is_fitted(self)
        names: list[str] = []

        def add(column: str, own: list[str]) -> None:
            names.extend([*own, *([f"{column} missing"] if column in self.missing_ else [])])

        for column in self.number_columns_:
            add(column, [column])
        for column, categories in zip(self.category_columns_, self.categories_):
            add(column, [f"{column}={category}" for category in categories])
        for column, vectorizer in zip(self.text_columns_, self.vectorizers_):
            hashed = vectorizer.kind == "hashing"
            terms = range(vectorizer.n_columns) if hashed else vectorizer.get_feature_names_out()
            names += [f"{column}:{term}" for term in terms]
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "feature_names_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = False  # its columns have no names
        return tags

    # --- state ------------------------------------------------------------------------------------------------------

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the fitted state, from which `from_state` creates an encoder with the same features.

        Returns
        -------
        parameters : dict
            Strings, numbers and lists, for JSON.
        arrays : dict of ndarray
            ``mean`` and ``scale`` (float64), ``categories`` (of all columns, concatenated as UTF-8, uint8), ``offsets``
            (int64, one more than there are categories), ``counts`` (int64, the categories of each column), and the
            arrays of each vectorizer with its place before their names: ``0.vocabulary``.

        Raises
        ------
        NotFittedError
            If the encoder is not fitted; a ValueError.
        """
        check_is_fitted(self)
        states = [vectorizer.to_state() for vectorizer in self.vectorizers_]
        parameters = {
            "kind": "table",
            "numbers": self.number_columns_,
            "categories": self.category_columns_,
            "texts": self.text_columns_,
            "missing": self.missing_,
            "dtype": np.dtype(self.dtype).name,
            "vectorizers": [own for own, _ in states],
        }
        text, offsets = packed(name for names in self.categories_ for name in names)
        counts = np.array([len(names) for names in self.categories_], np.int64)
        arrays: dict[str, Array] = {"mean": self.mean_, "scale": self.scale_, "counts": counts}
        arrays |= {"categories": text, "offsets": offsets}
        arrays |= {f"{place}.{name}": array for place, (_, own) in enumerate(states) for name, array in own.items()}
        return parameters, arrays

    @classmethod
    def from_state(cls, parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> TableEncoder:
        """Return the fitted encoder of a state; its features are exactly the same.

        Parameters
        ----------
        parameters : mapping
            The first result of `to_state`.
        arrays : mapping of ndarray
            The second result of `to_state`.

        Returns
        -------
        TableEncoder
            The fitted encoder.

        Raises
        ------
        ValueError
            If the state is damaged.
        """
        try:
            return cls._restored(parameters, arrays)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            told = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"the state of the table encoder is damaged ({told})") from error

    @classmethod
    def _restored(cls, parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> TableEncoder:
        fields = ("numbers", "categories", "texts", "missing")
        numbers, categories, texts, missing = (parameters[name] for name in fields)
        vectorizers = [
            TextVectorizer.from_state(
                own, {name[len(f"{k}.") :]: x for name, x in arrays.items() if name.startswith(f"{k}.")}
            )
            for k, own in enumerate(parameters["vectorizers"])
        ]
        encoder = cls(
            numbers,
            categories,
            text_column=texts,
            vectorizer=clone(vectorizers[0]) if vectorizers else None,
            dtype=np.dtype(parameters["dtype"]).type,
        )
        if not all(isinstance(columns, list) for columns in (numbers, categories, texts, missing)):
            raise ValueError("its columns are no lists")
        encoder._given()
        encoder.number_columns_, encoder.category_columns_, encoder.text_columns_ = numbers, categories, texts
        if not encoder.columns or len(vectorizers) != len(texts) or not {*missing} <= {*numbers, *categories}:
            raise ValueError("its columns do not match")
        for name in ("mean", "scale"):
            array = arrays[name]
            if array.dtype != np.float64 or array.shape != (len(numbers),) or not np.isfinite(array).all():
                raise ValueError(f"{name} must have one finite number for each column of numbers")
        if not (arrays["scale"] > 0).all():
            raise ValueError("scale must be positive")
        names, counts = unpacked(arrays["categories"], arrays["offsets"]), arrays["counts"]
        if counts.dtype != np.int64 or counts.shape != (len(categories),) or not (counts > 0).all():
            raise ValueError("counts must have one positive integer for each column of categories")
        ends = np.cumsum(counts).tolist()
        if (ends[-1] if ends else 0) != len(names):
            raise ValueError("counts do not add up to the number of categories")
        encoder.categories_ = [names[begin:end] for begin, end in zip([0, *ends], ends)]
        if any(len({*own}) < len(own) for own in encoder.categories_):
            raise ValueError("a category occurs twice")
        encoder.missing_, encoder.vectorizers_ = missing, vectorizers
        encoder.mean_, encoder.scale_ = np.array(arrays["mean"]), np.array(arrays["scale"])
        encoder._named()
        return encoder


def restore_vectorizer(parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> TextVectorizer | TableEncoder:
    """The fitted vectorizer or encoder of a state; a ValueError if it is damaged."""
    table = isinstance(parameters, Mapping) and parameters.get("kind") == "table"  # a damaged one may be a list
    kind: Any = TableEncoder if table else TextVectorizer
    found: TextVectorizer | TableEncoder = kind.from_state(parameters, arrays)
    return found

"""Reads tables: a column of texts, or columns of numbers, categories and texts, and an optional column of labels."""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ._columns import BadValue
from ._csv_rows import MARKS, FirstRows, csv_records, delimiter_of, long_fields
from ._layout import (
    Record,
    TableLayout,
    again,
    choose,
    find_names,
    is_header,
    known_label,
    lasting,
    listed,
    position,
)
from .dataset import Dataset
from .errors import DataFormatError, counted
from .labels import LabelColumn, Task, checked_dtype
from .streams import StrPath
from .typed import TYPED, as_text, typed_rows

if TYPE_CHECKING:
    from .encoder import TableEncoder
    from .text import TextVectorizer

__all__ = ["TableLayout", "read_table"]

#: Number of rows from which columns are detected, and that are added to the columns of a table at a time.
_SAMPLE, _ROWS = 2000, 4096

#: Share of unknown words in new texts from which on a note says so.
_UNSEEN = 0.2


def _unseen(X: Any) -> float:
    """The probability that the next word is new (Good and Turing: words in one text only / all); 0 for few texts."""
    return float(np.count_nonzero(np.bincount(X.indices) == 1) / X.nnz) if X.shape[0] >= 100 else 0.0


def _check_single(path: StrPath, sample: list[Record], delimiter: str, layout: TableLayout) -> None:
    """Raise a DataFormatError for a table that has one column only because the delimiter is wrong."""
    for mark in set(MARKS) - {delimiter}:
        if all(record.fields[0].count(mark) == layout.columns - 1 for record in sample):
            what = f"1 column with delimiter {delimiter!r}; expected {layout.columns}, as in the training data"
            raise DataFormatError(path, f"{what} and with delimiter {mark!r}: pass delimiter=", 1)


def read_table(
    path: StrPath,
    *,
    format: Literal["csv", "tsv", "jsonl", "parquet", "arrow"] = "csv",
    dtype: npt.DTypeLike = np.float32,
    n_features: int | None = None,
    task: Task = "auto",
    text_column: str | int | Sequence[str | int] | None = None,
    number_columns: str | Sequence[str | int] | None = None,
    category_columns: str | Sequence[str | int] | None = None,
    ignore_columns: str | Sequence[str | int] | None = None,
    label_column: str | int | None = None,
    label_separator: str | None = None,
    delimiter: str | None = None,
    quote: str | None = "auto",
    header: bool | None = None,
    layout: TableLayout | None = None,
    with_labels: bool = True,
    unlabeled: Literal["error", "skip"] = "error",
    vectorizer: TextVectorizer | TableEncoder | Mapping[str, Any] | None = None,
) -> Dataset:
    """Read a table, and convert a column of texts, or columns of numbers, categories and texts, to features.

    A table is one of texts alone, converted by a `TextVectorizer`, if one column of texts is given or recognized, and
    neither columns of numbers nor of categories are given. Otherwise a `TableEncoder` converts its columns; several
    columns of texts have a vocabulary each.

    Parameters
    ----------
    path : str or path
        The table: UTF-8, plain or compressed.
    format : {"csv", "tsv", "jsonl", "parquet", "arrow"}, default="csv"
        The fields of ``"tsv"`` are separated by tabs. ``"jsonl"`` has an object on each line; the keys of the first are
        the columns. ``"parquet"`` and ``"arrow"`` need pyarrow (extra ``manyclass[arrow]``). The columns of these three
        have names; a list of labels needs `label_separator`.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the features, unless a fitted `vectorizer` or its parameters give one.
    n_features : int >= 0, default=None
        The number of columns expected from a fitted vectorizer.
    task : {"auto", "classification", "multilabel", "regression"}, default="auto"
        The kind of targets, as for `read_svmlight`.
    text_column : str, int or list of them, default=None
        As `label_column`; several columns of texts are those of a new `TableEncoder`.
    label_column : str or int, default=None
        A name in the header, or an index from 0; a name implies that there is a header. By default those of `layout`,
        or else columns with certain names (text, document, ...; label, class, category, target, code, ...). In a table
        of two columns the other one has the labels; without a header, labels are the column with fewer different
        values, else that with shorter fields.
    number_columns, category_columns, ignore_columns : "auto", str or list of str or int, default=None
        See `TableEncoder`; names, or indices from 0. If there are no texts, the first two are ``"auto"`` by default.
    label_separator : str, default=None
        The separator of the labels of a row, if rows may have several or none.
    delimiter : str, default=None
        The character between fields. By default a comma, tab or semicolon, detected from the first line, or that of
        `layout` if there is no header.
    quote : str or None, default="auto"
        The quotation mark around fields that contain delimiters or line ends; None if quotes are part of the texts.
        ``"auto"`` is that of `layout`, or ``"``.
    header : bool, default=None
        Whether the first line has the names of the columns. By default as in `layout`, or else whether the line has one
        of the names above.
    layout : TableLayout, default=None
        The layout of a table read before (`Dataset.layout`), to read this one in the same way: columns have the same
        names or, without a header, the same indices, and are not detected. With ``with_labels=False`` a table that has
        only the texts can be read too.
    with_labels : bool, default=True
        Whether to read labels, if there are any.
    unlabeled : {"error", "skip"}, default="error"
        What to do with a row whose label is empty, without `label_separator`: raise an error, or leave the row out and
        count it in `Dataset.notes`.
    vectorizer : TextVectorizer, TableEncoder or mapping, default=None
        A fitted vectorizer or encoder is used as it is. Otherwise one is fitted to this table; the parameters in a
        mapping are those of a `TextVectorizer`.

    Returns
    -------
    Dataset
        Its `vectorizer` is the fitted one.

    Raises
    ------
    DataFormatError
        If a row is invalid; the message names the line.
    ValueError
        If an argument is invalid or does not fit the table.

    Warns
    -----
    UserWarning
        If no text has a term that the vectorizer knows.
    """
    checked_dtype(dtype, n_features, "error", task)
    if unlabeled not in ("error", "skip"):
        raise ValueError(f"unlabeled is {unlabeled!r}; expected 'error' or 'skip'")
    from .encoder import TableEncoder
    from .text import TextVectorizer  # imports scikit-learn

    own = vectorizer is None or isinstance(vectorizer, Mapping)
    options = dict(vectorizer or {}) if own else {}
    if own:
        vectorizer = TextVectorizer(**{"dtype": dtype, **options})
        vectorizer.check()  # before a long file is read
    assert isinstance(vectorizer, TextVectorizer | TableEncoder)
    fitted = vectorizer.__sklearn_is_fitted__()
    if n_features is not None and fitted and vectorizer.n_columns != n_features:
        raise ValueError(f"n_features is {n_features}; expected {vectorizer.n_columns}, the columns of the vectorizer")
    asked = {"number_columns": number_columns, "category_columns": category_columns, "ignore_columns": ignore_columns}
    kinds = {name: columns for name, columns in asked.items() if columns is not None}
    before = vectorizer.columns if isinstance(vectorizer, TableEncoder) and fitted else []
    texts_in = [] if text_column is None else _several(text_column)
    for name, columns in {**kinds, **({"text_column": text_column} if before or len(texts_in) > 1 else {})}.items():
        if not own and columns is not None:
            raise ValueError(f"{name} is {columns!r}, but the columns are those of the fit: leave {name} out")
    if quote == "auto":
        quote = '"' if layout is None else layout.quote
    if label_separator is None and layout is not None:
        label_separator = layout.label_separator
    given = delimiter
    typed = format in TYPED
    if typed and delimiter is not None:
        raise ValueError(f"delimiter is {delimiter!r}, but {os.fspath(path)} has the format {format!r}: leave it out")
    firsts = None
    with ExitStack() as stack:
        if typed:
            delimiter, header = ",", True
            records: Iterator[Record] = (Record(*row) for row in stack.enter_context(typed_rows(path, format)))
        else:
            stack.enter_context(long_fields)
            delimiter = delimiter_of(path, format, layout) if given is None else given
            firsts = FirstRows(header)
            records = stack.enter_context(closing(csv_records(path, delimiter, quote, firsts)))
        sample = list(islice(records, _SAMPLE))
        if not sample:
            raise DataFormatError(path, "it has no rows; expected a text and a label on each line")
        names: list[str] = sample[0].fields
        named = [each for columns in kinds.values() if columns != "auto" for each in _several(columns)]
        may_be_texts = not kinds and (bool(texts_in) or len(names) < 3)
        has_header = is_header(sample, header, [*texts_in, label_column, *named, *before], layout, may_be_texts)
        if firsts is not None:
            firsts.settle(has_header)
        given_texts = [position(path, "text_column", column, names, has_header) for column in texts_in]
        text = given_texts[0] if given_texts else None
        label = None if label_column is None else position(path, "label_column", label_column, names, has_header)
        called = names if has_header else [str(place) for place in range(len(names))]
        if before or isinstance(vectorizer, TableEncoder) or kinds or len(given_texts) > 1:
            if label is None and with_labels and layout is not None and layout.label_column is not None:
                label = again(path, "label_column", layout, names, has_header)
            elif label is None and layout is None and has_header:
                taken = [place for name in before for place in find_names(called, name)]
                label = known_label(names, [*taken, *given_texts])
            if layout is not None and not has_header and len(names) != layout.columns:
                what = (
                    f"{counted(len(names), 'column')} without a header; expected {layout.columns}, as in the training"
                )
                raise DataFormatError(path, f"{what} data", 1)
            as_table = True
        else:
            if layout is None:
                text, label = choose(path, sample, has_header, text, label, with_labels)
            else:
                if text is None:
                    text = again(path, "text_column", layout, names, has_header)
                    if given is None and not has_header and len(names) == 1 < layout.columns:
                        _check_single(path, sample, delimiter, layout)
                if label is None and with_labels and layout.label_column is not None:
                    label = again(path, "label_column", layout, names, has_header)
            as_table = text is None
        left = [] if label is None else [called[label]]  # is no feature, whether it is read or not
        if not with_labels:
            label = None
        if label is not None and label in (text, *given_texts):
            raise ValueError(f"text_column and label_column are both column {label}; expected two different columns")
        rows = chain(sample[has_header:], records)
        labels = LabelColumn(path, task, label_separator)
        blank = skipped = 0

        def whole() -> Iterator[Record]:
            nonlocal skipped
            for fields, line in rows:
                if len(fields) != len(names):
                    raise DataFormatError(
                        path, f"{len(fields)} fields; expected {len(names)}, as in the first line", line
                    )
                if label is not None:
                    value = fields[label]
                    value = as_text(path, names[label], value, label_separator, line) if typed else value
                    if label_separator is None and not value.strip():
                        if unlabeled == "error":
                            what = "the label is empty; expected one label for each row: add it, or leave out such rows"
                            raise DataFormatError(path, f"{what} with unlabeled='skip'", line)
                        skipped += 1
                        continue
                    labels.add(value, line)
                yield Record(fields, line)

        def texts() -> Iterator[str]:
            nonlocal blank
            assert text is not None
            for fields, line in whole():
                value: str = as_text(path, names[text], fields[text], label_separator, line) if typed else fields[text]
                blank += not value.strip()
                yield value

        if has_header and len(sample) == 1:
            raise DataFormatError(path, "it has no rows below the header; if there is no header, pass header=False", 1)
        gaps: list[str] = []
        if as_table:
            if own:
                if options and text is None:
                    raise ValueError(
                        f"vectorizer has {', '.join(options)} for texts, and no column has texts: pass "
                        "text_column=, or leave these options out"
                    )
                vectorizer = _blank_encoder(path, kinds, called, has_header, given_texts, left, vectorizer)
            assert isinstance(vectorizer, TableEncoder)
            X, gaps = _encoded(path, vectorizer, called, sample[has_header:], whole(), typed, fitted and not own)
        else:
            assert isinstance(vectorizer, TextVectorizer)
            try:
                X = vectorizer.transform(texts()) if fitted else vectorizer.fit_transform(texts())
            except DataFormatError:
                raise
            except ValueError as error:  # of scikit-learn: no text has a term
                raise DataFormatError(
                    path, f"the texts give no features ({error}): check text_column and the parameters of vectorizer"
                ) from error
    y, label_names = labels.targets()
    shown = [repr(name) for name in called] if has_header else called
    if isinstance(vectorizer, TableEncoder):
        notes = [_read_columns(vectorizer)]
    else:
        assert text is not None
        notes = [f"texts from column {shown[text]}"]
    if label is not None:
        notes[0] += f", labels from {shown[label]}"
    elif with_labels:
        notes[0] += ", no labels"
    if not has_header:
        notes[0] += "; no header: the first line is a row"
    if skipped:
        notes.append(f"{counted(skipped, 'row')} without a label left out")
    if isinstance(vectorizer, TableEncoder):
        unused = [name for name in called if name not in {*vectorizer.columns, *left}]
        notes += [f"not used: {listed(unused)}"] if unused and not before else []
        notes += gaps
    elif text is not None:
        unknown = int(np.count_nonzero(np.diff(X.indptr) == 0))
        if unknown:
            held = f"{counted(unknown, 'text')} of {X.shape[0]} without a term that the vectorizer knows"
            notes.append(f"{held}, {blank} of them empty" if blank else held)
        if not fitted and (vectorizer.kind, vectorizer.analyzer, vectorizer.ngram_range) == ("tfidf", "word", (1, 1)):
            share = _unseen(X)
            if share >= _UNSEEN:
                notes.append(
                    f"about {share:.0%} of the words of new texts will be unknown (as many words here occur in one "
                    "text only): n-grams of characters (analyzer char_wb, n-grams of 1 to 4) match parts of words"
                )
        if unknown == X.shape[0]:
            warnings.warn(
                f"no text in column {shown[text]} of {os.fspath(path)} has a term that the vectorizer knows: all rows "
                "are empty; expected texts like those of the training data: check text_column and the language",
                stacklevel=2,
            )
    found = TableLayout(
        header=has_header,
        columns=len(names),
        text_column=None if as_table or text is None else lasting(names, text, has_header),
        label_column=None if label is None else lasting(names, label, has_header),
        delimiter=delimiter,
        quote=quote,
        label_separator=label_separator,
    )
    return Dataset(X, y, label_names, os.path.basename(path), format, tuple(notes), vectorizer, layout=found)


def _several(columns: str | int | Sequence[str | int]) -> Sequence[str | int]:
    return [columns] if isinstance(columns, str | int) else columns


def _blank_encoder(
    path: StrPath,
    kinds: Mapping[str, str | Sequence[str | int]],
    called: list[str],
    has_header: bool,
    texts: list[int],
    left: list[str],
    vectorizer: Any,
) -> TableEncoder:
    """The encoder to fit, with the names of the columns that are given by name or index."""
    from .encoder import TableEncoder

    columns: dict[str, Any] = {}
    if not texts and not {"number_columns", "category_columns"} & {*kinds}:
        columns = {"number_columns": "auto", "category_columns": "auto"}
    else:
        columns = {"number_columns": None, "category_columns": None}
    for name, given in kinds.items():
        places = "auto" if given == "auto" else [position(path, name, x, called, has_header) for x in _several(given)]
        columns[name] = places if isinstance(places, str) else [called[place] for place in places]
    for name, used in columns.items():
        if name != "ignore_columns" and isinstance(used, list) and {*used} & {*left}:
            raise ValueError(f"column {left[0]!r} is named in {name} and has the labels: name it once")
    columns["ignore_columns"] = list({**dict.fromkeys(columns.get("ignore_columns", ())), **dict.fromkeys(left)})
    named = [called[place] for place in texts]
    return TableEncoder(**columns, text_column=named, vectorizer=vectorizer, dtype=vectorizer.dtype)


def _encoded(
    path: StrPath,
    encoder: TableEncoder,
    called: list[str],
    sample: list[Record],
    records: Iterator[Record],
    typed: bool,
    fitted: bool,
) -> tuple[Any, list[str]]:
    """The features of all rows, and notes on what is missing in them."""
    from ._table_rows import TableRows

    def some(name: str) -> list[Any]:
        place = called.index(name)
        return [record.fields[place] for record in sample if len(record.fields) == len(called)]

    try:
        rows = TableRows(encoder, called, None if fitted else some, typed=typed)
    except ValueError as error:
        raise DataFormatError(path, str(error), 1) from error
    lines, begin = array("q"), 0
    try:
        while part := list(islice(records, _ROWS)):
            begin = len(lines)
            lines.extend(record.line for record in part)
            rows.extend([record.fields for record in part])
        begin = 0
        X = rows.features()
    except BadValue as error:
        raise DataFormatError(path, error.what, lines[begin + error.index]) from None
    except DataFormatError:
        raise
    except ValueError as error:
        raise DataFormatError(path, str(error)) from error
    n = X.shape[0]
    for name, number, what in rows.gaps():
        if number == n and not what.startswith("without"):
            warnings.warn(
                f"no value in column {name!r} of {os.fspath(path)} is a category of the fit: expected values like "
                "those of the training data",
                stacklevel=3,
            )
    return X, [f"{counted(number, 'row')} of {n} {what} in column {name!r}" for name, number, what in rows.gaps()]


def _read_columns(encoder: TableEncoder) -> str:
    """The columns of each kind, for a note."""
    kinds = {
        "numbers": [*map(repr, encoder.number_columns_)],
        "categories": [
            f"{name!r} ({len(categories)})" for name, categories in zip(encoder.category_columns_, encoder.categories_)
        ],
        "texts": [*map(repr, encoder.text_columns_)],
    }
    return ", ".join(
        f"{kind} from {', '.join(names[:20])}{', ...' * (len(names) > 20)}" for kind, names in kinds.items() if names
    )

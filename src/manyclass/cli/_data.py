"""Reading DATA: the options, the file, and what is said of it."""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, count, seconds
from manyclass.cli._folders import refuse_other_features
from manyclass.cli._pipes import is_piped

if TYPE_CHECKING:
    from manyclass.distributed import Communicator
    from manyclass.io import Dataset, TableEncoder, TableLayout, TextVectorizer
    from manyclass.io.store.reading import StoreSpill
    from manyclass.models.base import Model

__all__ = [
    "FORMATS",
    "TABLES",
    "TASKS",
    "add_column_options",
    "add_file_options",
    "add_model_data_options",
    "add_vectorizer_options",
    "comma_separated",
    "describe",
    "one_label_a_row",
    "read_data",
    "read_for_model",
    "read_like",
    "stored_layout",
    "vectorizer_options",
]

# The names of the library, spelt out so that --help need not import it; a test holds the two together.
FORMATS = ("svmlight", "xmc", "npz", "npy", "csv", "tsv", "jsonl", "parquet", "arrow", "store")
TASKS = ("auto", "classification", "multilabel", "regression")

#: Formats of tables.
TABLES = ("csv", "tsv", "jsonl", "parquet", "arrow")


class _OneOrSeveral(argparse.Action):
    """Keeps the value of an option, or the list of its values if it is given several times."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not None:
            value = [*([before] if isinstance(before, str) else before), value]
        setattr(namespace, self.dest, value)


def add_file_options(parser: argparse.ArgumentParser, description: str | None = None) -> None:
    """Options on what the file is."""
    group = parser.add_argument_group("the file", description)
    group.add_argument("--format", choices=FORMATS, help="default: told from the content and the name")
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="labels of the rows: .npy, .npz (0/1 matrix) or text, a line each (default: in the file, or beside .npz "
        "and .npy as NAME.labels.npy and the like)",
    )
    group.add_argument("--label-separator", metavar="SEP", help="between the labels of a row, in tables and text files")
    base = group.add_mutually_exclusive_group()
    base.add_argument(
        "--zero-based", dest="zero_based", action="store_true", default=None, help="svmlight: features count from 0"
    )
    base.add_argument("--one-based", dest="zero_based", action="store_false", help="svmlight: features count from 1")
    group.add_argument(
        "--text-column",
        metavar="NAME",
        action=_OneOrSeveral,
        help="tables: the column of texts, a name or a number from 0; given again: one more, with its own terms",
    )
    group.add_argument("--label-column", metavar="NAME", help="tables: the column of labels")
    group.add_argument(
        "--unlabeled",
        choices=("error", "skip"),
        help="tables: a row without a label is an error (default), or is left out and counted",
    )
    group.add_argument("--delimiter", metavar="CHAR", help="tables: between fields (default: comma, tab or semicolon)")
    group.add_argument(
        "--quotes",
        action=argparse.BooleanOptionalAction,
        help="tables: quotation marks surround fields (default), or are part of the texts",
    )
    group.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="tables: the first line names the columns"
    )


def add_model_data_options(parser: argparse.ArgumentParser) -> None:
    """Options of data that a model reads."""
    add_file_options(parser, "By default a table has the header, the columns and the quotes of the one of the fit.")
    parser.add_argument(
        "--extra-features",
        choices=("error", "ignore"),
        default="error",
        help="what to do with features that the model does not know (default: %(default)s)",
    )


def add_column_options(parser: argparse.ArgumentParser) -> None:
    """Options on which columns of a table become features."""
    group = parser.add_argument_group(
        "columns to features (tables only)",
        "A table is one of texts if --text-column is given or recognized, and neither of the first two is given.\n"
        "Otherwise columns of numbers and others are told by the first 100 rows.",
    )
    group.add_argument(
        "--number-columns",
        type=_columns,
        metavar="A,B,..",
        help="standardized; a missing one is the mean. auto: whose values are numbers (default without texts)",
    )
    group.add_argument(
        "--category-columns",
        type=_columns,
        metavar="A,B,..",
        help="a feature for each category. auto: columns of other values (default without texts)",
    )
    group.add_argument(
        "--ignore-columns", type=_columns, metavar="A,B,..", help="left out by auto, besides id, idx and index"
    )


def add_vectorizer_options(parser: argparse.ArgumentParser) -> None:
    """Options on how the columns of a table become features."""
    add_column_options(parser)
    group = parser.add_argument_group("texts to features (tables only; stored with the model)")
    group.add_argument("--vectorizer", choices=("tfidf", "hashing"), help="default: tfidf")
    group.add_argument("--analyzer", choices=("word", "char", "char_wb"), help="what terms are made of (default: word)")
    group.add_argument("--ngrams", nargs=2, type=int, metavar=("MIN", "MAX"), help="length of terms (default: 1 1)")
    group.add_argument(
        "--min-df", type=_whole_or_part, metavar="N", help="leave out terms in fewer texts; 0.01: in fewer than 1%%"
    )
    group.add_argument("--hash-features", type=int, metavar="N", help="columns of the hashing vectorizer")
    group.add_argument("--case-sensitive", action="store_true", default=None, help="keep capital letters")
    group.add_argument("--raw-counts", action="store_true", default=None, help="do not damp counts by a logarithm")


def _columns(text: str) -> str | list[str]:
    """Names with commas between, in quotes where a name has commas."""
    return text if text == "auto" else next(csv.reader([text]))


_columns.__name__ = "names"


def comma_separated(names: Sequence[str]) -> str:
    """Names as `_columns` reads them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _whole_or_part(text: str) -> int | float:
    return float(text) if "." in text or "e" in text.lower() else int(text)


_whole_or_part.__name__ = "number"  # as argparse names it in an error


def vectorizer_options(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters of a `TextVectorizer` that were given."""
    given = {
        "kind": args.vectorizer,
        "analyzer": args.analyzer,
        "ngram_range": args.ngrams and tuple(args.ngrams),
        "min_df": args.min_df,
        "n_features": args.hash_features,
        "lowercase": args.case_sensitive and False,
        "sublinear_tf": args.raw_counts and False,
    }
    return {name: value for name, value in given.items() if value is not None}


def read_data(
    path: str,
    args: argparse.Namespace,
    screen: Screen,
    *,
    task: str = "auto",
    labels: str | None = None,
    dtype: str = "float32",
    n_features: int | None = None,
    extra_features: str = "error",
    zero_based: bool | None = None,
    vectorizer: TextVectorizer | TableEncoder | dict[str, Any] | None = None,
    layout: TableLayout | None = None,
    with_labels: bool = True,
    spill: StoreSpill | None = None,
    comm: Communicator | None = None,
) -> Dataset:
    """Read a file as the options of `add_file_options` ask for, and say what was read.

    With ``spill`` the rows may go there, and only the notes are said. With ``comm``, each process reads its rows.
    """
    from manyclass.io import detect_format, read
    from manyclass.kernels.jit import compile_clock

    started, compiled = time.perf_counter(), compile_clock.seconds
    format = args.format or detect_format(path)
    if vectorizer and format not in TABLES and isinstance(vectorizer, dict):
        raise CommandError(f"options on texts are for tables, and {path} is {format}: leave them out")
    tables: dict[str, Any] = {}
    if format in TABLES:
        tables = {"layout": layout, "with_labels": with_labels, "vectorizer": vectorizer}
    data: Dataset = read(
        path,
        format=format,
        dtype=dtype,
        n_features=n_features,
        extra_features=extra_features,  # type: ignore[arg-type]
        zero_based="auto" if zero_based is None else zero_based,
        task=task,  # type: ignore[arg-type]
        labels=labels,
        label_separator=args.label_separator,
        text_column=args.text_column,
        number_columns=getattr(args, "number_columns", None),
        category_columns=getattr(args, "category_columns", None),
        ignore_columns=getattr(args, "ignore_columns", None),
        label_column=args.label_column,
        delimiter={"\\t": "\t", "tab": "\t"}.get(args.delimiter, args.delimiter),
        quote={None: "auto", True: '"', False: None}[args.quotes],
        header=args.header,
        unlabeled=args.unlabeled or "error",
        spill=spill,
        comm=comm,
        **tables,
    )
    spent = time.perf_counter() - started - (compile_clock.seconds - compiled)
    if spill is None:
        whose = "" if comm is None else f"; rows of the first of {comm.size} processes, the others read theirs"
        screen.say(f"read {path} in {seconds(spent)} s: {describe(data)}{whose}")
    for note in data.notes:
        screen.say(f"  {note}")
    return data


def describe(data: Dataset) -> str:
    """The data set in half a line."""
    from manyclass.runtime.memory import human

    facts = data.summary()
    parts = [count(facts["rows"], "row"), count(facts["features"], "feature")]
    parts.append(f"{count(facts['non_zeros'])} non-zeros")
    if facts["targets"] == "classes":
        parts.append(count(facts["classes"], "class"))
    elif facts["targets"] == "labels":
        parts.append(f"{count(facts['classes'], 'label')}, {facts['labels_per_row']:.2f} a row")
    elif facts["targets"] == "numbers":
        parts.append(count(facts["outputs"], "output"))
    parts.append(human(facts["bytes"]))
    if facts["empty_rows"]:
        parts.append(f"{count(facts['empty_rows'], 'empty row')}")
    return f"{', '.join(parts)} ({data.format})"


def stored_layout(model: Model, path: str) -> TableLayout | None:
    """How the table of the fit was read; None if it was no table, or the model does not say."""
    from manyclass.io import TableLayout

    facts = model.record.get("data", {}).get("table")
    try:
        return None if facts is None else TableLayout.from_dict(facts)
    except ValueError as error:
        raise CommandError(f"{path}: {error}: fit the model again") from error


def read_for_model(path: str, args: argparse.Namespace, screen: Screen, model: Model, *, scored: bool) -> Dataset:
    """Read data for a model: its features, its vectorizer and, where it is to be ``scored``, its kind of labels."""
    facts = model.record.get("data", {})
    try:
        vectorizer = model.text_vectorizer
    except ValueError as error:
        raise CommandError(f"{args.model}: {error}: fit the model again") from error
    return read_like(
        path,
        args,
        screen,
        n_features=model.n_features,
        task=model.task if scored else None,
        format=facts.get("format"),
        zero_based=facts.get("zero_based"),
        vectorizer=vectorizer,
        layout=stored_layout(model, args.model),
        dtype=model.dtype.name,
        labels=args.labels,
    )


def read_like(
    path: str,
    args: argparse.Namespace,
    screen: Screen,
    *,
    n_features: int,
    task: str | None,
    format: str | None,
    zero_based: bool | None,
    vectorizer: TextVectorizer | TableEncoder | None,
    layout: TableLayout | None,
    dtype: str,
    labels: str | None,
) -> Dataset:
    """Read data that must be like those of a fit, and say so where they are not.

    Parameters
    ----------
    path, args, screen, labels
        As for `read_data`.
    n_features, format, zero_based, vectorizer, layout, dtype
        Of the data of the fit.
    task : str or None
        That of the model; None if labels do not matter.
    """
    from manyclass.io import DataFormatError, detect_format

    # Text from a pipe has no name to tell its format.
    as_before = vectorizer is not None and is_piped(path, screen)
    try:
        own = args.format or (_piped_table(path, format) if as_before and format in TABLES else detect_format(path))
    except DataFormatError as error:
        if vectorizer is None or hasattr(vectorizer, "columns"):
            raise
        raise CommandError(f"{error}; one text a line is read with --format tsv --no-header") from error
    if own in TABLES and vectorizer is None:
        raise CommandError(f"{path} is a table, but the model has no vectorizer: fit it on a table, or give vectors")
    if own in TABLES and layout is None and args.text_column is None and not hasattr(vectorizer, "columns"):
        screen.warn(
            f"the model does not say which column its texts were in: guessed in {path} (name it: --text-column)"
        )
    if args.zero_based is not None:
        zero_based = args.zero_based
    elif own != "svmlight" or format not in ("svmlight", "store"):
        zero_based = None
    try:
        found = read_data(
            path,
            argparse.Namespace(**{**vars(args), "format": own}),
            screen,
            task="auto" if task is None else _reading(task, own),
            labels=labels,
            dtype=dtype,
            n_features=n_features,
            extra_features=args.extra_features,
            zero_based=zero_based,
            vectorizer=vectorizer,
            layout=layout,
            with_labels=task is not None,
        )
    except DataFormatError as error:
        if "is beyond" not in error.what and f"expected {n_features}" not in error.what:
            raise
        what = f"{error.what}; the model has {count(n_features, 'feature')}"
        if args.extra_features == "error":
            what += ", and --extra-features ignore leaves others out"
        raise DataFormatError(error.path, what, error.line) from error
    if own == "store":
        refuse_other_features(path, found.vectorizer, vectorizer)
    return found


def _piped_table(path: str, format: str) -> str:
    """The format of a table without a name: what its content tells, or that of the fit."""
    from manyclass.io import DataFormatError, detect_format

    with suppress(DataFormatError):
        found = detect_format(path)
        if found in TABLES:
            return found
    return format if format in ("csv", "tsv") else "csv"


def _reading(task: str, format: str) -> str:
    """How to read labels for a model: as names, one a row; but a 0/1 matrix of labels says itself what it is."""
    if task in ("multilabel", "regression"):
        return task
    return "auto" if format in ("npz", "npy") else "classification"


def one_label_a_row(data: Dataset) -> Dataset | None:
    """A data set of label sets as one of classes, if each row has exactly one label."""
    import numpy as np

    if not data.multilabel or not np.all(np.diff(data.y.indptr) == 1):
        return None
    names = np.arange(data.y.shape[1]) if data.label_names is None else data.label_names
    return replace(data, y=names[data.y.indices], label_names=None)

"""``manyclass predict``: a line of labels for each row of data."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, check_output, count, pieces
from manyclass.cli._data import add_model_data_options, read_for_model
from manyclass.cli._folders import is_store, most_rows, store_rows

if TYPE_CHECKING:
    from manyclass.models.base import Model

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL DATA..."
HELP = "predict with a model"
DESCRIPTION = """\
Write one line for each row of DATA. Its label; with --top-k or --proba  LABEL:SCORE  pairs, best first, with tabs
between. A model of label sets gives all labels with a positive score, with tabs between. A regression gives numbers.
With --to, or an -o of that suffix, rows of JSON lines, CSV or Parquet: label, or labels and scores, or value.
Labels in DATA, if there are any, do not matter. Tabs and line ends within a label are written as blanks."""
EPILOG = """\
examples:
  manyclass predict codes.model new.svm > labels.txt
  manyclass predict codes.model new.svm --top-k 5 -o best.tsv
  manyclass predict tickets.model new.csv --proba --top-k 3
  manyclass predict tickets.model new.parquet --top-k 3 -o best.parquet
  manyclass predict tickets.model new-*.parquet -o labels.txt
  zcat new.csv.gz | manyclass predict tickets.model - > labels.txt
"""

#: Suffix of the file of predictions -> its form.
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}

_BREAKS = {ord(character): " " for character in "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", nargs="+", help="data of the same kind as those of the fit")
    parser.add_argument("--top-k", type=int, metavar="K", help="the K best labels and their scores")
    parser.add_argument("--proba", action="store_true", help="probabilities as scores")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write to (default: standard output)")
    parser.add_argument(
        "--to",
        choices=("text", "jsonl", "csv", "parquet"),
        help="form of the predictions (default: told from the name of FILE, .jsonl, .csv or .parquet; else text)",
    )
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Predict."""
    from manyclass import load
    from manyclass.io.typed import pyarrow
    from manyclass.runtime.files import atomic_path
    from manyclass.runtime.threads import resolve_n_jobs

    if args.output == "-":
        args.output = None
    check_output("-o", args.output, args.model, args.data)
    resolve_n_jobs(args.n_jobs)
    to = args.to or _SUFFIXES.get(os.path.splitext(args.output or "")[1].lower(), "text")
    if to == "parquet":
        if args.output is None:
            raise CommandError("--to parquet needs the name of a file: give -o FILE.parquet, or take --to jsonl")
        pyarrow("--to parquet")
    model = load(args.model)
    _check(args, model)
    if to == "csv" and model.task == "multilabel" and args.top_k is None:
        raise CommandError(
            "sets of labels differ in size, and CSV has one number of columns: take --to jsonl or parquet"
        )
    X: Any
    if is_store(args.data):
        X = store_rows(args.data, model.n_features, model.text_vectorizer)
    else:
        X = read_for_model(args.data, args, screen, model, scored=False).X
    rows = _rows(model, X, args)
    if args.output is None:
        sys.stdout.writelines(_written(to, rows, model, args))
        return 0
    with atomic_path(args.output) as temporary:
        if to == "parquet":
            _write_parquet(rows, model, args, temporary)
        else:
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(_written(to, rows, model, args))
    screen.say(f"wrote {args.output}: {count(X.shape[0], 'line')}")
    return 0


def _check(args: argparse.Namespace, model: Model) -> None:
    """Refuse what the model cannot give, before the data are read."""
    if model.classes is None:
        if args.top_k is not None or args.proba:
            raise CommandError(f"{args.model} predicts numbers: --top-k and --proba are for classes: leave them out")
        return
    if args.top_k is not None and not 1 <= args.top_k <= len(model.classes):
        raise CommandError(f"--top-k must be 1 to {len(model.classes)}, the classes of the model, got {args.top_k}")
    if args.proba and not model.gives_probabilities:
        loss = model.parameters.get("loss", "its loss")
        raise CommandError(
            f"{args.model} has no probabilities ({loss} gives none): give it some by manyclass calibrate on held-out "
            "rows, fit --loss multinomial or log_loss, or leave out --proba"
        )


def _rows(model: Model, X: Any, args: argparse.Namespace) -> Iterator[tuple[list[Any], list[Any] | None]]:
    """Labels (or numbers) and scores of each row, predicted some rows at a time: no array of all rows and classes."""
    whole_rows = args.proba or model.task == "multilabel"
    for rows in pieces(X.shape[0], model.n_outputs if whole_rows else args.top_k or 1, most_rows(X)):
        part = X[rows]
        if model.classes is None:
            yield from ((list(row), None) for row in model.scores(part, args.n_jobs))
        elif model.task == "multilabel" and args.top_k is None:
            yield from _label_sets(model, part, args)
        else:
            ranked = model.topk_probabilities if args.proba else model.topk
            labels, scores = ranked(part, args.top_k or 1, args.n_jobs)
            shown = args.top_k is not None or args.proba
            yield from ((row, list(values) if shown else None) for row, values in zip(labels.tolist(), scores))


def _label_sets(model: Model, X: Any, args: argparse.Namespace) -> Iterator[tuple[list[Any], list[Any] | None]]:
    """The labels with a positive score of each row, best first."""
    import numpy as np

    scores = model.scores(X, args.n_jobs)
    shown = model.probabilities(X, args.n_jobs) if args.proba else scores
    classes = np.asarray(model.classes)
    for row, values in zip(scores, shown):
        chosen = np.flatnonzero(row > model.threshold)
        chosen = chosen[np.argsort(-row[chosen], kind="stable")]
        yield classes[chosen].tolist(), list(values[chosen]) if args.proba else None


# --- how they are written -------------------------------------------------------------------------------------------


def _written(
    to: str, rows: Iterable[tuple[list[Any], list[Any] | None]], model: Model, args: argparse.Namespace
) -> Iterator[str]:
    """The lines of a form of text."""
    if to == "text":
        return _lines(rows)
    objects = _objects(rows, model, args)
    return _csv(objects) if to == "csv" else (json.dumps(found, ensure_ascii=False) + "\n" for found in objects)


def _lines(rows: Iterable[tuple[list[Any], list[Any] | None]]) -> Iterator[str]:
    """A line for each row, with tabs between labels."""
    for labels, scores in rows:
        cells = [_label(label) for label in labels]
        if scores is not None:
            cells = [f"{cell}:{_text(score)}" for cell, score in zip(cells, scores)]
        yield "\t".join(cells) + "\n"


def _several(model: Model, args: argparse.Namespace) -> bool:
    """Whether a row has a list of predictions."""
    return args.top_k is not None or model.task == "multilabel" or (model.classes is None and model.n_outputs > 1)


def _objects(
    rows: Iterable[tuple[list[Any], list[Any] | None]], model: Model, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """An object for each row: "label" or "labels", with "score" or "scores"; or "value" or "values"."""
    several = _several(model, args)
    what = "value" if model.classes is None else "label"
    for labels, scores in rows:
        found = {what: [float(str(x)) for x in labels] if model.classes is None else labels}
        if scores is not None:
            found["score"] = [float(_text(score)) for score in scores]
        yield {f"{name}s": x for name, x in found.items()} if several else {name: x[0] for name, x in found.items()}


def _csv(objects: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A header and a line for each row; the members of a list have columns of their own, label_1, label_2, ..."""
    import csv
    import io

    line = io.StringIO(newline="")
    writer = csv.writer(line, lineterminator="\n")
    for number, found in enumerate(objects):
        flat = {name.removesuffix("s"): x if isinstance(x, list) else [x] for name, x in found.items()}
        if not number:
            one = all(not isinstance(x, list) for x in found.values())
            writer.writerow([name if one else f"{name}_{k + 1}" for name, x in flat.items() for k in range(len(x))])
        writer.writerow([x for values in flat.values() for x in values])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _write_parquet(
    rows: Iterable[tuple[list[Any], list[Any] | None]], model: Model, args: argparse.Namespace, path: Path
) -> None:
    """Some rows at a time. The model tells the types of the columns: the first rows may have no labels."""
    from itertools import islice

    from manyclass.io.typed import pyarrow

    arrow = pyarrow("a Parquet file")
    from pyarrow.parquet import ParquetWriter

    if model.classes is None:
        kinds = {"value": arrow.float64()}
    else:
        kinds = {"label": arrow.array(model.classes[:1].tolist()).type}
        if args.top_k is not None or args.proba:
            kinds["score"] = arrow.float64()
    if _several(model, args):
        kinds = {f"{name}s": arrow.list_(kind) for name, kind in kinds.items()}
    objects, schema = _objects(rows, model, args), arrow.schema(kinds)
    with ParquetWriter(path, schema) as writer:
        while part := list(islice(objects, 1 << 16)):
            writer.write_table(arrow.Table.from_pylist(part, schema=schema))


def _label(label: Any) -> str:
    return str(label).translate(_BREAKS)


def _text(value: Any) -> str:
    """The shortest digits that give the number back, in its own precision."""
    return str(value)

"""``manyclass predict``: a line of labels for each row of data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, check_output, count, pieces
from manyclass.cli._data import add_model_data_options, read_for_model
from manyclass.cli._folders import is_store, most_rows, store_rows

if TYPE_CHECKING:
    from manyclass.models.base import Model

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL DATA"
HELP = "predict with a model"
DESCRIPTION = """\
Write one line for each row of DATA. Its label; with --top-k or --proba  LABEL:SCORE  pairs, best first, with tabs
between. A model of label sets gives all labels with a positive score, with tabs between. A regression gives numbers.
Labels in DATA, if there are any, do not matter. Tabs and line ends within a label are written as blanks."""
EPILOG = """\
examples:
  manyclass predict codes.model new.svm > labels.txt
  manyclass predict codes.model new.svm --top-k 5 -o best.tsv
  manyclass predict tickets.model new.csv --proba --top-k 3
  zcat new.csv.gz | manyclass predict tickets.model - > labels.txt
"""

_BREAKS = {ord(character): " " for character in "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", help="data of the same kind as those of the fit")
    parser.add_argument("--top-k", type=int, metavar="K", help="the K best labels and their scores")
    parser.add_argument("--proba", action="store_true", help="probabilities as scores")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write to (default: standard output)")
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Predict."""
    from manyclass import load
    from manyclass.runtime.files import atomic_path
    from manyclass.runtime.threads import resolve_n_jobs

    if args.output == "-":
        args.output = None
    check_output("-o", args.output, args.model, args.data)
    resolve_n_jobs(args.n_jobs)
    model = load(args.model)
    _check(args, model)
    X: Any
    if is_store(args.data):
        X = store_rows(args.data, model.n_features, args)
    else:
        X = read_for_model(args.data, args, screen, model, scored=False).X
    lines = _lines(model, X, args)
    if args.output is None:
        sys.stdout.writelines(lines)
        return 0
    with atomic_path(args.output) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
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
    if args.proba and model.link == "identity":
        loss = model.parameters.get("loss", "its loss")
        raise CommandError(
            f"{args.model} has no probabilities ({loss} gives none): fit --loss multinomial or log_loss, or leave out "
            "--proba"
        )


def _lines(model: Model, X: Any, args: argparse.Namespace) -> Iterator[str]:
    """The lines, predicted some rows at a time, so that no array of all rows and classes is made."""
    whole_rows = args.proba or model.task == "multilabel"
    for rows in pieces(X.shape[0], model.n_outputs if whole_rows else args.top_k or 1, most_rows(X)):
        part = X[rows]
        if model.classes is None:
            numbers = model.scores(part, args.n_jobs)
            cells = [[_text(value) for value in row] for row in numbers]
        elif model.task == "multilabel" and args.top_k is None:
            cells = _label_sets(model, part, args)
        else:
            cells = _best(model, part, args)
        yield from ("\t".join(row) + "\n" for row in cells)


def _best(model: Model, X: Any, args: argparse.Namespace) -> list[list[str]]:
    """The best labels of each row, with what they score if that was asked for."""
    ranked = model.topk_probabilities if args.proba else model.topk
    labels, scores = ranked(X, args.top_k or 1, args.n_jobs)
    if args.top_k is None and not args.proba:
        return [[_label(label)] for label in labels[:, 0].tolist()]
    return [
        [f"{_label(label)}:{_text(score)}" for label, score in zip(names, row)]
        for names, row in zip(labels.tolist(), scores)
    ]


def _label_sets(model: Model, X: Any, args: argparse.Namespace) -> list[list[str]]:
    """The labels with a positive score of each row, best first."""
    import numpy as np

    scores = model.scores(X, args.n_jobs)
    shown = model.probabilities(X, args.n_jobs) if args.proba else scores
    classes = np.asarray(model.classes)
    cells = []
    for row, values in zip(scores, shown):
        chosen = np.flatnonzero(row > model.threshold)
        chosen = chosen[np.argsort(-row[chosen], kind="stable")]
        labels = [_label(label) for label in classes[chosen].tolist()]
        cells.append([f"{name}:{_text(values[c])}" for name, c in zip(labels, chosen)] if args.proba else labels)
    return cells


def _label(label: Any) -> str:
    return str(label).translate(_BREAKS)


def _text(value: Any) -> str:
    """The shortest digits that give the number back, in its own precision."""
    return str(value)
